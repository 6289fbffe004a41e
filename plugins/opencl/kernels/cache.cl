/* cache.cl -- KV_STORE and ATTENTION over paged keys and values. A page holds, for each layer, keys
 * [Hkv, page_tokens, row], then values; a row is a head's elements in the cache's type, padded with
 * zeros to whole pieces. KV_SPLIT: the pages lie in up to OCL_KV_PARTS buffers (cache_split.cl).
 * DISTANCES: only what distance.cl uses. */
enum { PAGE_TOKENS = 64 };

/* The cache among a kernel's operands; those behind the first buffer come last. */
#ifdef KV_SPLIT
typedef struct {
    global uchar *part[OCL_KV_PARTS];
} kv_base;
#define KERNEL(name) name##_split
#define KV_MORE , REF(kv1), REF(kv2), REF(kv3), REF(kv4), REF(kv5), REF(kv6), REF(kv7)
#define KV_BASE                                                                                    \
    {{PTR(uchar, kv), PTR(uchar, kv1), PTR(uchar, kv2), PTR(uchar, kv3), PTR(uchar, kv4),          \
      PTR(uchar, kv5), PTR(uchar, kv6), PTR(uchar, kv7)}}

/* A choice among registers: an index that is not constant would put the array into memory. */
static global uchar *page_at(ARGS ocl_cache *c, kv_base kv, ulong page) {
    const ulong own = page / c->part_pages;
    global uchar *part = kv.part[0];
    for (int i = 1; i < OCL_KV_PARTS; i++)
        part = own == i ? kv.part[i] : part;
    return part + page % c->part_pages * c->page_bytes;
}
#else
typedef global uchar *kv_base;
#define KERNEL(name) name
#define KV_MORE
#define KV_BASE PTR(uchar, kv)

static global uchar *page_at(ARGS ocl_cache *c, kv_base kv, ulong page) {
    return kv + page * c->page_bytes;
}
#endif

/* Where the head's row of a position begins; 0: there is no page. */
static global uchar *cached_row(ARGS ocl_cache *c, kv_base kv, global const int *pages, int slot,
                                int head, int pos, bool value) {
    const int page = pages[(ulong)slot * c->P + pos / PAGE_TOKENS];
    const ulong place = (ulong)head * PAGE_TOKENS + pos % PAGE_TOKENS;
    if (page < 0 || (ulong)page >= c->n_pages)
        return 0;
    global uchar *layer = page_at(c, kv, page) + c->layer_at;
    if (value)
        return layer + c->v_offset + place * c->v_row;
    return layer + place * c->k_row;
}

#ifndef DISTANCES
/* ---- storing --------------------------------------------------------------------------------- */
/* A block of q8_0: d = largest / 127 in f16, codes to nearest even; NaN where one is not finite. */
static void store_q8(global uchar *to, const float *x) {
    float top = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        finite = finite && isfinite(x[i]);
        top = fmax(top, fabs(x[i]));
    }
    ushort bits = 0x7E00;
    if (finite && top / 127.0f >= 65504.0f)
        bits = 0x7BFF;
    else if (finite)
        vstore_half_rte(top / 127.0f, 0, (half *)&bits);
    const float d = vload_half(0, (const private half *)&bits);
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    to[0] = (uchar)(bits & 255);
    to[1] = (uchar)(bits >> 8);
    for (int i = 0; i < 32; i++) {
        const float q = inverse > 0.0f ? clamp(rint(x[i] * inverse), -127.0f, 127.0f) : 0.0f;
        to[2 + i] = (uchar)(char)q;
    }
}

/* Elements [32 i, 32 i + 32) of a head into its row. */
static void store_block(global uchar *row, int type, global const float *from, int i, int n) {
    float x[32];
    for (int k = 0; k < 32; k++)
        x[k] = 32 * i + k < n ? from[32 * i + k] : 0.0f;
    if (type == TYPE_Q8_0) {
        store_q8(row + 34 * i, x);
        return;
    }
    for (int k = 32 * i; k < 32 * i + 32 && k < n; k++) {
        if (type == TYPE_F16)
            vstore_half_rte(x[k - 32 * i], k, (global half *)row);
        else
            ((global float *)row)[k] = x[k - 32 * i];
    }
}

#ifndef STEP_WARPS
/* One item for each block of 32 of a head: of keys in plane 0 of the second dimension's halves, of
 * values in the other. */
