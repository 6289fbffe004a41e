/* attention.c -- ATTENTION over the paged cache.
 * A row's positions are scored in tiles of MNK_TILE with a running softmax; tiles add up to chunks
 * of CHUNK positions, and the chunks are merged in order. Both grids begin at position 0, so a
 * row's result depends neither on the other rows of the step nor on whether its chunks were
 * computed by one worker (many rows) or by several (few rows, long context). Blocks of many rows on
 * AMX (mnk_attend) have no chunks: their sums go on over all tiles. What distances add to scores is
 * attention_distance.c's. */
#include "attention.h"
#include "dtype.h"
#include <math.h>

#define CHUNK 512
#define BLOCK_ROWS 64           /* query rows (row x head) that share a tile of K and V */
#define TILES_BLOCK_ROWS 256    /* ... that is packed for them */
#define TILES_BLOCK_TOKENS 128  /* more would see too much of what only the last of them may */
#define SPLIT_BYTES (16u << 20) /* for partial results of split rows */
#define SPLIT_ROWS 8
/* Tokens of a page that the scratch is counted with, cpu_host's: the page size is not known before
 * the step. With larger pages rows are not split. */
#define SCRATCH_PAGE 64

typedef struct {
    const mnc_call *c;
    const mnk_vector *v;
    const int32_t *pos; /* [T] */
    int64_t t;          /* rows */
    int64_t h;          /* query heads */
    int64_t hkv;        /* key and value heads */
    int64_t g;          /* query heads per key head */
    int64_t dk;
    int64_t dv;
    int64_t state;  /* floats of a state: m, l, acc[dv] */
    int64_t window; /* 0: none */
    int64_t block;  /* rows per task */
    int64_t max_chunks;
    int64_t group; /* positions are seen from the last multiple of it on (CHUNK); 0: none */
    bool bidirectional;
    bool v_of_k;              /* values are the first elements of keys */
    const mnc_weight *slopes; /* [H]; NULL: none */
    float scale;
    float cap;
    const int32_t *lengths; /* [S]: rows see so many positions of another text; NULL: their own */
    /* [T, n_words]: which rows of its own sequence a row sees; NULL: those in front of it */
    const int32_t *ancestors;
    int64_t n_words;
    mnk_distances distances;
    /* the part's scratch: [block*g, dk], tiles, [block*g, MNK_TILE], states [block*g, dv + 2] */
    float *q;
    float *k;
    float *val;
    float *s;
    float *part;
    float *total;
    const mnk_attend *tiles; /* NULL: blocks of many rows are computed as others */
    mnk_attend_block in_tiles;
    int32_t *see;    /* [2, block*g] columns of a tile that queries see: from, and before */
    float *sinks;    /* [block*g] */
    float **outputs; /* [block*g] */
} attn;

/* Rows of a block, each with all query heads of a key head. */
static int64_t per_task(const attn *a) {
    const int64_t rows = a->tiles ? TILES_BLOCK_ROWS : BLOCK_ROWS;
    const int64_t tokens = rows / a->g;
    if (tokens < 1)
        return 1;
    return tokens < TILES_BLOCK_TOKENS ? tokens : TILES_BLOCK_TOKENS;
}

static uint64_t up64(uint64_t n) {
    return (n + 63) / 64 * 64;
}

static int64_t chunks_of(int64_t positions) {
    return (positions + CHUNK - 1) / CHUNK;
}

/* The most rows whose partial results, of row_bytes each, are shared. */
static int64_t split_rows(uint64_t row_bytes) {
    const uint64_t n = SPLIT_BYTES / row_bytes;
    if (n > SPLIT_ROWS)
        return SPLIT_ROWS;
    return (int64_t)n;
}

/* Partial results of one row: a state per head and chunk. */
static uint64_t row_bytes(const attn *a) {
    const int64_t n_states = a->h * a->max_chunks;
    const int64_t n = n_states * a->state;
    return (uint64_t)n * sizeof(float);
}

static void *next_bytes(uint8_t *base, uint64_t *at, uint64_t n) {
    const uint64_t here = *at;
    *at += up64(n);
    return base ? base + here : NULL;
}

/* The next n floats behind base + *at, which moves on; NULL where base is. */
static float *next_floats(uint8_t *base, uint64_t *at, int64_t n) {
    return next_bytes(base, at, (uint64_t)n * sizeof(float));
}

