// Small matrix products and vector helpers, in front of neumf.cpp: plain C++17 with the vector extension of GCC.
//
// Sizes are multiples of 16, matrices row-major. A vector is as long as the processor's registers: GCC takes longer ones
// through memory, and then the kernel is several times slower than PyTorch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int ints __attribute__((vector_size(4 * LANES)));

static inline vec load(const float* p) { return *reinterpret_cast<const vec*>(p); }
static inline void store(float* p, vec v) { *reinterpret_cast<vec*>(p) = v; }

// ---- C = A B + start: A is [m, k] with any strides, B is [k, n] --------------------------------------------------

struct Left { const float* at; int row, column; };  // A and its strides

struct Rest {  // what happens to C before it is stored
  const float* start = nullptr;   // added: C itself or, with stride 0, one bias row for all; else nothing
  int stride = 0;
  bool relu = false;
  const float* active = nullptr;  // laid out as C: entries pass only where this is positive, as behind a ReLU
};

template <int MR, int NV>
static inline void tile(int k, Left a, const float* b, int ldb, float* c, int ldc, const Rest& rest) {
  vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) acc[i][j] = rest.start ? load(rest.start + i * rest.stride + LANES * j) : vec{};
  for (int p = 0; p < k; p++, a.at += a.column, b += ldb) {
    vec row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) row[j] = load(b + LANES * j);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) acc[i][j] += a.at[i * a.row] * row[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) {
      vec value = acc[i][j];
      if (rest.relu) value = value > 0 ? value : vec{};
      if (rest.active) value = load(rest.active + i * ldc + LANES * j) > 0 ? value : vec{};
      store(c + i * ldc + LANES * j, value);
    }
}

// As many tiles of MR rows as fit, then one of exactly the rows that are left.
template <int MR, int NV>
static void panel(int m, int k, Left a, const float* b, int ldb, float* c, int ldc, Rest rest) {
  for (; m >= MR; m -= MR) {
    tile<MR, NV>(k, a, b, ldb, c, ldc, rest);
    a.at += MR * a.row, c += MR * ldc;
    if (rest.start) rest.start += MR * rest.stride;
    if (rest.active) rest.active += MR * ldc;
  }
  if constexpr (MR > 1)
    if (m > 0) panel<MR - 1, NV>(m, k, a, b, ldb, c, ldc, rest);
}

template <int L = LANES>
static void multiply(int m, int n, int k, Left a, const float* b, int ldb, float* c, const Rest& rest) {
  for (int j = 0; j < n;) {
    Rest here = rest;
    if (rest.start) here.start += j;
    if (rest.active) here.active += j;
    // sums, a row of B and an entry of A fill the registers: 32 with AVX-512, else 16
    if constexpr (L == 8) panel<6, 2>(m, k, a, b + j, ldb, c + j, n, here), j += 16;
    else if constexpr (L == 4) panel<3, 4>(m, k, a, b + j, ldb, c + j, n, here), j += 16;
    else if (j + 64 <= n) panel<6, 4>(m, k, a, b + j, ldb, c + j, n, here), j += 64;
    else if (j + 32 <= n) panel<12, 2>(m, k, a, b + j, ldb, c + j, n, here), j += 32;
    else panel<12, 1>(m, k, a, b + j, ldb, c + j, n, here), j += 16;
  }
}

// h = relu(x Wᵀ + b) for n examples; Wᵀ is [in, out].
static void layer(int n, int in, int out, const float* x, const float* wt, const float* bias, float* h) {
  multiply(n, out, in, {x, in, 1}, wt, out, h, {bias, 0, true});
}

// ∂L/∂z of a layer from that of the next, whose matrix is W [out, in], through the ReLU between them.
static void back(int n, int in, int out, const float* error, const float* w, const float* active, float* to) {
  multiply(n, in, out, {error, out, 1}, w, in, to, {nullptr, 0, false, active});
}

