/* test_rows_attention.c -- test_rows: ATTENTION over what KV_STORE has kept, against sums of
 * doubles over the rows as the cache has them. */
#include "test_rows.h"
#include "dtype.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t h;
    int64_t hkv;
    int64_t dk;
    int64_t dv;
    int64_t window;
    double cap;
    bool sinks;
    uint32_t kv;
    const char *name;
    int32_t level;
    uint32_t precision;
} shape;
#define SLOTS 3
#define PAGES 12
#define PAGE 64
typedef struct {
    float *q;
    float *k;
    float *v;
    float *k_kept; /* as the cache has them */
    float *v_kept;
    float *y;
    float *sink;
    uint8_t *kv;
    int32_t *pos;
    int32_t *slot;
    int32_t *seqs;
    int32_t *pages;
    int64_t t;
} att;

/* Bytes of a head's row of n elements. */
static int64_t cached_bytes(const shape *s, int64_t n) {
    const int64_t block = mnp_kv_block(s->kv);
    return (n + block - 1) / block * mnp_kv_block_bytes(s->kv);
}

/* Runs a step over the given slots' whole sequences (len[slot] tokens), or only their last row. */
static void attend(const shape *s, att *a, const int64_t *len, bool last_only, uint32_t workers) {
    static mnk_use use;
    mn_node node = {.n_in = 7, .n_out = 1};
    const int64_t places = s->hkv * PAGE;
    const int64_t k_row = cached_bytes(s, s->dk);
    const int64_t v_row = cached_bytes(s, s->dv);
    const uint64_t page_bytes = (uint64_t)(places * (k_row + v_row));
    uint64_t attr[7] = {rows_bits(0.3),   (uint64_t)s->window, rows_bits(s->cap), 0, 0,
                        (uint64_t)s->hkv, (uint64_t)s->dv};
    uint64_t none[2] = {0, 0};
    mnc_weight sinks = {.dtype = {MN_F32, 1, 4, 1}, .data = a->sink};
    use = (mnk_use){s->precision, s->level, false};
    mnc_call c = {
        .node = &node,
        .attr = attr,
        .n_attr = 7,
        .user = &use,
    };
    c.kv = (mnc_kv){
        .geo.k_dtype = s->kv,
        .geo.v_dtype = s->kv,
        .geo.page_tokens = PAGE,
        .geo.n_layers = 1,
        .geo.n_head_kv = s->hkv,
        .geo.dim_k = s->dk,
        .geo.dim_v = s->dv,
        .geo.page_bytes = page_bytes,
        .geo.layer_bytes = page_bytes,
        .geo.k_row = k_row,
        .geo.v_row = v_row,
        .geo.v_offset = (uint64_t)(places * k_row),
        .pages = a->pages,
        .max_pages = PAGES,
        .n_pages = SLOTS * PAGES,
        .base = a->kv,
    };
    int64_t t = 0;
    int64_t from = 0;
    int64_t row = 0;
    memset(a->seqs, 0, SLOTS * 4 * sizeof *a->seqs);
    float *q = malloc(sizeof *q * (size_t)(a->t * s->h * s->dk));
    for (int32_t i = 0; i < SLOTS; from += len[i], i++) {
        int64_t n = last_only ? len[i] > 0 : len[i];
        int64_t skip = len[i] - n;
        a->seqs[4 * i] = (int32_t)t;
        a->seqs[4 * i + 1] = (int32_t)n;
        a->seqs[4 * i + 2] = i;
        for (int64_t j = 0; j < n; j++, t++) {
            a->pos[t] = (int32_t)(skip + j);
            a->slot[t] = i;
            row = from + skip + j;
            memcpy(q + t * s->h * s->dk, a->q + row * s->h * s->dk,
                   sizeof *q * (size_t)(s->h * s->dk));
        }
    }
    c.in[MN_ATTENTION_Q] = (mnc_operand){
        .ptr = q,
        .dim = {t, s->h, s->dk},
        .n_dim = 3,
        .rows = t,
    };
    c.in[MN_ATTENTION_ROW_POS] = (mnc_operand){.ptr = a->pos, .rows = t};
    c.in[MN_ATTENTION_ROW_SLOT] = (mnc_operand){.ptr = a->slot, .rows = t};
    c.in[MN_ATTENTION_SEQS] = (mnc_operand){.ptr = a->seqs, .rows = SLOTS};
    if (s->sinks)
        c.in[MN_ATTENTION_SINKS].weight = &sinks;
    c.out[0].ptr = a->y;
    if (!last_only) { /* store all first */
        mnc_call st = c;
        st.attr = none;
        st.n_attr = 2;
        memset(a->kv, 0xff, SLOTS * PAGES * page_bytes);
        st.in[MN_KV_STORE_K] = (mnc_operand){.ptr = a->k, .rows = t};
        st.in[MN_KV_STORE_V] = (mnc_operand){.ptr = a->v, .rows = t};
        st.in[MN_KV_STORE_ROW_POS] = c.in[MN_ATTENTION_ROW_POS];
        st.in[MN_KV_STORE_ROW_SLOT] = c.in[MN_ATTENTION_ROW_SLOT];
        rows_run(mnk_kv_store_node, &st, workers);
    }
    memset(a->y, 0xff, sizeof *a->y * (size_t)(t * s->h * s->dv));
    rows_run_attention(&c, workers);
    free(q);
}
/* Copies rows of n elements each as the cache rounds them. */
static float *as_kept(const shape *s, const float *x, int64_t rows, int64_t n) {
    float *to = malloc(sizeof *to * (size_t)(rows * n));
    uint8_t kept[34];
    if (s->kv == MN_F32)
        memcpy(to, x, sizeof *to * (size_t)(rows * n));
    if (s->kv == MN_F16) {
        for (int64_t i = 0; i < rows * n; i++)
            to[i] = (float)rows_f16(mnk_to_f16(x[i]));
    }
    if (s->kv != MN_Q8_0)
        return to;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t end = (i + 1) * n;
        int64_t j = i * n;
        while (j < end) {
            const int64_t left = end - j < 32 ? end - j : 32;
            mn_cached_put(MN_Q8_0, x + j, left, kept);
            mn_cached_get(MN_Q8_0, kept, left, to + j);
            j += left;
        }
    }
    return to;
}

