// NeuMF's sharpness-aware gradients for a batch of clients, one client after another with everything in the L2 cache.
//
// The same mathematics as neumf.py, which is the reference: names and equations there. Sizes are macros, all multiples of
// 16. Compiled behind matrices.cpp by compiler.py.

// ---- the model --------------------------------------------------------------------------------------------------

struct Tables { const float *gmf, *mlp, *half; };  // over items

struct Network {  // [out, in] matrices, and their transposes for the forward pass; w1 is the item half of layer 1
  const float *w1, *w1t, *w2, *w2t, *b2, *w3, *w3t, *b3, *out_gmf, *out_mlp;
  float out_bias;
};

struct Ahead { const int64_t* rows; int n; };  // items of the next block: random rows of large tables, asked for early

struct Client { const int64_t* rows; const float *labels, *weights, *u1, *u2; Ahead next; };

struct Buffers { float *x, *a1, *a2, *a3, *e1, *e2, *e3; };  // rows v2, activations and ∂L/∂z of a block

struct Sums {  // over a client's examples
  float b1[H1]{}, b2[H2]{}, b3[H3]{}, gmf[G]{}, mlp[H3]{};  // gradients of biases; Σ e v1; of out_mlp
  float bias = 0, loss = 0, errors = 0;                     // of out_bias; L; Σ e², or e times the first pass's e
};

static const int BLOCK = 144;  // examples whose buffers fit the L2 cache beside the weights

static void fetch(const Tables& items, const Ahead& next, int quarter) {
  for (int s = quarter * next.n / 4; s < (quarter + 1) * next.n / 4; s++) {
    const int64_t row = next.rows[s];
    prefetch(items.gmf + row * G, G), prefetch(items.mlp + row * M, M), prefetch(items.half + row * H1, H1);
  }
}

// h1 where the item half of layer 1 is that of the shared point.
static void first_layer(int n, const int64_t* rows, const Tables& items, const float* first, float* a1) {
  for (int s = 0; s < n; s++)
    for (int h = 0; h < H1; h += LANES) {
      vec z = load(items.half + rows[s] * H1 + h) + load(first + h);
      store(a1 + s * H1 + h, z > 0 ? z : vec{});
    }
}

// ∂L/∂logit of a block into e, ∂L/∂z3, and the sums made of these. `before` is e of the first pass: where v1 was moved
// along it, its part of the logit follows from `slope`, so the moved v1 is never built.
static void output(int n, const Client& c, const Network& net, const Tables& items, const float* u1, float slope,
                   const float* before, bool first_pass, const Buffers& t, float* e, Sums& sums) {
  float scaled[G];
  for (int g = 0; g < G; g++) scaled[g] = u1[g] * net.out_gmf[g];
  for (int s = 0; s < n; s++) {
    const vec gmf = products<G>(scaled, items.gmf + c.rows[s] * G), mlp = products<H3>(net.out_mlp, t.a3 + s * H3);
    e[s] = sum(gmf + mlp) + net.out_bias;
  }
  for (int s = 0; s < n; s++) {
    const float z = e[s] + (first_pass ? 0 : slope * before[s]);
    const float small = std::exp(-std::fabs(z)), p = (z >= 0 ? 1.0f : small) / (1 + small);
    e[s] = c.weights[s] * (p - c.labels[s]);
    sums.bias += e[s], sums.errors += e[s] * (first_pass ? e[s] : before[s]);
    if (first_pass) sums.loss += c.weights[s] * (std::max(z, 0.0f) - z * c.labels[s] + std::log1p(small));
  }
  for (int s = 0; s < n; s++)
    for (int h = 0; h < H3; h += LANES)
      store(t.e3 + s * H3 + h, load(t.a3 + s * H3 + h) > 0 ? e[s] * load(net.out_mlp + h) : vec{});
  for (int g = 0; g < G; g += LANES) {
    vec gmf = load(sums.gmf + g);
    for (int s = 0; s < n; s++) gmf += e[s] * load(items.gmf + c.rows[s] * G + g);
    store(sums.gmf + g, gmf);
  }
  multiply(1, H3, n, {e, 1, 1}, t.a3, H3, sums.mlp, {sums.mlp});
  add_column_sums(t.e3, n, H3, sums.b3);
}

