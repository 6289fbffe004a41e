/* warps.cl -- products of one row with matrices of one type, for devices whose items go in warps of
 * 32: a group stages the row (normalised on the way) in local memory, a warp makes two outputs, a
 * lane takes words of 16 bytes of both in turn (HAS_WORDS), some of which are always under way, or
 * pieces of 16 elements. With the norm before it and the activation or sum behind it a layer's
 * product is one kernel. step.cl has this file once for each weight type. */
#ifndef WARPS_CL
#define WARPS_CL
/* MOST_AHEAD: words of an output that an item has under way; HELD: quads of x in its registers. */
enum { QUADS = OCL_STAGED / 4, ZEROS = 4, MOST_AHEAD = 4, HELD = 2 };

/* Where quad j is held, with 32 quads more 32 places behind: lanes that read words or pieces side
 * by side meet no bank twice. */
static int place_of(int j) {
    return j ^ (j >> 3 & 3);
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

static float total_of(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

/* The bytes of a row, for a warp: whatever comes first takes as long as memory does. */
static void ask_for(global const uchar *row, ulong row_bytes) {
#ifdef PTX
    for (ulong at = 128 * get_local_id(0); at < row_bytes; at += 4096)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(row + at));
#endif
}

/* The local memory of a group; staged: QUADS and ZEROS of them; red, results: one for each item.
 * turns: of step.cl, the operation that rotates and stores what the products give; 0: none. top:
 * for row.cl, the bits of a row's largest element beyond halves, 0 between rows. */
typedef struct {
    local float4 *staged;
    local float *red;
    local float *sums;
    local float2 *results;
    local const ocl_step_op *turns;
    local uint *top;
} stage_room;

/* The factor of the norm of a row of K, from an item's sum of squares. */
static float norm_factor(stage_room room, float squares, local const ocl_warp_args *p) {
    squares = warp_sum(squares, room.red);
    if (get_local_id(0) == 0)
        room.sums[get_local_id(1)] = squares;
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 sum = 0;
    for (int i = 0; i < WARPS / 4; i++)
        sum += vload4(i, room.sums);
    return 1.0f / sqrt(total_of(sum) / (float)p->K + p->eps);
}

/* Quads [from, from + count) of a row of K elements, by the items of a group; with norm those of
 * its root mean square norm, whose weights are norm: then it is the whole row. Behind its end are
 * zeros. first, second: rows of row_bytes that are asked for as soon as these are under way; 0:
 * none. */
static void stage(stage_room room, global const float *x, global const float *norm,
                  local const ocl_warp_args *p, int from, int count, global const uchar *first,
                  global const uchar *second, ulong row_bytes) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const int n = p->K - 4 * from;
    if (item < ZEROS)
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
        if (j >= count)
            continue;
        v[e] = quad_of(x + 4 * from, j, n, quads && 4 * j + 4 <= n);
        if (norm)
            w[e] = quad_of(norm, j, n, quads && 4 * j + 4 <= n);
        squares += dot(v[e], v[e]);
    }
    if (first) {
        ask_for(first, row_bytes);
        ask_for(second, row_bytes);
    }
    for (int j = item + HELD * ITEMS; j < count; j += ITEMS) {
        const float4 more = quad_of(x + 4 * from, j, n, quads && 4 * j + 4 <= n);
        room.staged[place_of(j)] = more;
        squares += dot(more, more);
    }
    const float factor = norm ? norm_factor(room, squares, p) : 1.0f;
