"use strict";
(() => {
  const data = JSON.parse(document.getElementById("figure-data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const tip = document.getElementById("tip");
  const redraws = [];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (number) => number === null ? "var(--reference)" : `var(--c${number % 14})`;
  const node = (tag, attributes, parent, text) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) key === "style" ? made.style.cssText = value : made.setAttribute(key, value);  // the page's policy forbids the attribute
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };
  const svg = (tag, attributes, parent, text) => {
    const made = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };

  // --- hover -----------------------------------------------------------------------------------------------------
  function showTip(event, title, lines) {
    tip.replaceChildren();
    node("b", {}, tip, title);
    for (const line of lines) {
      const row = node("div", {}, tip);
      if (line.colour) node("i", { style: `background:${line.colour}` }, row);
      node("span", {}, row, line.name);
      if (line.value) node("strong", {}, row, line.value);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 16 : event.clientX + 16;
    tip.style.left = `${Math.max(6, x)}px`;
    tip.style.top = `${Math.max(6, Math.min(event.clientY - box.height / 2, innerHeight - box.height - 6))}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  // --- scales ----------------------------------------------------------------------------------------------------
  function ticks(low, high, count, whole) {
    const raw = (high - low) / Math.max(1, count) || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(whole ? 1 : 0, (whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map((k) => k * power).find((k) => k >= raw - 1e-12));
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
    return found;
  }
  function decimals(marks) {
    const step = marks.length < 2 ? Math.abs(marks[0]) || 1 : Math.abs(marks[1] - marks[0]);
    for (let digits = 0; digits < 7; digits++) if (Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6 * step * 10 ** digits) return digits;
    return 7;
  }
  function powersOfTen(values) {  // a logarithmic axis: places are exponents, names are numbers
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values)), found = [];
    for (let power = Math.floor(low); power <= high; power++) for (const k of high - low < 3 ? [1, 2, 5] : [1]) {
      const place = power + Math.log10(k);
      if (place >= low && place <= high) found.push([place, String(+(k * 10 ** power).toPrecision(3))]);
    }
    return { xTicks: found, xName: (place) => (10 ** place).toPrecision(3) };
  }
  function extent(values, pad) {
    const known = values.filter(Number.isFinite);
    let low = Math.min(...known), high = Math.max(...known);
    if (low === high) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
    const room = (high - low) * pad;
    return [low - room, high + room];
  }
  const watchWidth = (place, draw) => {
    let width = 0;
    const again = () => { width = place.clientWidth; if (width > 0) draw(width); };
    new ResizeObserver(() => { if (Math.abs(place.clientWidth - width) > 1) again(); }).observe(place);
    redraws.push(again);
    again();
  };

  // --- line chart: one or two vertical axes, bands, dashed references ----------------------------------------------
  function lineChart(place, legend, make) {
    const hidden = new Set();
    const draw = (width) => {
      const chart = make();
      const two = chart.right !== undefined;
      const height = Math.max(width < 420 ? 200 : 240, Math.min(380, width * 0.5));
      const box = { left: 54, right: two ? 54 : 16, top: 26, bottom: 42 };
      const inner = { w: width - box.left - box.right, h: height - box.top - box.bottom };
      place.replaceChildren();
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": chart.label }, place);
      const seen = chart.series.filter((s) => !hidden.has(s.name));
      const x0 = Math.min(...chart.series.flatMap((s) => s.x)), x1 = Math.max(...chart.series.flatMap((s) => s.x));
      const X = (x) => box.left + (x1 === x0 ? 0.5 : (x - x0) / (x1 - x0)) * inner.w;
      const side = (name) => {
        const own = seen.filter((s) => (s.axis || "left") === name);
        const lines = (chart.references || []).filter((r) => (r.axis || "left") === name && !hidden.has(r.name));
        const values = [...own.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]), ...lines.map((r) => r.y)];
        const [low, high] = values.length ? extent(values, 0.08) : [0, 1];
        return { low, high, Y: (y) => box.top + (1 - (y - low) / (high - low)) * inner.h };
      };
      const axes = { left: side("left"), right: two ? side("right") : null };
      const marks = ticks(axes.left.low, axes.left.high, 5), digits = decimals(marks);
      for (const at of marks) {
        svg("line", { x1: box.left, x2: box.left + inner.w, y1: axes.left.Y(at), y2: axes.left.Y(at), stroke: "var(--line)" }, root);
        svg("text", { x: box.left - 8, y: axes.left.Y(at) + 4, "text-anchor": "end" }, root, at.toFixed(digits));
      }
      if (two) {
        const other = ticks(axes.right.low, axes.right.high, 5), places = decimals(other);
        for (const at of other) svg("text", { x: box.left + inner.w + 8, y: axes.right.Y(at) + 4 }, root, at.toFixed(places));
        svg("text", { x: width - 4, y: 14, "text-anchor": "end", class: "strong" }, root, chart.right);
      }
      svg("text", { x: 4, y: 14, class: "strong" }, root, chart.left);
      const stops = chart.xTicks || ticks(x0, x1, Math.min(8, inner.w / 70), true).filter((t) => t >= x0).map((t) => [t, String(t)]);
      for (const [at, text] of stops) svg("text", { x: X(at), y: height - box.bottom + 18, "text-anchor": "middle" }, root, text);
      svg("text", { x: box.left + inner.w / 2, y: height - 4, "text-anchor": "middle" }, root, chart.bottom);
      for (const ref of (chart.references || []).filter((r) => !hidden.has(r.name))) {
        const y = axes[ref.axis || "left"].Y(ref.y);
        svg("line", { x1: box.left, x2: box.left + inner.w, y1: y, y2: y, stroke: ref.colour, "stroke-width": 1.8, "stroke-dasharray": ref.dash || "6 5" }, root);
      }
      for (const s of seen) {
        const Y = axes[s.axis || "left"].Y;
        if (s.low) {
          const there = s.x.map((x, i) => `${X(x)},${Y(s.high[i])}`), back = s.x.map((x, i) => `${X(x)},${Y(s.low[i])}`).reverse();
          svg("polygon", { points: [...there, ...back].join(" "), fill: s.colour, opacity: 0.14 }, root);
        }
        svg("polyline", { points: s.x.map((x, i) => `${X(x)},${Y(s.y[i])}`).join(" "), fill: "none", stroke: s.colour, "stroke-width": s.width || 2, "stroke-linejoin": "round", "stroke-dasharray": s.dash || "none", class: "series" }, root);
        if (s.x.length <= 12) s.x.forEach((x, i) => svg("circle", { cx: X(x), cy: Y(s.y[i]), r: 3.2, fill: s.colour }, root));
      }
      const cross = svg("line", { y1: box.top, y2: box.top + inner.h, stroke: "var(--soft)", "stroke-dasharray": "2 3", visibility: "hidden" }, root);
      const stopsX = [...new Set(seen.flatMap((s) => s.x))].sort((a, b) => a - b);
      root.addEventListener("pointermove", (event) => {
        if (!stopsX.length) return;
        const at = event.clientX - root.getBoundingClientRect().left;
        const x = stopsX.reduce((best, k) => Math.abs(X(k) - at) < Math.abs(X(best) - at) ? k : best, stopsX[0]);
        cross.setAttribute("x1", X(x)); cross.setAttribute("x2", X(x)); cross.setAttribute("visibility", "visible");
        const lines = seen.filter((s) => s.x.includes(x)).map((s) => {
          const i = s.x.indexOf(x), span = s.low && s.low[i] !== s.high[i] ? ` (${s.low[i].toFixed(2)}–${s.high[i].toFixed(2)})` : "";
          return { name: s.name, colour: s.colour, y: s.y[i], value: s.y[i].toFixed(chart.digits ?? 2) + span };
        }).sort((a, b) => b.y - a.y);
        for (const ref of (chart.references || []).filter((r) => !hidden.has(r.name))) lines.push({ name: ref.name, colour: ref.colour, value: ref.y.toFixed(chart.digits ?? 2) });
        showTip(event, `${chart.bottom} ${(chart.xName || String)(x)}`, lines);
      });
      root.addEventListener("pointerleave", () => { hideTip(); cross.setAttribute("visibility", "hidden"); });
      legend.replaceChildren();
      for (const item of [...chart.series, ...(chart.references || [])]) {
        const button = node("button", { type: "button", "aria-pressed": String(!hidden.has(item.name)) }, legend);
        node("i", { style: `color:${item.colour}`, class: item.y.length === undefined || item.dash ? "dashed" : "" }, button);
        node("span", {}, button, item.name);
        button.addEventListener("click", () => { hidden.has(item.name) ? hidden.delete(item.name) : hidden.add(item.name); draw(place.clientWidth); });
      }
    };
    watchWidth(place, draw);
    return () => draw(place.clientWidth);
  }

  // --- an interval and its middle; arrows where it leaves the axis, filled where the test tells a side ---------------------
  function interval(root, r, X, y, ink, [low, high]) {
    svg("line", { x1: X(Math.max(r.low, low)), x2: X(Math.min(r.high, high)), y1: y, y2: y, stroke: ink, "stroke-width": 2.5 }, root);
    if (r.low < low) svg("path", { d: `M${X(low) - 3},${y} l8,-5 v10 z`, fill: ink }, root);
    if (r.high > high) svg("path", { d: `M${X(high) + 3},${y} l-8,-5 v10 z`, fill: ink }, root);
    const look = { fill: r.sign ? ink : "var(--card)", stroke: ink, "stroke-width": 2 };
    if (r.kind === "centralised") svg("rect", { x: X(r.difference) - 4.5, y: y - 4.5, width: 9, height: 9, ...look }, root);
    else svg("circle", { cx: X(r.difference), cy: y, r: 5, ...look }, root);
  }

  // --- a forest: an axis, and a line for each row with its name, its interval and its value ----------------------------
  // Names that need more room than there is stand above their intervals.
  const beside = (rows, most, row) => {
    const wanted = 14 + 7.2 * Math.max(...rows.map((r) => r.name.length));
    return wanted > most ? { left: 12, row: row + 14, above: true } : { left: wanted, row, above: false };
  };
  const named = (root, r, { left, above }, y) => svg("text", above ? { x: 4, y: y - 11, class: "strong" } : { x: left - 10, y: y + 4, "text-anchor": "end", class: "strong" }, root, r.name);
  function forest(root, { rows, count, range, width, names, right, bottom, floor, dash, ink, value }) {
    const { left, row, above } = names, [low, high] = range, top = 30, end = top + row * count, inner = width - left - right;
    const X = (x) => left + (x - low) / (high - low) * inner;
    const marks = ticks(low, high, Math.max(3, inner / 75)), digits = decimals(marks);
    for (const at of marks) {
      svg("line", { x1: X(at), x2: X(at), y1: top - 6, y2: end + 5, stroke: "var(--line)" }, root);
      svg("text", { x: X(at), y: end + 20, "text-anchor": "middle" }, root, at.toFixed(digits));
    }
    svg("text", { x: left + inner / 2, y: end + 36, "text-anchor": "middle" }, root, bottom);
    svg("line", { x1: X(floor), x2: X(floor), y1: top - 6, y2: end + 5, stroke: "var(--reference)", "stroke-width": 1.6, "stroke-dasharray": dash }, root);
    rows.forEach((r, i) => {
      const y = top + row * i + row / 2 + (above ? 7 : 0);
      named(root, r, names, y);
      interval(root, r, X, y, ink(r), range);
      svg("text", { x: width - right + 10, y: y + 4 }, root, value(r));
      const catcher = svg("rect", { x: 0, y: y - row / 2, width, height: row, fill: "transparent" }, root);
      catcher.addEventListener("pointermove", (event) => showTip(event, r.name, r.details.map(([name, value]) => ({ name, value }))));
      catcher.addEventListener("pointerleave", hideTip);
    });
  }
  function levels(place, found) {  // a panel for each ranking
    watchWidth(place, (width) => {
      place.replaceChildren();
      const names = Object.keys(found.panels), side = width > 640 && names.length > 1, each = side ? (width - 20) / 2 : width;
      const count = Math.max(...names.map((n) => found.panels[n].length)), labels = beside(names.flatMap((n) => found.panels[n]), each * 0.4, 27), tall = 70 + labels.row * count, height = side ? tall : tall * names.length;
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": found.label }, place);
      names.forEach((name, n) => {
        const panel = svg("g", { transform: side ? `translate(${n * (each + 20)} 0)` : `translate(0 ${n * tall})` }, root);
        svg("text", { x: labels.left, y: 14, class: "strong" }, panel, name);
        forest(panel, { rows: found.panels[name], count, range: found.ranges[name], width: each, names: labels, right: 48, bottom: found.bottom, floor: found.popularity[name], dash: "6 5", ink: (r) => colour(r.colour), value: (r) => r.difference.toFixed(1) });
      });
    });
  }
  function differences(place, make) {
    watchWidth(place, (width) => {
      place.replaceChildren();
      const { label, rows, leftSide, rightSide, ...rest } = make(), narrow = width < 520, names = beside(rows, narrow ? 120 : 300, 30), height = 68 + names.row * rows.length;
      const right = narrow ? 14 : 170, signed = (r) => `${r.difference >= 0 ? "+" : ""}${r.difference.toFixed(2)}`;
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }, place);
      svg("text", { x: names.left, y: 12 }, root, leftSide);
      svg("text", { x: width - right, y: 12, "text-anchor": "end" }, root, rightSide);
      forest(root, { ...rest, rows, count: rows.length, width, names, right, floor: 0, dash: "none", ink: (r) => r.sign > 0 ? "var(--good)" : r.sign < 0 ? "var(--bad)" : "var(--reference)", value: (r) => narrow ? "" : `${signed(r)}  [${r.low.toFixed(2)}, ${r.high.toFixed(2)}]` });
    });
  }

  // --- bars: communication ----------------------------------------------------------------------------------------
  function bars(place, rows) {
    watchWidth(place, (width) => {
      const names = beside(rows, Math.min(200, width * 0.34), 34), { left, row, above } = names, height = row * rows.length + 8;
      const most = Math.max(...rows.flatMap((r) => [r.up, r.down])) || 1;
      place.replaceChildren();
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "megabytes per client and round" }, place);
      rows.forEach((r, i) => {
        const y = i * row + (above ? 20 : 6), W = (v) => Math.max(1.5, (width - left - 122) * v / most);
        const size = (v) => v < 0.1 ? `${(1000 * v).toFixed(1)} kB` : `${v.toFixed(2)} MB`;
        named(root, r, names, y + (above ? 5 : 13));
        svg("rect", { x: left, y, width: W(r.up), height: 10, rx: 3, fill: "var(--c0)" }, root);
        svg("rect", { x: left, y: y + 13, width: W(r.down), height: 10, rx: 3, fill: "var(--c5)", opacity: 0.75 }, root);
        svg("text", { x: left + W(r.up) + 6, y: y + 9.5 }, root, `${size(r.up)} up`);
        svg("text", { x: left + W(r.down) + 6, y: y + 22.5 }, root, `${size(r.down)} down`);
      });
    });
  }

  // --- switches -----------------------------------------------------------------------------------------------------
  function choice(parent, options, start, change) {
    const group = node("div", { class: "switch", role: "group" }, parent);
    const buttons = options.map(([value, text]) => {
      const button = node("button", { type: "button", "aria-pressed": String(value === start) }, group, text);
      button.addEventListener("click", () => { for (const other of buttons) other.setAttribute("aria-pressed", String(other === button)); change(value); });
      return button;
    });
  }

  // --- surfaces -----------------------------------------------------------------------------------------------------
  const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // viridis
  function shade(t, light) {
    const at = Math.max(0, Math.min(0.9999, t)) * (STOPS.length - 1), i = Math.floor(at), f = at - i;
    return `rgb(${STOPS[i].map((c, k) => Math.round((c + (STOPS[i + 1][k] - c) * f) * light)).join(",")})`;
  }
  function prepared(place, ratio) {
    const canvas = node("canvas", { tabindex: 0 }, place);
    const size = (width) => {
      const scale = devicePixelRatio || 1, height = Math.round(width * ratio);
      canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d"); pen.setTransform(scale, 0, 0, scale, 0, 0); pen.clearRect(0, 0, width, height);
      return { pen, width, height };
    };
    return { canvas, size };
  }
  function surface(place, view, state) {
    const { canvas, size } = prepared(place, 0.78);
    canvas.setAttribute("aria-label", "Loss surface; drag or use the arrow keys to rotate");
    let points = [];
    const draw = (width) => {
      const { pen, height } = size(width);
      const { z, low, high, magnitude } = view();
      const n = z.length, cy = Math.cos(state.yaw), sy = Math.sin(state.yaw), cp = Math.cos(state.pitch), sp = Math.sin(state.pitch);
      const unit = Math.min(width, height * 1.25) * 0.33;
      const project = (x, y, h) => {
        const rx = x * cy - y * sy, ry = x * sy + y * cy;
        return [width / 2 + rx * unit, height * 0.54 + (ry * sp - h * cp) * unit, ry * cp + h * sp];
      };
      const place3 = (i, j) => project(2 * j / (n - 1) - 1, 2 * i / (n - 1) - 1, 1.15 * (level(z[i][j]) - 0.5));
      const level = (v) => Number.isFinite(v) ? Math.max(0, Math.min(1, (v - low) / (high - low || 1))) : 1;
      const corner = (x, y) => project(x, y, -0.575), ink = css("--line");
      pen.strokeStyle = ink; pen.lineWidth = 1;
      pen.beginPath();
      for (let k = 0; k <= 4; k++) {
        const t = k / 2 - 1;
        let [a, b] = [corner(t, -1), corner(t, 1)]; pen.moveTo(a[0], a[1]); pen.lineTo(b[0], b[1]);
        [a, b] = [corner(-1, t), corner(1, t)]; pen.moveTo(a[0], a[1]); pen.lineTo(b[0], b[1]);
      }
      pen.stroke();
      const quads = [];
      for (let i = 0; i + 1 < n; i++) for (let j = 0; j + 1 < n; j++) {
        const corners = [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]].map(([a, b]) => place3(a, b));
        const t = (level(z[i][j]) + level(z[i][j + 1]) + level(z[i + 1][j + 1]) + level(z[i + 1][j])) / 4;
        const slope = level(z[i][j + 1]) - level(z[i][j]) + level(z[i + 1][j]) - level(z[i][j]);
        quads.push({ corners, t, light: Math.max(0.72, Math.min(1.08, 0.94 + slope * 1.2)), depth: corners.reduce((s, c) => s + c[2], 0) });
      }
      quads.sort((a, b) => a.depth - b.depth);
      for (const q of quads) {
        pen.beginPath(); q.corners.forEach(([x, y], k) => k ? pen.lineTo(x, y) : pen.moveTo(x, y)); pen.closePath();
        pen.fillStyle = shade(q.t, q.light); pen.fill(); pen.strokeStyle = "rgba(255,255,255,.22)"; pen.lineWidth = 0.6; pen.stroke();
      }
      const middle = (n - 1) / 2, centre = place3(Math.round(middle), Math.round(middle));
      pen.beginPath(); pen.arc(centre[0], centre[1], 4.5, 0, 7); pen.fillStyle = "#fff"; pen.fill(); pen.strokeStyle = "#d9480f"; pen.lineWidth = 2.5; pen.stroke();
      pen.fillStyle = css("--soft"); pen.font = "12px system-ui, sans-serif"; pen.textAlign = "center";
      const [ax, ay] = [corner(0, 1.22), corner(1.22, 0)];
      pen.fillText(`d₁ ±${magnitude}`, ax[0], ax[1] + 4); pen.fillText(`d₂ ±${magnitude}`, ay[0], ay[1] + 4);
      points = z.flatMap((row, i) => row.map((v, j) => ({ at: place3(i, j), v, a: (2 * j / (n - 1) - 1) * magnitude, b: (2 * i / (n - 1) - 1) * magnitude })));
    };
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => { grabbed = [event.clientX, event.clientY, state.yaw, state.pitch]; canvas.setPointerCapture(event.pointerId); hideTip(); });
    canvas.addEventListener("pointerup", () => { grabbed = null; });
    canvas.addEventListener("pointercancel", () => { grabbed = null; });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) {
        state.yaw = grabbed[2] - (event.clientX - grabbed[0]) / 130;
        state.pitch = Math.max(0.12, Math.min(1.45, grabbed[3] + (event.clientY - grabbed[1]) / 160));
        state.changed();
        return;
      }
      const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const near = points.map((p) => ({ p, d: Math.hypot(p.at[0] - x, p.at[1] - y) - 1e-3 * p.at[2] })).reduce((a, b) => a.d < b.d ? a : b);
      if (near.d > 18) { hideTip(); return; }
      showTip(event, `d₁ ${near.p.a.toPrecision(2)}, d₂ ${near.p.b.toPrecision(2)}`, [{ name: view().name, value: Number.isFinite(near.p.v) ? near.p.v.toPrecision(5) : "not finite" }]);
    });
    canvas.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!turn) return;
      event.preventDefault(); state.yaw += turn[0]; state.pitch = Math.max(0.12, Math.min(1.45, state.pitch + turn[1])); state.changed();
    });
    watchWidth(place, draw);
    return () => draw(place.clientWidth);
  }
  function contour(place, view) {
    const { canvas, size } = prepared(place, 0.62);
    canvas.classList.add("flat"); canvas.setAttribute("aria-label", "Contours of the loss");
    let frame = null;
    const value = (z, u, v) => {
      const n = z.length, x = u * (n - 1), y = v * (n - 1), j = Math.min(n - 2, Math.floor(x)), i = Math.min(n - 2, Math.floor(y)), f = x - j, g = y - i;
      return (z[i][j] * (1 - f) + z[i][j + 1] * f) * (1 - g) + (z[i + 1][j] * (1 - f) + z[i + 1][j + 1] * f) * g;
    };
    const draw = (width) => {
      const { pen, height } = size(width);
      const { z, low, high, magnitude } = view();
      const room = { l: 46, b: 30, t: 8, r: 8 }, w = width - room.l - room.r, h = height - room.t - room.b, cell = 3;
      frame = { room, w, h };
      const span = high - low || 1;
      for (let x = 0; x < w; x += cell) for (let y = 0; y < h; y += cell) {
        pen.fillStyle = shade((value(z, (x + cell / 2) / w > 1 ? 1 : (x + cell / 2) / w, 1 - Math.min(1, (y + cell / 2) / h)) - low) / span, 1);
        pen.fillRect(room.l + x, room.t + y, Math.min(cell, w - x) + 0.5, Math.min(cell, h - y) + 0.5);
      }
      const fine = 48;
      pen.strokeStyle = "rgba(255,255,255,.75)"; pen.lineWidth = 1; pen.beginPath();
      for (let k = 1; k < 10; k++) {
        const level = low + span * k / 10;
        for (let i = 0; i < fine; i++) for (let j = 0; j < fine; j++) {
          const c = [[j, i], [j + 1, i], [j + 1, i + 1], [j, i + 1]].map(([a, b]) => [a / fine, b / fine, value(z, a / fine, b / fine) - level]);
          const cuts = [];
          for (let e = 0; e < 4; e++) { const p = c[e], q = c[(e + 1) % 4]; if ((p[2] < 0) !== (q[2] < 0)) { const t = p[2] / (p[2] - q[2]); cuts.push([p[0] + (q[0] - p[0]) * t, p[1] + (q[1] - p[1]) * t]); } }
          for (let m = 0; m + 1 < cuts.length; m += 2) { pen.moveTo(room.l + cuts[m][0] * w, room.t + (1 - cuts[m][1]) * h); pen.lineTo(room.l + cuts[m + 1][0] * w, room.t + (1 - cuts[m + 1][1]) * h); }
        }
      }
      pen.stroke();
      pen.beginPath(); pen.arc(room.l + w / 2, room.t + h / 2, 4.5, 0, 7); pen.fillStyle = "#fff"; pen.fill(); pen.strokeStyle = "#d9480f"; pen.lineWidth = 2.5; pen.stroke();
      pen.fillStyle = css("--soft"); pen.font = "12px system-ui, sans-serif"; pen.textAlign = "center";
      for (const t of [-1, 0, 1]) pen.fillText(String(t * magnitude), Math.min(width - 16, room.l + (t + 1) / 2 * w), height - 10);
      pen.textAlign = "right";
      for (const t of [-1, 0, 1]) pen.fillText(String(t * magnitude), room.l - 6, Math.max(14, room.t + (1 - (t + 1) / 2) * h + 4));
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect(), { z, magnitude, name } = view();
      const u = (event.clientX - box.left - frame.room.l) / frame.w, v = 1 - (event.clientY - box.top - frame.room.t) / frame.h;
      if (u < 0 || u > 1 || v < 0 || v > 1) { hideTip(); return; }
      showTip(event, `d₁ ${((2 * u - 1) * magnitude).toPrecision(2)}, d₂ ${((2 * v - 1) * magnitude).toPrecision(2)}`, [{ name, value: value(z, u, v).toPrecision(5) }]);
    });
    canvas.addEventListener("pointerleave", hideTip);
    watchWidth(place, draw);
    return () => draw(place.clientWidth);
  }

  // --- the figures of the page ----------------------------------------------------------------------------------------
  const figures = {
    curves(figure, found) {
      let name = Object.keys(found.panels)[0];
      const at = found.logarithmic ? Math.log10 : Number;
      const chart = () => {
        const panel = found.panels[name];
        return {
          ...(found.logarithmic ? powersOfTen(panel.lines.flatMap((s) => s.x)) : {}),
          label: `${name} over ${found.logarithmic ? found.bottom : found.bottom + "s"}`, left: panel.left, bottom: found.bottom, digits: panel.digits,
          series: panel.lines.map((s) => ({ name: s.label, colour: colour(s.colour), width: s.colour === 0 ? 3 : 2, dash: s.colour >= 14 ? "7 4" : undefined, x: s.x.map(at), y: s.mean, low: s.low, high: s.high })),
          references: panel.popularity === null ? [] : [{ name: "popularity", colour: "var(--reference)", y: panel.popularity }],
        };
      };
      const draw = lineChart(figure.querySelector(".plot"), figure.querySelector(".legend"), chart);
      choice(figure.querySelector(".switches"), Object.keys(found.panels).map((m) => [m, m]), name, (m) => { name = m; draw(); });
    },
    differences(figure, found) {
      let metric = Object.keys(found.metrics)[0];
      const fill = (text) => text.replace("{metric}", () => metric);
      differences(figure.querySelector(".plot"), () => ({ label: fill(found.label), bottom: fill(found.bottom), leftSide: found.left_side, rightSide: found.right_side, rows: found.metrics[metric], range: found.ranges[metric] }));
      choice(figure.querySelector(".switches"), Object.keys(found.metrics).map((m) => [m, m]), metric, (m) => { metric = m; for (const again of redraws) again(); });
    },
    steps(figure, found) {
      const order = found.values.map((_, i) => i);
      const side = (s) => s.right ? "right" : "left", ink = (s) => colour(s.colour);
      lineChart(figure.querySelector(".plot"), figure.querySelector(".legend"), () => ({
        label: found.label, left: found.left, right: found.right ?? undefined, bottom: found.bottom, digits: found.digits,
        xName: (i) => found.values[i], xTicks: found.values.map((v, i) => [i, String(v)]),
        series: found.lines.map((s) => ({ name: s.name, axis: side(s), colour: ink(s), dash: s.right ? "7 4" : undefined, x: order, y: s.mean, low: s.low, high: s.high })),
        references: found.lines.filter((s) => s.popularity !== null).map((s) => ({ name: `popularity ${s.name}`, axis: side(s), colour: `color-mix(in srgb, ${ink(s)} 55%, var(--reference))`, dash: s.right ? "2 4" : undefined, y: s.popularity })),
      }));
    },
    levels(figure, found) {
      levels(figure.querySelector(".plot"), found);
      const legend = figure.querySelector(".legend");
      for (const text of ["● the test tells a side of popularity", "○ it does not", "□ data in one place"]) node("small", {}, legend, text);
    },
    traffic(figure, found) { bars(figure.querySelector(".plot"), found.rows); },
    surfaces(figure, found) {
      let index = Math.max(0, found.magnitudes.indexOf(1)), mode = "rise";
      const redrawAll = [];
      const state = { yaw: 0.75, pitch: 0.62, changed: () => { for (const d of redrawAll) d(); } };
      const grid = (model) => { const z = model.surfaces[index].map((row) => row.map((v) => v === null ? NaN : v)); return mode === "rise" ? z.map((row) => row.map((v) => v - model.loss)) : z; };
      const range = (grids) => { const all = grids.flat(2).filter(Number.isFinite); return [Math.min(...all), Math.max(...all)]; };
      const view = (model) => () => {
        const z = grid(model), [low, high] = mode === "rise" ? range(found.models.map(grid)) : range([z]);
        return { z: z.map((row) => row.map((v) => Number.isFinite(v) ? v : high)), low, high, magnitude: found.magnitudes[index], name: mode === "rise" ? "rise of the loss" : "loss" };
      };
      const holder = figure.querySelector(".surfaces"), captions = [];
      for (const model of found.models) {
        const box = node("div", {}, holder);
        node("h4", {}, box, model.method);
        redrawAll.push(surface(node("div", { class: "plot solid" }, box), view(model), state));
        redrawAll.push(contour(node("div", { class: "plot level" }, box), view(model)));
        const text = node("p", {}, box);
        captions.push(() => { const all = grid(model).flat().filter(Number.isFinite); text.textContent = `${mode === "rise" ? "Rise" : "Loss"} between ${Math.min(...all).toPrecision(3)} and ${Math.max(...all).toPrecision(3)}; loss at the model ${model.loss.toFixed(4)}`; });
      }
      redrawAll.push(() => captions.forEach((c) => c())); captions.forEach((c) => c());
      const switches = figure.querySelector(".switches");
      choice(switches, found.magnitudes.map((m, i) => [i, `±${m}`]), index, (i) => { index = i; state.changed(); });
      choice(switches, [["rise", "rise, common scale"], ["loss", "loss, own scale"]], mode, (m) => { mode = m; state.changed(); });
    },
  };
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    const found = data.figures[figure.dataset.key];
    figures[figure.dataset.figure](figure, found);
    figure.dataset.drawn = "true";
  }

  // --- tables -----------------------------------------------------------------------------------------------------
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const key = (row) => { const cell = row.cells[column]; return cell.dataset.value !== undefined ? Number(cell.dataset.value) : NaN; };
      const numeric = [...body.rows].some((row) => Number.isFinite(key(row)));
      const before = head.getAttribute("aria-sort"), down = before === "none" ? numeric : before === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        if (!numeric) return (down ? -1 : 1) * a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
        const [x, y] = [key(a), key(b)];
        if (!Number.isFinite(x) || !Number.isFinite(y)) return Number.isFinite(y) - Number.isFinite(x);
        return down ? y - x : x - y;
      });
      body.append(...rows);
    }));
  }
  for (const cell of document.querySelectorAll("td[title], th[title]")) {
    const hint = cell.title;  // shown at once and by touch, unlike the browser's own
    cell.removeAttribute("title"); cell.dataset.hint = hint; cell.setAttribute("aria-description", hint);
    cell.addEventListener("pointermove", (event) => showTip(event, hint, []));
    cell.addEventListener("pointerleave", hideTip);
  }
  const signs = { "▲": "up", "▼": "down", "≈": "same", "?": "same" };
  for (const cell of document.querySelectorAll("td span, th span")) {
    if (!/[▲▼≈]| \?/.test(cell.textContent)) continue;
    const parts = cell.textContent.split(/([▲▼≈]|(?<= )\?)/);
    cell.replaceChildren(...parts.map((part) => signs[part] ? node("span", { class: signs[part] }, null, part) : part));
  }

  // --- a phone shows the first figure of a section unless it is high; the others and all tables by touch ----------------
  if (innerWidth < 640) {
    const later = (card, place) => place || card.querySelector("[data-figure=surfaces]");
    for (const part of document.querySelectorAll("section")) for (const card of [...part.querySelectorAll(".card:has(> figure)")].filter(later)) {
      const fold = node("details", { class: "fold" }), caption = node("summary", {}, fold);
      caption.append(card.querySelector("h3"));
      fold.append(...card.childNodes);
      card.append(fold);
    }
    for (const fold of document.querySelectorAll("details.fold")) fold.open = false;
  }

  // --- copy, theme, place in the page ----------------------------------------------------------------------------------
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(button.previousElementSibling.textContent); button.textContent = "Copied"; } catch { button.textContent = "Select it"; getSelection().selectAllChildren(button.previousElementSibling); }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  const theme = document.getElementById("theme"), names = { auto: "Auto", light: "Light", dark: "Dark" };
  const remembered = () => { try { return localStorage.getItem("fedrecgel-theme") || "auto"; } catch { return "auto"; } };
  let current = remembered();
  function apply(name) {
    current = name;
    name === "auto" ? delete document.documentElement.dataset.theme : document.documentElement.dataset.theme = name;
    theme.textContent = names[name] || "Auto";
    try { localStorage.setItem("fedrecgel-theme", name); } catch { /* a page from disk may have no storage */ }
    for (const again of redraws) again();
  }
  theme.addEventListener("click", () => { const order = ["auto", "light", "dark"]; apply(order[(order.indexOf(current) + 1) % 3]); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const again of redraws) again(); });
  if (current !== "auto") apply(current);
  const links = [...document.querySelectorAll(".side a, .chips a")];
  const spy = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) for (const link of links) link.classList.toggle("here", link.getAttribute("href") === `#${entry.target.id}`);
  }, { rootMargin: "-10% 0px -75% 0px" });
  for (const part of document.querySelectorAll("section[id]")) spy.observe(part);
  addEventListener("scroll", hideTip, { passive: true });
})();
