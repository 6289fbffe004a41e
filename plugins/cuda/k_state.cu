/* k_state.cu -- CONV_STATE, SSM_SCAN and GATED_DELTA. All have class exact: the rows of a sequence
 * one after the other, with the same sums whatever else is in the step, so that rows which are
 * computed again in other steps have the same bits.
 *
 * A convolution has a block for some rows and channels. Of the others a block has 32 columns of a
 * head (elements of x or of v) and all rows of a sequence: 16 lanes have two columns, whose states
 * they keep in registers from the first row to the last. Rows come by stages through shared memory,
 * a stage ahead of its use; what a lane reads there it uses for both columns, for those reads would
 * take most of the time. States lie as [W - 1, C], the oldest first; [H, P, N]; [Hv, Dv, Dk]. */
#include "device.cuh"
#include <float.h>

/* ---- sequences ------------------------------------------------------------------------------- */
/* Rows [lo, hi) but for padding; from NULL: zeros. */
struct sequence {
    int lo, hi;
    const float *from;
    float *to;
};
__device__ float *page_floats(const cu_states &s, int page) {
    return (float *)(s.memory + (uint64_t)page * s.page_bytes + s.layer_at);
}
/* Entry i of SEQS; false: it is unused, or its slot has no page. */
__device__ bool sequence_at(const cu_states &s, int i, sequence *q) {
    const int32_t *entry = s.seqs + 4 * (int64_t)i;
    const int lo = __ldcg(&entry[0]);
    const int n = __ldcg(&entry[1]);
    const int slot = __ldcg(&entry[2]);
    const int most = s.T - lo;
    if (lo < 0 || n <= 0 || n > most) {
        return false;
    }
    if (slot < 0 || slot >= s.S) {
        return false;
    }
    const int32_t *pages = s.states + 2 * (int64_t)slot;
    const int from = __ldcg(&pages[0]);
    const int to = __ldcg(&pages[1]);
    if (from >= s.n_pages || to < 0 || to >= s.n_pages) {
        return false;
    }
    q->lo = lo;
    q->hi = lo + n;
    q->from = NULL;
    if (from >= 0) {
        q->from = page_floats(s, from);
    }
    q->to = page_floats(s, to);
    return true;
}

/* ---- CONV_STATE ------------------------------------------------------------------------------ */
/* AHEAD: rows that a thread asks for at once */
enum { CONV_ROWS = 32, CONV_THREADS = 128, CONV_AHEAD = 8 };
enum { CONV_PAST = CU_CONV_MOST - 1 };

/* By a warp: the last `past` live rows of [lo, end) to list, the newest last; in front of them, if
 * there are too few, rows of the state as -1 - its index. Returns how many are live. */
__device__ int last_rows(const int32_t *row_pos, int lo, int end, int past, int *list) {
    const int lane = threadIdx.x % 32;
    int found = 0;
    for (int at = end - 32; found < past && at + 32 > lo; at -= 32) {
        const int t = at + lane;
        const bool live = t >= lo && __ldcg(&row_pos[t]) >= 0;
        const unsigned all = __ballot_sync(~0u, live);
        const int newer = __popc(all & ~((2u << lane) - 1));
        if (live && found + newer < past) {
            list[past - 1 - found - newer] = t;
        }
        found += __popc(all);
    }
    if (found > past) {
        found = past;
    }
    for (int i = lane; i < past - found; i += 32) {
        list[i] = -1 - found - i;
    }
    return found;
}

/* By a warp: live rows of [at, at + 32) and below hi, up to `most`, to list. Returns how many. */
__device__ int rows_alive(const int32_t *row_pos, int at, int hi, int most, int *list) {
    const int lane = threadIdx.x % 32;
    const int t = at + lane;
    const bool live = t < hi && __ldcg(&row_pos[t]) >= 0;
    const unsigned all = __ballot_sync(~0u, live);
    const int older = __popc(all & ((1u << lane) - 1));
    if (live && older < most) {
        list[older] = t;
    }
    return min(__popc(all), most);
}

/* What a block computes: live rows from window[past + skip] on, each from the `past` before it.
 * tail: the rows that the sequence leaves as its state. */
struct conv_plan {
    int window[CONV_PAST + CONV_ROWS + CONV_PAST];
    int tail[CONV_PAST];
    int n, skip;
};

/* By a warp. The first block of a sequence reads and writes its state, so it has all rows that
 * need the state, also where padding leaves the block itself too few. */