kernel void KERNEL(kv_store)(REF(k), REF(v), REF(row_pos), REF(row_slot), REF(pages),
                             REF(kv) KV_MORE, const ocl_cache c) {
    const int i = get_global_id(0);
    const int head = get_global_id(1) / 2;
    const bool value = get_global_id(1) % 2;
    const int t = get_global_id(2);
    const int n = value ? c.dv : c.dk;
    const int pos = PTR(const int, row_pos)[t];
    const int slot = PTR(const int, row_slot)[t];
    if (32 * i >= n || pos < 0 || pos >= c.P * PAGE_TOKENS || slot < 0 || slot >= c.S)
        return;
    const kv_base kv = KV_BASE;
    global uchar *row = cached_row(&c, kv, PTR(const int, pages), slot, head, pos, value);
    global const float *from = value ? PTR(const float, v) : PTR(const float, k);
    if (row)
        store_block(row, value ? c.v_type : c.k_type, from + ((ulong)t * c.Hkv + head) * n, i, n);
}

#endif
#endif

/* ---- attending ------------------------------------------------------------------------------- */
static float16 cached_piece(global const uchar *row, int type, int i) {
    if (type == TYPE_F16)
        return vload_half16(i, (global const half *)row);
    if (type == TYPE_F32)
        return vload16(i, (global const float *)row);
    global const uchar *block = row + 34 * (i / 2);
    const char16 q = vload16(i % 2, (global const char *)block + 2);
    return half_at(block) * convert_float16(q);
}

static float cached_element(global const uchar *row, int type, int i) {
    if (type == TYPE_F16)
        return vload_half(i, (global const half *)row);
    if (type == TYPE_F32)
        return ((global const float *)row)[i];
    global const uchar *block = row + 34 * (i / 32);
    return half_at(block) * (float)(char)block[2 + i % 32];
}

/* The positions that row t sees: x to y. */
static int2 seen(ARGS ocl_attend_args *p, global const int *row_pos, global const int *row_slot,
                 int t) {
    const int pos = row_pos[t];
    const int in_window = p->window > 0 && pos >= p->window ? pos - p->window + 1 : 0;
    const int first = p->chunk > 0 ? max(in_window, pos - pos % p->chunk) : in_window;
    int last = t;
    if (!p->bidirectional)
        return (int2)(first, pos);
    while (last + 1 < p->c.T && row_slot[last + 1] == row_slot[t] && row_pos[last + 1] >= 0)
        last++;
    if (p->window > 0 && row_pos[last] > pos + p->window - 1)
        return (int2)(first, pos + p->window - 1);
    return (int2)(first, row_pos[last]);
}

/* A logit with its cap, and the slope times how far behind the row it is (ALiBi) where there are
 * slopes. */
static float bent(ARGS ocl_attend_args *p, global const float *slopes, int head, int behind,
                  float logit) {
    if (p->softcap != 0.0f && !isnan(logit))
        logit = p->softcap * tanh_of(logit / p->softcap);
    return slopes ? logit + slopes[head] * (float)behind : logit;
}

#if !defined STEP_WARPS && !defined DISTANCES
/* One group for each row and head. Positions go by LANES: a lane has the logit of one of them, then
 * elements of the sum of values. A running maximum keeps the sums in range. */
