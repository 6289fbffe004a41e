/* row.cl -- products of one row on tensor cores, for step.cl, which has this file once for each
 * weight type behind warps.cl. A warp multiplies 8 pairs of outputs at a time, those of warps.cl:
 * lane 4 g + t has words t, t + 4, ... of pair g. The row goes as two halves, as in mma.cl, within
 * whose range a power of two brings it. Of the 8 columns of a product of tensor cores two belong to
 * each t: high and low of what the word of lane t meets; where other lanes' words would come in
 * stand zeros. So a lane gets the products of its own words, and a scale is the lane's, too; codes
 * become halves, never floats, which takes a third of the instructions. Types without HAS_FRAGMENTS
 * are multiplied as in warps.cl. */
#ifndef ROW_CL
#define ROW_CL
/* Local memory: the row, 8 elements as 16 bytes of high and 16 of low halves; zeros; sums of 16
 * elements; results. */
enum { ROW_HELD = (QUADS + ITEMS - 1) / ITEMS };
enum { ROW_ZEROS = 12, ROW_SUMS = OCL_STAGED / 16, ROW_RESULTS = 640 };
#define ROW_SUMS_OF(room) ((local float *)((room).staged + QUADS + ROW_ZEROS))
#define ROW_RESULTS_OF(room) ((local float2 *)(ROW_SUMS_OF(room) + ROW_SUMS))
typedef char pool_holds_row[QUADS * 16 + ROW_ZEROS * 16 + ROW_SUMS * 4 + ROW_RESULTS * 8 <= 40960
                                ? 1
                                : -1];

#ifndef PTX
static uint halves_of(float2 v) {
    uint bits;
    vstore_half2_rte(v, 0, (half *)&bits);
    return bits;
}
static uint2 parts_of(float2 v) {
    const uint high = halves_of(v);
    return (uint2)(high, halves_of(v - two_halves(high)));
}
static float half_products(uint a, uint b) {
    const float2 both = two_halves(a) * two_halves(b);
    return both.x + both.y;
}
#endif

/* sum += the products of two outputs' four elements with two columns': of outputs g and g + 8 a and
 * a8, of column g b. Every item of the group comes here: without tensor cores it takes barriers. */
static float4 mma_row(float4 sum, uint2 a, uint2 a8, uint2 b, local float *red) {
#ifdef PTX
    return mma(sum, a.x, a8.x, a.y, a8.y, b.x, b.y);
#else
    const int lane = get_local_id(0);
    local uint *own = (local uint *)red + 32 * get_local_id(1);
    const uint given[6] = {a.x, a.y, a8.x, a8.y, b.x, b.y};
    uint rows[4][4];
    uint columns[2][2][4];
    for (int r = 0; r < 6; r++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        own[lane] = given[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int t = 0; t < 4; t++) {
            if (r < 4)
                rows[r][t] = own[lane / 4 * 4 + t];
            else
                for (int c = 0; c < 2; c++)
                    columns[c][r - 4][t] = own[4 * (2 * (lane % 4) + c) + t];
        }
    }
    float v[4];
    for (int e = 0; e < 4; e++) {
        v[e] = 0;
        for (int t = 0; t < 4; t++)
            v[e] += half_products(rows[2 * (e / 2)][t], columns[e % 2][0][t]) +
                    half_products(rows[2 * (e / 2) + 1][t], columns[e % 2][1][t]);
    }
    return sum + vload4(0, v);
#endif
}

