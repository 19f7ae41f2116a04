// NeuMF's sharpness-aware gradients for a batch of clients, one client after another with everything in the L2 cache.
//
// The same mathematics as neumf.py, which is the reference: names and equations there. Plain C++17 with the vector
// extension of GCC; sizes are macros, all multiples of 16. Matrices are row-major.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int i16v __attribute__((vector_size(64)));

static inline v16 load(const float* p) { return *reinterpret_cast<const v16*>(p); }
static inline void store(float* p, v16 v) { *reinterpret_cast<v16*>(p) = v; }

// ---- C = A B (+ C): A is [m, k] with any strides, B is [k, n] ---------------------------------------------------

template <int MR, int NV, bool ADD>
static inline void tile(int k, const float* a, int rs, int cs, const float* b, int ldb, float* c, int ldc) {
  v16 acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) acc[i][j] = ADD ? load(c + i * ldc + 16 * j) : v16{};
  for (int p = 0; p < k; p++, a += cs, b += ldb) {
    v16 row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) row[j] = load(b + 16 * j);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) acc[i][j] += a[i * rs] * row[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) store(c + i * ldc + 16 * j, acc[i][j]);
}

// As many tiles of MR rows as fit, then one of exactly the rows that are left.
template <int MR, int NV, bool ADD>
static void panel(int m, int k, const float* a, int rs, int cs, const float* b, int ldb, float* c, int ldc) {
  for (; m >= MR; m -= MR, a += MR * rs, c += MR * ldc) tile<MR, NV, ADD>(k, a, rs, cs, b, ldb, c, ldc);
  if constexpr (MR > 1)
    if (m > 0) panel<MR - 1, NV, ADD>(m, k, a, rs, cs, b, ldb, c, ldc);
}

template <bool ADD>
static void multiply(int m, int n, int k, const float* a, int rs, int cs, const float* b, float* c) {
  int j = 0;
  for (; j + 64 <= n; j += 64) panel<6, 4, ADD>(m, k, a, rs, cs, b + j, n, c + j, n);
  for (; j + 32 <= n; j += 32) panel<12, 2, ADD>(m, k, a, rs, cs, b + j, n, c + j, n);
  for (; j < n; j += 16) panel<12, 1, ADD>(m, k, a, rs, cs, b + j, n, c + j, n);
}

// ---- small helpers ----------------------------------------------------------------------------------------------

template <int H>
static inline void exchange(v16* r) {  // swap the off-diagonal blocks of size H
  i16v up, down;
  for (int l = 0; l < 16; l++) {
    up[l] = (l & H) ? 16 + l - H : l;
    down[l] = (l & H) ? 16 + l : l + H;
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++)
    if (!(i & H)) {
      v16 a = r[i], b = r[i + H];
      r[i] = __builtin_shuffle(a, b, up);
      r[i + H] = __builtin_shuffle(a, b, down);
    }
}

static void transpose(int m, int n, const float* from, float* to) {  // [m, n] to [n, m]
  for (int i = 0; i < m; i += 16)
    for (int j = 0; j < n; j += 16) {
      v16 r[16];
#pragma GCC unroll 16
      for (int k = 0; k < 16; k++) r[k] = load(from + (i + k) * n + j);
      exchange<8>(r), exchange<4>(r), exchange<2>(r), exchange<1>(r);
#pragma GCC unroll 16
      for (int k = 0; k < 16; k++) store(to + (j + k) * m + i, r[k]);
    }
}

static inline float sum(v16 v) {  // by halves: sixteen additions in a row would wait for each other
  for (int h = 8; h > 0; h /= 2)
    for (int l = 0; l < h; l++) v[l] += v[l + h];
  return v[0];
}

static float dot(const float* a, const float* b, int n) {
  v16 s0{}, s1{};
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    s0 += load(a + i) * load(b + i);
    s1 += load(a + i + 16) * load(b + i + 16);
  }
  for (; i < n; i += 16) s0 += load(a + i) * load(b + i);
  return sum(s0 + s1);
}

static void moved(const float* from, float scale, const float* by, float* to, int n) {  // to = from + scale * by
  for (int i = 0; i < n; i += 16) store(to + i, load(from + i) + scale * load(by + i));
}

static const int AHEAD = 4;  // items are random rows of large tables: ask for them early

static inline void prefetch(const float* row, int n) {
  for (int i = 0; i < n; i += 16) __builtin_prefetch(row + i);
}

static void column_sums(const float* a, int m, int n, float* out) {
  for (int j = 0; j < n; j += 16) {
    v16 s{};
    for (int i = 0; i < m; i++) s += load(a + i * n + j);
    store(out + j, s);
  }
}

static void relu(float* a, int n) {
  for (int i = 0; i < n; i += 16) {
    v16 x = load(a + i);
    store(a + i, x > 0 ? x : v16{});
  }
}