// to (+)= errorᵀ x, the gradient of a weight matrix [out, in].
static void outer(int n, int in, int out, const float* error, const float* x, int ldx, float* to, bool add) {
  multiply(out, in, n, {error, 1, out}, x, ldx, to, {add ? to : nullptr, in});
}

// ---- small helpers ----------------------------------------------------------------------------------------------

template <int H>
static inline void exchange(vec* r) {  // transposes: swaps the off-diagonal blocks of size H, H / 2, ...
  ints up, down;
  for (int l = 0; l < LANES; l++) {
    up[l] = (l & H) ? LANES + l - H : l;
    down[l] = (l & H) ? LANES + l : l + H;
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++)
    if (!(i & H)) {
      vec a = r[i], b = r[i + H];
      r[i] = __builtin_shuffle(a, b, up);
      r[i + H] = __builtin_shuffle(a, b, down);
    }
  if constexpr (H > 1) exchange<H / 2>(r);
}

// p = w + scale g, all [m, n], and its transpose; without p only the transpose.
static void moved_both(int m, int n, const float* w, float scale, const float* g, float* p, float* pt) {
  for (int i = 0; i < m; i += LANES)
    for (int j = 0; j < n; j += LANES) {
      vec r[LANES];
#pragma GCC unroll 16
      for (int k = 0; k < LANES; k++) {
        const int at = (i + k) * n + j;
        r[k] = load(w + at);
        if (p) store(p + at, r[k] += scale * load(g + at));
      }
      exchange<LANES / 2>(r);
#pragma GCC unroll 16
      for (int k = 0; k < LANES; k++) store(pt + (j + k) * m + i, r[k]);
    }
}

static void transpose(int m, int n, const float* from, float* to) { moved_both(m, n, from, 0, nullptr, nullptr, to); }

template <int H = LANES / 2>
static inline float sum(vec v) {  // by halves: as many additions in a row as lanes would wait for each other
  if constexpr (H == 1) return v[0] + v[1];
  else {
    ints other;
    for (int l = 0; l < LANES; l++) other[l] = l ^ H;
    return sum<H / 2>(v + __builtin_shuffle(v, other));
  }
}

template <int N>
static inline vec products(const float* a, const float* b) {  // their sum is the scalar product
  vec s{};
  for (int i = 0; i < N; i += LANES) s += load(a + i) * load(b + i);
  return s;
}

static float dot(const float* a, const float* b, int n) {
  vec s0{}, s1{};
  int i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    s0 += load(a + i) * load(b + i);
    s1 += load(a + i + LANES) * load(b + i + LANES);
  }
  for (; i < n; i += LANES) s0 += load(a + i) * load(b + i);
  return sum(s0 + s1);
}

static double squared(const float* a, int n) { return dot(a, a, n); }

static inline void moved(const float* from, float scale, const float* by, float* to, int n) {  // to = from + scale by
  for (int i = 0; i < n; i += LANES) store(to + i, load(from + i) + scale * load(by + i));
}

static void add_column_sums(const float* a, int m, int n, float* out) {
  for (int j = 0; j < n; j += LANES) {
    vec s = load(out + j);
    for (int i = 0; i < m; i++) s += load(a + i * n + j);
    store(out + j, s);
  }
}

static inline void prefetch(const float* row, int size) {
  for (int i = 0; i < size; i += 16) __builtin_prefetch(row + i, 0, 2);
}

class Memory {  // scratch in one block; aligned: a load across two cache lines costs two
 public:
  explicit Memory(size_t n) : held(std::aligned_alloc(64, 4 * whole(n)), std::free) {
    next = static_cast<float*>(held.get());
  }
  float* take(size_t n) { return (next += whole(n)) - whole(n); }

 private:
  static size_t whole(size_t n) { return (n + 15) / 16 * 16; }
  std::unique_ptr<void, decltype(&std::free)> held;
  float* next;
};