__device__ void conv_plan_of(const cu_conv &a, const sequence &q, int chunk, conv_plan *p) {
    const int past = a.W - 1;
    const int at = q.lo + chunk * CONV_ROWS;
    int *rows = p->window + past;
    const int found = last_rows(a.s.row_pos, q.lo, at, past, p->window);
    int n = rows_alive(a.s.row_pos, at, q.hi, CONV_ROWS, rows);
    int skip = past - found;
    if (chunk == 0) {
        for (int t = at + CONV_ROWS; n < past && t < q.hi; t += 32) {
            n += rows_alive(a.s.row_pos, t, q.hi, past - n, rows + n);
        }
        last_rows(a.s.row_pos, q.lo, q.hi, past, p->tail);
        skip = 0;
    }
    if (threadIdx.x == 0) {
        p->n = n;
        p->skip = skip;
    }
}

/* V channels of a thread. */
template <int V> struct channels { float v[V]; };
template <int V> __device__ __forceinline__ channels<V> channels_at(const float *x) {
    channels<V> c;
    if constexpr (V == 4) {
        *(float4 *)c.v = __ldcg((const float4 *)x);
    } else {
        c.v[0] = __ldcg(x);
    }
    return c;
}
template <int V> __device__ __forceinline__ void channels_put(float *y, channels<V> c) {
    if constexpr (V == 4) {
        *(float4 *)y = *(const float4 *)c.v;
    } else {
        y[0] = c.v[0];
    }
}
/* Row t of x, or of the state where t is negative. */
template <int V>
__device__ __forceinline__ channels<V> conv_input(const cu_conv &a, const float *state, int c,
                                                  int t) {
    if (t >= 0) {
        return channels_at<V>(a.x + (int64_t)t * a.C + c);
    }
    if (state) {
        return channels_at<V>(state + (int64_t)(-1 - t) * a.C + c);
    }
    return channels<V>{};
}

__device__ __forceinline__ float *conv_output(const cu_conv &a, int t, int c) {
    return a.y + (int64_t)t * a.C + c;
}

template <int V>
__device__ __forceinline__ void conv_add(channels<V> *sum, const float *w, int width, int j,
                                         channels<V> x) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        sum->v[v] = __fmaf_rn(w[v * width + j], x.v[v], sum->v[v]);
    }
}

/* Rows with the window and the weights of W taps in registers. */
template <int W, int V>
__device__ void conv_in_registers(const cu_conv &a, const conv_plan &p, const float *state, int c,
                                  channels<V> bias) {
    enum { PAST = W - 1 };
    const float *weight = a.weight + (int64_t)c * W;
    const int *rows = p.window + PAST;
    channels<V> x[PAST + CONV_AHEAD];
    float w[V * W];
#pragma unroll
    for (int i = 0; i < V * W; i++) {
        w[i] = weight[i];
    }
#pragma unroll
    for (int j = 0; j < PAST; j++) {
        x[j] = conv_input<V>(a, state, c, p.window[j]);
    }
    for (int i = 0; i < p.n; i += CONV_AHEAD) {
#pragma unroll
        for (int k = 0; k < CONV_AHEAD; k++) {
            if (i + k < p.n) {
                x[PAST + k] = conv_input<V>(a, NULL, c, rows[i + k]);
            }
        }
#pragma unroll
        for (int k = 0; k < CONV_AHEAD; k++) {
            channels<V> sum = bias;
#pragma unroll
            for (int j = 0; j < W; j++) {
                conv_add<V>(&sum, w, W, j, x[k + j]);
            }
            if (i + k >= p.skip && i + k < p.n) {
                channels_put<V>(conv_output(a, rows[i + k], c), sum);
            }
        }
#pragma unroll
        for (int j = 0; j < PAST; j++) {
            x[j] = x[CONV_AHEAD + j];
        }
    }
}

/* Any number of taps: each row reads its inputs again. */
template <int V>
__device__ void conv_from_memory(const cu_conv &a, const conv_plan &p, const float *state, int c,
                                 channels<V> bias) {
    const float *w = a.weight + (int64_t)c * a.W;
    for (int i = p.skip; i < p.n; i++) {
        channels<V> sum = bias;
        for (int j = 0; j < a.W; j++) {
            const int t = p.window[i + j];
            const channels<V> x = conv_input<V>(a, state, c, t);
            conv_add<V>(&sum, w, a.W, j, x);
        }
        const int t = p.window[i + a.W - 1];
        channels_put<V>(conv_output(a, t, c), sum);
    }
}

