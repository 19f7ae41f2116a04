// FedMF's walk through the examples of each client: `FedMF.walk` in methods/fedmf.py is the reference.
//
// D, the size of a vector, is a macro and a multiple of 16. Compiled behind matrices.cpp by compiler.py.

extern "C" void walk(
    int clients, int length, int n_rows, int squared, int last, const float* users /*[clients, D]*/,
    const float* rows /*[clients, n_rows, D]*/, const int64_t* slots /*[clients, length]*/,
    const float* labels /*[clients, length]*/, const bool* counts /*[clients, length]*/, float lr, float reg_user,
    float reg_item, float* walked /*[clients, D]*/, float* gradient /*[clients, n_rows, D]*/,
    float* loss /*[clients]*/) {
  for (int c = 0; c < clients; c++, rows += n_rows * D, gradient += n_rows * D, walked += D) {
    float u[D];
    std::memcpy(u, users + c * D, sizeof(u));
    std::fill(gradient, gradient + n_rows * D, 0.0f);
    double total = 0;
    for (int t = c * length; t < (c + 1) * length; t++) {
      if (!counts[t]) continue;
      const float *v = rows + slots[t] * D, y = labels[t];
      float* g = gradient + slots[t] * D;
      const float score = dot(u, v, D);
      const float error = squared ? 2 * (score - y) : 1 / (1 + std::exp(-score)) - y;
      total += squared ? (score - y) * (score - y)
                       : std::max(score, 0.0f) + std::log1p(std::exp(-std::fabs(score))) - y * score;
      for (int k = 0; k < D; k += LANES) {
        const vec item = load(v + k), user = load(u + k), moved = user - lr * (error * item + 2 * reg_user * user);
        const vec own = lr * (error * moved + 2 * reg_item * item);
        store(u + k, moved);
        store(g + k, last ? own : load(g + k) + own);
      }
    }
    std::memcpy(walked, u, sizeof(u));
    loss[c] = total;
  }
}