/* Lays a part's scratch out at base, NULL: not yet there. Its size in bytes. */
static uint64_t lay_out(attn *a, uint8_t *base) {
    const int64_t n = a->block * a->g;
    const int64_t columns = MNK_TILE + MNK_BEHIND;
    mnk_distances *d = &a->distances;
    uint64_t at = 0;
    a->q = next_floats(base, &at, n * a->dk);
    a->k = next_floats(base, &at, columns * a->dk);
    a->val = next_floats(base, &at, columns * a->dv);
    a->s = next_floats(base, &at, n * MNK_TILE);
    a->part = next_floats(base, &at, n * a->state);
    a->total = next_floats(base, &at, n * a->state);
    if (mnk_has_distances(d))
        d->buckets = next_bytes(base, &at, (uint64_t)(d->far + 1) * sizeof *d->buckets);
    if (mnk_has_relative(d)) {
        d->rel_rows = next_floats(base, &at, columns * a->dk);
        d->rel_s = next_floats(base, &at, (n > MNK_TILE ? n : MNK_TILE) * MNK_TILE);
    }
    if (!a->tiles)
        return at;
    a->see = next_bytes(base, &at, 2 * (uint64_t)n * sizeof *a->see);
    a->sinks = next_floats(base, &at, n);
    a->outputs = next_bytes(base, &at, (uint64_t)n * sizeof *a->outputs);
    a->in_tiles = (mnk_attend_block){.dk = a->dk, .dv = a->dv};
    a->in_tiles.room = next_bytes(base, &at, a->tiles->room_bytes(n, a->dk, a->dv));
    return at;
}

/* State of a query row: m, l, acc[dv]. */
static void reset(const attn *a, float *st) {
    const size_t others = (size_t)a->state - 1;
    st[0] = -INFINITY;
    memset(st + 1, 0, others * sizeof *st);
}

static float greater(float a, float b) {
    if (a > b)
        return a;
    return b;
}

/* What a state with maximum m counts for under the common maximum; NaN and +inf give NaN. */
static float attend_share_of(const attn *a, float m, float top) {
    if (m == -INFINITY)
        return 0;
    return a->v->exp1(m - top);
}

/* A part whose logits are all -inf counts 0 times, but is added: a NaN among its values stays. */
static void merge(const attn *a, float *into, const float *part) {
    const mnk_vector *v = a->v;
    const float m = greater(into[0], part[0]);
    const float x = attend_share_of(a, into[0], m);
    const float y = attend_share_of(a, part[0], m);
    v->scale(into + 2, a->dv, x);
    v->add_scaled(into + 2, part + 2, a->dv, y);
    into[0] = m;
    into[1] = into[1] * x + part[1] * y;
}

/* y: [dv], the output of a head; the sink counts as one more position without a value. */
static void attention_finish(const attn *a, float *st, int64_t head, float *y) {
    const mnk_vector *v = a->v;
    const mnc_weight *sinks = mnc_optional(a->c, MN_ATTENTION_SINKS);
    if (sinks) {
        const float sink = mnk_load1(sinks->data, MN_F32, head);
        const float m = greater(st[0], sink);
        const float x = v->exp1(st[0] - m);
        const float of_sink = v->exp1(sink - m);
        v->scale(st + 2, a->dv, x);
        st[1] = st[1] * x + of_sink;
    }
    memcpy(y, st + 2, (size_t)a->dv * sizeof *y);
    v->scale(y, a->dv, 1.0f / st[1]);
}

