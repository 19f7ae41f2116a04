// The forms of scorers.py in JavaScript: tables and settings in, scores of the whole catalogue out. Sums are in double
// precision. Nothing here touches the page, the network or any storage.

const LEVEL = 1e-12; // scores whose variance is below this share of their mean square are all the same but for rounding

/** Distinct own items, ascending, how often each occurs and how many came later; `history` is oldest first. */
export function makeOwn(history) {
  const counts = new Map(), later = new Map();
  for (const item of history) counts.set(item, (counts.get(item) ?? 0) + 1);
  for (const item of [...history].reverse()) if (!later.has(item)) later.set(item, later.size);
  const items = [...counts.keys()].sort((a, b) => a - b);
  return { items, counts: items.map((item) => counts.get(item)), later: items.map((item) => later.get(item)) };
}

const fade = (own, decay) => own.later.map((later) => (1 + later) ** -decay);

function dot(table, width, row, vector) {
  let sum = 0;
  for (let i = 0, at = row * width; i < width; i++) sum += table[at + i] * vector[i];
  return sum;
}

/** vector += weight * table[row] */
function addRow(vector, table, width, row, weight) {
  for (let i = 0, at = row * width; i < width; i++) vector[i] += weight * table[at + i];
}

function times(table, width, n, vector) {
  const scores = new Float64Array(n);
  for (let row = 0; row < n; row++) scores[row] = dot(table, width, row, vector);
  return scores;
}

/** Mean 0 and deviation 1 in place; returns what was multiplied by, 0 where all are the same. */
function standardise(scores) {
  let mean = 0, variance = 0;
  for (const score of scores) mean += score;
  mean /= scores.length;
  for (const score of scores) variance += (score - mean) ** 2;
  variance /= scores.length;
  const scale = variance <= LEVEL * (variance + mean * mean) ? 0 : variance ** -0.5;
  for (let i = 0; i < scores.length; i++) scores[i] = (scores[i] - mean) * scale;
  return scale;
}

function gramOf(table, width, n) {
  const gram = new Float64Array(width * width);
  for (let row = 0; row < n; row++) addOuter(gram, table, width, row, 1);
  return gram;
}

/** gram += weight * table[row] table[row]' */
function addOuter(gram, table, width, row, weight) {
  const at = row * width;
  for (let i = 0; i < width; i++) {
    const left = weight * table[at + i];
    for (let j = 0; j < width; j++) gram[i * width + j] += left * table[at + j];
  }
}

/** Solves A x = b for a symmetric positive definite A, by Cholesky's factor, computed once for several b. */
function solver(matrix, n) {
  const l = Float64Array.from(matrix);
  for (let j = 0; j < n; j++) {
    for (let k = 0; k < j; k++) {
      const factor = l[j * n + k];
      for (let i = j; i < n; i++) l[i * n + j] -= factor * l[i * n + k];
    }
    const root = Math.sqrt(l[j * n + j]);
    for (let i = j; i < n; i++) l[i * n + j] /= root;
  }
  return (right) => {
    const x = Float64Array.from(right);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < i; k++) x[i] -= l[i * n + k] * x[k];
      x[i] /= l[i * n + i];
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) x[i] -= l[k * n + i] * x[k];
      x[i] /= l[i * n + i];
    }
    return x;
  };
}

class Scorer {
  constructor(tables, settings, n) { Object.assign(this, { tables, settings, n }); }
  /** All about one user that scores and reasons share. */
  prepare(own) { return {}; }
}

class Popularity extends Scorer {
  reason = "popular";
  scores() { return Float64Array.from(this.tables.counts.values); }
  shares() { return null; }
}

class Rows extends Scorer {
  reason = "because";
  scores(own) {
    const scores = new Float64Array(this.n), weights = fade(own, this.settings.decay);
    own.items.forEach((item, place) => addRow(scores, this.tables.rows.values, this.n, item, weights[place]));
    return scores;
  }
  shares(own, ready, item) {
    const weights = fade(own, this.settings.decay);
    return own.items.map((mine, place) => weights[place] * this.tables.rows.values[mine * this.n + item]);
  }
}

