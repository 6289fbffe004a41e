/* cuda_state.cu -- kernels of operations with a state (k_state.cu, k_chunks.cu) without the rest
 * of the plugin, against the formulas of docs/ops.md in double: sizes of real models and odd ones,
 * rows that are padding, other sequences in the step. In class exact the bits of y and of the state
 * are the same however rows are cut into steps, in place or from page to page. `cuda_state bench`
 * times the sizes of Qwen3-Next and Granite 4. Built for the CPU, too (emulated.h), with smaller
 * sizes, without k_chunks.cu. */
#include "device.cuh"
#include "chunks.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef std::vector<float> floats;
static int failed;

/* ---- device memory --------------------------------------------------------------------------- */
#ifdef CU_EMULATED
static void *gpu_alloc(size_t bytes) {
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}
static void gpu_free(void *p) {
    free(p);
}
static void gpu_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}
#else
#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
static void *gpu_alloc(size_t bytes) {
    void *p;
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemset(p, 0xff, bytes)); /* NaN */
    return p;
}
static void gpu_free(void *p) {
    CHECK(cudaFree(p));
}
static void gpu_copy(void *to, const void *from, size_t bytes) {
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}
#endif
/* An array on the device. */
template <class T> struct device_array {
    T *at;
    size_t n;
    explicit device_array(size_t count) : at((T *)gpu_alloc(count * sizeof(T) + 16)), n(count) {
    }
    explicit device_array(const std::vector<T> &x) : device_array(x.size()) {
        gpu_copy(at, x.data(), n * sizeof(T));
    }
    device_array(const device_array &) = delete;
    ~device_array() {
        gpu_free(at);
    }
    std::vector<T> read() const {
        std::vector<T> x(n);
        gpu_copy(x.data(), at, n * sizeof(T));
        return x;
    }
};

static float noise() {
    static uint64_t state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(state >> 33) / (1u << 30) - 1.0);
}
static floats noises(size_t n, float by = 1, float offset = 0) {
    floats x(n);
    for (float &v : x) {
        v = by * noise() + offset;
    }
    return x;
}

/* ---- a sequence and its steps ---------------------------------------------------------------- */
enum { N_PAGES = 4, LAYER_AT = 256 };
/* Rows of a sequence, of which some are padding; behind them in a step rows of another one. */
struct rows_of_case {
    int T, width, y_width, n_state;
    std::vector<int32_t> row_pos;
    rows_of_case(int rows, int padding) : T(rows), row_pos(2 * rows) {
        int pos = 0;
        for (int t = 0; t < 2 * rows; t++) {
            row_pos[t] = padding && t % padding == padding - 1 ? -1 : pos++;
        }
    }
};
struct outcome {
    floats y, state;
};
/* What a case launches for rows from `lo` on. */
struct launcher {
    virtual void run(const cu_states &s, int lo, float *y) = 0;
    virtual ~launcher() {
    }
};

/* The rows of the sequence in steps of n, which leave another page than they begin with where it
 * moves; beside: each step has the other sequence's rows, too. */
static outcome run_cut(const rows_of_case &c, launcher *l, int n, bool moves, bool beside) {
    const uint64_t page_bytes = LAYER_AT + (c.n_state * 4 + 255) / 256 * 256;
    device_array<float> y(2 * (size_t)c.T * c.y_width);
    device_array<char> memory(N_PAGES * page_bytes);
    device_array<int32_t> row_pos(c.row_pos);
    int from = -1;
    int to = 0;
    for (int lo = 0; lo < c.T; lo += n) {
        const int rows = c.T - lo < n ? c.T - lo : n;
        const device_array<int32_t> seqs(std::vector<int32_t>{
            0, rows, 1, 0, 0, 0, 0, 0, rows, beside ? c.T : 0, 2, 0}); /* the second is unused */
        const device_array<int32_t> states(std::vector<int32_t>{-1, -1, from, to, -1, 3});
        cu_states s = {};
        s.row_pos = row_pos.at + lo;
        s.seqs = seqs.at;
        s.states = states.at;
        s.memory = memory.at;
        s.n_pages = N_PAGES;
        s.page_bytes = page_bytes;
        s.layer_at = LAYER_AT;
        s.T = beside ? rows + c.T : rows;
        s.Q = 3;
        s.S = 3;
        l->run(s, lo, y.at + (size_t)lo * c.y_width);
        from = to;
        if (moves) {
            to = (to + 1) % 3;
        }
    }
    outcome o = {y.read(), floats(c.n_state)};
    const std::vector<char> pages = memory.read();
    memcpy(o.state.data(), &pages[from * page_bytes + LAYER_AT], c.n_state * 4);
    o.y.resize((size_t)c.T * c.y_width);
    return o;
}

