/* warps.cl -- products of one row with matrices of one type, for devices whose items go in warps of
 * 32: a group stages the row (normalised on the way) in local memory, a warp makes two outputs, a
 * lane takes pieces of both in turn. With the norm before it and the activation or sum behind it a
 * layer's product is one kernel. step.cl has this file once for each weight type. */
#ifndef WARPS_CL
#define WARPS_CL
enum { QUADS = OCL_STAGED / 4, HELD = 2 /* quads of an item in registers */ };

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

/* The bytes of a row, for a warp: whatever comes first takes as long as memory does. */
static void ask_for(global const uchar *row, ulong row_bytes) {
#ifdef PTX
    for (ulong at = 128 * get_local_id(0); at < row_bytes; at += 4096)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(row + at));
#endif
}

/* The local memory of a group; staged: QUADS and a piece of zeros; red: a float for each item.
 * turns: of step.cl, the operation that rotates and stores what the products give; 0: none. */
typedef struct {
    local float4 *staged;
    local float *red;
    local float *sums;
    ARGS ocl_step_op *turns;
} stage_room;

/* The factor of the norm of a row of K, from an item's sum of squares. */
static float norm_factor(stage_room room, float squares, ARGS ocl_warp_args *p) {
    squares = warp_sum(squares, room.red);
    if (get_local_id(0) == 0)
        room.sums[get_local_id(1)] = squares;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += room.sums[i];
    return 1.0f / sqrt(sum / (float)p->K + p->eps);
}

/* Elements [from, from + 16 pieces) of a row of K, by the items of a group; with norm those of its
 * root mean square norm, whose weights are norm: then it is the whole row. first, second: rows of
 * row_bytes that are asked for as soon as these are under way; 0: none. */
static void stage(stage_room room, global const float *x, global const float *norm,
                  ARGS ocl_warp_args *p, int from, int pieces, global const uchar *first,
                  global const uchar *second, ulong row_bytes) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const int n = p->K - from;
    if (item < 4)
        room.staged[QUADS + item] = 0;
    const bool quads = (p->K & 3) == 0 && ((ulong)x & 15) == 0 && ((ulong)norm & 15) == 0;
    float squares = 0;
    float4 v[HELD];
    float4 w[HELD];
#pragma unroll
    for (int e = 0; e < HELD; e++) {
        const int j = item + e * ITEMS;
        v[e] = 0;
        w[e] = 0;
        if (j >= 4 * pieces)
            continue;
        v[e] = quad_of(x + from, j, n, quads && 4 * j + 4 <= n);
        if (norm)
            w[e] = quad_of(norm, j, n, quads && 4 * j + 4 <= n);
        squares += dot(v[e], v[e]);
    }
    if (first) {
        ask_for(first, row_bytes);
        ask_for(second, row_bytes);
    }
    for (int j = item + HELD * ITEMS; j < 4 * pieces; j += ITEMS) {
        const float4 more = quad_of(x + from, j, n, quads && 4 * j + 4 <= n);
        room.staged[place_of(j >> 2, j & 3)] = more;
        squares += dot(more, more);
    }
    const float factor = norm ? norm_factor(room, squares, p) : 1.0f;
#pragma unroll
    for (int e = 0; e < HELD; e++) {
        const int j = item + e * ITEMS;
        if (j < 4 * pieces)
            room.staged[place_of(j >> 2, j & 3)] = norm ? v[e] * factor * (w[e] + p->offset) : v[e];
    }
    for (int j = item + HELD * ITEMS; norm && j < 4 * pieces; j += ITEMS) {
        const int at = place_of(j >> 2, j & 3);
        const float4 more = quad_of(norm, j, n, quads && 4 * j + 4 <= n);
        room.staged[at] = room.staged[at] * factor * (more + p->offset);
    }
}

/* What the products read and write: addresses as refs[..].at, 0: absent. Read when needed: they
 * would take half of the registers. */
enum {
    IN_X,
    IN_NORM,
    IN_EXPERTS,
    IN_W,
    IN_B = IN_W + 3,
    IN_ADD = IN_B + 3,
    OUT_Y,
    N_PRODUCT_REFS = OUT_Y + 3
};
#define OPERAND(T, i) ((global T *)u[i].at)
#define OPERAND_OF(T, i, k) ((global T *)address_of(u, i, k))