/* y: [dv], one query against positions [lo, p] of the keys and values of its head, hkv heads
 * apart. */
UNSANITIZED static void oracle_row(const shape *s, const float *q, const float *k, const float *v,
                                   int64_t lo, int64_t p, const float *sink, double *y) {
    const int64_t k_row = s->hkv * s->dk;
    const int64_t v_row = s->hkv * s->dv;
    double logit[PAGES * PAGE];
    double top = sink ? *sink : -INFINITY;
    for (int64_t j = lo; j <= p; j++) {
        const float *key = k + j * k_row;
        double l = 0;
        for (int64_t d = 0; d < s->dk; d++)
            l += (double)q[d] * (double)key[d];
        l *= 0.3;
        logit[j] = s->cap != 0 ? s->cap * tanh(l / s->cap) : l;
        top = fmax(top, logit[j]);
    }
    double sum = sink ? exp(*sink - top) : 0;
    memset(y, 0, sizeof *y * (size_t)s->dv);
    for (int64_t j = lo; j <= p; j++) {
        const float *value = v + j * v_row;
        const double e = exp(logit[j] - top);
        sum += e;
        for (int64_t d = 0; d < s->dv; d++)
            y[d] += e * (double)value[d];
    }
    for (int64_t d = 0; d < s->dv; d++)
        y[d] /= sum;
}

static void oracle(const shape *s, const att *a, const int64_t *len, double *want) {
    const int64_t g = s->h / s->hkv;
    int64_t from = 0;
    for (int i = 0; i < SLOTS; from += len[i], i++) {
        for (int64_t p = 0; p < len[i]; p++) {
            for (int64_t h = 0; h < s->h; h++) {
                const int64_t lo = s->window && p >= s->window ? p - s->window + 1 : 0;
                const int64_t head = (from + p) * s->h + h;
                const int64_t head_kv = from * s->hkv + h / g;
                const float *k = a->k_kept + head_kv * s->dk;
                const float *v = a->v_kept + head_kv * s->dv;
                const float *sink = s->sinks ? &a->sink[h] : NULL;
                double *y = want + head * s->dv;
                oracle_row(s, a->q + head * s->dk, k, v, lo, p, sink, y);
            }
        }
    }
}