class Neighbours extends Scorer {
  reason = "because";
  scores(own) {
    const scores = new Float64Array(this.n);
    this.votes(own, (place, item, vote) => { scores[item] += vote; });
    return scores;
  }
  shares(own, ready, wanted) {
    const shares = own.items.map(() => 0);
    this.votes(own, (place, item, vote) => { if (item === wanted) shares[place] += vote; });
    return shares;
  }
  votes(own, each) {
    const { neighbours, similarity } = this.tables, width = similarity.shape[1], weights = fade(own, this.settings.decay);
    own.items.forEach((mine, place) => {
      for (let i = mine * width; i < (mine + 1) * width; i++) {
        each(place, neighbours.values[i], similarity.values[i] * weights[place]);
      }
    });
  }
}

class Factors extends Scorer {
  reason = "because";
  constructor(tables, settings, n) {
    super(tables, settings, n);
    [this.table, this.width] = [tables.items.values, tables.items.shape[1]];
    this.gram = gramOf(this.table, this.width, n);
  }
  /** What an own item adds to the confidence, and how the penalty grows with all of it. */
  confidence(own) {
    const { alpha, decay, reg, nu } = this.settings, weights = fade(own, decay);
    const more = own.counts.map((count, place) => alpha * count * weights[place]);
    return { more, right: more.map((value) => value + 1), penalty: reg * (this.n + more.reduce((a, b) => a + b, 0)) ** nu };
  }
  prepare(own) {
    const { more, right, penalty } = this.confidence(own), { table, width } = this;
    const left = Float64Array.from(this.gram), target = new Float64Array(width);
    own.items.forEach((item, place) => {
      addOuter(left, table, width, item, more[place]);
      addRow(target, table, width, item, right[place]);
    });
    for (let i = 0; i < width; i++) left[i * width + i] += penalty;
    const solve = solver(left, width);
    return { solve, right, user: solve(target) };
  }
  scores(own, ready) { return times(this.table, this.width, this.n, ready.user); }
  shares(own, ready, item) {
    const { table, width } = this, towards = ready.solve(table.subarray(item * width, (item + 1) * width));
    return own.items.map((mine, place) => ready.right[place] * dot(table, width, mine, towards));
  }
}

class Spectra extends Factors {
  constructor(tables, settings, n) {
    super(tables, settings, n);
    const counts = tables.counts.values, recent = tables.recent.values, { mixture } = settings;
    const sum = (values) => values.reduce((a, b) => a + b, 0), usual = sum(counts) > 0 ? sum(recent) / sum(counts) : 1;
    this.damping = Float64Array.from(counts, (count) => Math.max(count, 1) ** -settings.item_power);
    const popularity = Float64Array.from(counts, (count) => Math.log(count + 1));
    const freshness = Float64Array.from(counts, (count, i) => Math.log((recent[i] + usual) / (count + 1)));
    standardise(popularity);
    standardise(freshness);
    this.common = popularity.map((value, i) => mixture.popularity * value + mixture.freshness * freshness[i]);
  }
  confidence(own) {
    const { alpha, reg, user_power, mixture } = this.settings, scale = alpha * Math.max(own.items.length, 1) ** -user_power;
    const more = fade(own, mixture.decay).map((weight) => scale * weight);
    return { more, right: more.map((value) => value + 1), penalty: reg * (this.n + more.reduce((a, b) => a + b, 0)) };
  }
  prepare(own) {
    const { mixture } = this.settings, { vectors, values, pairs } = this.tables, width = vectors.shape[1];
    const largest = values.values[0], decayed = fade(own, mixture.decay), query = new Float64Array(width);
    const response = Float64Array.from(values.values, (value) => largest > 0 ? value / (value + mixture.strength * largest) : 0);
    const weights = own.items.map((item, place) => decayed[place] * this.damping[item]);
    own.items.forEach((item, place) => addRow(query, vectors.values, width, item, weights[place]));
    for (let i = 0; i < width; i++) query[i] *= response[i];
    const ready = { ...super.prepare(own), weights, response, parts: {}, scales: {} };
    ready.parts.filter = times(vectors.values, width, this.n, query);
    ready.parts.factors = super.scores(own, ready);
    if (pairs) {
      const together = new Float64Array(this.n);
      own.items.forEach((item, place) => addRow(together, pairs.values, this.n, item, weights[place] * this.damping[item]));
      ready.parts.pairs = together.map((value, item) => value * this.damping[item]);
    }
    for (const name of Object.keys(ready.parts)) ready.scales[name] = standardise(ready.parts[name]) * mixture[name];
    return ready;
  }
  scores(own, ready) {
    const { mixture } = this.settings, scores = Float64Array.from(this.common);
    for (const [name, part] of Object.entries(ready.parts)) {
      for (let i = 0; i < this.n; i++) scores[i] += mixture[name] * part[i];
    }
    return scores;
  }
  shares(own, ready, item) {
    const { vectors, pairs } = this.tables, width = vectors.shape[1], towards = new Float64Array(width);
    for (let i = 0; i < width; i++) towards[i] = ready.response[i] * vectors.values[item * width + i];
    const factors = super.shares(own, ready, item);
    return own.items.map((mine, place) => {
      let share = ready.scales.filter * ready.weights[place] * dot(vectors.values, width, mine, towards);
      share += ready.scales.factors * factors[place];
      if (pairs) {
        const together = pairs.values[mine * this.n + item] * this.damping[mine] * this.damping[item];
        share += ready.scales.pairs * ready.weights[place] * together;
      }
      return share;
    });
  }
}