static double relative(const rows_of_case &c, const floats &y, const std::vector<double> &want) {
    double of_error = 0;
    double of_all = 0;
    for (size_t i = 0; i < y.size(); i++) {
        if (c.row_pos[i / c.y_width] < 0) {
            continue;
        }
        const double d = y[i] - want[i];
        of_error += d * d;
        of_all += want[i] * want[i];
    }
    return sqrt(of_error / of_all);
}

static bool same_live_rows(const rows_of_case &c, const floats &a, const floats &b) {
    const size_t bytes = c.y_width * sizeof(float);
    for (int t = 0; t < c.T; t++) {
        const size_t at = (size_t)t * c.y_width;
        const bool live = c.row_pos[t] >= 0;
        if (live && memcmp(&a[at], &b[at], bytes) != 0) {
            return false;
        }
    }
    return true;
}

static void check(const char *name, const rows_of_case &c, launcher *l,
                  const std::vector<double> &want) {
    const outcome whole = run_cut(c, l, c.T, false, false);
    const double e = relative(c, whole.y, want);
    if (!(e <= 2e-6)) {
        printf("FAIL  %s: relative L2 %.2e\n", name, e);
        failed++;
        return;
    }
    const int cuts[] = {1, 5, c.T, (c.T + 1) / 2};
    for (int i = 0; i < 4; i++) {
        const outcome other = run_cut(c, l, cuts[i], i % 2 == 1, i >= 2);
        const bool same = same_live_rows(c, whole.y, other.y);
        if (same && !memcmp(whole.state.data(), other.state.data(), c.n_state * 4)) {
            continue;
        }
        printf("FAIL  %s: steps of %d rows: other %s\n", name, cuts[i], same ? "state" : "rows");
        failed++;
    }
    printf("ok    %s: %.1e\n", name, e);
}

/* ---- CONV_STATE ------------------------------------------------------------------------------ */
struct conv_case : launcher {
    int C, W;
    device_array<float> x, weight, bias;
    bool has_bias;
    conv_case(int channels, int taps, bool biased, const floats &rows, const floats &w,
              const floats &b)
        : C(channels), W(taps), x(rows), weight(w), bias(b), has_bias(biased) {
    }
    void run(const cu_states &s, int lo, float *y) override {
        cu_conv a = {};
        a.s = s;
        a.x = x.at + (size_t)lo * C;
        a.weight = weight.at;
        a.bias = has_bias ? bias.at : NULL;
        a.y = y;
        a.C = C;
        a.W = W;
        cu_conv_run(0, &a);
    }
};

static void try_conv(int T, int C, int W, int padding) {
    rows_of_case c(T, padding);
    const size_t n_x = (size_t)T * C;
    const floats x = noises(2 * n_x);
    const floats w = noises((size_t)C * W);
    const size_t n_b = C;
    const floats b = noises(n_b);
    std::vector<double> want((size_t)T * C);
    std::vector<int> live;
    char name[64];
    c.y_width = C;
    c.n_state = C * (W - 1);
    for (int t = 0; t < T; t++) {
        if (c.row_pos[t] < 0) {
            continue;
        }
        live.push_back(t);
        const int n = (int)live.size();
        for (int i = 0; i < C; i++) {
            double sum = b[i];
            for (int j = 0; j < W && j < n; j++) {
                const size_t row = live[n - 1 - j];
                const double by = w[i * W + W - 1 - j];
                sum += by * x[row * C + i];
            }
            want[(size_t)t * C + i] = sum;
        }
    }
    conv_case l(C, W, true, x, w, b);
    snprintf(name, sizeof name, "CONV_STATE %d rows, %d channels, %d taps", T, C, W);
    check(name, c, &l, want);
}