static void mask(float* error, const float* activation, int n) {  // ReLU backward
  for (int i = 0; i < n; i += 16) store(error + i, load(activation + i) > 0 ? load(error + i) : v16{});
}

// ---- the model --------------------------------------------------------------------------------------------------

struct Network {  // [out, in] matrices, and their transposes for the forward pass; w1 is the item half of layer 1
  const float *w1, *w2, *w2t, *b2, *w3, *w3t, *b3, *out_gmf, *out_mlp;
  float out_bias;
};

struct Buffers {  // activations and errors of one client's n examples
  float *a1, *a2, *a3, *e1, *e2, *e3, *e;
};

// From z1 (in a1) through the tower.
static void forward(int n, const float* w2t, const float* b2, const float* w3t, const float* b3, float* a1, float* a2,
                    float* a3) {
  relu(a1, n * H1);
  for (int s = 0; s < n; s++) std::memcpy(a2 + s * H2, b2, H2 * sizeof(float));
  multiply<true>(n, H2, H1, a1, H1, 1, w2t, a2);
  relu(a2, n * H2);
  for (int s = 0; s < n; s++) std::memcpy(a3 + s * H3, b3, H3 * sizeof(float));
  multiply<true>(n, H3, H2, a2, H2, 1, w3t, a3);
  relu(a3, n * H3);
}

// From z1 (in a1) to errors; returns the loss.
static float pass(int n, const Network& net, const float* v1, const float* u1, const float* labels,
                  const float* weights, const Buffers& t) {
  forward(n, net.w2t, net.b2, net.w3t, net.b3, t.a1, t.a2, t.a3);
  float scaled[G], loss = 0;
  for (int g = 0; g < G; g++) scaled[g] = u1[g] * net.out_gmf[g];
  for (int s = 0; s < n; s++) {
    float z = dot(scaled, v1 + s * G, G) + dot(net.out_mlp, t.a3 + s * H3, H3) + net.out_bias;
    float small = std::exp(-std::fabs(z)), p = (z >= 0 ? 1.0f : small) / (1 + small);
    t.e[s] = weights[s] * (p - labels[s]);
    loss += weights[s] * (std::max(z, 0.0f) - z * labels[s] + std::log1p(small));
    for (int h = 0; h < H3; h += 16) {
      v16 active = load(t.a3 + s * H3 + h);
      store(t.e3 + s * H3 + h, active > 0 ? t.e[s] * load(net.out_mlp + h) : v16{});
    }
  }
  multiply<false>(n, H2, H3, t.e3, H3, 1, net.w3, t.e2);
  mask(t.e2, t.a2, n * H2);
  multiply<false>(n, H1, H2, t.e2, H2, 1, net.w2, t.e1);
  mask(t.e1, t.a1, n * H1);
  return loss;
}

static void user_gradient(int n, const Network& net, const float* v1, const float* w1_user, const Buffers& t,
                          float* g) {
  float first[H1];
  std::fill(g, g + G + M, 0.0f);
  multiply<true>(1, G, n, t.e, 1, 1, v1, g);
  for (int k = 0; k < G; k++) g[k] *= net.out_gmf[k];
  column_sums(t.e1, n, H1, first);
  multiply<true>(1, M, H1, first, 1, 1, w1_user, g + G);
}

static void meet(const float* w1_user_t, const float* b1, const float* u2, float* first) {  // W1_user u2 + b1
  std::copy(b1, b1 + H1, first);
  multiply<true>(1, H1, M, u2, 1, 1, w1_user_t, first);
}