/* The state behind the rows. In place, too: an entry comes from one behind it, or from x. */
template <int V>
__device__ void conv_leave(const cu_conv &a, const conv_plan &p, const sequence &q, int c) {
    for (int i = 0; i < a.W - 1; i++) {
        const channels<V> x = conv_input<V>(a, q.from, c, p.tail[i]);
        float *to = q.to + (int64_t)i * a.C + c;
        channels_put<V>(to, x);
    }
}

/* W: taps, 0: a.W. Grid: channels, rows of a sequence, sequences. */
template <int W, int V> __global__ void __launch_bounds__(CONV_THREADS) conv_rows(cu_conv a) {
    __shared__ conv_plan plan;
    const int chunk = blockIdx.y;
    const int first = blockIdx.x * CONV_THREADS;
    const int c = V * (first + threadIdx.x);
    const bool has_bias = a.bias && c < a.C;
    channels<V> bias = {};
    sequence q;
    cu_next();
    for (int v = 0; v < V && has_bias; v++) {
        bias.v[v] = a.bias[c + v];
    }
    cu_wait();
    if (!sequence_at(a.s, blockIdx.z, &q)) {
        return;
    }
    if (q.lo + chunk * CONV_ROWS >= q.hi) {
        return;
    }
    if (threadIdx.x < 32) {
        conv_plan_of(a, q, chunk, &plan);
    }
    __syncthreads();
    if (c >= a.C) {
        return;
    }
    const float *state = NULL;
    if (chunk == 0) {
        state = q.from;
    }
    if constexpr (W > 0) {
        conv_in_registers<W, V>(a, plan, state, c, bias);
    } else {
        conv_from_memory<V>(a, plan, state, c, bias);
    }
    if (chunk == 0) {
        conv_leave<V>(a, plan, q, c);
    }
}

static bool are_aligned(const void *a, const void *b, const void *c) {
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c;
    return all % 16 == 0;
}

template <int V> static void conv_launch(cudaStream_t s, const cu_conv *a, dim3 grid) {
    void (*kernel)(cu_conv) = conv_rows<0, V>;
    switch (a->W) {
    case 3:
        kernel = conv_rows<3, V>;
        break;
    case 4:
        kernel = conv_rows<4, V>;
        break;
    default:
        break;
    }
    launch(s, kernel, grid, CONV_THREADS, 0, *a);
}
/* Few rows want all processors, many rows wide reads. */
void cu_conv_run(cudaStream_t s, const cu_conv *a) {
    enum { WIDE_FROM = 64 };
    const bool aligned = are_aligned(a->x, a->y, a->s.memory);
    const int chunks = (a->s.T + CONV_ROWS - 1) / CONV_ROWS;
    const int blocks = (a->C + CONV_THREADS - 1) / CONV_THREADS;
    if (a->s.T >= WIDE_FROM && a->C % 4 == 0 && aligned) {
        conv_launch<4>(s, a, dim3((blocks + 3) / 4, chunks, a->s.Q));
    } else {
        conv_launch<1>(s, a, dim3(blocks, chunks, a->s.Q));
    }
}

/* ---- SSM_SCAN and GATED_DELTA: rows in shared memory ----------------------------------------- */
enum { SCAN_THREADS = 256, SCAN_WARPS = SCAN_THREADS / 32, PARTS = 16 };
enum { PAIR = 2, COLS = PAIR * SCAN_THREADS / PARTS };

#ifdef CU_EMULATED /* tests run this on a CPU */
__device__ void row_copy(float *to, const float *from) {
    memcpy(to, from, 16);
}
__device__ void row_copies_end() {
}
#else
/* 16 bytes to shared memory, some time before row_copies_end. */
__device__ __forceinline__ void row_copy(float *to, const float *from) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ __forceinline__ void row_copies_end() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#endif
/* What a row multiplies with: the state, x, what the state knows of x (delta), y; kq: the product
 * of what is written and read. */
struct __align__(16) row_factors {
    float decay, x_by, known_by, y_by, kq;
    int live;
};
/* Numbers of a row that a lane has asked for. */
struct row_ahead {
    float step, beta;
    int pos;
};
struct row_sums {
    float write, read, both;
};

