// The page: loads the files beside it once, then asks the network for nothing. Names of items are shown as text, whatever
// they contain.
const FORMAT = "fedrecgel-bundle", VERSION = 1, STEP = 12, MATCHES = 8, STARTERS = 6;
const LOCKED = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'";

const $ = (id) => document.getElementById(id);
const page = { ids: [], titles: null, plain: [], history: [], shown: STEP, turn: 0, before: new Map(), key: "", worker: null, reason: "" };

/** An element with text and children; nothing is ever parsed as HTML. */
function make(tag, { text, kind, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const nameOf = (item) => page.titles?.[item] ?? `Item ${page.ids[item]}`;
const simplify = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const megabytes = (bytes) => bytes < 1e5 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

function complain(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = false;
}

// Loading

async function fetchBytes(name) {
  const answer = await fetch(name, { credentials: "omit", referrerPolicy: "no-referrer" });
  if (!answer.ok) throw new Error(`The file ${name} could not be loaded (${answer.status}). Copy the folder again.`);
  return answer.arrayBuffer();
}

/** A file, as long as the manifest says and, where the browser can tell, with its checksum. */
async function fetchChecked(name, about) {
  const bytes = await fetchBytes(name);
  let same = bytes.byteLength === about.bytes;
  if (same && globalThis.crypto?.subtle) { // missing on plain http from another machine
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    same = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") === about.sha256;
  }
  if (!same) throw new Error(`The file ${name} is damaged. Copy the folder again.`);
  return bytes;
}

async function load() {
  const manifest = JSON.parse(new TextDecoder().decode(await fetchBytes("manifest.json")));
  if (manifest.format !== FORMAT) throw new Error(`manifest.json should describe a ${FORMAT}. Found something else.`);
  if (manifest.version !== VERSION) {
    throw new Error(`This page reads version ${VERSION} of exported models. Found version ${manifest.version}. Export the run again.`);
  }
  const names = Object.values(manifest.tables).flatMap(({ file, scales }) => scales ? [file, scales] : [file]);
  const wanted = ["items.json", ...names];
  const found = await Promise.all(wanted.map((name) => fetchChecked(name, manifest.files[name])));
  const buffers = Object.fromEntries(wanted.map((name, i) => [name, found[i]]));
  const items = JSON.parse(new TextDecoder().decode(buffers["items.json"]));
  if (items.ids.length !== manifest.n_items) throw new Error("items.json and manifest.json belong to different models.");
  delete buffers["items.json"];
  Object.assign(page, { ids: items.ids, titles: items.titles, key: `fedrecgel:${manifest.files["items.json"].sha256}` });
  page.plain = page.ids.map((id, item) => simplify(page.titles ? page.titles[item] : String(id)));
  const counts = manifest.tables.counts && new Float32Array(buffers[manifest.tables.counts.file].slice(0));
  const bytes = found.reduce((sum, { byteLength }) => sum + byteLength, 0); // before they move to the worker
  await startWorker(manifest, buffers);
  lock();
  tellAbout(manifest, bytes, found.length + 1);
  showStarters(counts);
}

function startWorker(manifest, buffers) {
  page.worker = new Worker("worker.js", { type: "module" });
  return new Promise((resolve, reject) => {
    page.worker.onerror = () => reject(new Error("The model could not be started in this browser."));
    page.worker.onmessage = ({ data }) => {
      if (data.kind === "failed") { complain(data.message); reject(new Error(data.message)); }
      if (data.kind === "loaded") { page.reason = data.reason; resolve(); }
      if (data.kind === "ranked" && data.turn === page.turn) { show(data); settled(); }
    };
    page.worker.postMessage({ kind: "load", manifest, buffers }, Object.values(buffers));
  });
}

/** From here on the browser refuses every request of this page. */
function lock() {
  document.head.append(make("meta", { "http-equiv": "Content-Security-Policy", content: LOCKED }));
  const loaded = performance.getEntriesByType("resource").length;
  const count = () => { $("requests").textContent = performance.getEntriesByType("resource").length - loaded; };
  new PerformanceObserver(count).observe({ type: "resource" });
}

function tellAbout(manifest, bytes, files) {
  $("loaded").textContent = `${megabytes(bytes)} in ${files} files`;
  $("state").textContent = "Runs on this device";
  $("state").classList.add("ready");
  const sent = manifest.leaves_device.training.join(", ");
  $("made").append(
    make("p", { text: `Method ${manifest.method}, ${manifest.n_items.toLocaleString("en")} items, data set ${manifest.made.dataset}, tables in ${manifest.precision}.` }),
    make("p", { text: `Training was another matter: the devices that took part sent ${sent}. This page takes no part in it.` }),
  );
}

// The own history

function remember() {
  const kept = page.history.map((item) => page.ids[item]);
  try {
    if (kept.length) localStorage.setItem(page.key, JSON.stringify(kept));
    else localStorage.removeItem(page.key);
  } catch {
    $("kept").textContent = "this tab only: storage is switched off";
  }
}

function recall() {
  const number = new Map(page.ids.map((id, item) => [id, item]));
  try {
    const kept = JSON.parse(localStorage.getItem(page.key) ?? "[]");
    page.history = (Array.isArray(kept) ? kept : []).filter((id) => number.has(id)).map((id) => number.get(id));
  } catch {
    page.history = [];
  }
}

function change(history) {
  page.history = history;
  page.shown = STEP;
  remember();
  refresh();
}

const add = (item) => { if (!page.history.includes(item)) change([...page.history, item]); };

function refresh() {
  showPicks();
  const some = page.history.length > 0;
  $("clear").hidden = !some;
  $("empty").hidden = some;
  $("starters").hidden = some;
  page.turn += 1;
  $("list").setAttribute("aria-busy", "true");
  if (some) {
    page.worker.postMessage({ kind: "rank", turn: page.turn, history: page.history, k: page.shown });
    return;
  }
  $("list").replaceChildren();
  $("more").hidden = true;
  $("speed").textContent = $("status").textContent = "";
  page.before = new Map();
  settled();
}

/** What is shown is that of the latest change. */
function settled() { $("list").setAttribute("aria-busy", "false"); }

function showPicks() {
  $("picks").replaceChildren(...page.history.map((item) => {
    const remove = make("button", { type: "button", text: "×", "aria-label": `Remove ${nameOf(item)}` });
    remove.onclick = () => { change(page.history.filter((other) => other !== item)); $("search").focus(); };
    return make("li", { "data-item": page.ids[item] }, make("span", { text: nameOf(item) }), remove);
  }));
}

/** What many have, where the model knows it; else the beginning of the catalogue. */
function showStarters(counts) {
  const order = page.ids.map((_, item) => item);
  if (counts) order.sort((a, b) => counts[b] - counts[a] || a - b);
  $("starters").querySelector(".chips").replaceChildren(...order.slice(0, STARTERS).map((item) => {
    const button = make("button", { type: "button", text: nameOf(item) });
    button.onclick = () => { add(item); $("search").focus(); };
    return button;
  }));
}

// Recommendations

function show({ picks, milliseconds }) {
  const scores = picks.map(({ score }) => score), [high, low] = [scores[0], scores.at(-1)];
  const cards = picks.map((pick, place) => card(pick, place, high > low ? (pick.score - low) / (high - low) : 1));
  $("list").replaceChildren(...cards);
  $("more").hidden = picks.length < page.shown;
  $("speed").textContent = `computed here in ${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  $("status").textContent = picks.length ? `${picks.length} recommendations. First: ${nameOf(picks[0].item)}.` : "You have picked everything there is.";
  page.before = new Map(picks.map(({ item }, place) => [item, place]));
}

function card({ item, score, because }, place, strength) {
  const title = make("h3", { text: nameOf(item) });
  const old = page.before.get(item), fresh = page.before.size > 0 && old === undefined;
  if (fresh) title.append(make("span", { kind: "moved", text: "new" }));
  else if (old > place) title.append(make("span", { kind: "moved", text: `▲ ${old - place}`, "aria-label": `up by ${old - place}` }));
  const button = make("button", { type: "button", kind: "add", text: "+ Like", "aria-label": `Add ${nameOf(item)} to your picks` });
  button.onclick = () => { add(item); $("list").focus({ preventScroll: true }); };
  const body = make("div", {}, title, meter(0.06 + 0.94 * strength), why(because));
  const number = make("span", { kind: "rank", text: String(place + 1), "aria-hidden": "true" });
  const found = make("li", { kind: fresh || page.before.size === 0 ? "card fresh" : "card", "data-item": page.ids[item], "data-score": score }, number, body, button);
  const told = because.filter(({ share }) => share >= 0.005);
  if (page.reason === "because" && told.length > 1) found.append(details(told));
  return found;
}

function meter(part) {
  const bar = make("i");
  bar.style.width = `${(100 * part).toFixed(1)}%`;
  return make("div", { kind: "meter", "aria-hidden": "true" }, bar);
}

function why(because) {
  const line = make("p", { kind: "why" });
  if (page.reason === "popular") line.append("Popular with everyone; your picks only keep it from repeating them.");
  else if (!because.length) line.append("Nothing you picked speaks for it directly.");
  else {
    line.append(page.reason === "close" ? "Close to " : "Because you picked ");
    because.slice(0, 2).forEach(({ item }, place) => line.append(...(place ? [" and "] : []), make("b", { text: nameOf(item) })));
  }
  return line;
}

function details(because) {
  const rows = because.slice(0, 5).map(({ item, share }) => make("li", {},
    make("span", { text: nameOf(item) }), meter(share), make("em", { text: `${Math.round(100 * share)}%` })));
  return make("details", {}, make("summary", { text: "Why this?" }), make("ul", { kind: "shares" }, ...rows));
}

// Search, as a combobox: the focus stays in the field, arrows move through the matches

let matches = [], active = -1;

function search() {
  const words = simplify($("search").value).split(/\s+/).filter(Boolean);
  if (!words.length) return close();
  const mine = new Set(page.history), found = [];
  for (let item = 0; item < page.plain.length; item++) {
    const text = page.plain[item];
    if (mine.has(item) || !words.every((word) => text.includes(word))) continue;
    const start = text.startsWith(words[0]) ? 0 : ` ${text}`.includes(` ${words[0]}`) ? 1 : 2;
    found.push({ item, order: start * 1e6 + text.length });
  }
  found.sort((a, b) => a.order - b.order || a.item - b.item);
  matches = found.slice(0, MATCHES).map(({ item }) => item);
  $("found").replaceChildren(...matches.map(option));
  if (!matches.length) $("found").append(make("li", { kind: "none", text: "No title matches.", role: "option", "aria-disabled": "true" }));
  $("found").hidden = false;
  $("search").setAttribute("aria-expanded", "true");
  point(matches.length ? 0 : -1);
}

function option(item, place) {
  const row = make("li", { role: "option", id: `match-${place}`, "aria-selected": "false", text: nameOf(item) });
  if (page.titles) row.append(make("small", { text: String(page.ids[item]) }));
  row.onpointerdown = (event) => event.preventDefault(); // keep the focus in the field
  row.onclick = () => choose(place);
  return row;
}

function point(place) {
  active = place;
  [...$("found").children].forEach((row, at) => row.setAttribute("aria-selected", String(at === place)));
  if (place >= 0) {
    $("search").setAttribute("aria-activedescendant", `match-${place}`);
    $("found").children[place].scrollIntoView({ block: "nearest" });
  } else $("search").removeAttribute("aria-activedescendant");
}

function close() {
  matches = [];
  $("found").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  point(-1);
}

function choose(place) {
  const item = matches[place];
  $("search").value = "";
  close();
  add(item);
}

function steer(event) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (move && matches.length) {
    event.preventDefault();
    point((active + move + matches.length) % matches.length);
  } else if (event.key === "Enter" && active >= 0) {
    event.preventDefault();
    choose(active);
  } else if (event.key === "Escape") close();
}

// Light, dark, or as the system has it

function theme(chosen) {
  if (chosen === "Auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen.toLowerCase();
  $("theme").textContent = `Theme: ${chosen.toLowerCase()}`;
  $("theme").dataset.chosen = chosen;
}

function nextTheme() {
  const all = ["Auto", "Light", "Dark"];
  theme(all[(all.indexOf($("theme").dataset.chosen) + 1) % all.length]);
}

async function start() {
  theme("Auto");
  $("theme").onclick = nextTheme;
  try {
    await load();
  } catch (error) {
    complain(error.message);
    $("state").textContent = "Not loaded";
    return;
  }
  $("search").disabled = false;
  if (!page.titles) $("search").placeholder = "Search by id";
  $("search").oninput = search;
  $("search").onkeydown = steer;
  $("search").onblur = close;
  $("clear").onclick = () => { change([]); $("search").focus(); };
  $("more").onclick = () => { page.shown += STEP; refresh(); };
  addEventListener("storage", ({ key }) => { if (key === page.key || key === null) { recall(); refresh(); } }); // another tab
  recall();
  refresh();
  document.documentElement.dataset.ready = "";
}

start();