/* n cached rows of d elements each, `bytes` apart, to f32; rows of floats are dense. */
static void load_cached(const attn *a, uint32_t dtype, const uint8_t *from, int64_t n, int64_t d,
                        int64_t bytes, float *to) {
    if (dtype == MN_F16) {
        a->v->unpack_f16(from, n * d, to);
        return;
    }
    if (dtype == MN_F32) {
        memcpy(to, from, (size_t)(n * d) * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        mn_cached_get(dtype, from + i * bytes, d, to + i * d);
}

/* The first elements of n keys. */
static void copy_values(const attn *a, const float *k, int64_t n, float *v) {
    for (int64_t i = 0; i < n; i++)
        memcpy(v + i * a->dv, k + i * a->dk, (size_t)a->dv * sizeof *v);
}

/* Positions [lo, hi) of one tile, head h: K and V to f32 at their place in the tile. */
static void load_tile(const attn *a, int32_t slot, int64_t h, int64_t t0, int64_t lo, int64_t hi) {
    const mnc_kv *kv = &a->c->kv;
    const int64_t pt = kv->geo.page_tokens;
    for (int64_t p = lo; p < hi;) {
        const int64_t off = p % pt;
        const int64_t left = pt - off;
        int64_t n;
        if (left < hi - p)
            n = left;
        else
            n = hi - p;
        const int64_t nk = n * a->dk;
        const int64_t nv = n * a->dv;
        const int64_t row = h * pt + off;
        const int32_t page = kv->pages[slot * kv->max_pages + p / pt];
        float *k = a->k + (p - t0) * a->dk;
        float *v = a->val + (p - t0) * a->dv;
        if (page < 0) { /* not a page: the host broke the contract; no wild read */
            memset(k, 0, (size_t)nk * sizeof(float));
            memset(v, 0, (size_t)nv * sizeof(float));
        } else {
            const mnp_kv *geo = &kv->geo;
            const uint8_t *ks = mnc_kv_k(kv, page) + row * geo->k_row;
            const uint8_t *vs = mnc_kv_v(kv, page) + row * geo->v_row;
            load_cached(a, geo->k_dtype, ks, n, a->dk, geo->k_row, k);
            if (a->v_of_k)
                copy_values(a, k, n, v);
            else
                load_cached(a, geo->v_dtype, vs, n, a->dv, geo->v_row, v);
        }
        p += n;
    }
}

/* The first position that a row at `pos` sees. */
static int64_t first_of(const attn *a, int64_t pos) {
    int64_t first = 0;
    if (a->lengths)
        return 0;
    if (a->window > 0 && pos >= a->window)
        first = pos - a->window + 1;
    if (a->group > 0 && pos / a->group * a->group > first)
        first = pos / a->group * a->group;
    return first;
}

/* Past the last position that row r sees: its own, or of BIDIRECTIONAL the last of its sequence; so
 * for ANCESTORS, too, since some of them may be behind it. */
static int64_t attend_end_of(const attn *a, int64_t r) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    if (a->lengths)
        return mnk_least(a->lengths[slot[r]], a->c->kv.max_pages * a->c->kv.geo.page_tokens);
    if (!a->bidirectional && !a->ancestors)
        return a->pos[r] + 1;
    int64_t next = r + 1;
    while (next < a->t && slot[next] == slot[r] && a->pos[next] >= 0)
        next++;
    const int64_t end = a->pos[next - 1] + 1;
    if (a->window <= 0)
        return end;
    return mnk_least(end, a->pos[r] + a->window);
}

/* Scores of a head, before they are scaled: the slope times the distance to each position (ALiBi)
 * joins them. Columns [x, y) of the tile at t0. */
static void add_slope(const attn *a, int64_t head, int64_t pos, int64_t t0, float *s, int64_t x,
                      int64_t y) {
    const float slope = mnk_load1(a->slopes->data, MN_F32, head) / a->scale;
    for (int64_t i = x; i < y; i++)
        s[i] += slope * (float)(t0 + i - pos);
}

/* The first row of the sequence of row r in this step. */
static int64_t first_row(const attn *a, int64_t r) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    while (r > 0 && slot[r - 1] == slot[r] && a->pos[r - 1] >= 0)
        r--;
    return r;
}

/* Whether row r sees position p; past: the position of its sequence's first row in this step. */
static bool sees(const attn *a, int64_t r, int64_t past, int64_t p) {
    const int64_t j = p - past;
    if (!a->ancestors || j < 0)
        return true;
    if (j >= 32 * a->n_words)
        return false;
    const uint32_t word = (uint32_t)a->ancestors[r * a->n_words + j / 32];
    return word >> j % 32 & 1;
}

/* Whether logits are made one by one: slopes join scaled scores, too, unless these are capped. */
static bool has_logits(const attn *a) {
    return a->distances.biases || a->ancestors || (a->slopes && a->cap != 0);
}

/* Scores of a head of row r become logits: the columns [x, y) of the tile at t0, scaled and capped,
 * with their slopes and biases; -inf where the row does not see one. */