#pragma unroll
    for (int e = 0; e < HELD; e++) {
        const int j = item + e * ITEMS;
        if (j < count)
            room.staged[place_of(j)] = norm ? v[e] * factor * (w[e] + p->offset) : v[e];
    }
    for (int j = item + HELD * ITEMS; norm && j < count; j += ITEMS) {
        const int at = place_of(j);
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

/* An output: n of matrix k. */
typedef struct {
    int k;
    int n;
} output;

/* The expert of a row of the output. */
static int expert_of(global const int *experts, int row, int n_experts) {
    const int given = experts ? experts[row] : 0;
    return given < 0 || given >= n_experts ? 0 : given;
}

/* How far apart the outputs of a pair are: those that turn together, if the products are turned. */
static int apart_of(local const ocl_warp_args *p, local const ocl_step_op *turns) {
#ifdef STEP_WARPS
    if (turns) {
        local const ocl_rope_args *r = &((local const ocl_store_args *)turns->args)->r;
        return r->adjacent ? 1 : r->D / 2;
    }
#endif
    return p->apart;
}

/* The first output of unit u. */
static int first_output(int u, int apart) {
    if (u < apart)
        return u;
    return apart == 1 ? 2 * u : u + u / apart * apart;
}

static int outputs_in(local const ocl_warp_args *p) {
    return p->N[0] + p->N[1] + p->N[2];
}

/* Output n of all matrices, one after the other. */
static output output_at(local const ocl_warp_args *p, int n) {
    const int n0 = p->N[0];
    const int n1 = n0 + p->N[1];
    output o = {0, n};
    if (n >= n0) {
        o.k = n >= n1 ? 2 : 1;
        o.n = n - (n >= n1 ? n1 : n0);
    }
    return o;
}

/* How a warp goes through the units of a row's part: from unit `first` on every step-th; of a unit
 * words or pieces from `begin` and its lane on, every stride-th. A group's units are each of
 * `parts` in turn one, so that groups have equally many; where they are few 1 << share warps have
 * one together, each with some 32 in turn. */
typedef struct {
    int own; /* of the warps that share no unit, this one */
    int warps;
    int first;
    int step;
    int begin;
    int stride;
} course;

static course course_of(int share, int part, int parts) {
    course c;
    c.warps = WARPS >> share;
    c.own = (int)get_local_id(1) & (c.warps - 1);
    c.first = c.own * parts + part;
    c.step = c.warps * parts;
    c.begin = 32 * (((int)get_local_id(1) << share) / WARPS);
    c.stride = 32 << share;
    return c;
}

/* Where the rows of two outputs begin in their planes. */
typedef struct {
    global const uchar *row[2];
    global const uchar *scale[2];
    global const float *bias[2];
} row_pair;

/* Words of two outputs that an item has asked for, and the bits of their scales. For row.cl also
 * where they lie and what they will be multiplied with. */
typedef struct {
    uint4 word[2][MOST_AHEAD];
    uint bits[2][MOST_AHEAD];
    row_pair rows;
    global const float *x;
    int expert;
} under_way;

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
        u.y[(ulong)t * (p->r.H * p->r.D) + o0.n] = a;
        u.y[(ulong)t * (p->r.H * p->r.D) + o1.n] = b;
        return;
    }
    if (!beside->kept)
        return;
    const int type = o0.k == 2 ? p->c.v_type : p->c.k_type;
    keep_element(beside->kept, type, o0.n % p->r.D, a);
    keep_element(beside->kept, type, o1.n % p->r.D, b);
}
#endif

/* For unit i of a row. */
static beside_two ask_beside(local const ocl_step_ref *u, local const ocl_warp_args *p,
                             local const ocl_step_op *turns, int row, int expert, int i) {
    const int apart = apart_of(p, turns);
    const int n = first_output(i, apart);
    const output o0 = output_at(p, n);
    const output o1 = output_at(p, min(n + apart, outputs_in(p) - 1));
    global const float *add = OPERAND(const float, IN_ADD);
    global const float *b0 = OPERAND(const float, IN_B + o0.k);
    global const float *b1 = OPERAND(const float, IN_B + o1.k);
    beside_two beside = {0, 0, 0, 0};
    if (b0)
        beside.bias.x = b0[expert * p->N[o0.k] + o0.n];
    if (b1)
        beside.bias.y = b1[expert * p->N[o1.k] + o1.n];
    if (add) {
        beside.add.x = add[(ulong)row * p->N[o0.k] + o0.n];
        beside.add.y = add[(ulong)row * p->N[o1.k] + o1.n];
    }
#ifdef STEP_WARPS
    if (turns)
        ask_turn(turns, o0, row, &beside);
#endif
    return beside;
}