static void attention_case(const shape *s, const int64_t len[SLOTS]) {
    int64_t t = len[0] + len[1] + len[2];
    int64_t row = 0;
    att a = {.t = t};
    size_t nq = (size_t)(t * s->h * s->dk);
    size_t nk = (size_t)(t * s->hkv * s->dk);
    size_t nv = (size_t)(t * s->hkv * s->dv);
    size_t ny = (size_t)(t * s->h * s->dv);
    a.q = malloc(4 * nq);
    a.k = malloc(4 * nk);
    a.v = malloc(4 * nv);
    a.y = malloc(4 * ny);
    a.sink = malloc(4 * (size_t)s->h);
    a.kv = malloc((size_t)(SLOTS * PAGES * PAGE * s->hkv * (s->dk + s->dv)) * 4);
    a.pos = malloc(4 * (size_t)t);
    a.slot = malloc(4 * (size_t)t);
    a.seqs = malloc(SLOTS * 16);
    a.pages = malloc(SLOTS * PAGES * 4);
    double *want = malloc(sizeof *want * ny);
    float *all = malloc(4 * ny);
    for (size_t i = 0; i < nq; i++)
        a.q[i] = 2 * rows_uniform();
    for (size_t i = 0; i < nk; i++)
        a.k[i] = 2 * rows_uniform();
    for (size_t i = 0; i < nv; i++)
        a.v[i] = rows_uniform();
    for (int64_t i = 0; i < s->h; i++)
        a.sink[i] = 3 * rows_uniform();
    for (int i = 0; i < SLOTS * PAGES; i++)
        a.pages[i] = (i * 7 + 5) % (SLOTS * PAGES);
    a.k_kept = as_kept(s, a.k, t * s->hkv, s->dk);
    a.v_kept = as_kept(s, a.v, t * s->hkv, s->dv);
    oracle(s, &a, len, want);
    attend(s, &a, len, false, 2);
    memcpy(all, a.y, 4 * ny);
    double e = rows_rel_l2(all, want, (int64_t)ny);
    const mnk_attend *in_tiles = mnk_find_attend(s->precision, s->level, s->dv);
    const double limit = in_tiles ? 2 * in_tiles->error : 2e-6;
    rows_check(e < limit, "attention", s->name, s->dk, s->h, t, e);
    size_t hv = (size_t)(s->h * s->dv);
    /* last rows alone: maybe split over the chunks */
    for (uint32_t workers = 1; workers <= 3 && !in_tiles; workers++) {
        for (int only = -1; only < SLOTS; only++) {
            int64_t l[SLOTS];
            int64_t y = 0;
            for (int i = 0; i < SLOTS; i++)
                l[i] = only < 0 || only == i ? len[i] : 0;
            float *q = a.q;
            for (int i = 0; i < only; i++)
                a.q += len[i] * s->h * s->dk;
            attend(s, &a, l, true, workers);
            a.q = q;
            row = 0;
            for (int i = 0; i < SLOTS; i++) {
                row += len[i];
                if (l[i]) {
                    rows_check(
                        !memcmp(a.y + (size_t)y++ * hv, all + (size_t)(row - 1) * hv, 4 * hv),
                        "attention's bits depend on the step", s->name, s->dk, s->h, workers, only);
                }
            }
        }
    }
    free(a.q);
    free(a.k);
    free(a.v);
    free(a.k_kept);
    free(a.v_kept);
    free(a.y);
    free(a.sink);
    free(a.kv);
    free(a.pos);
    free(a.slot);
    free(a.seqs);
    free(a.pages);
    free(want);
    free(all);
}
void rows_attention(int32_t level, uint32_t precision, const char *name) {
    /* the last crosses a chunk */
    static const int64_t len[][SLOTS] = {{1, 5, 70}, {130, 1, 1}, {3, 600, 64}};
    static const shape shapes[] = {
        {8, 2, 64, 64, 0, 0, false, MN_F32, 0, 0, 0},
        {8, 1, 64, 64, 0, 0, false, MN_F16, 0, 0, 0},
        {3, 3, 20, 12, 0, 0, false, MN_F32, 0, 0, 0},
        {4, 2, 48, 48, 17, 0, true, MN_F16, 0, 0, 0},
        {4, 2, 32, 80, 100, 4, false, MN_F32, 0, 0, 0},
        {33, 1, 16, 16, 0, 0, true, MN_F32, 0, 0, 0},
        {4, 2, 64, 80, 0, 0, false, MN_Q8_0, 0, 0, 0},
    };
    const bool brief = rows_quick && rows_once;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t j = 0; j < (brief || (rows_quick && i) ? 1 : 3); j++) {
            if (rows_once && !brief && i && j != i % 3)
                continue;
            shape s = shapes[i];
            s.name = name;
            s.level = level;
            s.precision = precision;
            attention_case(&s, len[j]);
        }
    }
}