#ifndef PTX
/* What lane n of the item's four neighbours has. */
static uint neighbour(uint v, int n, local float *red) {
    local uint *own = (local uint *)red + 32 * get_local_id(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    own[get_local_id(0)] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    return own[((int)get_local_id(0) & ~3) + n];
}
#endif

/* How 16 warps share a group's blocks of 8 pairs: `at_once` blocks at a time, each by 1 << share
 * warps, whose words are 4 in turn; a block of the group is every `parts`-th. */
typedef struct {
    int share;
    int slice; /* of a block's words, this warp's */
    int own;   /* of the blocks at once, this warp's */
    int at_once;
    int n; /* blocks of the group */
    int part;
    int parts;
} row_course;

/* blocks: of all groups, each of which has `least` or one more. */
static row_course row_course_of(int blocks, int least, int share, int part, int parts) {
    row_course c;
    c.share = share;
    c.slice = (int)get_local_id(1) & ((1 << share) - 1);
    c.own = (int)get_local_id(1) >> share;
    c.at_once = WARPS >> share;
    c.n = least + (part < blocks - least * parts ? 1 : 0);
    c.part = part;
    c.parts = parts;
    return c;
}

/* The pair of block k of the group that place e of 8 has. */
static int pair_in(const row_course *c, int k, int e) {
    return 8 * (c->part + c->parts * k) + e;
}

/* Quad j into the row's place; crossed: its inner elements change places, as those of nibbles. */
static void put_parts(local float4 *staged, int j, float4 v, bool crossed) {
    const float4 own = crossed ? v.xzyw : v;
    const uint2 a = parts_of(own.lo);
    const uint2 b = parts_of(own.hi);
    local uint2 *to = (local uint2 *)staged + 4 * (j / 2) + j % 2;
    to[0] = (uint2)(a.x, b.x);
    to[2] = (uint2)(a.y, b.y);
}

/* Elements [from, from + 4 quads) of a row, with norm of its norm, behind its end zeros; sums: also
 * those of 16. All items of a group come here together. fit: what they are multiplied by; 1: the
 * largest beyond halves is noted in room.top. */
static void stage_row(stage_room room, global const float *x, global const float *norm,
                      local const ocl_warp_args *p, int from, int quads, bool crossed, bool sums,
                      float fit) {
    const int item = GROUP_ITEM;
    const int n = p->K - from;
    const bool aligned = (p->K & 3) == 0 && ((ulong)x & 15) == 0 && ((ulong)norm & 15) == 0;
    float squares = 0;
    float4 v[ROW_HELD];
    float4 w[HELD];
    if (item < ROW_ZEROS)
        room.staged[QUADS + item] = 0;
#pragma unroll
    for (int e = 0; e < ROW_HELD; e++) {
        const int j = item + e * ITEMS;
        v[e] = 0;
        if (j < quads)
            v[e] = quad_of(x + from, j, n, aligned && 4 * j + 4 <= n);
        if (e < HELD && norm && j < quads)
            w[e] = quad_of(norm, j, n, aligned && 4 * j + 4 <= n);
    }
#pragma unroll
    for (int e = 0; e < ROW_HELD; e++)
        squares += dot(v[e], v[e]);
    const float factor = norm ? norm_factor(room, squares, p) : 1.0f;
#pragma unroll
    for (int e = 0; e < ROW_HELD; e++) {
        const int j = item + e * ITEMS;
        float4 own = v[e];
        if (e * ITEMS >= quads)
            break;
        if (norm && j < quads) {
            const float4 more =
                e < HELD ? w[e] : quad_of(norm, j, n, aligned && 4 * j + 4 <= n);
            own = own * factor * (more + p->offset);
        }
        if (fit == 1.0f && j < quads && largest4(own) > HALF_MOST)
            atomic_max(room.top, as_uint(largest4(own)));
        own *= fit;
        if (j < quads)
            put_parts(room.staged, j, own, crossed);
        if (sums) {
            const float all = part_sum(total_of(own), 4, room.red);
            if (j < quads && j % 4 == 0)
                ROW_SUMS_OF(room)[j / 4] = all;
        }
    }
}

/* The same with barriers before and behind; what brings sums back. A row that halves do not hold is
 * staged once more, multiplied by a power of two. */
static float stage_fitted(stage_room room, global const float *x, global const float *norm,
                          local const ocl_warp_args *p, int from, int quads, bool crossed,
                          bool sums) {
    float fit = 1.0f;
    for (int pass = 0; pass < 2; pass++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (pass > 0 && GROUP_ITEM == 0)
            *room.top = 0;
        stage_row(room, x, norm, p, from, quads, crossed, sums, fit);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (pass == 0)
            fit = fit_of(as_float(*room.top));
        if (fit == 1.0f)
            break;
    }
    return back_of(fit);
}
#endif

#ifdef TYPE
#ifdef HAS_FRAGMENTS
/* Word i of two outputs, or the last. */
INLINED void FN(ask_fragments)(under_way *way, int e, row_pair r, int i, int words) {
    const int own = min(i, words - 1);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        way->word[k][e] = asked4(NAME(word, TYPE)(r.row[k], own));
        way->bits[k][e] = NAME(bits, TYPE)(r.row[k], r.scale[k], own);
    }
}