/* ---- SSM_SCAN and GATED_DELTA ---------------------------------------------------------------- */
struct scan_shape {
    bool delta, each, in_turn, a_log;
    int T, H, dim, G, n, padding;
    float dt_min, dt_max, eps, scale, beta_scale;
};
/* Inputs by the letters of cu_scan; of `rows` x comes first in a scan, last in the delta rule. */
struct scan_case : launcher {
    scan_shape s;
    floats rows, step, beta, a, dt_bias, d;
    int width, x_at, write_at, read_at;
    device_array<float> *on[6];
    explicit scan_case(const scan_shape &shape) : s(shape) {
        const int of_groups = s.G * s.n;
        const size_t steps = (size_t)s.H * (s.each ? s.n : 1);
        width = s.H * s.dim + 2 * of_groups;
        x_at = s.delta ? 2 * of_groups : 0;
        write_at = s.delta ? of_groups : s.H * s.dim;
        read_at = s.delta ? 0 : s.H * s.dim + of_groups;
        rows = noises(2 * (size_t)s.T * width, s.eps == 0 && s.delta ? 0.1f : 1);
        step = noises(2 * (size_t)s.T * steps);
        beta = noises(2 * (size_t)s.T * s.H);
        a = s.a_log ? noises(s.H, 2, -1) : noises(s.H, 1, -1);
        dt_bias = noises(steps);
        d = noises(s.H);
        const floats *all[] = {&rows, &step, &beta, &a, &dt_bias, &d};
        for (int i = 0; i < 6; i++) {
            on[i] = new device_array<float>(*all[i]);
        }
    }
    ~scan_case() override {
        for (device_array<float> *p : on) {
            delete p;
        }
    }
    cu_scan args() const {
        cu_scan k = {};
        k.rows = on[0]->at;
        k.step = on[1]->at;
        k.beta = s.delta ? on[2]->at : NULL;
        k.a = on[3]->at;
        k.dt_bias = on[4]->at;
        k.d = on[5]->at;
        k.width = width;
        k.x_at = x_at;
        k.write_at = write_at;
        k.read_at = read_at;
        k.H = s.H;
        k.dim = s.dim;
        k.G = s.G;
        k.n = s.n;
        k.dt_min = s.dt_min;
        k.dt_max = s.dt_max;
        k.eps = s.eps;
        k.scale = s.scale;
        k.beta_scale = s.beta_scale;
        k.a_log = s.a_log;
        k.each = s.each;
        k.in_turn = s.in_turn;
        return k;
    }
    bool chunks = false; /* by k_chunks.cu, on a GPU alone */
    void launch_rows(const cu_scan &k) {
#ifndef CU_EMULATED
        if (chunks) {
            device_array<char> room(cu_chunks_room(k.s.T, k.s.Q, k.G, k.H));
            cu_chunks_run(0, &k, room.at);
            CHECK(cudaDeviceSynchronize());
            return;
        }
#endif
        cu_scan_run(0, &k);
    }
    void run(const cu_states &st, int lo, float *y) override {
        cu_scan k = args();
        k.s = st;
        k.rows += (size_t)lo * width;
        k.step += (size_t)lo * s.H * (s.each ? s.n : 1);
        if (k.beta) {
            k.beta += (size_t)lo * s.H;
        }
        k.y = y;
        launch_rows(k);
    }
    double size(int t, int h, int i) const {
        const size_t at = s.each ? (size_t)h * s.n + i : h;
        const size_t steps = (size_t)s.H * (s.each ? s.n : 1);
        const double given = step[t * steps + at];
        const double x = given + dt_bias[at];
        double v = std::log1p(std::exp(x));
        if (!s.delta && v < s.dt_min) {
            v = s.dt_min;
        }
        if (!s.delta && s.dt_max != 0 && v > s.dt_max) {
            v = s.dt_max;
        }
        return v;
    }
    /* Row t of a column: state [n], the numbers that it is written and read with. */
    double advance(int t, int h, double x, const double *write, const double *read,
                   double *state) const {
        double rate = a[h];
        if (s.a_log) {
            rate = -std::exp(rate);
        }
        double known = 0;
        double y = 0;
        for (int i = 0; i < s.n; i++) {
            state[i] *= std::exp(rate * size(t, h, i));
            known += state[i] * write[i];
        }
        double u = size(t, h, 0) * x;
        if (s.delta) {
            const double given = beta[t * s.H + h];
            const double by = s.beta_scale / (1 + std::exp(-given));
            u = by * (x - known);
        }
        for (int i = 0; i < s.n; i++) {
            state[i] += write[i] * u;
            y += state[i] * read[i];
        }
        return s.delta ? y : y + d[h] * x;
    }
    void vector_of(const float *x, double factor, double *to) const {
        double sum = 0;
        for (int i = 0; i < s.n; i++) {
            sum += (double)x[i] * x[i];
        }
        for (int i = 0; i < s.n; i++) {
            to[i] = factor * x[i] / (s.delta && s.eps != 0 ? std::sqrt(sum + s.eps) : 1);
        }
    }
    std::vector<double> want(const rows_of_case &c) const {
        std::vector<double> y((size_t)s.T * s.H * s.dim);
        std::vector<double> state((size_t)s.H * s.dim * s.n), write(s.n), read(s.n);
        const size_t y_width = (size_t)s.H * s.dim;
        const double scale = s.delta ? s.scale : 1;
        for (int t = 0; t < s.T; t++) {
            if (c.row_pos[t] < 0) {
                continue;
            }
            for (int h = 0; h < s.H; h++) {
                const int of_group = s.H / s.G;
                const int group = s.in_turn ? h % s.G : h / of_group;
                const float *row = &rows[(size_t)t * width];
                const float *vectors = row + group * s.n;
                vector_of(vectors + write_at, 1, write.data());
                vector_of(vectors + read_at, scale, read.data());
                for (int j = 0; j < s.dim; j++) {
                    const size_t at = (size_t)h * s.dim + j;
                    const float x = row[x_at + at];
                    double *column = &state[at * s.n];
                    y[t * y_width + at] = advance(t, h, x, write.data(), read.data(), column);
                }
            }
        }
        return y;
    }
};