/* ---- elements -------------------------------------------------------------------------------- */
/* ln(1 + e^x); NaN stays NaN. */
__device__ __forceinline__ float softplus(float x) {
    float above = x;
    if (x < 0) {
        above = 0;
    }
    const float e = expf(-fabsf(x));
    return above + log1pf(e);
}
/* factor / length of x [n]. Sums that leave the range of f32 are computed again in double. */
__device__ float length_factor(const cu_scan &a, const float *x, float sum, float factor) {
    if (a.eps == 0) {
        return factor;
    }
    if (sum <= FLT_MAX) {
        return factor / sqrtf(sum + a.eps);
    }
    double wide = 0;
    for (int i = 0; i < a.n; i++) {
        wide += (double)x[i] * x[i];
    }
    return (float)(factor / sqrt(wide + a.eps));
}
__device__ __forceinline__ float sum_of_four(float4 v) {
    const float a = __fadd_rn(v.x, v.y);
    const float b = __fadd_rn(v.z, v.w);
    return __fadd_rn(a, b);
}
/* Of two values that neighbouring lanes have: the sum of `even` where `odd_lane` is false, else of
 * `odd`; `distance` to the neighbour. */
__device__ __forceinline__ float split_sum(float even, float odd, bool odd_lane, int distance) {
    const float own = odd_lane ? odd : even;
    const float other = odd_lane ? even : odd;
    return own + __shfl_xor_sync(~0u, other, distance);
}
__device__ __forceinline__ float4 all_four(float v) {
    return make_float4(v, v, v, v);
}
__device__ __forceinline__ float4 mul4(float4 a, float4 b) {
    a.x = __fmul_rn(a.x, b.x);
    a.y = __fmul_rn(a.y, b.y);
    a.z = __fmul_rn(a.z, b.z);
    a.w = __fmul_rn(a.w, b.w);
    return a;
}
__device__ __forceinline__ float4 fma4(float4 a, float4 b, float4 c) {
    c.x = __fmaf_rn(a.x, b.x, c.x);
    c.y = __fmaf_rn(a.y, b.y, c.y);
    c.z = __fmaf_rn(a.z, b.z, c.z);
    c.w = __fmaf_rn(a.w, b.w, c.w);
    return c;
}

/* ---- a block --------------------------------------------------------------------------------- */
/* Rows of a stage: what is written to a column (B or k), what it is read with (C or q), decays of
 * elements, elements of x or v. M: vectors of a lane. */
template <bool EACH, int M> struct stage_rows {
    enum { LONG = 4 * PARTS * M, ROWS = (EACH ? 16 : 32) / (M < 2 ? 2 : M) };
    float write[ROWS][LONG];
    float read[ROWS][LONG];
    float decay[EACH ? ROWS : 1][LONG];
    float x[ROWS][COLS];
};

/* What a thread of a block knows. Element j of its vector m is element 4 (part + PARTS m) + j of
 * columns `col` and col + 1, which are at `column` and behind it among those of all heads. */
