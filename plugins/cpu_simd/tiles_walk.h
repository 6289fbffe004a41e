/* tiles_walk.h -- the walk of products of tiles over weights and x. Columns are taken in
 * segments, x rows in as many as a second cache holds of a segment. Two groups of 16 weight rows
 * are unpacked to tiles; then they are multiplied with two groups of 16 x rows after the other,
 * each tile once loaded for two products. A block of 32 by 32 sums is completed before the next
 * begins, so that it never leaves the first cache; then it is transposed and stored into y, or
 * added to it.
 * How wide spans and tiles are a body says by a constant, tile_form. */
#ifndef TILES_BEGIN /* no registers for tiles */
#define TILES_BEGIN()
#define TILES_END()
#endif
enum {
    BLOCK = 2, /* groups of each side */
    BLOCK_ROWS = BLOCK * SIDE,
    BLOCK_TILES = BLOCK * BLOCK,
    X_BYTES = 1 << 20,    /* of x, with which all weight rows are multiplied before those of the
                             next: half of a second cache */
    SEGMENT_BYTES = 4096, /* of a row of x, all planes */
    FEW_BLOCKS = 2,       /* with so many what unpackers ask for is still in the first cache */
};
typedef uint8_t block_tiles[BLOCK_TILES * TILE_BYTES];

/* The planes of 16 weight rows from `row` on; past `end`: the last one. */
INLINE void rows_at(const mnc_weight *w, int64_t row, int64_t end, mnk_at at[SIDE]) {
    for (int i = 0; i < SIDE; i++)
        at[i] = mnk_row_at(w, row + i < end ? row + i : end - 1);
}

/* A tile of sums [16 weight rows][16 x rows], of which n and r count, to y[.][y0...]; add: to what
 * is there. */
INLINE void put_sums(const float *sums, const mnk_pair *pair, int64_t r, int64_t y0, int64_t n,
                     bool add) {
    const __mmask16 keep = n >= SIDE ? 0xffff : (__mmask16)((1u << n) - 1);
    __m512i s[SIDE];
    for (int i = 0; i < SIDE; i++)
        s[i] = _mm512_loadu_si512(sums + SIDE * i);
    transpose16(s);
    for (int64_t i = 0; i < r && i < SIDE; i++) {
        float *y = pair[i].y + y0;
        VF sum = _mm512_castsi512_ps(s[i]);
        if (add)
            sum = v_add(sum, _mm512_maskz_loadu_ps(keep, y));
        _mm512_mask_storeu_ps(y, keep, sum);
    }
}

/* What is constant of a body. */
typedef struct {
    int64_t span;    /* columns with scales of their own; 0: a whole segment */
    int64_t columns; /* of a tile of one plane */
    int64_t column_bytes;
} tile_form;

/* Columns [k0, k0 + kc) of weights and x. */
typedef struct {
    int64_t k0;
    int64_t kc;
} columns;
/* A span of columns of a segment. */
typedef struct {
    int64_t k0;
    int64_t kc;
    int64_t tiles; /* of a plane */
    bool first;    /* of the segment */
    bool last;
} span;

INLINE int64_t spans_of(int64_t kc, const tile_form f) {
    return f.span ? (kc + f.span - 1) / f.span : 1;
}
INLINE span span_at(columns of, int64_t i, const tile_form f) {
    const int64_t before = f.span * i;
    const int64_t left = of.kc - before;
    const bool last = !f.span || left <= f.span;
    const int64_t kc = last ? left : f.span;
    return (span){of.k0 + before, kc, (kc + f.columns - 1) / f.columns, i == 0, last};
}

/* Columns of a segment: as long as the others, but for the last. */
INLINE int64_t segment_columns(int64_t k, const int planes, const tile_form f) {
    const int64_t most = SEGMENT_BYTES / f.column_bytes / planes;
    const int64_t unit = f.span ? f.span : f.columns;
    const int64_t n = (k + most - 1) / most;
    const int64_t grain = n * unit;
    return (k + grain - 1) / grain * unit;
}

/* A block's products of one span, and where its sums go. w and x: the span's first tile; of a group
 * that is not there that of the other one. */
typedef struct {
    span s;
    const uint8_t *w[BLOCK];
    const uint8_t *x[BLOCK];
    const uint8_t *group[BLOCK]; /* of x, whole */
    const float *w_step;         /* what the unpacker left of each weight row, [BLOCK][16] */
    float *sums;                 /* [x groups][weight groups] tiles */
    uint8_t *whole;              /* the same, for products that are not yet in the sums */
    const mnk_pair *pair;
    int64_t r;  /* x rows from the first one on */
    int64_t y0; /* the first weight row, and how many follow with it */
    int64_t n;
    bool add; /* to what y has */
} block;