static void try_scan(const scan_shape &s) {
    rows_of_case c(s.T, s.padding);
    scan_case l(s);
    char name[96];
    c.y_width = s.H * s.dim;
    c.n_state = s.H * s.dim * s.n;
    snprintf(name, sizeof name, "%s%s %d rows, %d heads of %d x %d, %d groups",
             s.delta ? "GATED_DELTA" : "SSM_SCAN", s.each ? " each" : "", s.T, s.H, s.dim, s.n,
             s.G);
    check(name, c, &l, l.want(c));
}

/* Chunks: no bits, but sums within class a16, whole and cut, alone and beside another sequence; the
 * state, too. */
#ifndef CU_EMULATED
static double relative_state(const floats &a, const floats &b) {
    double of_error = 0;
    double of_all = 0;
    for (size_t i = 0; i < a.size(); i++) {
        const double d = (double)a[i] - b[i];
        of_error += d * d;
        of_all += (double)b[i] * b[i];
    }
    return sqrt(of_error / of_all);
}
static void try_chunks(const scan_shape &s) {
    rows_of_case c(s.T, s.padding);
    scan_case l(s);
    c.y_width = s.H * s.dim;
    c.n_state = s.H * s.dim * s.n;
    const std::vector<double> want = l.want(c);
    const outcome exact = run_cut(c, &l, s.T, false, false);
    const int cuts[] = {s.T, 64, 65, (s.T + 1) / 2, 1};
    double rows = 0;
    double state = 0;
    l.chunks = true;
    for (int i = 0; i < 5; i++) {
        const outcome o = run_cut(c, &l, cuts[i], i % 2 == 1, i >= 2);
        const double e = relative(c, o.y, want);
        const double of_state = relative_state(o.state, exact.state);
        if (!(e <= rows))
            rows = e;
        if (!(of_state <= state))
            state = of_state;
    }
    const bool good = rows <= 2e-3 && state <= 2e-3;
    printf("%s %s by chunks, %d rows, %d heads of %d x %d, %d groups: rows %.1e, state %.1e\n",
           good ? "ok   " : "FAIL ", s.delta ? "GATED_DELTA" : "SSM_SCAN", s.T, s.H, s.dim, s.n,
           s.G, rows, state);
    failed += !good;
}
static void try_all_chunks() {
    const scan_shape shapes[] = {
        {true, false, false, true, 300, 4, 128, 2, 128, 0, 0, 0, 1e-6f, 0.09f, 1},
        {true, false, true, true, 129, 4, 32, 2, 128, 5, 0, 0, 1e-6f, 0.09f, 2},
        {true, false, false, false, 64, 2, 64, 2, 128, 2, 0, 0, 1e-6f, 0.09f, 1},
        {false, false, false, true, 200, 4, 64, 1, 128, 7, 0.1f, 1.2f, 0, 1, 1},
        {false, false, false, false, 77, 8, 32, 4, 128, 0, 0, 0, 0, 1, 1},
    };
    for (const scan_shape &s : shapes) {
        try_chunks(s);
    }
}
#endif