static void make_logits(const attn *a, int64_t head, int64_t r, int64_t t0, float *s, int64_t x,
                        int64_t y) {
    const int64_t past = a->ancestors ? a->pos[first_row(a, r)] : 0;
    const float slope = a->slopes ? mnk_load1(a->slopes->data, MN_F32, head) : 0;
    for (int64_t i = x; i < y; i++) {
        float logit = s[i] * a->scale;
        if (a->cap != 0)
            logit = a->cap * tanhf(logit / a->cap);
        if (a->distances.biases)
            logit += mnk_distance_bias(&a->distances, head, a->pos[r], t0 + i);
        logit += slope * (float)(t0 + i - a->pos[r]);
        if (!sees(a, r, past, t0 + i))
            logit = -INFINITY;
        s[i] = logit;
    }
}

/* Row r0 + r, row r of a block, of key head h: the columns [x, y) of the tile's scores to weights,
 * the states of its heads to what the new maximum makes of them. */
static void weigh_scores(const attn *a, int64_t h, int64_t r0, int64_t r, int64_t t0, int64_t x,
                         int64_t y) {
    const mnk_vector *v = a->v;
    const int64_t first = r * a->g;
    for (int64_t g = 0; g < a->g; g++) {
        const int64_t row = first + g;
        float *s = a->s + row * MNK_TILE;
        float *st = a->part + row * a->state;
        float sum;
        float scale = a->scale;
        float cap = a->cap;
        if (has_logits(a)) {
            make_logits(a, h * a->g + g, r0 + r, t0, s, x, y);
            scale = 1;
            cap = 0;
        } else if (a->slopes) {
            add_slope(a, h * a->g + g, a->pos[r0 + r], t0, s, x, y);
        }
        const float m = v->softmax(s, x, y, scale, cap, st[0], &sum);
        const float by = attend_share_of(a, st[0], m);
        v->scale(st + 2, a->dv, by);
        st[0] = m;
        st[1] = st[1] * by + sum;
    }
}

/* The columns [x, y) of a tile that row r sees, of those from b0 to b1; false: none. */
static bool columns_of(const attn *a, int64_t r, int64_t t0, int64_t b0, int64_t b1, int64_t *x,
                       int64_t *y) {
    const int64_t pos = a->pos[r];
    const int64_t first = first_of(a, pos) - t0;
    const int64_t end = attend_end_of(a, r) - t0;
    *x = first;
    if (first < b0)
        *x = b0;
    *y = mnk_least(end, b1);
    return pos >= 0 && *x < *y;
}

/* Of the columns [x, y) of the tile at t0 those that row r sees, as runs: what it does not see may
 * be NaN. */
static void add_runs(const attn *a, int64_t r, int64_t t0, const float *s, int64_t x, int64_t y,
                     float *sums) {
    const int64_t past = a->pos[first_row(a, r)];
    while (x < y) {
        int64_t end = x;
        while (end < y && sees(a, r, past, t0 + end))
            end++;
        if (x < end)
            a->v->weigh(s, MNK_TILE, a->g, a->val, x, end, a->dv, sums, a->state);
        x = end + 1;
    }
}

/* The values of the tile's columns from b0 to b1, by their weights, for rows [r0, r0 + nr). */
static void add_values(const attn *a, int64_t r0, int64_t nr, int64_t t0, int64_t b0, int64_t b1) {
    int64_t x;
    int64_t y;
    float *sums = a->part + 2;
    for (int64_t r = 0; r < nr; r++) {
        const float *s = a->s + r * a->g * MNK_TILE;
        float *of_row = sums + r * a->g * a->state;
        if (!columns_of(a, r0 + r, t0, b0, b1, &x, &y))
            continue;
        if (a->ancestors)
            add_runs(a, r0 + r, t0, s, x, y, of_row);
        else
            a->v->weigh(s, MNK_TILE, a->g, a->val, x, y, a->dv, of_row, a->state);
    }
}