/* How a panel is multiplied, constant; the same for all types whose tiles hold the same numbers. */
typedef struct {
    tile_form form;
    int planes;
    /* A block's products to its sums, or to `whole`; meanwhile the block before is finished, if
     * there is one. nw, nx: groups, constant. */
    void (*multiply)(const mnc_weight *w, const block *b, const block *before, const int nw,
                     const int nx);
    /* Brings a block's sums up to date; NULL: multiply has. */
    void (*finish)(const mnc_weight *w, const block *b);
} tile_products;

/* Tiles of a span in the panel, of one plane: the last span may need less. */
INLINE int64_t span_tiles(columns of, const tile_form f) {
    return f.span ? f.span / f.columns : (of.kc + f.columns - 1) / f.columns;
}
/* The weight rows that are unpacked next, `bytes` of each, `step` apart; rows 0: none. */
typedef struct {
    const uint8_t *at;
    int64_t rows;
    int64_t bytes;
    int64_t step;
} weights_ahead;

/* Room of a thread; behind it the panel, [spans][BLOCK][planes][span_tiles], and what unpack leaves
 * of each span, [spans][BLOCK][16]. */
typedef struct {
    block_tiles sums[2];
    block_tiles whole[2];
    uint8_t panel[];
} room;

/* One kernel, constant. */
typedef struct {
    tile_form form;
    int planes;
    /* Columns of the rows [row, row + 16) to the tiles of their group in the panel, and what finish
     * needs of each span of them. Rows behind `end`: any. */
    void (*unpack)(const mnc_weight *w, int64_t row, int64_t end, columns of, uint8_t *tiles,
                   float *step);
    /* multiply_panel by some tile_products. No copy of it for each type: that is most of what the
     * compiler would have to do. */
    void (*multiply)(const mnc_weight *w, room *at, const float *step, const mnk_pair *pair,
                     int64_t r, columns of, int64_t y0, int64_t n, const weights_ahead *next);
} tile_kernel;

INLINE uint64_t tile_panel_bytes(int64_t kc, const int planes, const tile_form f) {
    const columns all = {0, kc};
    const int64_t tiles = spans_of(kc, f) * span_tiles(all, f);
    return (uint64_t)(BLOCK * planes * tiles * TILE_BYTES);
}
INLINE uint64_t tile_room_bytes(int64_t k, const int planes, const tile_form f) {
    const int64_t kc = segment_columns(k, planes, f);
    const uint64_t steps = (uint64_t)(spans_of(kc, f) * BLOCK_ROWS) * sizeof(float);
    return sizeof(room) + tile_panel_bytes(kc, planes, f) + steps;
}

/* Where a block's sums go: until then they come into the first cache. */
INLINE void ask_for_y(const block *b) {
    for (int64_t i = 0; i < BLOCK_ROWS && i < b->r; i++) {
        float *y = b->pair[i].y + b->y0;
        __asm__ volatile("prefetchw %0" ::"m"(*y));
        if (b->n > SIDE)
            __asm__ volatile("prefetchw %0" ::"m"(y[SIDE]));
    }
}

/* Share i of n of them comes into the second cache: while many x rows pass by, what was asked for
 * in the first one would be gone. */
static void ask_for_share(const weights_ahead *next, int64_t i, int64_t n) {
    const int64_t begin = next->rows * i / n;
    const int64_t end = next->rows * (i + 1) / n;
    for (int64_t row = begin; row < end; row++) {
        const int64_t from = row * next->step;
        const char *at = (const char *)next->at + from;
        for (int64_t l = 0; l < next->bytes; l += 64)
            _mm_prefetch(at + l, _MM_HINT_T1);
    }
}

INLINE void put_block(const block *b) {
    for (int x = 0; x < BLOCK && SIDE * x < b->r; x++)
        for (int i = 0; i < BLOCK && SIDE * i < b->n; i++) {
            const int tile = BLOCK * x + i;
            const float *sums = b->sums + tile * SIDE * SIDE;
            const int64_t of_x = SIDE * x;
            const int64_t of_w = SIDE * i;
            put_sums(sums, b->pair + of_x, b->r - of_x, b->y0 + of_w, b->n - of_w, b->add);
        }
}

/* The constant that fits the numbers of groups. */
INLINE void multiply_block(const mnc_weight *w, const block *b, const block *before,
                           const tile_products k) {
    const bool two_w = b->n > SIDE;
    const bool two_x = b->r > SIDE;
    if (two_w && two_x)
        k.multiply(w, b, before, 2, 2);
    else if (two_x)
        k.multiply(w, b, before, 1, 2);
    else if (two_w)
        k.multiply(w, b, before, 2, 1);
    else
        k.multiply(w, b, before, 1, 1);
    if (before && before->s.last)
        put_block(before);
}

