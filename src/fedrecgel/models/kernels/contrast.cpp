// The supervised contrastive term of item tables and its gradient, one client after another.
//
// The same mathematics as contrast.py, which is the reference. D, the size of a row, is a macro and a multiple of 16.
// Compiled behind matrices.cpp by compiler.py.

static const int ANCHORS = 32;  // handled at once: their powers stay in the cache
static const int TILE = 96;     // items whose powers stay in the L1 cache; eight tiles of twelve rows

static inline vec exponential(vec x) {  // for -87 < x < 1, to about 1e-6 of itself
  const vec t = x * 1.44269504f;
  const ints whole = __builtin_convertvector(t - 0.5f, ints);  // towards zero: the nearest for what is negative
  const vec f = t - __builtin_convertvector(whole, vec);
  const vec power = 1 + f * (0.693147182f + f * (0.240226462f + f * (0.0555032898f + f * (0.00961830560f +
                    f * (0.00133908420f + f * 0.000154689543f)))));
  union { vec f; ints i; } bits{power};
  bits.i += whole << 23;
  return bits.f;
}

struct Term {  // of all clients alike
  int n, n_anchors, n_labels;
  const int64_t *labels, *anchors;
  const float *sizes, *share;  // of each item: how many others have its label; its weight in the mean
  float temperature, epsilon;
};

// Weight of an anchor's attraction. Alone with its label it has none: rounding must not be multiplied by 1/ε.
static inline float pull(const Term& term, int64_t i) {
  return term.sizes[i] > 0 ? -term.share[i] / term.temperature : 0;
}

struct Table { float *z, *lengths, *slope; };  // rows at unit length, their lengths, ∂/∂z

// Unit rows; slope starts with what attracts an item to the anchors of its label. Returns that part of the loss.
static double attraction(const Term& term, const float* items, const Table& own, float* by_label) {
  float* pulled = by_label + term.n_labels * D;
  std::fill(by_label, by_label + 2 * term.n_labels * D, 0.0f);
  for (int i = 0; i < term.n; i++) {
    own.lengths[i] = std::max(std::sqrt(dot(items + i * D, items + i * D, D)), 1e-12f);
    float *z = own.z + i * D, *sum = by_label + term.labels[i] * D;
    for (int k = 0; k < D; k += LANES) store(z + k, load(items + i * D + k) / own.lengths[i]);
    moved(sum, 1, z, sum, D);
  }
  for (int a = 0; a < term.n_anchors; a++) {
    const int64_t i = term.anchors[a];
    float* sum = pulled + term.labels[i] * D;
    moved(sum, pull(term, i), own.z + i * D, sum, D);
  }
  for (int i = 0; i < term.n; i++) std::memcpy(own.slope + i * D, pulled + term.labels[i] * D, D * sizeof(float));
  double loss = 0;
  for (int a = 0; a < term.n_anchors; a++) {
    const int64_t i = term.anchors[a];
    const float *z = own.z + i * D, weight = pull(term, i);
    float same[D], *slope = own.slope + i * D;
    moved(by_label + term.labels[i] * D, -1, z, same, D);
    loss += weight * dot(z, same, D);
    for (int k = 0; k < D; k += LANES) store(slope + k, load(slope + k) + weight * (load(same + k) - load(z + k)));
  }
  return loss;
}