template <bool DELTA, bool EACH, int M> struct scan_block {
    typedef stage_rows<EACH, M> stage;
    const cu_scan &a;
    int lane, warp, part;
    int head, group;
    int col, first; /* first: of the block */
    int64_t column;
    float rate, bias, pass;
    float4 s[PAIR][M];

    __device__ explicit scan_block(const cu_scan &args) : a(args) {
        const int per_head = (a.dim + COLS - 1) / COLS;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        part = threadIdx.x % PARTS;
        head = blockIdx.x / per_head;
        first = blockIdx.x % per_head * COLS;
        col = first + PAIR * (threadIdx.x / PARTS);
        column = (int64_t)head * a.dim + col;
        group = head / (a.H / a.G);
        if (a.in_turn) {
            group = head % a.G;
        }
        load_weights();
    }
    __device__ void load_weights() {
        rate = a.a[head];
        if (a.a_log) {
            rate = -expf(rate);
        }
        bias = 0;
        if (!EACH) {
            bias = a.dt_bias[head];
        }
        pass = 0;
        if (!DELTA) {
            pass = a.d[head];
        }
    }
    __device__ bool has_column(int i) const {
        return col + i < a.dim;
    }

    /* ---- rows on their way ---- */
    /* n floats by a warp. */
    __device__ void part_of_row(float *to, const float *from, int n) const {
        if (a.aligned) {
            for (int i = 4 * lane; i < n; i += 128) {
                row_copy(to + i, from + i);
            }
            return;
        }
        for (int i = lane; i < n; i += 32) {
            to[i] = __ldcg(from + i);
        }
    }
    __device__ void stage_ask_row(stage *to, int r, int t) const {
        const float *row = a.rows + (int64_t)t * a.width;
        const float *of_group = row + group * a.n;
        const float *x = row + a.x_at + head * a.dim;
        const int64_t step = (int64_t)t * a.H + head;
        part_of_row(to->write[r], of_group + a.write_at, a.n);
        part_of_row(to->read[r], of_group + a.read_at, a.n);
        part_of_row(to->x[r], x + first, min(COLS, a.dim - first));
        if (EACH) {
            part_of_row(to->decay[r], a.step + step * a.n, a.n);
        }
    }
    /* Rows from lo on and below hi, as many as a stage has: each warp for some of them, a lane for
     * the numbers of one. */
    __device__ row_ahead stage_ask(stage *to, int lo, int hi) const {
        const int own = warp + SCAN_WARPS * lane;
        const int n = min((int)stage::ROWS, hi - lo);
        const int64_t step = (int64_t)(lo + own) * a.H + head;
        row_ahead ahead = {0, 0, -1};
        for (int r = warp; r < n; r += SCAN_WARPS) {
            stage_ask_row(to, r, lo + r);
        }
        if (own >= n) {
            return ahead;
        }
        ahead.pos = __ldcg(&a.s.row_pos[lo + own]);
        if (!EACH) {
            ahead.step = __ldcg(&a.step[step]);
        }
        if (DELTA) {
            ahead.beta = __ldcg(&a.beta[step]);
        }
        return ahead;
    }
    /* Elements behind the last are zeros. */
    __device__ void stage_clear(stage *stages) const {
        float *all = (float *)stages;
        const int n = 2 * sizeof(stage) / sizeof(float);
        for (int i = threadIdx.x; i < n; i += SCAN_THREADS) {
            all[i] = 0;
        }
        __syncthreads();
    }

    /* ---- factors ---- */
    __device__ row_sums sums_of_row(const float *write, const float *read) const {
        row_sums t = {0, 0, 0};
#pragma unroll
        for (int m = 0; m < PAIR * M; m++) {
            const float w = write[lane + 32 * m];
            const float r = read[lane + 32 * m];
            t.write = __fmaf_rn(w, w, t.write);
            t.read = __fmaf_rn(r, r, t.read);
            t.both = __fmaf_rn(w, r, t.both);
        }
        t.write = warp_sum(t.write);
        t.read = warp_sum(t.read);
        t.both = warp_sum(t.both);
        return t;
    }
    /* Gates of elements become decays, by a warp. */
    __device__ void decays_of(float *row) const {
        const float *offset = a.dt_bias + (int64_t)head * a.n;
        for (int i = lane; i < a.n; i += 32) {
            const float size = softplus(row[i] + offset[i]);
            const float power = __fmul_rn(size, rate);
            row[i] = expf(power);
        }
    }
    __device__ row_factors step_factors(const row_ahead &ahead) const {
        row_factors f = {0};
        f.y_by = 1;
        f.live = ahead.pos >= 0;
        float size = softplus(ahead.step + bias);
        if (size < a.dt_min) {
            size = a.dt_min;
        }
        if (a.dt_max != 0 && size > a.dt_max) {
            size = a.dt_max;
        }
        f.x_by = size;
        f.decay = expf(__fmul_rn(size, rate));
        return f;
    }
    /* Of the n rows of a stage: sums by warps, then factors of a row by a lane. */
    __device__ void stage_factors(stage *rows, const row_ahead &ahead, int n,
                                  row_factors *to) const {
        const int own = warp + SCAN_WARPS * lane;
        row_sums sums = {0, 0, 0};
        for (int r = warp; DELTA && r < n; r += SCAN_WARPS) {
            const row_sums of_row = sums_of_row(rows->write[r], rows->read[r]);
            if (r == own) {
                sums = of_row;
            }
            if (EACH) {
                decays_of(rows->decay[EACH ? r : 0]);
            }
        }
        if (own >= n) {
            return;
        }
        row_factors f = step_factors(ahead);
        if (DELTA) {
            const float e = expf(-ahead.beta);
            const float written = a.beta_scale / (1.0f + e);
            f.known_by = length_factor(a, rows->write[own], sums.write, 1);
            f.y_by = length_factor(a, rows->read[own], sums.read, a.scale);
            f.x_by = __fmul_rn(written, f.known_by);
            f.kq = sums.both;
        }
        to[own] = f;
    }

    /* ---- columns ---- */
    __device__ void column_load(const float *from, float4 *to) const {
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i = 4 * (part + PARTS * m);
            if (a.aligned && i < a.n) {
                to[m] = __ldcg((const float4 *)(from + i));
            }
            for (int j = 0; !a.aligned && j < 4 && i + j < a.n; j++) {
                ((float *)&to[m])[j] = __ldcg(from + i + j);
            }
        }
    }
    __device__ void column_store(float *to, const float4 *from) const {
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i = 4 * (part + PARTS * m);
            if (a.aligned && i < a.n) {
                *(float4 *)(to + i) = from[m];
            }
            for (int j = 0; !a.aligned && j < 4 && i + j < a.n; j++) {
                to[i + j] = ((const float *)&from[m])[j];
            }
        }
    }
    __device__ void load_states(const float *from) {
#pragma unroll
        for (int i = 0; i < PAIR; i++) {
#pragma unroll
            for (int m = 0; m < M; m++) {
                s[i][m] = all_four(0);
            }
            if (from && has_column(i)) {
                column_load(from + (column + i) * a.n, s[i]);
            }
        }
    }
    __device__ void store_states(float *to) const {
#pragma unroll
        for (int i = 0; i < PAIR; i++) {
            if (has_column(i)) {
                column_store(to + (column + i) * a.n, s[i]);
            }
        }
    }
    /* y of a row: of the second column in odd lanes, of those with bit 1 in `part`. With S decayed
     * and u what is written, S read + u (write read): one pass over S has both sums. */
    __device__ __forceinline__ float column_delta(const stage &rows, int r, const row_factors &f,
                                                  const float2 &x) {
        const float4 *write = (const float4 *)rows.write[r] + part;
        const float4 *read = (const float4 *)rows.read[r] + part;
        const float4 *decay = (const float4 *)rows.decay[EACH ? r : 0] + part;
        float4 known[PAIR] = {};
        float4 sum[PAIR] = {};
        float4 w[M];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float4 by = EACH ? decay[PARTS * m] : all_four(f.decay);
            const float4 v = read[PARTS * m];
            w[m] = write[PARTS * m];
#pragma unroll
            for (int i = 0; i < PAIR; i++) {
                s[i][m] = mul4(s[i][m], by);
                known[i] = fma4(s[i][m], w[m], known[i]);
                sum[i] = fma4(s[i][m], v, sum[i]);
            }
        }
        const bool second = part & 1;
        const float known0 = sum_of_four(known[0]);
        const float known1 = sum_of_four(known[1]);
        const float sum0 = sum_of_four(sum[0]);
        const float sum1 = sum_of_four(sum[1]);
        const float k = split_sum(known0, known1, second, 1);
        const float y = split_sum(sum0, sum1, second, 1);
        float all = split_sum(k, y, part & 2, 2);
        all += __shfl_xor_sync(~0u, all, 4);
        all += __shfl_xor_sync(~0u, all, 8);
        const int lane_of_known = lane - part;
        float u[PAIR] = {x.x, x.y};