/* The panel's n rows, y0 and behind, with r rows of x. A block is finished while the next one's
 * products run. */
INLINE void multiply_panel(const mnc_weight *w, room *at, const float *step, const mnk_pair *pair,
                           int64_t r, columns of, int64_t y0, int64_t n, const weights_ahead *next,
                           const tile_products k) {
    const int64_t spans = spans_of(of.kc, k.form);
    const bool two_w = n > SIDE;
    const int64_t w_bytes = k.planes * span_tiles(of, k.form) * TILE_BYTES;
    block before = {0};
    int turn = 0;
    bool waits = false;
    for (int64_t i = 0; i < r; i += BLOCK_ROWS) {
        const bool two_x = r - i > SIDE;
        const uint8_t *low = pair[i].x;
        const uint8_t *high = pair[two_x ? i + SIDE : i].x;
        const uint8_t *panel = at->panel;
        void *sums = at->sums[i / BLOCK_ROWS % 2];
        const int64_t blocks = (r + BLOCK_ROWS - 1) / BLOCK_ROWS;
        ask_for_share(next, i / BLOCK_ROWS, blocks);
        for (int64_t c = 0; c < spans; c++) {
            const span s = span_at(of, c, k.form);
            const int64_t x0 = s.k0 / k.form.columns * TILE_BYTES;
            const block b = {
                .s = s,
                .w = {panel, two_w ? panel + w_bytes : panel},
                .x = {low + x0, high + x0},
                .group = {low, high},
                .w_step = step + c * BLOCK_ROWS,
                .sums = sums,
                .whole = at->whole[turn],
                .pair = pair + i,
                .r = r - i,
                .y0 = y0,
                .n = n,
                .add = of.k0 > 0,
            };
            if (s.first)
                ask_for_y(&b);
            multiply_block(w, &b, waits ? &before : NULL, k);
            before = b;
            waits = true;
            turn = !turn;
            panel += BLOCK * w_bytes;
        }
    }
    if (k.finish)
        k.finish(w, &before);
    put_block(&before);
}

/* n weight rows from row j on to the panel. */
INLINE void unpack_panel(const mnc_weight *w, room *at, float *step, columns of, int64_t j,
                         int64_t n, const tile_kernel k) {
    const int64_t w_bytes = k.planes * span_tiles(of, k.form) * TILE_BYTES;
    for (int64_t g = 0; g < n; g += SIDE)
        k.unpack(w, j + g, j + n, of, at->panel + g / SIDE * w_bytes, step + g);
}

/* The same columns of the rows behind `row`, up to `end`. */
static weights_ahead behind(const mnc_weight *w, columns of, int64_t row, int64_t end) {
    const int64_t row_bytes = (int64_t)w->row_bytes;
    weights_ahead next = {.bytes = of.kc * row_bytes / w->cols, .step = row_bytes};
    next.rows = end - row < BLOCK_ROWS ? end - row : BLOCK_ROWS;
    if (next.rows > 0)
        next.at = mnc_row(w, row) + of.k0 * row_bytes / w->cols;
    return next;
}

/* Weight rows [lo, hi) with r rows of x. */
INLINE void tile_product(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo,
                         int64_t hi, void *scratch, const tile_kernel k) {
    room *at = scratch;
    const int64_t segment = segment_columns(w->cols, k.planes, k.form);
    const int64_t row_bytes = k.form.column_bytes * k.planes * segment;
    const int64_t most = X_BYTES / row_bytes;
    const int64_t parts = (r + most - 1) / most;
    const int64_t grain = parts * BLOCK_ROWS;
    const int64_t some = (r + grain - 1) / grain * BLOCK_ROWS;
    void *behind_panel = at->panel + tile_panel_bytes(segment, k.planes, k.form);
    float *step = behind_panel;
    TILES_BEGIN();
    for (int64_t k0 = 0; k0 < w->cols; k0 += segment) {
        const int64_t left = w->cols - k0;
        const columns of = {k0, left < segment ? left : segment};
        for (int64_t i = 0; i < r; i += some) {
            const int64_t n_x = r - i < some ? r - i : some;
            for (int64_t j = lo; j < hi; j += BLOCK_ROWS) {
                const int64_t n = hi - j < BLOCK_ROWS ? hi - j : BLOCK_ROWS;
                weights_ahead next = {0};
                if (n_x > FEW_BLOCKS * BLOCK_ROWS)
                    next = behind(w, of, j + n, hi);
                unpack_panel(w, at, step, of, j, n, k);
                k.multiply(w, at, step, pair + i, n_x, of, j, n, &next);
            }
        }
    }
    TILES_END();
}