/* ---- attention through tiles ----------------------------------------------------------------- */
static float *random_floats(int64_t n) {
    float *x = malloc(sizeof *x * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = rows_uniform();
    return x;
}

/* n queries over the columns [lo, hi) that each sees of two tiles. */
typedef struct {
    int64_t n;
    int64_t d;
    float *q;
    float *k;
    float *v;
    float *sink; /* NULL: none */
    int32_t *lo; /* [2, n] */
    int32_t *hi;
} few_tiles;
enum { TWO = 2 * MNK_TILE };

static void expect_block(const few_tiles *f, float cap, double *want) {
    for (int64_t i = 0; i < f->n; i++) {
        double logit[TWO];
        double top = f->sink ? f->sink[i] : -INFINITY;
        double sum = 0;
        for (int64_t p = 0; p < TWO; p++) {
            const int64_t at = p / MNK_TILE * f->n + i;
            const bool seen = p % MNK_TILE >= f->lo[at] && p % MNK_TILE < f->hi[at];
            double l = 0;
            for (int64_t c = 0; c < f->d; c++)
                l += 0.3 * f->q[i * f->d + c] * (double)f->k[p * f->d + c];
            if (cap != 0)
                l = cap * tanh(l / cap);
            logit[p] = seen ? l : -INFINITY;
            top = fmax(top, logit[p]);
        }
        if (f->sink)
            sum = exp(f->sink[i] - top);
        for (int64_t p = 0; p < TWO; p++) {
            const double weight = exp(logit[p] - top);
            sum += weight;
            for (int64_t c = 0; c < f->d && weight > 0; c++)
                want[i * f->d + c] += weight * (double)f->v[p * f->d + c];
        }
        for (int64_t c = 0; c < f->d; c++)
            want[i * f->d + c] /= sum;
    }
}

static void run_block(const mnk_attend *tiles, const few_tiles *f, float cap, float *y) {
    uint8_t *room = aligned_alloc(64, tiles->room_bytes(f->n, f->d, f->d));
    float **rows = malloc(sizeof *rows * (size_t)f->n);
    const mnk_attend_block b = {f->n, f->d, f->d, room};
    for (int64_t i = 0; i < f->n; i++)
        rows[i] = i == 3 ? NULL : y + i * f->d;
    tiles->begin(&b, f->q);
    for (int64_t i = 0; i < 2; i++) {
        const mnk_attend_tile t = {
            .k = f->k + i * MNK_TILE * f->d,
            .v = f->v + i * MNK_TILE * f->d,
            .first = 5,
            .end = MNK_TILE - 3,
            .lo = f->lo + i * f->n,
            .hi = f->hi + i * f->n,
            .scale = 0.3f,
            .cap = cap,
        };
        tiles->add(&b, &t);
    }
    tiles->end(&b, f->sink, rows);
    free(room);
    free(rows);
}

/* Keys and values that nobody sees are not numbers; with `broken` one that some see is infinite. */
static void attend_block(const mnk_attend *tiles, int64_t n, int64_t d, bool broken) {
    const bool sinks = n % 3 == 1;
    const float cap = d == 48 ? 4 : 0;
    few_tiles f = {.n = n, .d = d};
    f.q = random_floats(n * d);
    f.k = random_floats(TWO * d);
    f.v = random_floats(TWO * d);
    f.lo = malloc(2 * (size_t)n * sizeof *f.lo);
    f.hi = malloc(2 * (size_t)n * sizeof *f.hi);
    if (sinks)
        f.sink = random_floats(n);
    for (int64_t i = 0; i < 2 * n; i++) {
        f.lo[i] = 5 + (int32_t)(rows_u32() % 20);
        f.hi[i] = 40 + (int32_t)(rows_u32() % 22);
        if (i % 7 == 2) /* nothing of this tile */
            f.lo[i] = f.hi[i] = 0;
        if (i % n % 5 == 4) {
            f.lo[i] = 5;
            f.hi[i] = MNK_TILE - 3;
        }
        if (i >= n && f.lo[i] == f.hi[i] && f.lo[i - n] == f.hi[i - n])
            f.hi[i - n] = 30;
    }
    f.k[2 * d] = f.v[2 * d] = NAN;
    if (broken)
        f.v[(MNK_TILE + 6) * d + 1] = INFINITY;
    float *y = random_floats(n * d);
    const float untouched = y[3 * d];
    double *want = calloc((size_t)(n * d), sizeof *want);
    expect_block(&f, cap, want);
    run_block(tiles, &f, cap, y);
    rows_check(y[3 * d] == untouched, "a row without a place", "tiles", n, d, 0, y[3 * d]);
    bool as_wanted = true;
    for (int64_t i = 0; i < n * d; i++) {
        const bool finite = isfinite(want[i]);
        const bool placed = i / d != 3;
        as_wanted &= !placed || finite == isfinite(y[i]);
        if (!placed || !finite)
            want[i] = y[i] = 0;
    }
    const double e = rows_rel_l2(y, want, n * d);
    rows_check(as_wanted && e < 2 * tiles->error, "a block", "tiles", n, d, broken, e);
    free(f.q);
    free(f.k);
    free(f.v);
    free(f.lo);
    free(f.hi);
    free(f.sink);
    free(y);
    free(want);
}

void rows_attend(const mnk_attend *tiles) {
    static const int64_t ns[] = {32, 40, 100};
    static const int64_t ds[] = {16, 48, 64, 80, 128};
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
        for (size_t j = 0; j < sizeof ds / sizeof *ds; j++) {
            attend_block(tiles, ns[i], ds[j], false);
            attend_block(tiles, ns[i], ds[j], true);
        }
}