/* One tile for rows [r0, r0 + nr) and kv head h, into a->part. */
static void tile(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t t0,
                 int64_t lo, int64_t hi) {
    const int64_t b0 = lo - t0;
    const int64_t b1 = hi - t0;
    const float *k = a->k + b0 * a->dk;
    int64_t x;
    int64_t y;
    load_tile(a, slot, h, t0, lo, hi);
    a->v->scores(a->q, nr * a->g, k, b1 - b0, a->dk, a->s + b0, MNK_TILE);
    const mnk_score_tile scores = {
        .v = a->v,
        .pos = a->pos + r0,
        .nr = nr,
        .g = a->g,
        .t0 = t0,
        .b0 = b0,
        .b1 = b1,
        .q = a->q,
        .k = a->k,
        .s = a->s,
    };
    mnk_add_relative(&a->distances, &scores, h);
    for (int64_t r = 0; r < nr; r++)
        if (columns_of(a, r0 + r, t0, b0, b1, &x, &y))
            weigh_scores(a, h, r0, r, t0, x, y);
    add_values(a, r0, nr, t0, b0, b1);
}

/* One chunk of the rows' positions [lo, hi) into a->part. */
static void chunk(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t ci,
                  int64_t lo, int64_t hi) {
    const int64_t end = mnk_least((ci + 1) * CHUNK, hi);
    for (int64_t i = 0; i < nr * a->g; i++)
        reset(a, a->part + i * a->state);
    for (int64_t t0 = ci * CHUNK; t0 < end; t0 += MNK_TILE) {
        int64_t x = t0;
        if (t0 < lo)
            x = lo;
        const int64_t y = mnk_least(t0 + MNK_TILE, end);
        if (x < y)
            tile(a, slot, h, r0, nr, t0, x, y);
    }
}

/* Range of positions that rows see; false = none of them has an effect. */
static bool range(const attn *a, int64_t r0, int64_t nr, int64_t *lo, int64_t *hi) {
    *lo = INT64_MAX;
    *hi = 0;
    const mnc_kv *kv = &a->c->kv;
    const int64_t max_pos = kv->max_pages * kv->geo.page_tokens;
    for (int64_t r = r0; r < r0 + nr; r++) {
        const int64_t pos = a->pos[r];
        if (pos < 0 || pos >= max_pos)
            continue;
        const int64_t first = first_of(a, pos);
        const int64_t end = attend_end_of(a, r);
        *lo = mnk_least(*lo, first);
        *hi = end > *hi ? end : *hi;
    }
    return *lo < *hi;
}

/* The queries of nr rows that belong to key head h, side by side. */
static void load_q(const attn *a, int64_t r0, int64_t nr, int64_t h) {
    const float *q = a->c->in[MN_ATTENTION_Q].ptr; /* [T, H, Dk] */
    const int64_t n = a->g * a->dk;
    for (int64_t r = 0; r < nr; r++) {
        const int64_t head = (r0 + r) * a->h + h * a->g;
        const float *from = q + head * a->dk;
        float *to = a->q + r * n;
        memcpy(to, from, (size_t)n * sizeof *q);
    }
}

static float *out_of(const attn *a, int64_t r, int64_t head) {
    float *y = a->c->out[0].ptr; /* [T, H, Dv] */
    const int64_t row = r * a->h + head;
    return y + row * a->dv;
}

/* ---- through tiles --------------------------------------------------------------------------- */
/* The tile at t0, of which rows [r0, r0 + nr) see something of [x, y). */
static void add_tile(const attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t t0,
                     int64_t x, int64_t y) {
    const int64_t n = nr * a->g;
    int32_t *lo = a->see;
    int32_t *hi = a->see + n;
    load_tile(a, slot, h, t0, x, y);
    for (int64_t r = 0; r < nr; r++) {
        int64_t from;
        int64_t to;
        if (!columns_of(a, r0 + r, t0, x - t0, y - t0, &from, &to))
            from = to = 0;
        for (int64_t i = r * a->g; i < (r + 1) * a->g; i++) {
            lo[i] = (int32_t)from;
            hi[i] = (int32_t)to;
        }
    }
    const mnk_attend_tile t = {
        .k = a->k,
        .v = a->val,
        .first = x - t0,
        .end = y - t0,
        .lo = lo,
        .hi = hi,
        .scale = a->scale,
        .cap = a->cap,
    };
    a->tiles->add(&a->in_tiles, &t);
}

