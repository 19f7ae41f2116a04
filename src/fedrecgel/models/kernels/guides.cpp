// What GPFedRec does with whole item tables: a client's table lies between the common one and its guide, and the next
// guides are means over neighbours' tables.
//
// The same mathematics as models/guided.py, which is the reference. D, the size of a row, is a macro and a multiple of
// 16. Guides are kept in single precision or in 16 bits. Compiled behind matrices.cpp by compiler.py.

typedef uint16_t bf16;
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t truths __attribute__((vector_size(4 * LANES)));

static inline vec read(const float* p) { return load(p); }
static inline vec read(const bf16* p) {
  const words wide = __builtin_convertvector(*reinterpret_cast<const halves*>(p), words) << 16;
  return (vec)wide;
}

static inline void write(float* p, vec v) { store(p, v); }
static inline void write(bf16* p, vec v) {  // to nearest, ties to even, as PyTorch rounds
  const words bits = (words)v;
  const truths proper = v == v;
  words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  rounded = (rounded & (words)proper) | (0x7fc0u & ~(words)proper);
  *reinterpret_cast<halves*>(p) = __builtin_convertvector(rounded, halves);
}

static inline vec between(vec from, vec to, float way) {  // as torch.lerp: exact at both ends
  return way < 0.5f ? from + way * (to - from) : to - (1 - way) * (to - from);
}

template <typename T>
static void blend(int clients, int n, const T* guides, const int64_t* which, const float* everything, const float* way,
                  T* tables) {
  const size_t size = (size_t)n * D;
  for (int c = 0; c < clients; c++) {
    const T* guide = guides + which[c] * size;
    T* table = tables + c * size;
    if (way[c] == 0) for (size_t i = 0; i < size; i += LANES) write(table + i, load(everything + i));
    else for (size_t i = 0; i < size; i += LANES)
      write(table + i, between(load(everything + i), read(guide + i), way[c]));
  }
}

// Every entry, times its sign, is added to one of `width` sums in turn; width is a multiple of D.
template <typename T>
static void project(int clients, int n, int width, const T* guides, const int64_t* which, const float* everything,
                    const float* sign, const float* way, float* sums) {
  const size_t size = (size_t)n * D;
  std::fill(sums, sums + (size_t)clients * width, 0.0f);
  for (int c = 0; c < clients; c++) {
    const T* guide = guides + which[c] * size;
    float* own = sums + (size_t)c * width;
    int place = 0;
    for (size_t i = 0; i < size; i += LANES) {
      vec value = load(everything + i);
      if (way[c] != 0) value = between(value, read(guide + i), way[c]);
      store(own + place, load(own + place) + load(sign + i) * value);
      place = place + LANES == width ? 0 : place + LANES;
    }
  }
}

// Items first to last, of those from `start` that are found. In blocks: everybody's rows of a block stay in the cache.
template <typename T>
static void smooth(int clients, int n, int k, int hops, int first, int last, int start, int width, const T* guides,
                   const int64_t* which, const float* everything, const float* way, const int64_t* sent_from,
                   const int64_t* owner, const float* sent, const int64_t* nearest, T* found, float* mean) {
  const int block = std::max(1, std::min(8, (1 << 17) / std::max(1, clients * D)));
  const int wide = block * D;
  Memory memory((size_t)2 * clients * wide + wide);
  float *now = memory.take((size_t)clients * wide), *next = memory.take((size_t)clients * wide);
  float* total = memory.take(wide);
  const float share = 1.0f / k;
  for (int from = first; from < last; from += block) {
    const int items = std::min(block, last - from), size = items * D;
    for (int c = 0; c < clients; c++) {
      const T* guide = guides + ((size_t)which[c] * n + from) * D;
      const float* common = everything + (size_t)from * D;
      if (way[c] == 0) std::memcpy(now + c * wide, common, size * sizeof(float));
      else for (int i = 0; i < size; i += LANES)
        store(now + c * wide + i, between(load(common + i), read(guide + i), way[c]));
    }
    for (int64_t r = sent_from[from]; r < sent_from[from + items]; r++) {  // rows come in the order of items
      int item = from;
      while (sent_from[item + 1] <= r) item++;
      float* row = now + owner[r] * wide + (item - from) * D;
      moved(row, 1, sent + r * D, row, D);
    }
    for (int hop = 0; hop < hops; hop++) {
      for (int c = 0; c < clients; c++) {
        const int64_t* own = nearest + (size_t)c * k;
        for (int i = 0; i < size; i += LANES) {
          vec sum{};
          for (int q = 0; q < k; q++) sum += load(now + own[q] * wide + i);
          store(next + c * wide + i, sum * share);
        }
      }
      std::swap(now, next);
    }
    std::fill(total, total + size, 0.0f);
    for (int c = 0; c < clients; c++) {
      moved(total, 1, now + c * wide, total, size);
      T* guide = found + ((size_t)c * width + from - start) * D;
      for (int i = 0; i < size; i += LANES) write(guide + i, load(now + c * wide + i));
    }
    for (int i = 0; i < size; i++) mean[(size_t)from * D + i] = total[i] / clients;
  }
}