// Both sharpness-aware gradients of each client. Network gradients are added up over clients: no client's matrix is kept.
extern "C" void neumf_gradients(
    int clients, int width, const int64_t* lengths, const int64_t* rows, const float* labels, const float* weights,
    const float* user, const float* item_gmf, const float* item_mlp, const float* item_half, const float* w1_user,
    const float* w1_item, const float* b1, const float* w2, const float* b2, const float* w3, const float* b3,
    const float* out_gmf, const float* out_mlp, const float* out_bias, float rho_co, float rho_ur, float* loss,
    float* h_user, float* row_gmf, float* row_mlp, float* first_each, float* w1_sum, float* w2_sum, float* b2_sum,
    float* w3_sum, float* b3_sum, float* gmf_sum, float* mlp_sum, float* bias_sum) {
  const int block = (width + 15) / 16 * 16;
  std::vector<float> scratch(block * (2 * M + 2 * H1 + 2 * H2 + 2 * H3 + H1 + 2 * G + 1) +
                             4 * H1 * M + 4 * H2 * H1 + 4 * H3 * H2 + H1 + H2 + 2 * H3 + G);
  float* free = scratch.data();
  auto take = [&free](int n) { float* p = free; free += n; return p; };
  float *w1_user_t = take(M * H1), *w2t = take(H1 * H2), *w3t = take(H2 * H3);
  transpose(H1, M, w1_user, w1_user_t), transpose(H2, H1, w2, w2t), transpose(H3, H2, w3, w3t);
  const Network shared{w1_item, w2, w2t, b2, w3, w3t, b3, out_gmf, out_mlp, *out_bias};
  float *g1 = take(H1 * M), *p1 = take(H1 * M), *p1t = take(H1 * M);
  float *g2 = take(H2 * H1), *p2 = take(H2 * H1), *p2t = take(H2 * H1);
  float *g3 = take(H3 * H2), *p3 = take(H3 * H2), *p3t = take(H3 * H2);
  float *half = take(block * H1), *rows_mlp = take(block * M), *xp = take(block * M);
  float *v1 = take(block * G), *v1p = take(block * G);
  const Buffers t{take(block * H1), take(block * H2), take(block * H3), take(block * H1),
                  take(block * H2), take(block * H3), take(block)};
  float *d1 = take(H1), *d2 = take(H2), *d3 = take(H3), *dm = take(H3), *dg = take(G);

  for (int c = 0; c < clients; c++) {
    const int n = lengths[c];
    const int64_t at = (int64_t)c * width;
    const float *u1 = user + c * (G + M), *u2 = u1 + G, *y = labels + at, *w = weights + at;
    float first[H1], gradient[G + M], worst_user[G + M], *out_user = h_user + c * (G + M);
    for (int s = 0; s < n; s++) {
      const int64_t item = rows[at + s], next = rows[at + std::min(s + AHEAD, n - 1)];
      prefetch(item_gmf + next * G, G), prefetch(item_mlp + next * M, M), prefetch(item_half + next * H1, H1);
      std::memcpy(v1 + s * G, item_gmf + item * G, G * sizeof(float));
      std::memcpy(rows_mlp + s * M, item_mlp + item * M, M * sizeof(float));
      std::memcpy(half + s * H1, item_half + item * H1, H1 * sizeof(float));
    }
    auto start = [&](const float* by) {
      for (int s = 0; s < n; s++) moved(half + s * H1, 1, by, t.a1 + s * H1, H1);
    };
    meet(w1_user_t, b1, u2, first);
    start(first);
    loss[c] = pass(n, shared, v1, u1, y, w, t);  // ∇L at (θ_co, θ_ur)
    user_gradient(n, shared, v1, w1_user, t, gradient);
    std::copy(gradient, gradient + G + M, out_user);

    auto sums = [&](const float* v) {  // bias and output gradients
      column_sums(t.e1, n, H1, d1), column_sums(t.e2, n, H2, d2), column_sums(t.e3, n, H3, d3);
      multiply<false>(1, G, n, t.e, 1, 1, v, dg);
      multiply<false>(1, H3, n, t.e, 1, 1, t.a3, dm);
      for (int k = 0; k < G; k++) dg[k] *= u1[k];
      float db = 0;
      for (int s = 0; s < n; s++) db += t.e[s];
      return db;
    };
    float db = sums(v1);
    Network net = shared;
    const float *v = v1, *x = rows_mlp;
    float worst_gmf[G], worst_mlp[H3], worst_b2[H2], worst_b3[H3];
    if (rho_co > 0) {
      multiply<false>(H1, M, n, t.e1, 1, H1, rows_mlp, g1);
      multiply<false>(H2, H1, n, t.e2, 1, H2, t.a1, g2);
      multiply<false>(H3, H2, n, t.e3, 1, H3, t.a2, g3);
      multiply<false>(n, M, H1, t.e1, H1, 1, w1_item, xp);  // row gradients, soon the perturbed rows
      float du[G], squared_e = 0;
      for (int s = 0; s < n; s++) squared_e += t.e[s] * t.e[s];
      for (int k = 0; k < G; k++) du[k] = u1[k] * out_gmf[k];
      const float stretch = 1 + dot(u2, u2, M);
      const double squared = (double)dot(g1, g1, H1 * M) + dot(g2, g2, H2 * H1) + dot(g3, g3, H3 * H2) +
                             dot(d2, d2, H2) + dot(d3, d3, H3) + dot(dg, dg, G) + dot(dm, dm, H3) + db * db +
                             dot(xp, xp, n * M) + squared_e * dot(du, du, G) + stretch * dot(d1, d1, H1);
      const float scale = rho_co / (std::sqrt(squared) + 1e-12);  // Eq. 14
      moved(w1_item, scale, g1, p1, H1 * M), transpose(H1, M, p1, p1t);
      moved(w2, scale, g2, p2, H2 * H1), transpose(H2, H1, p2, p2t);
      moved(w3, scale, g3, p3, H3 * H2), transpose(H3, H2, p3, p3t);
      moved(b2, scale, d2, worst_b2, H2), moved(b3, scale, d3, worst_b3, H3);
      moved(out_gmf, scale, dg, worst_gmf, G), moved(out_mlp, scale, dm, worst_mlp, H3);
      moved(first, scale * stretch, d1, first, H1);
      moved(rows_mlp, scale, xp, xp, n * M);
      for (int s = 0; s < n; s++) moved(v1 + s * G, scale * t.e[s], du, v1p + s * G, G);
      net = Network{p1, p2, p2t, worst_b2, p3, p3t, worst_b3, worst_gmf, worst_mlp, *out_bias + scale * db};
      v = v1p, x = xp;
      for (int s = 0; s < n; s++) std::memcpy(t.a1 + s * H1, first, H1 * sizeof(float));
      multiply<true>(n, H1, M, xp, M, 1, p1t, t.a1);
      pass(n, net, v, u1, y, w, t);
      db = sums(v);
    }
    // g_co, Eq. 15
    multiply<true>(H1, M, n, t.e1, 1, H1, x, w1_sum);
    multiply<true>(H2, H1, n, t.e2, 1, H2, t.a1, w2_sum);
    multiply<true>(H3, H2, n, t.e3, 1, H3, t.a2, w3_sum);
    moved(b2_sum, 1, d2, b2_sum, H2), moved(b3_sum, 1, d3, b3_sum, H3);
    moved(gmf_sum, 1, dg, gmf_sum, G), moved(mlp_sum, 1, dm, mlp_sum, H3);
    *bias_sum += db;
    std::copy(d1, d1 + H1, first_each + c * H1);
    multiply<false>(n, M, H1, t.e1, H1, 1, net.w1, row_mlp + at * M);
    float scaled[G];
    for (int k = 0; k < G; k++) scaled[k] = u1[k] * net.out_gmf[k];
    for (int s = 0; s < n; s++)
      for (int k = 0; k < G; k++) row_gmf[(at + s) * G + k] = t.e[s] * scaled[k];
    std::fill(row_gmf + (at + n) * G, row_gmf + (at + width) * G, 0.0f);  // padding contributes nothing
    std::fill(row_mlp + (at + n) * M, row_mlp + (at + width) * M, 0.0f);

    if (rho_ur > 0) {  // Eq. 11 and 12
      const float scale = rho_ur / (std::sqrt(dot(gradient, gradient, G + M)) + 1e-12f);
      moved(u1, scale, gradient, worst_user, G + M);
      meet(w1_user_t, b1, worst_user + G, first);
      start(first);
      pass(n, shared, v1, worst_user, y, w, t);
      user_gradient(n, shared, v1, w1_user, t, out_user);
    }
  }
}

