/* warps.cl -- products of one row with matrices of one type, for devices whose items go in warps of
 * 32: a group stages the row (normalised on the way) in local memory, a warp makes two outputs, a
 * lane takes pieces of both in turn. With the norm before it and the activation or sum behind it a
 * layer's product is one kernel. */
enum { WARPS = OCL_WARPS, ITEMS = 32 * WARPS, QUADS = OCL_STAGED / 4 };

/* Where quad q of piece i is held: lanes that read pieces side by side meet no bank twice. */
static int place_of(int i, int q) {
    return 4 * i + ((q + (i >> 1)) & 3);
}

/* Elements 4 j to 4 j + 3 of n; zeros behind the end. */
static float4 quad_of(global const float *x, int j, int n, bool aligned) {
    if (aligned)
        return *(global const float4 *)(x + 4 * j);
    float4 v = 0;
    v.x = 4 * j < n ? x[4 * j] : 0.0f;
    v.y = 4 * j + 1 < n ? x[4 * j + 1] : 0.0f;
    v.z = 4 * j + 2 < n ? x[4 * j + 2] : 0.0f;
    v.w = 4 * j + 3 < n ? x[4 * j + 3] : 0.0f;
    return v;
}

/* Elements [from, from + 16 pieces) of the row. */
static void stage(local float4 *staged, global const float *x, int from, int pieces, int K) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const int n = K - from;
    const bool whole = (K & 3) == 0 && ((ulong)x & 15) == 0;
    for (int j = item; j < 4 * pieces; j += ITEMS)
        staged[place_of(j >> 2, j & 3)] = quad_of(x + from, j, n, whole && 4 * j + 4 <= n);
}

/* What is staged becomes its norm. */
static void normalise(local float4 *staged, global const float *weight, int pieces, int K,
                      float eps, float offset, local float *red, local float *sums) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    float squares = 0;
    for (int j = item; j < 4 * pieces; j += ITEMS) {
        const float4 v = staged[place_of(j >> 2, j & 3)];
        squares += dot(v, v);
    }
    squares = warp_sum(squares, red);
    if (get_local_id(0) == 0)
        sums[get_local_id(1)] = squares;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    const float factor = 1.0f / sqrt(sum / (float)K + eps);
    const bool whole = (K & 3) == 0 && ((ulong)weight & 15) == 0;
    for (int j = item; j < 4 * pieces; j += ITEMS) {
        const int at = place_of(j >> 2, j & 3);
        const float4 w = quad_of(weight, j, K, whole && 4 * j + 4 <= K);
        staged[at] = staged[at] * factor * (w + offset);
    }
}

/* An output of a warp: its row in the planes of its matrix. */
typedef struct {
    global const uchar *row;
    global const uchar *scale;
    global const float *bias;
    global const float *b;
    global float *y;
    int n;
    int N;
} output;

/* Row n of a matrix of N rows, of an expert's. */
static output output_of(global const uchar *w, ulong row_bytes, ulong scale_at, ulong bias_at,
                        int blocks, global const float *b, global float *y, long expert, int n,
                        int N) {
    const long row = expert * N + n;
    output o;
    o.row = w + row * (long)row_bytes;
    o.scale = w + scale_at + row * blocks * HEAD;
    o.bias = (global const float *)(w + bias_at) + row * blocks;
    o.b = b ? b + row : 0;
    o.y = y;
    o.n = n;
    o.N = N;
    return o;
}

static float4 multiply(float4 sum, output o, int i, float16 x) {
    const float16 w = PIECE(o.row, o.scale, o.bias, i);
    sum = fma(w.s0123, x.s0123, sum);
    sum = fma(w.s4567, x.s4567, sum);
    sum = fma(w.s89ab, x.s89ab, sum);
    return fma(w.scdef, x.scdef, sum);
}