/* Where the block's outputs go, and what the sinks of their heads are. */
static void end_tiles(const attn *a, int64_t h, int64_t r0) {
    const mnc_weight *sinks = mnc_optional(a->c, MN_ATTENTION_SINKS);
    for (int64_t i = 0; i < a->in_tiles.n; i++) {
        const int64_t r = r0 + i / a->g;
        const int64_t head = h * a->g + i % a->g;
        a->outputs[i] = a->pos[r] >= 0 ? out_of(a, r, head) : NULL;
        if (sinks)
            a->sinks[i] = mnk_load1(sinks->data, MN_F32, head);
    }
    a->tiles->end(&a->in_tiles, sinks ? a->sinks : NULL, a->outputs);
}

/* Positions [lo, hi) for a block of rows. */
static void whole_in_tiles(attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr, int64_t lo,
                           int64_t hi) {
    a->in_tiles.n = nr * a->g;
    a->tiles->begin(&a->in_tiles, a->q);
    for (int64_t t0 = lo / MNK_TILE * MNK_TILE; t0 < hi; t0 += MNK_TILE)
        add_tile(a, slot, h, r0, nr, t0, t0 < lo ? lo : t0, mnk_least(t0 + MNK_TILE, hi));
    end_tiles(a, h, r0);
}

/* All chunks of a block of rows. */
static void whole(attn *a, int32_t slot, int64_t h, int64_t r0, int64_t nr) {
    const int64_t st = a->state;
    const int64_t n = nr * a->g;
    int64_t lo;
    int64_t hi;
    if (!range(a, r0, nr, &lo, &hi))
        return;
    load_q(a, r0, nr, h);
    if (a->tiles && n >= MNK_ATTEND_ROWS) {
        whole_in_tiles(a, slot, h, r0, nr, lo, hi);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        reset(a, a->total + i * st);
    for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++) {
        chunk(a, slot, h, r0, nr, ci, lo, hi);
        for (int64_t i = 0; i < n; i++)
            merge(a, a->total + i * st, a->part + i * st);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = r0 + i / a->g;
        const int64_t head = h * a->g + i % a->g;
        float *y = out_of(a, r, head);
        if (a->pos[r] >= 0)
            attention_finish(a, a->total + i * st, head, y);
    }
}

/* Calls whole for every (block of rows, kv head) of this part, or only counts them. The last rows
 * of a sequence, which see most, come first, so that no thread begins with them when others end. */
static int64_t blocks(attn *a, const mnc_worker *w) {
    const mnc_operand *seqs = &a->c->in[MN_ATTENTION_SEQS];
    const int32_t *seq = seqs->ptr; /* first row, rows, slot, - */
    int64_t task = 0;
    for (int64_t i = 0; i < seqs->rows; i++, seq += 4) {
        const int64_t first = seq[0];
        const int64_t n_rows = seq[1];
        const int32_t slot = seq[2];
        const int64_t n_blocks = (n_rows + a->block - 1) / a->block;
        for (int64_t b = n_blocks - 1; b >= 0; b--) {
            const int64_t r = a->block * b;
            const int64_t n = mnk_least(n_rows - r, a->block);
            for (int64_t h = 0; h < a->hkv; h++, task++)
                if (w && task % w->n == w->i)
                    whole(a, slot, h, first + r, n);
        }
    }
    return task;
}

/* One chunk of row r and kv head h into the shared parts, [T, H, max_chunks] states. */
static void share_chunk(const attn *a, int32_t slot, int64_t r, int64_t h, int64_t ci, int64_t lo,
                        int64_t hi) {
    const int64_t st = a->state;
    const int64_t first = r * a->h + h * a->g;
    float *shared = a->c->shared;
    load_q(a, r, 1, h);
    chunk(a, slot, h, r, 1, ci, lo, hi);
    for (int64_t g = 0; g < a->g; g++) {
        const int64_t at = (first + g) * a->max_chunks + ci;
        const float *part = a->part + g * st;
        float *to = shared + at * st;
        memcpy(to, part, (size_t)st * sizeof *part);
    }
}

/* Few rows with long contexts: (row, kv head, chunk) are shared out, or only counted. */
static int64_t chunks(const attn *a, const mnc_worker *w) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    int64_t lo;
    int64_t hi;
    int64_t task = 0;
    for (int64_t r = 0; r < a->t; r++) {
        const bool seen = slot[r] >= 0 && range(a, r, 1, &lo, &hi);
        if (!seen)
            continue;
        for (int64_t h = 0; h < a->hkv; h++)
            for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++, task++)
                if (w && task % w->n == w->i)
                    share_chunk(a, slot[r], r, h, ci, lo, hi);
    }
    return task;
}