// From h1 (in a1) through the tower and back.
static void pass(int n, const Client& c, const Network& net, const Tables& items, const float* u1, float slope,
                 const float* before, bool first_pass, const Buffers& t, float* e, Sums& sums) {
  layer(n, H1, H2, t.a1, net.w2t, net.b2, t.a2), fetch(items, c.next, 0);
  layer(n, H2, H3, t.a2, net.w3t, net.b3, t.a3), fetch(items, c.next, 1);
  output(n, c, net, items, u1, slope, before, first_pass, t, e, sums);
  back(n, H2, H3, t.e3, net.w3, t.a2, t.e2), fetch(items, c.next, 2);
  back(n, H1, H2, t.e2, net.w2, t.a1, t.e1), fetch(items, c.next, 3);
  add_column_sums(t.e1, n, H1, sums.b1);
}

// ---- the clients ------------------------------------------------------------------------------------------------

struct Matrices { float *w1, *w2, *w3; };

struct Gradient {  // of the shared tensors, Eq. 15: summed over clients, except for item rows
  Matrices w;
  float *b2, *b3, *out_gmf, *out_mlp, *out_bias;
};

struct Scratch {
  Buffers t;
  Matrices g, p, pt;  // a client's gradients, and its perturbed matrices
  float *e, *before;  // ∂L/∂logit of a block, and that of the first pass of all examples
};

// Gradients of the matrices and of the item rows from the signals of a block.
static void matrices_and_rows(int n, const Network& net, const float* u1, const Buffers& t, const float* e,
                              const Matrices& to, bool add, Sums& sums, float* row_gmf, float* row_mlp) {
  outer(n, M, H1, t.e1, t.x, M, to.w1, add);
  outer(n, H1, H2, t.e2, t.a1, H1, to.w2, add);
  outer(n, H2, H3, t.e3, t.a2, H2, to.w3, add);
  add_column_sums(t.e2, n, H2, sums.b2);
  multiply(n, M, H1, {t.e1, H1, 1}, net.w1, M, row_mlp, {});
  for (int s = 0; s < n; s++)
    for (int g = 0; g < G; g += LANES) store(row_gmf + s * G + g, e[s] * load(u1 + g) * load(net.out_gmf + g));
}

static void add_small(const Sums& sums, const float* u1, const Gradient& to) {
  moved(to.b2, 1, sums.b2, to.b2, H2), moved(to.b3, 1, sums.b3, to.b3, H3);
  moved(to.out_mlp, 1, sums.mlp, to.out_mlp, H3);
  for (int g = 0; g < G; g++) to.out_gmf[g] += u1[g] * sums.gmf[g];
  *to.out_bias += sums.bias;
}

// Blocks of about equal size, full tiles of rows but for the last one.
template <class Action>
static void in_blocks(int n, Action action) {
  const int blocks = (n + BLOCK - 1) / BLOCK, size = blocks ? ((n + blocks - 1) / blocks + 5) / 6 * 6 : 1;
  for (int from = 0; from < n; from += size) action(from, std::min(size, n - from));
}

// Examples from … from + size of a client's n.
static Client part(const Client& c, int from, int size, int n) {
  const int left = n - from - size;
  const Ahead next = left > 0 ? Ahead{c.rows + from + size, std::min(size, left)} : c.next;
  return {c.rows + from, c.labels + from, c.weights + from, c.u1, c.u2, next};
}

// The gradient at (θ_co, θ_ur): of matrices into `to`, of the client's rows, and sums.
static Sums at_the_point(int n, const Client& c, const Network& net, const Tables& items, const float* first,
                         const Matrices& to, bool add, const Scratch& own, float* row_gmf, float* row_mlp) {
  Sums sums;
  in_blocks(n, [&](int from, int size) {
    const Client here = part(c, from, size, n);
    for (int s = 0; s < size; s++) std::memcpy(own.t.x + s * M, items.mlp + here.rows[s] * M, M * sizeof(float));
    first_layer(size, here.rows, items, first, own.t.a1);
    pass(size, here, net, items, c.u1, 0, nullptr, true, own.t, own.before + from, sums);
    matrices_and_rows(size, net, c.u1, own.t, own.before + from, to, add || from, sums, row_gmf + from * G,
                      row_mlp + from * M);
  });
  return sums;
}