/* The sums v of unit i into their places. */
static void put_two(local const ocl_step_ref *u, local const ocl_warp_args *p,
                    local const ocl_step_op *turns, int row, int i, float2 v,
                    const beside_two *beside) {
    const int apart = apart_of(p, turns);
    const int n = first_output(i, apart);
    const output o0 = output_at(p, n);
    const output o1 = output_at(p, n + apart);
    v += beside->bias;
    if (p->glu) {
        const float both = gate(p->kind, p->alpha, p->limit, p->up_offset, v.x, v.y);
        OPERAND(float, OUT_Y)[(ulong)row * p->N[0] + o0.n] = both;
        return;
    }
    const float2 sum = v + beside->add;
    OPERAND(float, OUT_Y + o0.k)[(ulong)row * p->N[o0.k] + o0.n] = sum.x;
    if (n + apart < outputs_in(p))
        OPERAND(float, OUT_Y + o1.k)[(ulong)row * p->N[o1.k] + o1.n] = sum.y;
#ifdef STEP_WARPS
    if (turns)
        put_turned(turns, o0, o1, row, v, beside);
#endif
}
#endif

#ifdef TYPE
#undef ASKS_ROWS
#ifdef HAS_WORDS
#define ASKS_ROWS false
#else
#define ASKS_ROWS true /* rows are asked for in time, not kept in registers */
#endif

/* The rows of both outputs of unit i; behind the last unit those of the last. */
INLINED row_pair FN(rows_at)(local const ocl_step_ref *u, local const ocl_warp_args *p,
                             int apart, int expert, int i) {
    const int n = first_output(min(i, p->units - 1), apart);
    const int last = outputs_in(p) - 1;
    row_pair r;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const output o = output_at(p, e ? min(n + apart, last) : n);
        const ulong row = (uint)(expert * p->N[o.k] + o.n);
        global const uchar *w = OPERAND(const uchar, IN_W + o.k);
        r.row[e] = w + row * (uint)p->w[0].row_bytes;
        r.scale[e] = w + p->w[o.k].scale_at + row * (uint)(p->w[0].blocks * HEAD);
        r.bias[e] = (global const float *)(w + p->w[o.k].bias_at) + row * (uint)p->w[0].blocks;
    }
    return r;
}

#ifdef HAS_WORDS
/* Words of an output that an item has under way: 32 elements, or two words. */
enum {
    FN(word_quads) = NAME(parts, TYPE) * NAME(quads, TYPE),
    FN(ahead) = FN(word_quads) < 4 ? MOST_AHEAD : 2
};

static int FN(words_in)(int pieces) {
    return 4 * pieces / FN(word_quads);
}

/* Word i of two outputs, or the last. */
INLINED void FN(ask_word)(under_way *way, int e, row_pair r, int i, int words) {
    const int own = min(i, words - 1);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        way->word[k][e] = asked4(NAME(word, TYPE)(r.row[k], own));
        way->bits[k][e] = NAME(bits, TYPE)(r.row[k], r.scale[k], own);
    }
}

/* The first words of a warp's first unit. */
INLINED void FN(ask_first)(local const ocl_step_ref *u, local const ocl_warp_args *p,
                           local const ocl_step_op *turns, int share, int row, int part,
                           int parts, under_way *way) {
    const course c = course_of(share, part, parts);
    const int words = FN(words_in)(p->w[0].pieces);
    const int expert = expert_of(OPERAND(const int, IN_EXPERTS), row, p->n_experts);
    const row_pair r = FN(rows_at)(u, p, apart_of(p, turns), expert, c.first);
#pragma unroll
    for (int e = 0; e < FN(ahead); e++)
        if (c.begin + e * c.stride < words)
            FN(ask_word)(way, e, r, (int)get_local_id(0) + c.begin + e * c.stride, words);
}

/* The products of the e-th word under way; x: behind those of the words of lane 0; i: its number.
 * Of two parts neighbouring lanes take different ones first, for the sake of banks. */