// Logits of `width` items for each client, in blocks that stay in the L1 cache.
extern "C" void neumf_scores(int clients, int width, const int64_t* items, const float* user, const float* item_gmf,
                             const float* item_half, const float* w1_user, const float* b1, const float* w2,
                             const float* b2, const float* w3, const float* b3, const float* out_gmf,
                             const float* out_mlp, const float* out_bias, float* scores) {
  const int block = 54;  // nine tiles of six rows; two blocks for the usual hundred candidates
  std::vector<float> scratch(block * (H1 + H2 + H3) + M * H1 + H1 * H2 + H2 * H3);
  float *a1 = scratch.data(), *a2 = a1 + block * H1, *a3 = a2 + block * H2;
  float *w1_user_t = a3 + block * H3, *w2t = w1_user_t + M * H1, *w3t = w2t + H1 * H2;
  transpose(H1, M, w1_user, w1_user_t), transpose(H2, H1, w2, w2t), transpose(H3, H2, w3, w3t);
  for (int c = 0; c < clients; c++) {
    const float *u1 = user + c * (G + M), *u2 = u1 + G;
    float first[H1], scaled[G];
    meet(w1_user_t, b1, u2, first);
    for (int g = 0; g < G; g++) scaled[g] = u1[g] * out_gmf[g];
    for (int start = 0; start < width; start += block) {
      const int n = std::min(block, width - start);
      const int64_t* at = items + (int64_t)c * width + start;
      for (int s = 0; s < n; s++) {
        if (s + AHEAD < n) prefetch(item_half + at[s + AHEAD] * H1, H1), prefetch(item_gmf + at[s + AHEAD] * G, G);
        moved(item_half + at[s] * H1, 1, first, a1 + s * H1, H1);
      }
      forward(n, w2t, b2, w3t, b3, a1, a2, a3);
      for (int s = 0; s < n; s++)
        scores[(int64_t)c * width + start + s] =
            dot(scaled, item_gmf + at[s] * G, G) + dot(out_mlp, a3 + s * H3, H3) + *out_bias;
    }
  }
}