/* Of the k-th of three from i on: an array in registers has no changing index. */
static ulong address_of(ARGS ocl_step_ref *u, int i, int k) {
    if (k == 0)
        return u[i].at;
    if (k == 1)
        return u[i + 1].at;
    return u[i + 2].at;
}

/* An output of a warp: its row in the planes of matrix k. */
typedef struct {
    global const uchar *row;
    global const uchar *scale;
    global const float *bias;
    int k;
    int n;
    int N;
} output;

static float total_of(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

/* The expert of a row of the output. */
static long expert_of(global const int *experts, int row, int n_experts) {
    const int given = experts ? experts[row] : 0;
    return given < 0 || given >= n_experts ? 0 : given;
}

/* The outputs of unit u, the second may lie behind the last; of gate and up one of each, of what is
 * rotated those that turn together. */
static int2 outputs_of(ARGS ocl_warp_args *p, ARGS ocl_step_op *turns, int u) {
#ifdef STEP_WARPS
    if (turns) {
        local const ocl_rope_args *r = &((local const ocl_store_args *)turns->args)->r;
        const int half_head = r->D / 2;
        const int head = u / half_head;
        if (!r->adjacent)
            return (int2)(0, half_head) + head * half_head + u;
    }
#endif
    return p->glu ? (int2)(u, p->N0 + u) : (int2)(2 * u, 2 * u + 1);
}

static int outputs_in(ARGS ocl_warp_args *p) {
    return p->glu ? 2 * p->N0 : p->N0 + p->N1 + p->N2;
}

static int units_in(ARGS ocl_warp_args *p) {
    return p->glu ? p->N0 : (outputs_in(p) + 1) / 2;
}

/* What stands beside the products of two outputs: asked for before these are made. */
typedef struct {
    float2 bias;
    float2 add;
    float2 turn;       /* of a pair that is rotated */
    global uchar *kept; /* its row in the cache; 0: it is not stored */
} beside_two;

#ifdef STEP_WARPS
static store_refs refs_of_store(local const ocl_step_op *op) {
#define STORE_REF(T, i) ((global T *)op->refs[i].at)
    const store_refs u = {
        STORE_REF(const float, 0), STORE_REF(const float, 1), STORE_REF(const float, 2),
        STORE_REF(const int, 3),   STORE_REF(const int, 4),   STORE_REF(const float, 5),
        STORE_REF(const int, 6),   STORE_REF(uchar, 7),       STORE_REF(float, 8)};
    return u;
}

/* For output o of row t, the first of a pair. */
static void ask_turn(local const ocl_step_op *turns, output o, int t, beside_two *to) {
    const store_refs u = refs_of_store(turns);
    local const ocl_store_args *p = (local const ocl_store_args *)turns->args;
    const int i = o.n % p->r.D;
    to->turn = (float2)(0.0f, 1.0f);
    if (o.k < 2)
        to->turn = p->r.mscale * turn_of(u.row_pos[t], u.freqs[p->r.adjacent ? i / 2 : i]);
    if (o.k > 0)
        to->kept = kept_row(&u, p, o.n / p->r.D, t, o.k == 2);
}

/* Of values v of outputs o0 and o1. */
static void put_turned(local const ocl_step_op *turns, output o0, output o1, int t, float2 v,
                       const beside_two *beside) {
    const store_refs u = refs_of_store(turns);
    local const ocl_store_args *p = (local const ocl_store_args *)turns->args;
    const float a = v.x * beside->turn.y - v.y * beside->turn.x;
    const float b = v.x * beside->turn.x + v.y * beside->turn.y;
    if (o0.k == 0) {
        u.y[(ulong)t * o0.N + o0.n] = a;
        u.y[(ulong)t * o1.N + o1.n] = b;
        return;
    }
    if (!beside->kept)
        return;
    const int type = o0.k == 2 ? p->c.v_type : p->c.k_type;
    keep_element(beside->kept, type, o0.n % p->r.D, a);
    keep_element(beside->kept, type, o1.n % p->r.D, b);
}
#endif
#endif

#ifdef TYPE
/* Row n of matrix k of N rows, of an expert's. */
static output FN(output_of)(ARGS ocl_step_ref *u, ARGS ocl_matrix *m, int k, long expert, int n,
                            int N) {
    const long row = expert * N + n;
    global const uchar *w = OPERAND(const uchar, IN_W + k);
    output o;
    o.row = w + row * (long)m->row_bytes;
    o.scale = w + m->scale_at + row * m->blocks * HEAD;
    o.bias = (global const float *)(w + m->bias_at) + row * m->blocks;
    o.k = k;
    o.n = n;
    o.N = N;
    return o;
}

/* Output n of all matrices, one after the other. */
static output FN(output_at)(ARGS ocl_step_ref *u, ARGS ocl_warp_args *p, long expert, int n) {
    if (n < p->N0)
        return FN(output_of)(u, &p->w0, 0, expert, n, p->N0);
    n -= p->N0;
    if (n < p->N1)
        return FN(output_of)(u, &p->w1, 1, expert, n, p->N1);
    n -= p->N1;
    return FN(output_of)(u, &p->w2, 2, expert, n, p->N2);
}

static float4 FN(multiply)(float4 sum, output o, int i, float16 x) {
#ifdef HAS_CODES
    const float16 q = NAME(codes, TYPE)(o.row, i);
    float4 of = q.s0123 * x.s0123;
    of = fma(q.s4567, x.s4567, of);
    of = fma(q.s89ab, x.s89ab, of);
    of = fma(q.scdef, x.scdef, of);
    const float4 xs = (x.s0123 + x.s4567) + (x.s89ab + x.scdef);
    return NAME(valued, TYPE)(o.row, o.scale, i, of, xs, sum);
#else
    const float16 w = PIECE(o.row, o.scale, o.bias, i);
    sum = fma(w.s0123, x.s0123, sum);
    sum = fma(w.s4567, x.s4567, sum);
    sum = fma(w.s89ab, x.s89ab, sum);
    return fma(w.scdef, x.scdef, sum);
#endif
}

static beside_two FN(ask_beside)(ARGS ocl_step_ref *u, ARGS ocl_step_op *turns, int row,
                                 long expert, output o0, output o1) {
    global const float *add = OPERAND(const float, IN_ADD);
    global const float *b0 = OPERAND_OF(const float, IN_B, o0.k);
    global const float *b1 = OPERAND_OF(const float, IN_B, o1.k);
    beside_two beside = {0, 0, 0, 0};
    if (b0)
        beside.bias.x = b0[expert * o0.N + o0.n];
    if (b1)
        beside.bias.y = b1[expert * o1.N + o1.n];
    if (add)
        beside.add = (float2)(add[(ulong)row * o0.N + o0.n], add[(ulong)row * o1.N + o1.n]);
#ifdef STEP_WARPS
    if (turns)
        ask_turn(turns, o0, row, &beside);
#endif
    return beside;
}

/* The sums of two outputs, for the first lane of a warp, into their places. */
static void FN(put_two)(ARGS ocl_step_ref *u, ARGS ocl_warp_args *p, ARGS ocl_step_op *turns,
                        int row, output o0, output o1, bool has_second, float2 v,
                        const beside_two *beside) {
    const ulong to0 = (ulong)row * o0.N + o0.n;
    const ulong to1 = (ulong)row * o1.N + o1.n;
    global float *y0 = OPERAND_OF(float, OUT_Y, o0.k);
    global float *y1 = OPERAND_OF(float, OUT_Y, o1.k);
    v += beside->bias;
    if (p->glu) {
        y0[to0] = gate(p->kind, p->alpha, p->limit, p->up_offset, v.x, v.y);
        return;
    }
    const float2 sum = v + beside->add;
    y0[to0] = sum.x;
    if (has_second)
        y1[to1] = sum.y;
#ifdef STEP_WARPS
    if (turns)
        put_turned(turns, o0, o1, row, v, beside);
#endif
}

/* Pieces `from`, `from` + stride, ... of `count` that are staged, AT_A_TIME of which are asked for
 * before the first is used; behind the end stand zeros. first: of the matrix. */
#define ADD_PIECES(AT_A_TIME)                                                                      \
    for (int i = lane + begin; i < end; i += AT_A_TIME * stride) {                                 \
        _Pragma("unroll") for (int e = 0; e < AT_A_TIME; e++) {                                    \
            const int j = i + e * stride;                                                          \
            const bool there = j < end;                                                            \
            const int at = from + (there ? j : i);                                                 \
            const int place = there ? j : QUADS / 4;                                               \
            const float16 v =                                                                      \
                (float16)(room.staged[place_of(place, 0)], room.staged[place_of(place, 1)],        \
                          room.staged[place_of(place, 2)], room.staged[place_of(place, 3)]);       \
            sum0 = FN(multiply)(sum0, o0, at, v);                                                  \
            sum1 = FN(multiply)(sum1, o1, at, v);                                                  \
        }                                                                                          \
    }

/* A group's part of a row's units: of each `parts` in turn one, so that groups have equally many.
 * Where units are few two warps share one, each with every other of 32 pieces. All items of a group
 * come here together. */
static void FN(warp_products)(ARGS ocl_step_ref *u, ARGS ocl_warp_args *p, int row, int part,
                              int parts, stage_room room) {
    const int lane = get_local_id(0);
    const int units = units_in(p);
    const int pieces = p->w0.pieces;
    const int share = 2 * units <= WARPS * parts ? 2 : 1;
    const int warps = WARPS / share;
    const int own = get_local_id(1) % warps;
    const int begin = 32 * (get_local_id(1) / warps);
    const int stride = 32 * share;
    global const float *x = OPERAND(const float, IN_X) + (ulong)(row / p->per_x) * p->K;
    const long expert = expert_of(OPERAND(const int, IN_EXPERTS), row, p->n_experts);
    for (int base = 0; base + part < units; base += warps * parts) {
        const int unit = base + own * parts + part;
        const int2 n = outputs_of(p, room.turns, min(unit, units - 1));
        const bool has_second = n.y < outputs_in(p);
        const output o0 = FN(output_at)(u, p, expert, n.x);
        const output o1 = FN(output_at)(u, p, expert, has_second ? n.y : n.x);
        beside_two beside;
        float4 sum0 = 0;
        float4 sum1 = 0;
        for (int from = 0; from < pieces; from += QUADS / 4) {
            const int count = min(pieces - from, QUADS / 4);
            if (base == 0 || pieces > QUADS / 4) {
                barrier(CLK_LOCAL_MEM_FENCE);
                const bool asks = base + from == 0 && unit < units;
                stage(room, x, p->normalise ? OPERAND(const float, IN_NORM) : 0, p, 16 * from,
                      count, asks ? o0.row : 0, o1.row, p->w0.row_bytes);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (from == 0)
                beside = FN(ask_beside)(u, room.turns, row, expert, o0, o1);
            if (from == 0 && begin == 0 && unit + warps * parts < units) {
                const int2 next = outputs_of(p, room.turns, unit + warps * parts);
                ask_for(FN(output_at)(u, p, expert, next.x).row, p->w0.row_bytes);
                if (next.y < outputs_in(p))
                    ask_for(FN(output_at)(u, p, expert, next.y).row, p->w0.row_bytes);
            }
            const int end = unit < units ? count : 0;
            if (share == 2) {
                ADD_PIECES(2)
            } else {
                ADD_PIECES(4)
            }
        }
        float2 v = (float2)(warp_sum(total_of(sum0), room.red), warp_sum(total_of(sum1), room.red));
        if (share == 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane == 0 && begin)
                vstore2(v, own, room.red);
            barrier(CLK_LOCAL_MEM_FENCE);
            v += vload2(own, room.red);
        }
        if (lane == 0 && !begin && unit < units)
            FN(put_two)(u, p, room.turns, row, o0, o1, has_second, v, &beside);
    }
}

#ifndef STEP_WARPS
kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_warp(REF(x), REF(norm), REF(experts), REF(w0), REF(w1), REF(w2), REF(b0), REF(b1), REF(b2),
            REF(add), REF(y0), REF(y1), REF(y2), const ocl_warp_args p) {
    local float4 staged[QUADS + 4];
    local float red[ITEMS];
    local float sums[WARPS];
    const int row = get_group_id(0);
    const int part = get_group_id(1);
    const ocl_step_ref u[N_PRODUCT_REFS] = {
        {(ulong)PTR(char, x)},   {(ulong)PTR(char, norm)}, {(ulong)PTR(char, experts)},
        {(ulong)PTR(char, w0)},  {(ulong)PTR(char, w1)},   {(ulong)PTR(char, w2)},
        {(ulong)PTR(char, b0)},  {(ulong)PTR(char, b1)},   {(ulong)PTR(char, b2)},
        {(ulong)PTR(char, add)}, {(ulong)PTR(char, y0)},   {(ulong)PTR(char, y1)},
        {(ulong)PTR(char, y2)},
    };
    const stage_room room = {staged, red, sums, 0};
    FN(warp_products)(u, &p, row, part, get_num_groups(1), room);
}
#endif
#endif