kernel void KERNEL(attend)(REF(q), REF(row_pos), REF(row_slot), REF(pages), REF(kv), REF(sinks),
                           REF(y), REF(slopes) KV_MORE, const ocl_attend_args p) {
    local float q[OCL_MAX_HEAD];
    local float share[LANES];
    local float red[LANES];
    const int lane = get_local_id(0);
    const int head = get_group_id(0);
    const int t = get_group_id(1);
    const int head_kv = head / (p.H / p.c.Hkv);
    const int slot = PTR(const int, row_slot)[t];
    const int pos = PTR(const int, row_pos)[t];
    const bool there = pos >= 0 && pos < p.c.P * PAGE_TOKENS && slot >= 0 && slot < p.c.S;
    const int2 range =
        there ? seen(&p, PTR(const int, row_pos), PTR(const int, row_slot), t) : (int2)(0, -1);
    const kv_base kv = KV_BASE;
    global const int *pages = PTR(const int, pages);
    global const float *from = PTR(const float, q) + ((ulong)t * p.H + head) * p.c.dk;
    global const float *sinks = PTR(const float, sinks);
    const int pieces = (p.c.dk + 15) / 16;
    float sums[(OCL_MAX_HEAD + LANES - 1) / LANES];
    float top = sinks ? sinks[head] : -INFINITY;
    float weight = sinks ? 1.0f : 0.0f;
    for (int i = lane; i < 16 * pieces; i += LANES)
        q[i] = i < p.c.dk ? from[i] : 0.0f;
    for (int j = 0; j < (OCL_MAX_HEAD + LANES - 1) / LANES; j++)
        sums[j] = 0;
    SYNC_LOCAL;
    for (int base = range.x; base <= range.y; base += LANES) {
        const int count = min(LANES, range.y - base + 1);
        global const uchar *k = 0;
        float logit = -INFINITY;
        if (lane < count)
            k = cached_row(&p.c, kv, pages, slot, head_kv, base + lane, false);
        if (k) {
            float16 dot16 = 0;
            for (int i = 0; i < pieces; i++)
                dot16 += vload16(i, q) * cached_piece(k, p.c.k_type, i);
            logit = bent(&p, PTR(const float, slopes), head, base + lane - pos,
                         sum16(dot16) * p.scale);
        }
        const float highest = fmax(top, group_max(logit, red));
        const float zero = highest == -INFINITY ? 0.0f : highest;
        const float shrink = exp(top - zero);
        const float mine = k ? exp(logit - zero) : 0.0f;
        share[lane] = mine;
        weight = weight * shrink + group_sum(mine, red);
        top = highest;
        for (int j = 0; j < (OCL_MAX_HEAD + LANES - 1) / LANES; j++)
            sums[j] *= shrink;
        for (int n = 0; n < count; n++) {
            global const uchar *v = cached_row(&p.c, kv, pages, slot, head_kv, base + n, true);
            for (int j = 0; v && lane + j * LANES < p.c.dv; j++)
                sums[j] += share[n] * cached_element(v, p.c.v_type, lane + j * LANES);
        }
        SYNC_LOCAL;
    }
    global float *y = PTR(float, y) + ((ulong)t * p.H + head) * p.c.dv;
    for (int j = 0; lane + j * LANES < p.c.dv; j++)
        y[lane + j * LANES] = there ? sums[j] / weight : 0.0f;
}

#endif

/* ---- attending by warps ---------------------------------------------------------------------- */
#if LINEAR_LANES == 32 && !defined DISTANCES
#ifdef PTX
#define UNROLL _Pragma("unroll")
#else
#define UNROLL /* barriers in place of shuffles: each would be compiled many times */
#endif

/* Element `lane + 32 j` of a head's row, of the cache's type. */
static float lane_element(global const uchar *row, int type, int j, int n) {
    const int i = get_local_id(0) + 32 * j;
    if (!row || i >= n)
        return 0.0f;
    return cached_element(row, type, i);
}

typedef struct {
    global const float *q;
    global const int *row_pos;
    global const int *row_slot;
    global const int *pages;
    kv_base kv;
    global const float *sinks;
    global float *y;
    global const float *slopes;
} attend_refs;

/* The local memory of a group: red of a float for each item; of each warp or its halves, for each
 * head, its values, highest logit and sum of weights. */
typedef struct {
    local float *red;
    local float *values; /* [WARPS][32 PER]; by quads [WARPS or 2 WARPS][heads][32 PER] */
    local float *tops;   /* [2 WARPS][heads] */
    local float *weights;
    local float *sinks; /* [heads] */
} attend_room;

/* Row t for one head of up to 32 PER elements. Warps take AHEAD positions at a time; each has a
 * running maximum, the sum of weights, and that of values. All items of a group come here
 * together. */