/* The first words of a warp, from word `from` of block k on. */
INLINED void FN(ask_block)(under_way *way, const row_course *c, row_pair r, int from, int words) {
#pragma unroll
    for (int e = 0; e < FN(ahead); e++)
        if (from + (4 * e << c->share) < words)
            FN(ask_fragments)(way, e, r,
                              from + 4 * (c->slice + (e << c->share)) + (int)get_local_id(0) % 4,
                              words);
}

/* What comes before the row is there: where it will be, and the first words of a warp. */
INLINED void FN(ask_row)(local const ocl_step_op *op, local const ocl_step_op *turns, int row,
                         int part, int parts, under_way *way) {
    local const ocl_step_ref *u = op->refs;
    local const ocl_warp_args *p = (local const ocl_warp_args *)op->args;
    const row_course c = row_course_of(op->n[1], op->least, op->share, part, parts);
    way->expert = expert_of(OPERAND(const int, IN_EXPERTS), row, p->n_experts);
    way->rows = FN(rows_at)(u, p, apart_of(p, turns), way->expert,
                            pair_in(&c, c.own, (int)get_local_id(0) / 4));
    if (c.own < c.n)
        FN(ask_block)(way, &c, way->rows, 0, FN(words_in)(p->w[0].pieces));
    way->x = OPERAND(const float, IN_X) + (ulong)(p->per_x == 1 ? row : row / p->per_x) * p->K;
}

/* The products of the e-th word under way, word i from the row's beginning in local memory; x:
 * where what it meets begins there. */
INLINED float4 FN(add_fragments)(float4 sum, const under_way *way, int e, int i,
                                 local const float4 *x, stage_room room) {
    float4 of[2];
    of[0] = NAME(chained, TYPE) ? sum : (float4)(0);
    of[1] = 0;
#pragma unroll
    for (int k = 0; k < NAME(parts, TYPE); k++) {
        const int quad = NAME(quad, TYPE)(0, k);
#pragma unroll
        for (int q = 0; q < NAME(quads, TYPE); q += 2) {
            const uint4 b = as_uint4(x[quad + q]);
            of[k] = mma_row(of[k], NAME(fragment, TYPE)(way->word[0][e], k, q),
                            NAME(fragment, TYPE)(way->word[1][e], k, q), b.xy, room.red);
            of[k] = mma_row(of[k], NAME(fragment, TYPE)(way->word[0][e], k, q + 1),
                            NAME(fragment, TYPE)(way->word[1][e], k, q + 1), b.zw, room.red);
        }
    }
    if (NAME(chained, TYPE))
        return of[0];
    const float2 first = (float2)(of[0].x + of[0].y, of[1].x + of[1].y);
    const float2 second = (float2)(of[0].z + of[0].w, of[1].z + of[1].w);
    sum.x += NAME(scaled, TYPE)(first, way->bits[0][e], i, ROW_SUMS_OF(room), room.red);
    sum.z += NAME(scaled, TYPE)(second, way->bits[1][e], i, ROW_SUMS_OF(room), room.red);
    return sum;
}

/* Words [from, end) of a block by its warps; as each is used one of those behind it is asked for,
 * of the block or of `next`. */
INLINED float4 FN(add_block)(under_way *way, const row_course *c, row_pair r, row_pair next,
                             bool has_next, int from, int end, int words, stage_room room) {
    const int lane = get_local_id(0);
    const int t = lane % 4;
    const bool meets = lane / 8 == t; /* column g = lane / 4 is high or low of word t = g / 2 */
    const int steps = (end - from + (4 << c->share) - 1) >> (2 + c->share);
    local const float4 *x = room.staged + QUADS;
    int stride = 0;
    if (meets) {
        stride = (4 * FN(word_quads)) << c->share;
        x = room.staged + NAME(quad, TYPE)(t, 0) + 4 * FN(word_quads) * c->slice + (lane / 4 & 1);
    }
    float4 sum = 0;
    for (int s = 0; s < steps; s += FN(ahead)) {
        const bool same = s + FN(ahead) < steps;
        const int behind = same ? s + FN(ahead) : 0;
        const int last = same || has_next ? steps : 0;
        const row_pair to = same ? r : next;
#pragma unroll
        for (int e = 0; e < FN(ahead); e++) {
            if (s + e < steps) {
                const int i = 4 * (c->slice + ((s + e) << c->share)) + t;
                sum = FN(add_fragments)(sum, way, e, i, x, room);
                x += stride;
            }
            if (behind + e < last) {
                const int i = from + 4 * (c->slice + ((behind + e) << c->share)) + t;
                FN(ask_fragments)(way, e, to, i, words);
            }
        }
    }
    return sum;
}