INLINED void FN(add_word)(float4 sum[2], const under_way *way, int e, row_pair r, int i,
                          local const float4 *x) {
    const int lane = get_local_id(0);
#pragma unroll
    for (int k = 0; k < NAME(parts, TYPE); k++) {
        const int part = NAME(parts, TYPE) == 2 ? k ^ (lane >> 2 & 1) : 0;
        const int j = NAME(quad, TYPE)(lane, part);
        float4 v[4];
#pragma unroll
        for (int q = 0; q < NAME(quads, TYPE); q++)
            v[q] = x[place_of(j + q)];
        sum[0] = NAME(times, TYPE)(sum[0], way->word[0][e], way->bits[0][e], r.row[0], i, part,
                                   v[0], v[1], v[2], v[3]);
        sum[1] = NAME(times, TYPE)(sum[1], way->word[1][e], way->bits[1][e], r.row[1], i, part,
                                   v[0], v[1], v[2], v[3]);
    }
}

/* Words [from, end) of a unit, of `words`; as each is used one of those behind it is asked for, of
 * the unit or of `next`. */
INLINED void FN(add_words)(float4 sum[2], under_way *way, row_pair r, row_pair next, bool has_next,
                           course c, int from, int end, int words, local const float4 *x) {
    const int lane = get_local_id(0);
    for (int at = from + c.begin; at < end; at += FN(ahead) * c.stride) {
        const int behind = at + FN(ahead) * c.stride;
        const bool same = behind < words;
        const int first = same ? behind : c.begin;
        const int last = same || has_next ? words : 0;
        const row_pair to = same ? r : next;
#pragma unroll
        for (int e = 0; e < FN(ahead); e++) {
            if (at + e * c.stride < words)
                FN(add_word)(sum, way, e, r, min(lane + at + e * c.stride, words - 1),
                             x + FN(word_quads) * (at + e * c.stride - from));
            if (first + e * c.stride < last)
                FN(ask_word)(way, e, to, lane + first + e * c.stride, words);
        }
    }
}
#else
INLINED void FN(ask_first)(local const ocl_step_ref *u, local const ocl_warp_args *p,
                           local const ocl_step_op *turns, int share, int row, int part,
                           int parts, under_way *way) {
}

static float4 FN(multiply)(float4 sum, row_pair r, int e, int i, float16 x) {
    const float16 w = PIECE(r.row[e], r.scale[e], r.bias[e], i);
    sum = fma(w.s0123, x.s0123, sum);
    sum = fma(w.s4567, x.s4567, sum);
    sum = fma(w.s89ab, x.s89ab, sum);
    return fma(w.scdef, x.scdef, sum);
}

/* `count` pieces from `from` on, x those of them; AT_A_TIME are asked for before the first is used;
 * behind the end stand zeros. */
static void FN(add_pieces)(float4 sum[2], row_pair r, course c, int from, int count,
                           local const float4 *x) {
    enum { AT_A_TIME = 4 };
    for (int i = get_local_id(0) + c.begin; i < count; i += AT_A_TIME * c.stride) {
#pragma unroll
        for (int e = 0; e < AT_A_TIME; e++) {
            const bool there = i + e * c.stride < count;
            const int own = there ? i + e * c.stride : i;
            const int j = there ? 4 * own : QUADS;
            const float16 v = (float16)(x[place_of(j)], x[place_of(j + 1)], x[place_of(j + 2)],
                                        x[place_of(j + 3)]);
            sum[0] = FN(multiply)(sum[0], r, 0, from + own, v);
            sum[1] = FN(multiply)(sum[1], r, 1, from + own, v);
        }
    }
}
#endif

/* A group's part of a row's units: sums by warps, then each item finishes a unit. way: the first
 * words, if they were asked for. All items of a group come here together. */