#define ATTEND_WARP(name, PER, AHEAD)                                                              \
    static void name(const attend_refs *u, ARGS ocl_attend_args *p, int head, int t,               \
                     attend_room room) {                                                           \
        const int lane = get_local_id(0);                                                          \
        const int warp = get_local_id(1);                                                          \
        const int head_kv = head / (p->H / p->c.Hkv);                                              \
        const int slot = u->row_slot[t];                                                           \
        const int pos = u->row_pos[t];                                                             \
        const bool there = pos >= 0 && pos < p->c.P * PAGE_TOKENS && slot >= 0 && slot < p->c.S;   \
        const int2 range = there ? seen(p, u->row_pos, u->row_slot, t) : (int2)(0, -1);            \
        global const float *from = u->q + ((ulong)t * p->H + head) * p->c.dk;                      \
        float q[PER];                                                                              \
        float sums[PER];                                                                           \
        float top = -INFINITY;                                                                     \
        float weight = 0;                                                                          \
        UNROLL for (int j = 0; j < PER; j++) {                                                     \
            const int i = lane + 32 * j;                                                           \
            q[j] = i < p->c.dk ? from[i] : 0.0f;                                                   \
            sums[j] = 0;                                                                           \
        }                                                                                          \
        for (int base = range.x; base <= range.y; base += AHEAD * WARPS) {                         \
            float logit[AHEAD];                                                                    \
            float v[AHEAD][PER];                                                                   \
            bool has[AHEAD];                                                                       \
            UNROLL for (int a = 0; a < AHEAD; a++) {                                               \
                const int at = base + AHEAD * warp + a;                                            \
                global const uchar *k = 0;                                                         \
                global const uchar *value = 0;                                                     \
                if (at <= range.y) {                                                               \
                    k = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, false);              \
                    value = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, true);           \
                }                                                                                  \
                has[a] = k != 0;                                                                   \
                logit[a] = 0;                                                                      \
                UNROLL for (int j = 0; j < PER; j++) {                                             \
                    logit[a] += q[j] * lane_element(k, p->c.k_type, j, p->c.dk);                   \
                    v[a][j] = lane_element(value, p->c.v_type, j, p->c.dv);                        \
                }                                                                                  \
            }                                                                                      \
            float highest = top;                                                                   \
            UNROLL for (int a = 0; a < AHEAD; a++) {                                               \
                const int at = base + AHEAD * warp + a;                                            \
                const float l = bent(p, u->slopes, head, at - pos,                                 \
                                     warp_sum(logit[a], room.red) * p->scale);                     \
                logit[a] = l;                                                                      \
                if (has[a])                                                                        \
                    highest = fmax(highest, l);                                                    \
            }                                                                                      \
            const float zero = highest == -INFINITY ? 0.0f : highest;                              \
            const float shrink = exp(top - zero);                                                  \
            weight *= shrink;                                                                      \
            UNROLL for (int j = 0; j < PER; j++) sums[j] *= shrink;                                \
            UNROLL for (int a = 0; a < AHEAD; a++) {                                               \
                const float share = has[a] ? exp(logit[a] - zero) : 0.0f;                          \
                weight += share;                                                                   \
                UNROLL for (int j = 0; j < PER; j++) sums[j] += share * v[a][j];                   \
            }                                                                                      \
            top = highest;                                                                         \
        }                                                                                          \
        UNROLL for (int j = 0; j < PER; j++) room.values[32 * (PER * warp + j) + lane] = sums[j];  \
        room.tops[warp] = top;                                                                     \
        room.weights[warp] = weight;                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        float all = u->sinks ? u->sinks[head] : -INFINITY;                                         \
        for (int w = 0; w < WARPS; w++)                                                            \
            all = fmax(all, room.tops[w]);                                                         \
        const float zero = all == -INFINITY ? 0.0f : all;                                          \
        float whole = u->sinks ? exp(u->sinks[head] - zero) : 0.0f;                                \
        for (int w = 0; w < WARPS; w++)                                                            \
            whole += room.weights[w] * exp(room.tops[w] - zero);                                   \
        global float *y = u->y + ((ulong)t * p->H + head) * p->c.dv;                               \
        for (int i = lane + 32 * warp; i < p->c.dv; i += ITEMS) {                                  \
            float sum = 0;                                                                         \
            for (int w = 0; w < WARPS; w++)                                                        \
                sum += room.values[32 * PER * w + i] * exp(room.tops[w] - zero);                   \
            y[i] = there ? sum / whole : 0.0f;                                                     \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    }

/* ---- heads of 64 or 128 elements of f32 or f16 ----------------------------------------------- */
/* Four elements for each lane, so that 16 or 32 lanes have a position. */
/* Quad i of a row, as stored: nothing is computed before all are asked for. */
static uint4 raw_quad(global const uchar *row, int type, int i) {
    uint4 raw = 0;
    if (!row)
        return raw;
    if (type == TYPE_F32)
        return *(global const uint4 *)(row + 16 * i);
    raw.xy = *(global const uint2 *)(row + 8 * i);
    return raw;
}
static float4 quad_value(uint4 raw, int type) {
    if (type == TYPE_F32)
        return as_float4(raw);
    return (float4)(two_halves(raw.x), two_halves(raw.y));
}
static bool by_quads(ARGS ocl_cache *c, int n) {
    const bool k = c->dk == n && (c->k_type == TYPE_F32 || c->k_type == TYPE_F16);
    const bool v = c->dv == n && (c->v_type == TYPE_F32 || c->v_type == TYPE_F16);
    return k && v;
}