/* A group's part of a row's pairs: sums by warps, then each item finishes a pair. way: the first
 * words, if they were asked for. All items of a group come here together. */
INLINED void FN(row_products)(local const ocl_step_op *op, int row, int part, int parts,
                              stage_room room, under_way *way, bool asked) {
    local const ocl_step_ref *u = op->refs;
    local const ocl_warp_args *p = (local const ocl_warp_args *)op->args;
    if (!asked)
        FN(ask_row)(op, room.turns, row, part, parts, way);
    const int share = op->share;
    const int expert = way->expert;
    global const float *x = way->x;
    const int item = GROUP_ITEM;
    const int lane = get_local_id(0);
    const int apart = apart_of(p, room.turns);
    const row_course c = row_course_of(op->n[1], op->least, share, part, parts);
    global const float *norm = p->normalise ? OPERAND(const float, IN_NORM) : 0;
    const int words = FN(words_in)(p->w[0].pieces);
    const int staged = QUADS / FN(word_quads); /* words at once */
    const int room_of = min((int)ITEMS, ROW_RESULTS >> share); /* results of a slice */
    const int at_a_time = room_of / 8;
    local float2 *results = ROW_RESULTS_OF(room);
    row_pair next = way->rows;
    float back = 1.0f;
    for (int pass = 0; pass < c.n; pass += at_a_time) {
        const int end = min(c.n, pass + at_a_time);
        const int own = pair_in(&c, pass + item / 8, item % 8); /* that the item finishes */
        const bool finishes = item < 8 * (end - pass) && own < p->units;
        beside_two beside;
        for (int from = 0; from < words; from += staged) {
            const int to = min(words, from + staged);
            if (pass == 0 || words > staged) {
                const int unit = 4 << share;
                const int padded = (to - from + unit - 1) / unit * unit;
                back = stage_fitted(room, x, norm, p, 4 * FN(word_quads) * from,
                                    FN(word_quads) * padded, NAME(crossed, TYPE),
                                    NAME(sums, TYPE));
            }
            if (words > staged && pass + from > 0) {
                next = FN(rows_at)(u, p, apart, expert, pair_in(&c, pass + c.own, lane / 4));
                FN(ask_block)(way, &c, next, from, to);
            }
            if (from == 0 && finishes)
                beside = ask_beside(u, p, room.turns, row, expert, own);
            for (int k = pass; k < end; k += c.at_once) {
                const int behind = k + c.at_once + c.own;
                const bool has_next = behind < (words > staged ? end : c.n);
                const row_pair r = next;
                if (has_next)
                    next = FN(rows_at)(u, p, apart, expert, pair_in(&c, behind, lane / 4));
                const float4 sum =
                    FN(add_block)(way, &c, r, next, has_next, from, to, words, room);
                const float2 v = back * (float2)(part_sum(sum.x + sum.y, 4, room.red),
                                                 part_sum(sum.z + sum.w, 4, room.red));
                const int at = c.slice * room_of + 8 * (k - pass + c.own) + lane / 4;
                if (lane % 4 == 0 && k + c.own < end)
                    results[at] = from ? results[at] + v : v;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (finishes) {
            float2 v = 0;
#pragma unroll
            for (int s = 0; s < WARPS; s++)
                if (s < 1 << share)
                    v += results[s * room_of + item];
            put_two(u, p, room.turns, row, own, v, &beside);
        }
        if (end < c.n)
            barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#else
INLINED void FN(ask_row)(local const ocl_step_op *op, local const ocl_step_op *turns, int row,
                         int part, int parts, under_way *way) {
    FN(ask_first)(op->refs, (local const ocl_warp_args *)op->args, turns, op->share, row, part,
                  parts, way);
}
INLINED void FN(row_products)(local const ocl_step_op *op, int row, int part, int parts,
                              stage_room room, under_way *way, bool asked) {
    FN(warp_products)(op->refs, (local const ocl_warp_args *)op->args, op->share, row, part, parts,
                      room, way, asked);
}
#endif
#endif