extern "C" void blend_full(
    int clients, int n, const float* guides /*[g, n, D]*/, const int64_t* which /*[clients]*/,
    const float* everything /*[n, D]*/, const float* way /*[clients]*/, float* tables /*[clients, n, D]*/) {
  blend(clients, n, guides, which, everything, way, tables);
}

extern "C" void blend_half(
    int clients, int n, const bf16* guides /*[g, n, D]*/, const int64_t* which /*[clients]*/,
    const float* everything /*[n, D]*/, const float* way /*[clients]*/, bf16* tables /*[clients, n, D]*/) {
  blend(clients, n, guides, which, everything, way, tables);
}

extern "C" void project_full(
    int clients, int n, int width, const float* guides /*[g, n, D]*/, const int64_t* which /*[clients]*/,
    const float* everything /*[n, D]*/, const float* sign /*[n, D]*/, const float* way /*[clients]*/,
    float* sums /*[clients, width]*/) {
  project(clients, n, width, guides, which, everything, sign, way, sums);
}

extern "C" void project_half(
    int clients, int n, int width, const bf16* guides /*[g, n, D]*/, const int64_t* which /*[clients]*/,
    const float* everything /*[n, D]*/, const float* sign /*[n, D]*/, const float* way /*[clients]*/,
    float* sums /*[clients, width]*/) {
  project(clients, n, width, guides, which, everything, sign, way, sums);
}

extern "C" void smooth_full(
    int clients, int n, int k, int hops, int first, int last, int start, int width, const float* guides /*[g, n, D]*/,
    const int64_t* which /*[clients]*/, const float* everything /*[n, D]*/, const float* way /*[clients]*/,
    const int64_t* sent_from /*[n + 1]*/, const int64_t* owner /*[rows]*/, const float* sent /*[rows, D]*/,
    const int64_t* nearest /*[clients, k]*/, float* found /*[clients, width, D]*/, float* mean /*[n, D]*/) {
  smooth(clients, n, k, hops, first, last, start, width, guides, which, everything, way, sent_from, owner, sent,
         nearest, found, mean);
}

extern "C" void smooth_half(
    int clients, int n, int k, int hops, int first, int last, int start, int width, const bf16* guides /*[g, n, D]*/,
    const int64_t* which /*[clients]*/, const float* everything /*[n, D]*/, const float* way /*[clients]*/,
    const int64_t* sent_from /*[n + 1]*/, const int64_t* owner /*[rows]*/, const float* sent /*[rows, D]*/,
    const int64_t* nearest /*[clients, k]*/, bf16* found /*[clients, width, D]*/, float* mean /*[n, D]*/) {
  smooth(clients, n, k, hops, first, last, start, width, guides, which, everything, way, sent_from, owner, sent,
         nearest, found, mean);
}