/* Each OWN lanes have a running maximum, the sum of weights and that of values for HEADS heads of
 * 4 OWN elements, over AHEAD positions at a time; then the group puts the sums of all together. */
#define ATTEND_QUADS(name, OWN, HEADS, AHEAD)                                                      \
    static void name(const attend_refs *u, ARGS ocl_attend_args *p, int head, int t,               \
                     attend_room room) {                                                           \
        const int own = OWN;                                                                       \
        const int parts = 32 / own * WARPS;                                                        \
        const int item = get_local_id(0) + 32 * get_local_id(1);                                   \
        const int lane = item % own;                                                               \
        const int part = item / own;                                                               \
        const int head_kv = head / (p->H / p->c.Hkv);                                              \
        const int slot = u->row_slot[t];                                                           \
        const int pos = u->row_pos[t];                                                             \
        const bool there = pos >= 0 && pos < p->c.P * PAGE_TOKENS && slot >= 0 && slot < p->c.S;   \
        const int2 range = there ? seen(p, u->row_pos, u->row_slot, t) : (int2)(0, -1);            \
        global const float *from = u->q + ((ulong)t * p->H + head) * 4 * own;                      \
        float4 q[HEADS];                                                                           \
        float4 sums[HEADS];                                                                        \
        float top[HEADS];                                                                          \
        float weight[HEADS];                                                                       \
        UNROLL for (int h = 0; h < HEADS; h++) {                                                   \
            q[h] = vload4(0, from + 4 * (h * own + lane));                                         \
            sums[h] = 0;                                                                           \
            top[h] = -INFINITY;                                                                    \
            weight[h] = 0;                                                                         \
        }                                                                                          \
        for (int base = range.x; base <= range.y; base += AHEAD * parts) {                         \
            uint4 k[AHEAD];                                                                        \
            uint4 v[AHEAD];                                                                        \
            bool has[AHEAD];                                                                       \
            UNROLL for (int a = 0; a < AHEAD; a++) {                                               \
                const int at = base + a * parts + part;                                            \
                global const uchar *key = 0;                                                       \
                global const uchar *value = 0;                                                     \
                if (at <= range.y) {                                                               \
                    key = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, false);            \
                    value = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, true);           \
                }                                                                                  \
                has[a] = key != 0;                                                                 \
                k[a] = raw_quad(key, p->c.k_type, lane);                                           \
                v[a] = raw_quad(value, p->c.v_type, lane);                                         \
            }                                                                                      \
            UNROLL for (int h = 0; h < HEADS; h++) {                                               \
                float logit[AHEAD];                                                                \
                float highest = top[h];                                                            \
                UNROLL for (int a = 0; a < AHEAD; a++) {                                           \
                    const float mine = dot(q[h], quad_value(k[a], p->c.k_type));                   \
                    const int at = base + a * parts + part;                                        \
                    const float l = bent(p, u->slopes, head + h, at - pos,                         \
                                         part_sum(mine, own, room.red) * p->scale);                \
                    logit[a] = l;                                                                  \
                    if (has[a])                                                                    \
                        highest = fmax(highest, l);                                                \
                }                                                                                  \
                const float zero = highest == -INFINITY ? 0.0f : highest;                          \
                const float shrink = exp(top[h] - zero);                                           \
                weight[h] *= shrink;                                                               \
                sums[h] *= shrink;                                                                 \
                UNROLL for (int a = 0; a < AHEAD; a++) {                                           \
                    const float share = has[a] ? exp(logit[a] - zero) : 0.0f;                      \
                    weight[h] += share;                                                            \
                    sums[h] += share * quad_value(v[a], p->c.v_type);                              \
                }                                                                                  \
                top[h] = highest;                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int h = 0; h < HEADS; h++) {                                                   \
            const int at = part * HEADS + h;                                                       \
            vstore4(sums[h], own * at + lane, room.values);                                        \
            room.tops[at] = top[h];                                                                \
            room.weights[at] = weight[h];                                                          \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        for (int i = item; i < parts * HEADS; i += ITEMS) {                                        \
            const int h = i % HEADS;                                                               \
            float all = u->sinks ? u->sinks[head + h] : -INFINITY;                                 \
            for (int w = 0; w < parts; w++)                                                        \
                all = fmax(all, room.tops[w * HEADS + h]);                                         \
            room.red[i] = exp(room.tops[i] - (all == -INFINITY ? 0.0f : all));                     \
            if (i < HEADS)                                                                         \
                room.sinks[i] = u->sinks ? exp(u->sinks[head + h] - all) : 0.0f;                   \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        global float *y = u->y + ((ulong)t * p->H + head) * 4 * own;                               \
        for (int i = item; i < HEADS * 4 * own; i += ITEMS) {                                      \
            const int h = i / (4 * own);                                                           \
            float whole = room.sinks[h];                                                           \
            float sum = 0;                                                                         \
            for (int w = 0; w < parts; w++) {                                                      \
                const float factor = room.red[w * HEADS + h];                                      \
                whole += room.weights[w * HEADS + h] * factor;                                     \
                sum += room.values[4 * own * w * HEADS + i] * factor;                              \
            }                                                                                      \
            y[i] = there ? sum / whole : 0.0f;                                                     \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    }

#if defined STEP_PER && defined PTX
/* The last keys and values that row t sees for a head, as many as the group has items, on their way
 * to the cache of the device: all but the newest were there before the step. */
static void ask_kept(const attend_refs *u, ARGS ocl_attend_args *p, int head, int t) {
    const int head_kv = head / (p->H / p->c.Hkv);
    const int slot = u->row_slot[t];
    const int pos = u->row_pos[t];
    const int at = pos - GROUP_ITEM;
    if (pos >= p->c.P * PAGE_TOKENS || slot < 0 || slot >= p->c.S || at < 0)
        return;
    if (p->window > 0 && GROUP_ITEM >= p->window)
        return;
    global uchar *k = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, false);
    global uchar *v = cached_row(&p->c, u->kv, u->pages, slot, head_kv, at, true);
    for (int i = 0; k && i < p->c.k_row; i += 128)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(k + i));
    for (int i = 0; v && i < p->c.v_row; i += 128)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(v + i));
}
#endif