// g_co, Eq. 15: the gradient where the client's shared tensors are worst; `first` and the rows are overwritten.
static Sums shared_sam(int n, const Client& c, const Network& net, const Tables& items, float rho, const Sums& sums,
                       float* first, const Matrices& to, const Scratch& own, float* row_gmf, float* row_mlp) {
  float d_gmf[G], moved_gmf[G], moved_mlp[H3], moved_b2[H2], moved_b3[H3], row[G];
  for (int g = 0; g < G; g++) d_gmf[g] = c.u1[g] * sums.gmf[g], row[g] = c.u1[g] * net.out_gmf[g];
  const float stretch = 1 + dot(c.u2, c.u2, M);
  const double square = squared(own.g.w1, H1 * M) + squared(own.g.w2, H2 * H1) + squared(own.g.w3, H3 * H2) +
                        stretch * squared(sums.b1, H1) + squared(sums.b2, H2) + squared(sums.b3, H3) +
                        squared(d_gmf, G) + squared(sums.mlp, H3) + sums.bias * sums.bias +
                        squared(row_mlp, n * M) + sums.errors * squared(row, G);
  const float scale = rho / (std::sqrt(square) + 1e-12);  // Eq. 14
  moved_both(H1, M, net.w1, scale, own.g.w1, own.p.w1, own.pt.w1);
  moved_both(H2, H1, net.w2, scale, own.g.w2, own.p.w2, own.pt.w2);
  moved_both(H3, H2, net.w3, scale, own.g.w3, own.p.w3, own.pt.w3);
  moved(net.b2, scale, sums.b2, moved_b2, H2), moved(net.b3, scale, sums.b3, moved_b3, H3);
  moved(net.out_gmf, scale, d_gmf, moved_gmf, G), moved(net.out_mlp, scale, sums.mlp, moved_mlp, H3);
  moved(first, scale * stretch, sums.b1, first, H1);
  const Network worst{own.p.w1, own.pt.w1, own.p.w2, own.pt.w2, moved_b2, own.p.w3, own.pt.w3, moved_b3,
                      moved_gmf, moved_mlp, net.out_bias + scale * sums.bias};
  float slope = 0;  // the rows v1 moved by scale e u1 out_gmf
  for (int g = 0; g < G; g++) slope += scale * row[g] * c.u1[g] * moved_gmf[g];
  Sums found;
  in_blocks(n, [&](int from, int size) {
    const Client here = part(c, from, size, n);
    for (int s = 0; s < size; s++)
      moved(items.mlp + here.rows[s] * M, scale, row_mlp + (from + s) * M, own.t.x + s * M, M);
    layer(size, M, H1, own.t.x, worst.w1t, first, own.t.a1);
    pass(size, here, worst, items, c.u1, slope, own.before + from, false, own.t, own.e, found);
    matrices_and_rows(size, worst, c.u1, own.t, own.e, to, true, found, row_gmf + from * G, row_mlp + from * M);
  });
  moved(found.gmf, scale * found.errors, row, found.gmf, G);
  return found;
}

// Sums of g_ur, Eq. 12: the user gradient where the user vector is worst. W1_user W1_userᵀ gives the norm of its MLP
// half and what it does to layer 1, so neither is built.
static Sums private_sam(int n, const Client& c, const Network& net, const Tables& items, float rho, const Sums& sums,
                        const float* first, const float* w1_user_square, const Scratch& own) {
  float half[H1], gmf[G];
  for (int g = 0; g < G; g++) gmf[g] = net.out_gmf[g] * sums.gmf[g];
  multiply(1, H1, H1, {sums.b1, H1, 1}, w1_user_square, H1, half, {});
  const float scale = rho / (std::sqrt(squared(gmf, G) + dot(sums.b1, half, H1)) + 1e-12);  // Eq. 11
  moved(c.u1, scale, gmf, gmf, G), moved(first, scale, half, half, H1);
  Sums found;
  in_blocks(n, [&](int from, int size) {
    const Client here = part(c, from, size, n);
    first_layer(size, here.rows, items, half, own.t.a1);
    pass(size, here, net, items, gmf, 0, own.before, false, own.t, own.e, found);
  });
  return found;
}