const BITS = (1n << 64n) - 1n;

/** A number in [0, 1) of a stream, by SplitMix64. */
function uniform(stream, counter) {
  let x = (stream + 0x9E3779B97F4A7C15n * BigInt(counter + 1)) & BITS;
  x = ((x ^ (x >> 30n)) * 0xBF58476D1CE4E5B9n) & BITS;
  x = ((x ^ (x >> 27n)) * 0x94D049BB133111EBn) & BITS;
  return Number((x ^ (x >> 31n)) >> 11n) * 2 ** -53;
}

/** A user vector, learnt in a few local rounds from own items and drawn negatives. */
class Learnt extends Scorer {
  reason = "close";
  closeness = ["items"];
  scores(own, ready) {
    const scores = new Float64Array(this.n);
    for (let item = 0; item < this.n; item++) scores[item] = this.logit(ready, item);
    return scores;
  }
  shares(own, ready, item) {
    return own.items.map((mine) => this.closeness.reduce((sum, name) => sum + this.cosine(name, mine, item), 0));
  }
  cosine(name, a, b) {
    const { values, shape } = this.tables[name], width = shape[1], row = (i) => values.subarray(i * width, (i + 1) * width);
    const norm = Math.sqrt(dot(values, width, a, row(a)) * dot(values, width, b, row(b)));
    return dot(values, width, a, row(b)) / (norm > 0 ? norm : 1);
  }
  prepare(own) {
    const how = this.settings.fold_in, step = { strides: this.strides, gradient: this.gradient }[how.kind];
    let user = Float64Array.from(this.tables.start.values);
    const moments = [new Float64Array(user.length), new Float64Array(user.length)];
    for (let number = 0; number < how.rounds; number++) {
      user = step.call(this, user, moments, this.examples(own, how.redraw ? number : 0), number);
    }
    return this.at(user);
  }
  /** Positives in a drawn order, each followed by its negatives. */
  examples(own, number) {
    const how = this.settings.fold_in, k = how.negatives, free = this.n - own.items.length, found = [];
    if (free < k) throw new Error(`Learning needs ${k} items that you have not picked. Found ${free}.`);
    const learnt = (place) => own.later[place] < (how.latest ?? Infinity), times = (place) => (how.repeats ? own.counts[place] : 1);
    const items = own.items.flatMap((item, place) => (learnt(place) ? Array(times(place)).fill(item) : []));
    const order = BigInt(`0x${how.order[number]}`), others = BigInt(`0x${how.others[number]}`);
    const drawn = items.map((item, nth) => ({ item, nth, chance: uniform(order, nth) }));
    for (const { item, nth } of drawn.sort((a, b) => a.chance - b.chance || a.nth - b.nth)) {
      found.push({ item, label: 1 });
      const ranks = [];
      for (let i = 0; i < k; i++) { // Floyd's algorithm: distinct ranks among the items that the user does not have
        const top = free - k + i, pick = Math.floor(uniform(others, nth * k + i) * (top + 1));
        ranks.push(ranks.includes(pick) ? top : pick);
      }
      for (const rank of ranks) {
        let other = rank;
        for (const mine of own.items) if (mine <= other) other++;
        found.push({ item: other, label: 0 });
      }
    }
    return found;
  }
  error(score, label) {
    return this.settings.fold_in.squared ? 2 * (score - label) : 1 / (1 + Math.exp(-score)) - label;
  }
  /** The gradient by the user vector; examples weigh as `weight` says. */
  slope(user, examples, weight) {
    const ready = this.at(user), slope = new Float64Array(user.length);
    examples.forEach(({ item, label }, place) => {
      this.addSlope(slope, ready, item, weight(place) * this.error(this.logit(ready, item), label));
    });
    return slope;
  }
  /** A step for each of a few equal parts of the examples. */
  strides(user, moments, examples) {
    const { lr, reg, strides } = this.settings.fold_in;
    for (let stride = 0; stride < strides; stride++) {
      const part = examples.filter((_, place) => Math.floor((place * strides) / examples.length) === stride);
      const slope = this.slope(user, part, () => 1), kept = 1 - 2 * lr * reg * part.length;
      user = user.map((value, i) => kept * value - lr * slope[i]);
    }
    return user;
  }
  gradient(user, moments, examples, number) {
    const { lr, reg = 0, rho, epsilon, adam, chunk } = this.settings.fold_in, size = chunk || examples.length;
    const weight = (place) => 1 / Math.min(examples.length - Math.floor(place / size) * size, size);
    let slope = this.slope(user, examples, weight);
    if (rho > 0) {
      const scale = rho / (Math.hypot(...slope) + epsilon);
      slope = this.slope(user.map((value, i) => value + scale * slope[i]), examples, weight);
    }
    slope = slope.map((value, i) => value + (reg / Math.max(examples.length, 1)) * user[i]);
    if (!adam) return user.map((value, i) => value - lr * slope[i]);
    const [beta1, beta2, small] = adam, [first, second] = moments, t = number + 1;
    return user.map((value, i) => {
      first[i] = beta1 * first[i] + (1 - beta1) * slope[i];
      second[i] = beta2 * second[i] + (1 - beta2) * slope[i] ** 2;
      return value - lr * (first[i] / (1 - beta1 ** t)) / (Math.sqrt(second[i] / (1 - beta2 ** t)) + small);
    });
  }
}