#ifdef STEP_PER
ATTEND_WARP(attend_one, STEP_PER, STEP_AHEAD)
#if STEP_PER <= 4
ATTEND_QUADS(attend_quads, 8 * STEP_PER, 1, 4)
#endif
#if STEP_PER <= 4 && defined PTX
ATTEND_QUADS(attend_quads_four, 8 * STEP_PER, 4, 2)
#endif
#else
#define ATTEND_ROOM(HEADS, PER)                                                                    \
    local float red[ITEMS];                                                                        \
    local float values[(PER == 2 ? 2 : 1) * WARPS * HEADS * 32 * PER];                             \
    local float tops[2 * WARPS * HEADS];                                                           \
    local float weights[2 * WARPS * HEADS];                                                        \
    local float own_sinks[HEADS];                                                                  \
    const attend_refs u = {                                                                        \
        PTR(const float, q),   PTR(const int, row_pos), PTR(const int, row_slot),                  \
        PTR(const int, pages), KV_BASE,                 PTR(const float, sinks),                   \
        PTR(float, y),         PTR(const float, slopes)};                                          \
    const attend_room room = {red, values, tops, weights, own_sinks};                              \
    const int head = get_group_id(0) * HEADS;                                                      \
    const int t = get_group_id(1);
#define ATTEND_PARAMS                                                                              \
    REF(q), REF(row_pos), REF(row_slot), REF(pages), REF(kv), REF(sinks), REF(y),                  \
        REF(slopes) KV_MORE, const ocl_attend_args p