static void try_all() {
    const scan_shape shapes[] = {
        {false, false, false, true, 37, 4, 5, 2, 7, 0, 0.3f, 1.2f, 0, 1, 1},
        {false, false, false, false, 40, 2, 64, 1, 128, 7, 0, 0, 0, 1, 1},
        {false, false, false, true, 21, 3, 40, 3, 200, 0, 0, 0, 0, 1, 1},
        {true, false, false, true, 40, 4, 128, 2, 128, 7, 0, 0, 1e-6f, 0.09f, 1},
        {true, false, true, true, 37, 6, 7, 2, 5, 5, 0, 0, 1e-6f, 0.4f, 2},
        {true, true, true, false, 37, 4, 33, 2, 36, 0, 0, 0, 1e-6f, 0.4f, 1},
        {true, true, false, true, 20, 2, 128, 2, 128, 3, 0, 0, 1e-6f, 0.09f, 1},
        {true, true, false, true, 13, 1, 48, 1, 256, 0, 0, 0, 0, 0.2f, 1},
        {true, false, false, true, 13, 1, 36, 1, 252, 0, 0, 0, 1e-6f, 0.1f, 1},
    };
    try_conv(100, 260, 4, 7);
    try_conv(133, 8, 4, 2);
    try_conv(70, 67, 3, 0);
    try_conv(90, 512, 2, 9);
    try_conv(75, 12, 9, 4);
    try_conv(140, 5, 64, 40);
    for (const scan_shape &s : shapes) {
        try_scan(s);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */
#ifndef CU_EMULATED
enum { LAYERS = 36, REPEATS = 20 };
/* Q sequences of T rows each, sequence q with page q; each launch is of another layer. */
struct bench_states {
    std::vector<int32_t> pos, seqs, states;
    uint64_t layer_bytes;
    int T, Q;
    bench_states(int rows, int n_seqs, uint64_t n_state)
        : pos(rows * n_seqs), seqs(4 * n_seqs), states(2 * n_seqs), layer_bytes(n_state * 4),
          T(rows), Q(n_seqs) {
        for (int i = 0; i < rows * n_seqs; i++) {
            pos[i] = i % rows;
        }
        for (int q = 0; q < n_seqs; q++) {
            seqs[4 * q] = q * rows;
            seqs[4 * q + 1] = rows;
            seqs[4 * q + 2] = states[2 * q] = states[2 * q + 1] = q;
        }
    }
};
template <class F> static double time_launches(F run) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < 3; i++) {
        run(i % LAYERS);
    }
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < REPEATS; i++) {
        run((i + 3) % LAYERS);
    }
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return 1000 * ms / REPEATS;
}

static cu_states on_device(const bench_states &b, const device_array<int32_t> &pos,
                           const device_array<int32_t> &seqs, const device_array<int32_t> &states,
                           char *memory) {
    cu_states s = {};
    s.row_pos = pos.at;
    s.seqs = seqs.at;
    s.states = states.at;
    s.memory = memory;
    s.n_pages = b.Q;
    s.page_bytes = LAYERS * b.layer_bytes;
    s.T = b.T * b.Q;
    s.Q = b.Q;
    s.S = b.Q;
    return s;
}