class Dot extends Learnt {
  at(user) { return { user }; }
  logit({ user }, item) { return dot(this.tables.items.values, user.length, item, user); }
  addSlope(slope, ready, item, error) { addRow(slope, this.tables.items.values, slope.length, item, error); }
}

class MF extends Learnt {
  closeness = ["item"];
  at(user) { return { user, bias: user.at(-1) + this.tables.bias.values[0], width: user.length - 1 }; }
  logit({ user, bias, width }, item) {
    return dot(this.tables.item.values, width, item, user) + bias + this.tables.item_bias.values[item];
  }
  addSlope(slope, { width }, item, error) {
    addRow(slope, this.tables.item.values, width, item, error);
    slope[width] += error;
  }
}

class NeuMF extends Learnt {
  closeness = ["item_gmf", "item_mlp"];
  constructor(tables, settings, n) {
    super(tables, settings, n);
    const { item_gmf, item_mlp, w1_item, w2, w3 } = tables;
    this.sizes = { gmf: item_gmf.shape[1], mlp: item_mlp.shape[1], layers: [w1_item.shape[0], w2.shape[0], w3.shape[0]] };
    const [h] = this.sizes.layers, { mlp } = this.sizes;
    this.half = new Float64Array(n * h); // the item half of layer 1, the same for every user
    for (let item = 0; item < n; item++) {
      const row = item_mlp.values.subarray(item * mlp, (item + 1) * mlp);
      for (let j = 0; j < h; j++) this.half[item * h + j] = dot(w1_item.values, mlp, j, row);
    }
  }
  at(user) {
    const { gmf, mlp, layers: [h] } = this.sizes, { w1_user, b1, out_gmf } = this.tables, last = user.subarray(gmf);
    const first = new Float64Array(h), product = new Float64Array(gmf);
    for (let j = 0; j < h; j++) first[j] = dot(w1_user.values, mlp, j, last) + b1.values[j];
    for (let i = 0; i < gmf; i++) product[i] = user[i] * out_gmf.values[i];
    return { user, first, product, outputs: this.sizes.layers.map((size) => new Float64Array(size)) };
  }
  logit({ first, product, outputs: [h1, h2, h3] }, item) {
    const { item_gmf, w2, b2, w3, b3, out_mlp, out_bias } = this.tables, at = item * h1.length;
    for (let j = 0; j < h1.length; j++) h1[j] = Math.max(0, this.half[at + j] + first[j]);
    for (let j = 0; j < h2.length; j++) h2[j] = Math.max(0, dot(w2.values, h1.length, j, h1) + b2.values[j]);
    for (let j = 0; j < h3.length; j++) h3[j] = Math.max(0, dot(w3.values, h2.length, j, h2) + b3.values[j]);
    return dot(item_gmf.values, product.length, item, product) + dot(out_mlp.values, h3.length, 0, h3) + out_bias.values[0];
  }
  /** Back through the layers that `logit` has just filled. */
  addSlope(slope, { outputs: [h1, h2, h3] }, item, error) {
    const { gmf, mlp } = this.sizes, { item_gmf, out_gmf, out_mlp, w1_user, w2, w3 } = this.tables;
    const back = (weights, width, errors, outputs) => {
      const before = new Float64Array(width);
      errors.forEach((value, row) => { if (value) addRow(before, weights, width, row, value); });
      return before.map((value, i) => outputs[i] > 0 ? value : 0);
    };
    const e3 = h3.map((output, i) => output > 0 ? error * out_mlp.values[i] : 0);
    const e1 = back(w2.values, h1.length, back(w3.values, h2.length, e3, h2), h1);
    for (let i = 0; i < gmf; i++) slope[i] += error * item_gmf.values[item * gmf + i] * out_gmf.values[i];
    e1.forEach((value, row) => { if (value) addRow(slope.subarray(gmf), w1_user.values, mlp, row, value); });
  }
}