#define ATTEND_KERNEL(name, PER, HEADS, AHEAD)                                                     \
    ATTEND_WARP(name##_group, PER, 4)                                                              \
    ATTEND_QUADS(name##_quads, 8 * PER, HEADS, AHEAD)                                              \
    kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void KERNEL(name)(ATTEND_PARAMS) {  \
        ATTEND_ROOM(HEADS, PER)                                                                    \
        if (by_quads(&p.c, 32 * PER))                                                              \
            name##_quads(&u, &p, head, t, room);                                                   \
        for (int h = 0; h < HEADS && !by_quads(&p.c, 32 * PER); h++)                               \
            name##_group(&u, &p, head + h, t, room);                                               \
    }
ATTEND_KERNEL(attend_64, 2, 1, 4)
ATTEND_KERNEL(attend_128, 4, 1, 4)
ATTEND_KERNEL(attend_64x4, 2, 4, 2)
ATTEND_KERNEL(attend_128x4, 4, 4, 2)
ATTEND_WARP(attend_512_group, 16, 1)
kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void KERNEL(attend_512)(ATTEND_PARAMS) {
    ATTEND_ROOM(1, 16)
    attend_512_group(&u, &p, head, t, room);
}
ATTEND_WARP(attend_576_group, 18, 1)
kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void KERNEL(attend_576)(ATTEND_PARAMS) {
    ATTEND_ROOM(1, 18)
    attend_576_group(&u, &p, head, t, room);
}
#endif

typedef struct {
    global const float *q;
    global const float *k;
    global const float *v;
    global const int *row_pos;
    global const int *row_slot;
    global const float *freqs;
    global const int *pages;
    kv_base kv;
    global float *y;
} store_refs;

/* The row of head `head` of keys or values at row t's place in the cache; 0: it has none. */
static global uchar *kept_row(const store_refs *u, ARGS ocl_store_args *p, int head, int t,
                              bool value) {
    const int pos = u->row_pos[t];
    const int slot = u->row_slot[t];
    if (pos < 0 || pos >= p->c.P * PAGE_TOKENS || slot < 0 || slot >= p->c.S)
        return 0;
    return cached_row(&p->c, u->kv, u->pages, slot, head, pos, value);
}

static void keep_element(global uchar *row, int type, int i, float v) {
    if (type == TYPE_F16)
        vstore_half_rte(v, i, (global half *)row);
    else
        ((global float *)row)[i] = v;
}

/* Pair i of head `head` of q, k or v, one after the other, of row t: q and k are turned, k and v go
 * to the cache, of f32 or f16. */
static void rope_store_pair(const store_refs *u, ARGS ocl_store_args *p, int i, int head, int t) {
    const int pos = u->row_pos[t];
    const bool is_q = head < p->r.H;
    const bool is_v = head >= p->r.H + p->c.Hkv;
    int own = head; /* among the heads of its kind */
    if (is_v)
        own = head - p->r.H - p->c.Hkv;
    else if (!is_q)
        own = head - p->r.H;
    const int n = is_v ? p->c.dv : p->r.D;
    const int heads = is_q ? p->r.H : p->c.Hkv;
    global const float *x = is_q ? u->q : u->k;
    x = is_v ? u->v : x;
    x += ((ulong)t * heads + own) * n;
    if (i >= (n + 1) / 2)
        return;
    int first = 2 * i;
    int second = 2 * i + 1;
    float a = 0;
    float b = 0;
    if (!is_v && i < p->r.n_rot / 2) {
        first = p->r.adjacent ? 2 * i : i;
        second = p->r.adjacent ? 2 * i + 1 : i + p->r.n_rot / 2;
        const float2 turn = p->r.mscale * turn_of(pos, u->freqs[i]);
        a = x[first] * turn.y - x[second] * turn.x;
        b = x[first] * turn.x + x[second] * turn.y;
    } else {
        a = x[first];
        b = second < n ? x[second] : 0.0f;
    }
    if (is_q) {
        global float *y = u->y + ((ulong)t * heads + own) * n;
        y[first] = a;
        if (second < n)
            y[second] = b;
        return;
    }
    global uchar *row = kept_row(u, p, own, t, is_v);
    const int type = is_v ? p->c.v_type : p->c.k_type;
    if (!row)
        return;
    keep_element(row, type, first, a);
    if (second < n)
        keep_element(row, type, second, b);
}

#ifndef STEP_WARPS
/* One item for each pair. */
kernel void KERNEL(rope_store)(REF(q), REF(k), REF(v), REF(row_pos), REF(row_slot), REF(freqs),
                               REF(pages), REF(kv), REF(y) KV_MORE, const ocl_store_args p) {
    const store_refs u = {
        PTR(const float, q),     PTR(const float, k),      PTR(const float, v),
        PTR(const int, row_pos), PTR(const int, row_slot), PTR(const float, freqs),
        PTR(const int, pages),   KV_BASE,                  PTR(float, y)};
    rope_store_pair(&u, &p, get_global_id(0), get_global_id(1), get_global_id(2));
}
#endif
#endif