// Both sharpness-aware gradients of each client, rows of `width` examples; no client's matrix is kept.
extern "C" void neumf_gradients(
    int clients, int width, const int64_t* lengths /*[clients]*/, const int64_t* rows /*[clients, width]*/,
    const float* labels /*[clients, width]*/, const float* weights /*[clients, width]*/,
    const float* user /*[clients, G + M]*/, const float* item_gmf /*[items, G]*/, const float* item_mlp /*[items, M]*/,
    const float* item_half /*[items, H1]*/, const float* w1_user /*[H1, M]*/, const float* w1_item /*[H1, M]*/,
    const float* b1 /*[H1]*/, const float* w2 /*[H2, H1]*/, const float* b2 /*[H2]*/, const float* w3 /*[H3, H2]*/,
    const float* b3 /*[H3]*/, const float* out_gmf /*[G]*/, const float* out_mlp /*[H3]*/,
    const float* out_bias /*[1]*/, float rho_co, float rho_ur, float* loss /*[clients]*/,
    float* h_user /*[clients, G + M]*/, float* row_gmf /*[clients, width, G]*/, float* row_mlp /*[clients, width, M]*/,
    float* w1_user_sum /*[H1, M]*/, float* w1_sum /*[H1, M]*/, float* b1_sum /*[H1]*/, float* w2_sum /*[H2, H1]*/,
    float* b2_sum /*[H2]*/, float* w3_sum /*[H3, H2]*/, float* b3_sum /*[H3]*/, float* gmf_sum /*[G]*/,
    float* mlp_sum /*[H3]*/, float* bias_sum /*[1]*/) {
  Memory memory(BLOCK * (2 * M + 2 * H1 + 2 * H2 + 2 * H3 + 1) + width + clients * (3 * H1 + M) +
                3 * (H1 * M + H2 * H1 + H3 * H2) + H1 * M + H1 * H2 + H2 * H3 + H1 * H1 + 1024);
  auto take = [&memory](size_t n) { return memory.take(n); };
  auto matrices = [&take] { return Matrices{take(H1 * M), take(H2 * H1), take(H3 * H2)}; };
  const Scratch own{{take(BLOCK * M), take(BLOCK * H1), take(BLOCK * H2), take(BLOCK * H3), take(BLOCK * H1),
                     take(BLOCK * H2), take(BLOCK * H3)}, matrices(), matrices(), matrices(), take(BLOCK), take(width)};
  float *w1_user_t = take(M * H1), *w2t = take(H1 * H2), *w3t = take(H2 * H3), *w1_user_square = take(H1 * H1);
  transpose(H1, M, w1_user, w1_user_t), transpose(H2, H1, w2, w2t), transpose(H3, H2, w3, w3t);
  multiply(H1, H1, M, {w1_user, M, 1}, w1_user_t, H1, w1_user_square, {});
  const Tables items{item_gmf, item_mlp, item_half};
  const Network net{w1_item, nullptr, w2, w2t, b2, w3, w3t, b3, out_gmf, out_mlp, *out_bias};
  const Gradient total{{w1_sum, w2_sum, w3_sum}, b2_sum, b3_sum, gmf_sum, mlp_sum, bias_sum};
  float *first = take(clients * H1), *d_shared = take(clients * H1), *d_user = take(clients * H1);
  float* u2 = take(clients * M);
  multiply(clients, H1, M, {user + G, G + M, 1}, w1_user_t, H1, first, {b1});  // W1_user u2 + b1

  for (int c = 0; c < clients; c++) {
    const int n = lengths[c];
    const int64_t at = (int64_t)c * width;
    const Ahead next{rows + at + width, c + 1 < clients ? std::min((int)lengths[c + 1], BLOCK) : 0};
    const Client client{rows + at, labels + at, weights + at, user + c * (G + M), user + c * (G + M) + G, next};
    float *own_gmf = row_gmf + at * G, *own_mlp = row_mlp + at * M, *own_first = first + c * H1;
    const Sums sums = at_the_point(n, client, net, items, own_first, rho_co > 0 ? own.g : total.w, rho_co == 0, own,
                                   own_gmf, own_mlp);
    const Sums user_sums =
        rho_ur > 0 ? private_sam(n, client, net, items, rho_ur, sums, own_first, w1_user_square, own) : sums;
    const Sums shared_sums = rho_co > 0 && n > 0 ? shared_sam(n, client, net, items, rho_co, sums, own_first, total.w,
                                                              own, own_gmf, own_mlp) : sums;
    add_small(shared_sums, client.u1, total);
    loss[c] = sums.loss;
    for (int g = 0; g < G; g++) h_user[c * (G + M) + g] = out_gmf[g] * user_sums.gmf[g];
    std::copy(user_sums.b1, user_sums.b1 + H1, d_user + c * H1);
    std::copy(shared_sums.b1, shared_sums.b1 + H1, d_shared + c * H1);
    std::fill(own_gmf + n * G, own_gmf + width * G, 0.0f);  // padding contributes nothing
    std::fill(own_mlp + n * M, own_mlp + width * M, 0.0f);
  }
  multiply(clients, M, H1, {d_user, H1, 1}, w1_user, M, u2, {});
  for (int c = 0; c < clients; c++) std::copy(u2 + c * M, u2 + (c + 1) * M, h_user + c * (G + M) + G);
  outer(clients, M, H1, d_shared, user + G, G + M, w1_user_sum, false);  // rank one for each client
  add_column_sums(d_shared, clients, H1, b1_sum);
}