// What pushes items away from some anchors: softmax over all other items. Returns that part of the loss.
static double repulsion(const Term& term, const int64_t* anchors, int width, const Table& own, float* powers) {
  const float bound = 1 / term.temperature;  // no logit is larger
  float here[ANCHORS * D]{}, here_t[D * ANCHORS], found[ANCHORS * D], total[ANCHORS]{}, top[ANCHORS];
  std::fill(top, top + ANCHORS, -bound);
  for (int a = 0; a < width; a++)
    for (int k = 0; k < D; k++) here[a * D + k] = own.z[anchors[a] * D + k] / term.temperature;
  transpose(ANCHORS, D, here, here_t);
  for (int from = 0; from < term.n; from += TILE) {
    const int size = std::min(TILE, term.n - from);
    float* tile = powers + from * ANCHORS;
    multiply(size, ANCHORS, D, {own.z + from * D, D, 1}, here_t, ANCHORS, tile, {});
    for (int a = 0; a < width; a++)
      if (anchors[a] >= from && anchors[a] < from + size) tile[(anchors[a] - from) * ANCHORS + a] = bound - 80;
    for (int a = 0; a < ANCHORS; a += LANES) {
      vec sum = load(total + a), most = load(top + a);
      for (int i = 0; i < size; i++) {
        const vec logit = load(tile + i * ANCHORS + a), power = exponential(logit - bound);
        most = logit > most ? logit : most;
        sum += power;
        store(tile + i * ANCHORS + a, power);
      }
      store(total + a, sum), store(top + a, most);
    }
    outer(size, D, ANCHORS, tile, own.z + from * D, D, found, from > 0);  // Σ_j powers_ij z_j
  }
  double loss = 0;
  for (int a = 0; a < width; a++) {
    const int64_t i = anchors[a];
    const float back = std::exp(bound - top[a]), sum = total[a] * back + term.epsilon;
    const float weight = term.share[i] * term.sizes[i], push = weight * back / sum;
    loss += weight * (top[a] + std::log(sum));
    moved(own.slope + i * D, push / term.temperature, found + a * D, own.slope + i * D, D);
    for (int k = 0; k < D; k++) here[a * D + k] *= push;
  }
  multiply(term.n, D, ANCHORS, {powers, ANCHORS, 1}, here, D, own.slope, {own.slope, D});
  return loss;
}

// Loss of each client's table, and `use` of the gradient by each of its rows.
template <typename Use>
static void contrast_each(const Term& term, int clients, const float* tables, float* losses, const Use& use) {
  const int n = term.n;
  Memory memory((size_t)n * (2 * D + 1 + ANCHORS) + 2 * term.n_labels * D + 80);
  float *z = memory.take((size_t)n * D), *lengths = memory.take(n), *powers = memory.take((size_t)n * ANCHORS);
  float *by_label = memory.take(2 * term.n_labels * D), *slope = memory.take((size_t)n * D);
  const Table own{z, lengths, slope};
  for (int c = 0; c < clients; c++) {
    double loss = attraction(term, tables + (size_t)c * n * D, own, by_label);
    for (int a = 0; a < term.n_anchors; a += ANCHORS)
      loss += repulsion(term, term.anchors + a, std::min(ANCHORS, term.n_anchors - a), own, powers);
    losses[c] = loss;
    for (int i = 0; i < n; i++) {  // through the division by the length
      const float along = dot(z + i * D, slope + i * D, D);
      moved(slope + i * D, -along, z + i * D, slope + i * D, D);
      for (int k = 0; k < D; k += LANES) use(c, (size_t)i * D + k, load(slope + i * D + k) / lengths[i]);
    }
  }
}

// Loss of each client's table [n, D] and its gradient.
extern "C" void contrast(
    int clients, int n, int n_anchors, int n_labels, const float* tables /*[clients, n, D]*/,
    const int64_t* labels /*[n]*/, const int64_t* anchors /*[n_anchors]*/, const float* sizes /*[n]*/,
    const float* share /*[n]*/, float temperature, float epsilon, float* losses /*[clients]*/,
    float* gradients /*[clients, n, D]*/) {
  const Term term{n, n_anchors, n_labels, labels, anchors, sizes, share, temperature, epsilon};
  contrast_each(term, clients, tables, losses,
                [&](int c, size_t at, vec slope) { store(gradients + (size_t)c * n * D + at, slope); });
}

// The same, where each table goes `rates` times its gradient down, in place.
extern "C" void descend(
    int clients, int n, int n_anchors, int n_labels, const int64_t* labels /*[n]*/,
    const int64_t* anchors /*[n_anchors]*/, const float* sizes /*[n]*/, const float* share /*[n]*/,
    const float* rates /*[clients]*/, float temperature, float epsilon, float* losses /*[clients]*/,
    float* tables /*[clients, n, D]*/) {
  const Term term{n, n_anchors, n_labels, labels, anchors, sizes, share, temperature, epsilon};
  contrast_each(term, clients, tables, losses, [&](int c, size_t at, vec slope) {
    float* entry = tables + (size_t)c * n * D + at;
    store(entry, load(entry) - rates[c] * slope);
  });
}