static float total_of(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

/* A row is asked for early: staging takes as long as memory does. */
static void ask_for(output o, ulong row_bytes) {
#ifdef PTX
    for (ulong at = 128 * get_local_id(0); at < row_bytes; at += 4096)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(o.row + at));
#endif
}

/* Output n of all matrices, one after the other; behind the last there is none. */
#define OUTPUT(i, n)                                                                               \
    output_of(PTR(const uchar, w##i), p.w##i.row_bytes, p.w##i.scale_at, p.w##i.bias_at,           \
              p.w##i.blocks, PTR(const float, b##i), PTR(float, y##i), expert, n, p.N##i)
#define OUTPUT_AT(o, n)                                                                            \
    output o;                                                                                      \
    if ((n) < p.N0)                                                                                \
        o = OUTPUT(0, n);                                                                          \
    else if ((n) < p.N0 + p.N1)                                                                    \
        o = OUTPUT(1, (n) - p.N0);                                                                 \
    else                                                                                           \
        o = OUTPUT(2, (n) - p.N0 - p.N1);

kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_warp(REF(x), REF(norm), REF(experts), REF(w0), REF(w1), REF(w2), REF(b0), REF(b1), REF(b2),
            REF(add), REF(y0), REF(y1), REF(y2), const ocl_warp_args p) {
    local float4 staged[QUADS];
    local float red[ITEMS];
    local float sums[WARPS];
    const int lane = get_local_id(0);
    const int unit = get_group_id(1) * WARPS + get_local_id(1);
    const int row = get_group_id(0);
    const int total = p.glu ? p.N0 : p.N0 + p.N1 + p.N2;
    global const int *experts = PTR(const int, experts);
    global const float *x = PTR(const float, x) + (ulong)(row / p.per_x) * p.K;
    const int given = experts ? experts[row] : 0;
    const long expert = given < 0 || given >= p.n_experts ? 0 : given;
    const int first = p.glu ? unit : 2 * unit;
    const int second = p.glu ? p.N0 + unit : 2 * unit + 1;
    const int last = p.glu ? p.N0 - 1 : total - 1;
    const int n0 = min(first, last);
    const int n1 = p.glu ? p.N0 + n0 : min(second, last);
    OUTPUT_AT(o0, n0)
    OUTPUT_AT(o1, n1)
    ask_for(o0, p.w0.row_bytes);
    ask_for(o1, p.w0.row_bytes);
    float4 sum0 = 0;
    float4 sum1 = 0;
    const int pieces = p.w0.pieces;
    for (int from = 0; from < pieces; from += QUADS / 4) {
        const int count = min(pieces - from, QUADS / 4);
        stage(staged, x, 16 * from, count, p.K);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (p.normalise) {
            normalise(staged, PTR(const float, norm), count, p.K, p.eps, p.offset, red, sums);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll 4
        for (int i = lane; i < count; i += 32) {
            const float16 v = (float16)(staged[place_of(i, 0)], staged[place_of(i, 1)],
                                        staged[place_of(i, 2)], staged[place_of(i, 3)]);
            sum0 = multiply(sum0, o0, from + i, v);
            sum1 = multiply(sum1, o1, from + i, v);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float v0 = warp_sum(total_of(sum0), red);
    float v1 = warp_sum(total_of(sum1), red);
    if (lane != 0 || first > last)
        return;
    global const float *add = PTR(const float, add);
    const ulong to0 = (ulong)row * o0.N + o0.n;
    const ulong to1 = (ulong)row * o1.N + o1.n;
    v0 = o0.b ? v0 + *o0.b : v0;
    v1 = o1.b ? v1 + *o1.b : v1;
    if (p.glu) {
        o0.y[to0] = gate(p.kind, p.alpha, p.limit, p.up_offset, v0, v1);
        return;
    }
    o0.y[to0] = add ? v0 + add[to0] : v0;
    if (second <= last)
        o1.y[to1] = add ? v1 + add[to1] : v1;
}