#pragma unroll
        for (int i = 0; i < PAIR; i++) {
            const float there = __shfl_sync(~0u, all, lane_of_known + i);
            const float known_of_x = __fmul_rn(f.known_by, there);
            const float missing = __fsub_rn(u[i], known_of_x);
            u[i] = __fmul_rn(f.x_by, missing);
#pragma unroll
            for (int m = 0; m < M; m++) {
                s[i][m] = fma4(w[m], all_four(u[i]), s[i][m]);
            }
        }
        const float own = second ? u[1] : u[0];
        const float y_of_row = __fmaf_rn(own, f.kq, all);
        return __fmul_rn(f.y_by, y_of_row);
    }
    __device__ __forceinline__ float column_scan(const stage &rows, int r, const row_factors &f,
                                                 const float2 &x) {
        const float4 *write = (const float4 *)rows.write[r] + part;
        const float4 *read = (const float4 *)rows.read[r] + part;
        const float u0 = __fmul_rn(f.x_by, x.x);
        const float u1 = __fmul_rn(f.x_by, x.y);
        const float u[PAIR] = {u0, u1};
        float4 sum[PAIR] = {};
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float4 w = write[PARTS * m];
            const float4 v = read[PARTS * m];
#pragma unroll
            for (int i = 0; i < PAIR; i++) {
                const float4 kept = mul4(s[i][m], all_four(f.decay));
                s[i][m] = fma4(w, all_four(u[i]), kept);
                sum[i] = fma4(s[i][m], v, sum[i]);
            }
        }
        const bool second = part & 1;
        const float sum0 = sum_of_four(sum[0]);
        const float sum1 = sum_of_four(sum[1]);
        float y = split_sum(sum0, sum1, second, 1);
        y += __shfl_xor_sync(~0u, y, 2);
        y += __shfl_xor_sync(~0u, y, 4);
        y += __shfl_xor_sync(~0u, y, 8);
        const float own = second ? x.y : x.x;
        return __fmaf_rn(pass, own, y);
    }
    /* The n rows of a stage, from row lo of the step on. */
    __device__ void scan_advance(const stage &rows, const row_factors *factors, int lo, int n) {
        const int own = part & 1;
        const bool writes = part / PAIR == 1 && has_column(own);
        const int64_t y_width = (int64_t)a.H * a.dim;
        float *y = a.y + lo * y_width + column + own;
        for (int r = 0; r < n; r++, y += y_width) {
            const row_factors f = factors[r];
            const float2 x = *(const float2 *)&rows.x[r][col - first];
            if (!f.live) {
                continue;
            }
            float of_row;
            if constexpr (DELTA) {
                of_row = column_delta(rows, r, f, x);
            } else {
                of_row = column_scan(rows, r, f, x);
            }
            if (writes) {
                *y = of_row;
            }
        }
    }
};