/* Then (row, head) are. */
static void merges(const attn *a, const mnc_worker *w) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    const int64_t st = a->state;
    const float *shared = a->c->shared;
    const int64_t n_heads = a->t * a->h;
    int64_t lo;
    int64_t hi;
    for (int64_t i = w->i; i < n_heads; i += w->n) {
        const int64_t r = i / a->h;
        const int64_t head = i % a->h;
        const bool seen = slot[r] >= 0 && range(a, r, 1, &lo, &hi);
        if (!seen)
            continue;
        const float *parts = shared + i * a->max_chunks * st;
        reset(a, a->total);
        for (int64_t ci = lo / CHUNK; ci * CHUNK < hi; ci++)
            merge(a, a->total, parts + ci * st);
        attention_finish(a, a->total, head, out_of(a, r, head));
    }
}

/* The values of an optional I32 operand; NULL: the node lacks it. */
static const int32_t *ints_of(const mnc_call *c, uint32_t in) {
    if (in < c->node->n_in)
        return c->in[in].ptr;
    return NULL;
}

/* All but the scratch. */
static attn attn_of(const mnc_call *c) {
    const mnk_use *use = c->user;
    const mnc_operand *q = &c->in[MN_ATTENTION_Q];
    attn a = {.c = c,
              .v = mnk_find_vector(use->level),
              .pos = c->in[MN_ATTENTION_ROW_POS].ptr,
              .t = q->dim[0],
              .h = q->dim[1],
              .dk = q->dim[2],
              .hkv = mnc_attr_int(c, MN_ATTENTION_ATTR_N_HEAD_KV),
              .dv = mnc_attr_int(c, MN_ATTENTION_ATTR_DIM_V),
              .window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW),
              .group = mnc_attr_int(c, MN_ATTENTION_ATTR_CHUNK),
              .bidirectional = mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0,
              .v_of_k = mnc_attr_int(c, MN_ATTENTION_ATTR_V_OF_K) != 0,
              .slopes = mnc_optional(c, MN_ATTENTION_ALIBI),
              .lengths = ints_of(c, MN_ATTENTION_LENGTHS),
              .ancestors = ints_of(c, MN_ATTENTION_ANCESTORS),
              .distances = mnk_distances_of(c),
              .scale = (float)mnc_attr_f64(c, MN_ATTENTION_ATTR_SCALE),
              .cap = (float)mnc_attr_f64(c, MN_ATTENTION_ATTR_SOFTCAP)};
    if (!a.dv)
        a.dv = a.dk;
    a.state = a.dv + 2;
    a.g = a.h / a.hkv;
    if (a.ancestors)
        a.n_words = c->in[MN_ATTENTION_ANCESTORS].cols;
    if (!a.slopes && !a.ancestors && !mnk_has_distances(&a.distances)) /* tiles keep no logits */
        a.tiles = mnk_find_attend(use->precision, use->level, a.dv);
    a.block = per_task(&a);
    a.max_chunks = chunks_of(c->kv.max_pages * SCRATCH_PAGE);
    return a;
}

/* A row sees at most so many positions, of BIDIRECTIONAL those of later rows, too. */
static int64_t longest(const attn *a) {
    const int32_t *slot = a->c->in[MN_ATTENTION_ROW_SLOT].ptr;
    int64_t n = 0;
    for (int64_t r = 0; r < a->t; r++) {
        int64_t end = a->pos[r] + 1;
        if (a->lengths && a->pos[r] >= 0)
            end = a->lengths[slot[r]];
        n = end > n ? end : n;
    }
    if (a->window > 0 && !a->bidirectional)
        return mnk_least(n, a->window);
    return n;
}

/* Are rows split into chunks, because there are fewer tasks than threads could do at once? */
static bool is_split(attn *a, uint32_t n_threads) {
    if (n_threads == 1 || a->c->kv.geo.page_tokens > SCRATCH_PAGE)
        return false;
    if (a->t > split_rows(row_bytes(a)) || longest(a) <= CHUNK)
        return false;
    const int64_t tasks = blocks(a, NULL);
    return tasks < n_threads || (tasks < 4 * n_threads && tasks % n_threads);
}