INLINED void FN(warp_products)(local const ocl_step_ref *u, local const ocl_warp_args *p, int share,
                               int row, int part, int parts, stage_room room, under_way *way,
                               bool asked) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const int units = p->units;
    const int apart = apart_of(p, room.turns);
    const int pieces = p->w[0].pieces;
    const course c = course_of(share, part, parts);
    const int expert = expert_of(OPERAND(const int, IN_EXPERTS), row, p->n_experts);
    global const float *x = OPERAND(const float, IN_X) + (ulong)(row / p->per_x) * p->K;
    row_pair next = FN(rows_at)(u, p, apart, expert, c.first);
    if (!asked)
        FN(ask_first)(u, p, room.turns, share, row, part, parts, way);
    for (int pass = part; pass < units; pass += ITEMS * parts) {
        const int own = pass + item * parts; /* that the item finishes */
        const int end = min(units, pass + ITEMS * parts);
        beside_two beside;
        int result = c.own; /* where a warp's sum goes */
        for (int base = pass; base < end; base += c.step) {
            const int unit = base - part + c.first;
            const row_pair r = next;
            float4 sum[2] = {0, 0};
            if (unit + c.step < units)
                next = FN(rows_at)(u, p, apart, expert, unit + c.step);
            for (int from = 0; from < pieces; from += QUADS / 4) {
                const int count = min(pieces - from, QUADS / 4);
                if (base == part || pieces > QUADS / 4) {
                    const bool asks = ASKS_ROWS && base == part && from == 0 && unit < units;
                    barrier(CLK_LOCAL_MEM_FENCE);
                    stage(room, x, p->normalise ? OPERAND(const float, IN_NORM) : 0, p, 4 * from,
                          4 * ((count + 127) & ~127), asks ? r.row[0] : 0, r.row[1],
                          p->w[0].row_bytes);
                    barrier(CLK_LOCAL_MEM_FENCE);
                }
                if (base == pass && from == 0 && own < units)
                    beside = ask_beside(u, p, room.turns, row, expert, own);
#ifdef HAS_WORDS
                FN(add_words)(sum, way, r, next, unit + c.step < units, c, FN(words_in)(from),
                              unit < units ? FN(words_in)(from + count) : 0, FN(words_in)(pieces),
                              room.staged);
#else
                if (from == 0 && c.begin == 0 && unit + c.step < units) {
                    ask_for(next.row[0], p->w[0].row_bytes);
                    ask_for(next.row[1], p->w[0].row_bytes);
                }
                FN(add_pieces)(sum, r, c, from, unit < units ? count : 0, room.staged);
#endif
            }
            const float2 v = (float2)(warp_sum(total_of(sum[0]), room.red),
                                      warp_sum(total_of(sum[1]), room.red));
            if (get_local_id(0) == 0)
                room.results[result + c.begin / 32 * c.warps] = v;
            result += c.warps;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (own < end) {
            float2 v = room.results[item];
            for (int s = 32; s < c.stride; s += 32)
                v += room.results[item + s / 32 * c.warps];
            put_two(u, p, room.turns, row, own, v, &beside);
        }
        if (end < units)
            barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#ifndef STEP_WARPS
kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_warp(REF(x), REF(norm), REF(experts), REF(w0), REF(w1), REF(w2), REF(b0), REF(b1), REF(b2),
            REF(add), REF(y0), REF(y1), REF(y2), const ocl_warp_args p) {
    local float4 staged[QUADS + ZEROS];
    local float red[ITEMS];
    local float4 sums[WARPS / 4];
    local float2 results[ITEMS];
    const int row = get_group_id(0);
    const int part = get_group_id(1);
    local ocl_step_ref u[N_PRODUCT_REFS];
    local ocl_warp_args own;
    if (get_local_id(0) + get_local_id(1) == 0) {
        const ulong refs[N_PRODUCT_REFS] = {
            (ulong)PTR(char, x),  (ulong)PTR(char, norm), (ulong)PTR(char, experts),
            (ulong)PTR(char, w0), (ulong)PTR(char, w1),   (ulong)PTR(char, w2),
            (ulong)PTR(char, b0), (ulong)PTR(char, b1),   (ulong)PTR(char, b2),
            (ulong)PTR(char, add), (ulong)PTR(char, y0),  (ulong)PTR(char, y1),
            (ulong)PTR(char, y2),
        };
#pragma unroll
        for (int i = 0; i < N_PRODUCT_REFS; i++)
            u[i].at = refs[i];
        own = p;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const stage_room room = {staged, red, (local float *)sums, results, 0, 0};
    under_way way;
    const int share = 2 * own.units <= WARPS * (int)get_num_groups(1) ? 1 : 0;
    FN(warp_products)(u, &own, share, row, part, get_num_groups(1), room, &way, false);
}
#endif
#endif