static void print_time(const char *name, const bench_states &b, double us, double bytes) {
    printf("%-34s %5d rows of %3d: %9.1f us %7.2f us a row %6.0f GB/s\n", name, b.T, b.Q, us,
           us / b.T, bytes / us / 1e3);
}

static void bench_scan(const char *name, scan_shape shape, int rows, int n_seqs,
                       bool chunks = false) {
    shape.T = (rows * n_seqs + 1) / 2;
    const scan_case c(shape);
    const uint64_t n_state = (uint64_t)shape.H * shape.dim * shape.n;
    const bench_states b(rows, n_seqs, n_state);
    const device_array<int32_t> pos(b.pos), seqs(b.seqs), states(b.states);
    device_array<char> memory(n_seqs * LAYERS * b.layer_bytes);
    device_array<float> y((size_t)rows * n_seqs * shape.H * shape.dim);
    cudaMemset(memory.at, 0, memory.n);
    cu_scan k = c.args();
    k.s = on_device(b, pos, seqs, states, memory.at);
    k.y = y.at;
    device_array<char> room(cu_chunks_room(k.s.T, k.s.Q, k.G, k.H));
    const double us = time_launches([&](int layer) {
        k.s.layer_at = layer * b.layer_bytes;
        if (chunks) {
            cu_chunks_run(0, &k, room.at);
        } else {
            cu_scan_run(0, &k);
        }
    });
    const double of_rows = 4.0 * rows * n_seqs * (c.width + shape.H * shape.dim);
    print_time(name, b, us, 8.0 * n_state * n_seqs + of_rows);
}

static void bench_conv(int rows, int n_seqs) {
    enum { C = 8192, W = 4 };
    const bench_states b(rows, n_seqs, C * (W - 1));
    const device_array<int32_t> pos(b.pos), seqs(b.seqs), states(b.states);
    device_array<char> memory(n_seqs * LAYERS * b.layer_bytes);
    device_array<float> y((size_t)rows * n_seqs * C);
    const floats x = noises((size_t)rows * n_seqs * C);
    conv_case c(C, W, false, x, noises(C * W), noises(C));
    const double us = time_launches([&](int layer) {
        cu_states s = on_device(b, pos, seqs, states, memory.at);
        s.layer_at = layer * b.layer_bytes;
        c.run(s, 0, y.at);
    });
    print_time("CONV_STATE 8192 x 4", b, us, 8.0 * C * n_seqs * (rows + W - 1));
}

static void bench() {
    const scan_shape delta = {true, false, false, true, 0,     32,    128, 16,
                              128,  0,     0,     0,    1e-6f, 0.09f, 1};
    const scan_shape each = {true, true, false, true, 0,     32,    128, 32,
                             128,  0,    0,     0,    1e-6f, 0.09f, 1};
    const scan_shape scan = {false, false, false, true, 0, 128, 64, 1, 128, 0, 0, 0, 0, 1, 1};
    const int sizes[][2] = {{1, 1}, {1, 20}, {16, 1}, {512, 1}, {4096, 1}};
    for (const int *s : sizes) {
        bench_conv(s[0], s[1]);
        bench_scan("GATED_DELTA 32 of 128 x 128", delta, s[0], s[1]);
        bench_scan("GATED_DELTA each, 32 of 128 x 128", each, s[0], s[1]);
        bench_scan("SSM_SCAN 128 of 64 x 128", scan, s[0], s[1]);
    }
    const int many[][2] = {{64, 1}, {128, 1}, {512, 1}, {4096, 1}, {16, 20}, {512, 8}};
    for (const int *s : many) {
        bench_scan("GATED_DELTA by chunks", delta, s[0], s[1], true);
        bench_scan("SSM_SCAN by chunks", scan, s[0], s[1], true);
    }
}
#endif

int main(int argc, char **argv) {
#ifndef CU_EMULATED
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || !n) {
        printf("SKIP  no GPU\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        bench();
        return 0;
    }
#endif
    (void)argc, (void)argv;
#ifndef CU_EMULATED
    try_all_chunks();
#endif
    try_all();
    return failed != 0;
}