int64_t mnk_attention_cells(const mnc_call *c, uint32_t stage) {
    (void)stage;
    return mnc_attr_int(c, MN_ATTENTION_ATTR_N_HEAD_KV);
}

bool mnk_attention_now(const mnc_call *c, uint32_t n_threads) {
    const mnc_operand *seqs = &c->in[MN_ATTENTION_SEQS];
    const int32_t *seq = seqs->ptr;
    attn a = attn_of(c);
    if (a.lengths) /* rows of another text may be stored in the phase, by other cells */
        return false;
    for (int64_t i = 0; i < seqs->rows; i++, seq += 4)
        if (seq[1] > 1)
            return false;
    return !is_split(&a, n_threads);
}

/* This part's key heads of its rows, each of which is all that a sequence has in the step. */
static void cells(attn *a, const mnc_worker *w) {
    const mnc_operand *seqs = &a->c->in[MN_ATTENTION_SEQS];
    const int32_t *seq = seqs->ptr;
    int64_t lo;
    int64_t hi;
    mnc_range_units(w, a->hkv, &lo, &hi);
    for (int64_t i = 0; i < seqs->rows; i++, seq += 4) {
        const int32_t row = seq[0];
        const bool ours = row >= w->row_lo && row < w->row_hi;
        if (!seq[1] || !ours)
            continue;
        for (int64_t h = lo; h < hi; h++)
            whole(a, seq[2], h, row, 1);
    }
}

/* About 8 products of floats in a nanosecond, for keys and for values. */
mnc_work mnk_attention_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    attn a = attn_of(c);
    if (!a.t)
        return (mnc_work){0, 0};
    const int64_t of_position = a.h * (a.dk + a.dv) / 8;
    const int64_t work = a.t * longest(&a) * of_position;
    const bool splits = is_split(&a, n_threads);
    if (stage == MNC_FIRST)
        return (mnc_work){work, splits ? chunks(&a, NULL) : 0};
    if (splits) {
        const int64_t heads = a.t * a.h;
        const int64_t n_chunks = chunks_of(longest(&a));
        return (mnc_work){heads * a.dv * n_chunks, heads};
    }
    return (mnc_work){work, blocks(&a, NULL)};
}

void mnk_attention_split(const mnc_call *c, mnc_worker *w) {
    attn a = attn_of(c);
    lay_out(&a, w->scratch);
    mnk_distances_fill(&a.distances);
    chunks(&a, w);
}

void mnk_attention_node(const mnc_call *c, mnc_worker *w) {
    attn a = attn_of(c);
    lay_out(&a, w->scratch);
    mnk_distances_fill(&a.distances);
    if (w->in_cells)
        cells(&a, w);
    else if (is_split(&a, w->n_threads))
        merges(&a, w);
    else
        blocks(&a, w);
}

void mnk_attention_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *qt = mnc_query_in(q, MN_ATTENTION_Q);
    const mn_tensor *pages = mnc_query_in(q, MN_ATTENTION_PAGES);
    attn a = {
        .h = mnc_query_dim(q, qt, 1),
        .dk = mnc_query_dim(q, qt, 2),
        .hkv = mnc_query_attr(q, MN_ATTENTION_ATTR_N_HEAD_KV),
        .dv = mnc_query_attr(q, MN_ATTENTION_ATTR_DIM_V),
        .max_chunks = chunks_of(mnc_query_dim(q, pages, 1) * SCRATCH_PAGE),
        .distances = mnk_distances_asked(q),
    };
    if (!a.dv)
        a.dv = a.dk;
    a.state = a.dv + 2;
    a.g = 1;
    if (a.hkv > 0)
        a.g = a.h / a.hkv;
    if (!mnk_has_distances(&a.distances) && !mnc_query_in(q, MN_ATTENTION_ALIBI) &&
        !mnc_query_in(q, MN_ATTENTION_ANCESTORS))
        a.tiles = mnk_find_attend(use->precision, use->level, a.dv);
    a.block = per_task(&a);
    op->worker_bytes = lay_out(&a, NULL);
    const uint64_t row = row_bytes(&a);
    int64_t rows = 0;
    if (row)
        rows = split_rows(row);
    const int64_t t = mnc_query_dim(q, qt, 0);
    op->shared_bytes = (uint64_t)mnk_least(rows, t) * row;
}