const FORMS = {
  popularity: Popularity, rows: Rows, neighbours: Neighbours, factors: Factors, spectra: Spectra,
  dot: Dot, mf: MF, neumf: NeuMF,
};

/** A table from the bytes of its file, and of its scales where it is kept in 8 bits. */
export function readTable(about, buffers) {
  const kinds = { float32: Float32Array, int32: Int32Array, int8: Int8Array };
  const stored = new kinds[about.dtype](buffers[about.file]), size = about.shape.reduce((a, b) => a * b, 1);
  if (stored.length !== size) throw new Error(`The file ${about.file} should hold ${size} numbers. Found ${stored.length}.`);
  if (!about.scales) return { values: stored, shape: about.shape };
  const scales = new Float32Array(buffers[about.scales]), [rows, width] = about.shape, values = new Float32Array(size);
  for (let row = 0, i = 0; row < rows; row++) for (let end = i + width; i < end; i++) values[i] = stored[i] * scales[row];
  return { values, shape: about.shape };
}

/** The model that a manifest describes. */
export function makeModel(manifest, buffers) {
  if (!Object.hasOwn(FORMS, manifest.form)) throw new Error(`This page cannot compute the form '${manifest.form}'.`);
  const entries = Object.entries(manifest.tables).map(([name, about]) => [name, readTable(about, buffers)]);
  return new FORMS[manifest.form](Object.fromEntries(entries), manifest.settings, manifest.n_items);
}

/** The best items that are not in a history, oldest first; of equal scores the earlier in the catalogue comes first. */
export function rank(model, history, k) {
  const own = makeOwn(history), ready = model.prepare(own), scores = model.scores(own, ready), mine = new Set(own.items);
  const order = Array.from({ length: model.n }, (_, item) => item).filter((item) => !mine.has(item));
  order.sort((a, b) => scores[b] - scores[a] || a - b);
  return order.slice(0, k).map((item) => ({ item, score: scores[item], because: reasons(model, own, ready, item) }));
}

/** Own items that speak for an item, the strongest first, and their part of all that do. */
function reasons(model, own, ready, item) {
  const shares = model.shares(own, ready, item);
  if (shares === null) return [];
  const good = own.items.map((mine, place) => ({ item: mine, share: shares[place] })).filter(({ share }) => share > 0);
  const sum = good.reduce((total, { share }) => total + share, 0);
  good.sort((a, b) => b.share - a.share || a.item - b.item);
  return good.map(({ item: mine, share }) => ({ item: mine, share: share / sum }));
}