/* Grid: columns of heads, sequences. With many rows the successor starts behind them: blocks that
 * wait where this kernel leaves room would have some processors run two of the next. */
template <bool DELTA, bool EACH, int M>
__global__ void __launch_bounds__(SCAN_THREADS, 3) scan_rows(cu_scan a) {
    typedef stage_rows<EACH, M> stage;
    __shared__ __align__(16) stage stages[2];
    __shared__ row_factors factors[stage::ROWS];
    scan_block<DELTA, EACH, M> b(a);
    sequence q;
    int k = 0;
    if (a.s.T <= a.s.Q) {
        cu_next();
    }
    if (a.n < stage::LONG) {
        b.stage_clear(stages);
    }
    cu_wait();
    if (!sequence_at(a.s, blockIdx.y, &q)) {
        return;
    }
    if (a.chunks_from && q.hi - q.lo >= a.chunks_from) {
        return;
    }
    row_ahead ahead = b.stage_ask(&stages[0], q.lo, q.hi);
    b.load_states(q.from);
    for (int lo = q.lo; lo < q.hi; lo += stage::ROWS, k ^= 1) {
        const int n = min((int)stage::ROWS, q.hi - lo);
        row_copies_end();
        __syncthreads();
        b.stage_factors(&stages[k], ahead, n, factors);
        ahead = b.stage_ask(&stages[k ^ 1], lo + stage::ROWS, q.hi);
        __syncthreads();
        b.scan_advance(stages[k], factors, lo, n);
    }
    cu_next();
    b.store_states(q.to);
}

template <bool DELTA, bool EACH> static void scan_launch(cudaStream_t s, const cu_scan *a) {
    void (*kernel)(cu_scan) = scan_rows<DELTA, EACH, 4>;
    const int per_head = (a->dim + COLS - 1) / COLS;
    const dim3 grid(a->H * per_head, a->s.Q);
    if (a->n <= 64) {
        kernel = scan_rows<DELTA, EACH, 1>;
    } else if (a->n <= 128) {
        kernel = scan_rows<DELTA, EACH, 2>;
    }
    launch(s, kernel, grid, SCAN_THREADS, 0, *a);
}
void cu_scan_run(cudaStream_t s, const cu_scan *given) {
    cu_scan a = *given;
    const bool fours = (a.n | a.dim | a.width) % 4 == 0;
    const void *gates = a.each ? a.step : NULL;
    a.aligned = fours && are_aligned(a.rows, a.s.memory, gates);
    if (!a.beta) {
        scan_launch<false, false>(s, &a);
    } else if (a.each) {
        scan_launch<true, true>(s, &a);
    } else {
        scan_launch<true, false>(s, &a);
    }
}