// Logits of `width` items for each client, in blocks that stay in the L1 cache.
extern "C" void neumf_scores(
    int clients, int width, const int64_t* items /*[clients, width]*/, const float* user /*[clients, G + M]*/,
    const float* item_gmf /*[n, G]*/, const float* item_half /*[n, H1]*/, const float* w1_user /*[H1, M]*/,
    const float* b1 /*[H1]*/, const float* w2 /*[H2, H1]*/, const float* b2 /*[H2]*/, const float* w3 /*[H3, H2]*/,
    const float* b3 /*[H3]*/, const float* out_gmf /*[G]*/, const float* out_mlp /*[H3]*/,
    const float* out_bias /*[1]*/, float* scores /*[clients, width]*/) {
  const int block = 54, strip = 6;  // nine tiles of six rows; two blocks for the usual hundred candidates
  Memory memory(block * (H1 + H2 + H3) + M * H1 + H1 * H2 + H2 * H3 + clients * H1 + 256);
  float *a1 = memory.take(block * H1), *a2 = memory.take(block * H2), *a3 = memory.take(block * H3);
  float *w1_user_t = memory.take(M * H1), *w2t = memory.take(H1 * H2), *w3t = memory.take(H2 * H3);
  float* first = memory.take(clients * H1);
  transpose(H1, M, w1_user, w1_user_t), transpose(H2, H1, w2, w2t), transpose(H3, H2, w3, w3t);
  multiply(clients, H1, M, {user + G, G + M, 1}, w1_user_t, H1, first, {b1});
  const int64_t* end = items + (int64_t)clients * width;
  for (int c = 0; c < clients; c++) {
    float scaled[G];
    for (int g = 0; g < G; g++) scaled[g] = user[c * (G + M) + g] * out_gmf[g];
    for (int start = 0; start < width; start += block) {
      const int n = std::min(block, width - start);
      const int64_t *at = items + (int64_t)c * width + start, *next = at + n;
      first_layer(n, at, {item_gmf, nullptr, item_half}, first + c * H1, a1);
      for (int s = 0; s < n; s += strip, next += strip) {  // the next block's rows arrive during this one's products
        for (const int64_t* row = next; row < std::min(next + strip, end); row++)
          prefetch(item_half + *row * H1, H1), prefetch(item_gmf + *row * G, G);
        layer(std::min(strip, n - s), H1, H2, a1 + s * H1, w2t, b2, a2 + s * H2);
      }
      layer(n, H2, H3, a2, w3t, b3, a3);
      for (int s = 0; s < n; s++)
        scores[(int64_t)c * width + start + s] =
            sum(products<G>(scaled, item_gmf + at[s] * G) + products<H3>(out_mlp, a3 + s * H3)) + *out_bias;
    }
  }
}

// The item half of layer 1, W1_item v2, of every item.
extern "C" void neumf_item_half(int n, const float* item_mlp /*[n, M]*/, const float* w1_item /*[H1, M]*/,
                                float* half /*[n, H1]*/) {
  Memory memory(M * H1);
  float* w1t = memory.take(M * H1);
  transpose(H1, M, w1_item, w1t);
  for (int64_t from = 0; from < n; from += BLOCK) {
    const int size = std::min<int64_t>(BLOCK, n - from);
    multiply(size, H1, M, {item_mlp + from * M, M, 1}, w1t, H1, half + from * H1, {});
  }
}

// One Adam step into new memory. `new1` and `new2` are 1 - β; `rate` and `root` correct the bias of m and v.
extern "C" void adam(
    int n, const float* __restrict value /*[n]*/, const float* __restrict gradient /*[n]*/,
    const float* __restrict m /*[n]*/, const float* __restrict v /*[n]*/, float new1, float beta2, float new2,
    float eps, float rate, float root, float* __restrict new_value /*[n]*/, float* __restrict new_m /*[n]*/,
    float* __restrict new_v /*[n]*/) {
  for (int i = 0; i < n; i++) {
    const float g = gradient[i];
    new_m[i] = m[i] + new1 * (g - m[i]);
    new_v[i] = beta2 * v[i] + new2 * g * g;
    new_value[i] = value[i] - rate * new_m[i] / (std::sqrt(new_v[i]) / root + eps);
  }
}
