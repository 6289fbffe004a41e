/* linear.c -- LINEAR: who computes which rows of which weight, by which kernel of the table.
 * Parts share out the rows of all weights, not those of x: each byte of a weight is read once. */
#include "plan.h"
#include "blas.h"
#include "lanes.h"
#include <float.h>
#include <math.h>

/* up to here small panels, still in the first cache when they are used */
#define SOME_ROWS 48
/* from here on sgemm takes f32 weights outside class exact, unless there are AVX-512 rows: those
 * are as fast */
#define BLAS_ROWS 64

/* Few rows: MNK_STREAMS parts of [lo, hi) are read side by side, each from start to end. */
static void few_rows(const mnk_linear *k, const mnc_weight *w, const mnk_pair *pair, int64_t r,
                     int64_t lo, int64_t hi) {
    int64_t part = (hi - lo) / MNK_STREAMS;
    int64_t rest = lo + part * MNK_STREAMS;
    int64_t row[MNK_STREAMS];
    float out[MNK_STREAMS];
    for (int64_t j = 0; j < part; j++) {
        for (int s = 0; s < MNK_STREAMS; s++)
            row[s] = lo + s * part + j;
        for (int64_t i = 0; i < r; i++) {
            float *y = pair[i].y;
            k->dot(w, row, pair[i].x, out);
            for (int s = 0; s < MNK_STREAMS; s++)
                y[row[s]] = out[s];
        }
    }
    if (rest == hi)
        return;
    for (int s = 0; s < MNK_STREAMS; s++) {
        const int64_t at = rest + s;
        if (at < hi)
            row[s] = at;
        else
            row[s] = hi - 1;
    }
    for (int64_t i = 0; i < r; i++) {
        k->dot(w, row, pair[i].x, out);
        for (int64_t j = rest; j < hi; j++)
            pair[i].y[j] = out[j - rest];
    }
}

/* r rows of x, `pair`, times rows [lo, hi) of the weight; more than a few through panels, unpacked
 * weights of some rows and k->kc columns. */
void mnk_linear_rows(const mnk_linear *k, const mnc_weight *w, const mnk_pair *pair, int64_t r,
                     int64_t lo, int64_t hi, void *panel) {
    int64_t kc;
    if (k->kc)
        kc = k->kc;
    else
        kc = w->cols;
    if (lo >= hi || r <= 0)
        return;
    if (k->product) {
        k->product(w, pair, r, lo, hi, panel);
        return;
    }
    if (r <= MNK_FEW_ROWS) {
        few_rows(k, w, pair, r, lo, hi);
        return;
    }
    const bool small = r <= SOME_ROWS && k->few_panel_rows;
    int64_t step;
    if (small)
        step = k->few_panel_rows;
    else
        step = k->panel_rows;
    for (int64_t j = lo; j < hi; j += step) {
        int64_t n = step;
        if (hi - j < step)
            n = hi - j;
        for (int64_t k0 = 0; k0 < w->cols; k0 += kc) {
            const int64_t left = w->cols - k0;
            int64_t span = kc;
            if (left < kc)
                span = left;
            int64_t x0 = 0;
            if (k->x_form == MNK_X_F32)
                x0 = 4 * k0;
            k->unpack(w, j, n, k0, span, panel);
            k->gemm(panel, n, span, pair, x0, r, j, k0 == 0);
        }
    }
}

/* y[i, j] += b[j] for r rows, ldy apart, and the outputs [lo, hi). */
static void add_bias(const mnc_weight *b, float *y, int64_t r, int64_t ldy, int64_t lo,
                     int64_t hi) {
    for (int64_t i = 0; i < r; i++) {
        float *sum = y + i * ldy;
        for (int64_t j = lo; j < hi; j++)
            sum[j] += mnk_load1(b->data, b->dtype.id, j);
    }
}

/* A thread reads about 32 weights in a nanosecond, and multiplies each with some rows meanwhile. */
mnc_work mnk_product_work(int64_t n, int64_t k, int64_t r) {
    const int64_t of_row = n * k / 32;
    return (mnc_work){of_row * (1 + r / 4), (n + 15) / 16};
}

void mnk_quantise_rows(const mnc_worker *w, const float *x, int64_t r, int64_t per_row, int64_t k,
                       uint8_t *to) {
    const int64_t ldq = mnk_quant_bytes(k);
    if (per_row > 1) {
        mnc_spans s = mnc_range_cells(w, r, per_row, 1);
        for (; s.n; mnc_next_span(&s))
            for (int64_t j = s.lo; j < s.hi; j++)
                mnk_quantise(x + j * k, k, 0, k / 32, to + j * ldq);
        return;
    }
    int64_t first;
    int64_t end;
    int64_t lo;
    int64_t hi;
    mnc_range_rows(w, r, &first, &end);
    mnc_range_units(w, k / 32, &lo, &hi);
    for (int64_t i = first; i < end; i++)
        mnk_quantise(x + i * k, k, lo, hi, to + i * ldq);
}

/* Scratch of a worker: a mnk_pair for each row of x, then a panel. */
static uint64_t pairs_bytes(int64_t r) {
    const uint64_t bytes = (uint64_t)r * sizeof(mnk_pair);
    return (bytes + 63) / 64 * 64;
}

/* ---- forms of x ------------------------------------------------------------------------------ */
void mnk_forms_add(mnk_forms *f, const mnk_linear *kern) {
    f->kern[kern->x_form] = kern;
    if (f->n_own && kern->pack_quants)
        f->kern[MNK_X_A8] = kern; /* tiles are made of those rows */
}

static int64_t form_bytes(int32_t form, int64_t k, int64_t r, int64_t groups) {
    if (form == MNK_X_F32)
        return 0;
    if (form == MNK_X_A8)
        return r * mnk_quant_bytes(k);
    return groups * mnk_group_bytes(k, form);
}

void mnk_forms_place(mnk_forms *f, int64_t k, int64_t r, int64_t groups) {
    int64_t at = 0;
    if (f->kern[MNK_X_TILES2])
        f->kern[MNK_X_TILES] = NULL;
    for (int32_t form = 0; form < MNK_X_FORMS; form++) {
        f->at[form] = at;
        if (f->kern[form])
            at += form_bytes(form, k, r, groups);
    }
    f->end = at;
    if (!f->n_own)
        return;
    f->own_bytes = at - f->at[MNK_X_TILES];
    f->end += (f->n_own - 1) * f->own_bytes;
}

uint64_t mnk_x_bytes(uint32_t forms, int64_t k, int64_t r, int64_t groups) {
    const int64_t rows = form_bytes(MNK_X_A8, k, r, groups);
    const int64_t tiles = form_bytes(MNK_X_TILES8, k, r, groups);
    const uint32_t bytes = 1u << MNK_X_A8 | 1u << MNK_X_TILES8;
    if ((forms & bytes) == bytes)
        forms &= ~(1u << (rows < tiles ? MNK_X_A8 : MNK_X_TILES8));
    int64_t sum = 0;
    for (int32_t form = 0; form < MNK_X_FORMS; form++)
        if (forms & 1u << form)
            sum += form_bytes(form, k, r, groups);
    return (uint64_t)sum;
}

_Static_assert(MNK_COLUMN_ROWS >= (int)MNK_LANES_ROWS, "tiles of MNK_X_ROWS8 are threads' own");

/* What the plan has for this execution. */
typedef struct {
    const mnk_plan *plan;
    uint32_t range;
    int reads; /* MNK_STORED or MNK_SECOND */
} planned;
/* A second layout is read where all weights have theirs that may have one: mostly all or none. */
static planned planned_of(const mnc_call *c) {
    const mnk_plan *plan = c->user;
    const uint32_t range = mnk_plan_range(plan, c->in[MN_LINEAR_X].rows);
    planned p = {plan, range, MNK_SECOND};
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnk_kernels *k = mnk_plan_kernels(plan, range, i);
        const mnc_weight *wt = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
        if (k->of[MNK_SECOND] != k->of[MNK_STORED] && !wt->repacked)
            p.reads = MNK_STORED;
    }
    return p;
}
/* The kernel of weight i. */
static const mnk_linear *kernel_of(const planned *p, uint32_t i) {
    return mnk_plan_kernels(p->plan, p->range, i)->of[p->reads];
}
static mnk_forms forms_of(const mnc_call *c, const planned *p, uint32_t n_threads) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    mnk_forms f = p->plan->forms[p->range][p->reads];
    if (f.n_own)
        f.n_own = n_threads;
    mnk_forms_place(&f, x->cols, x->rows, mnk_groups(x->rows));
    return f;
}

/* Rows [i, r) of x, at most a group of them, to tiles. */
static void pack_group(const mnk_linear *kern, const float *x, int64_t i, int64_t r, int64_t k,
                       uint8_t *to) {
    const float *rows[MNK_GROUP];
    int64_t n = 0;
    for (; n < MNK_GROUP && i + n < r; n++)
        rows[n] = x + (i + n) * k;
    kern->pack(rows, n, k, to);
}

/* A router's weights: too few columns for many threads, and small enough to be read for each row of
 * so few. */
#define NARROW_OUTPUTS 64
#define NARROW_ELEMENTS (1 << 18)
static bool is_narrow(int64_t n, int64_t k) {
    return n <= NARROW_OUTPUTS && n * k <= NARROW_ELEMENTS;
}

/* ---- the norm before few rows' products ------------------------------------------------------ */
/* y = f (W (g x)), where f = 1 / sqrt(mean x^2 + eps) is behind the product: so a part that has
 * made some columns of x goes on with g x, and with their squares, before the others are there. The
 * sums of W (g x) are those of the norm times 1 / f: they leave the range of f32 where x is above
 * 2^115 or so. */
bool mnk_linear_takes(const mnc_call *c) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const mnc_call *norm = c->maker;
    if (!norm || norm->node->op != MN_OP_RMS_NORM || norm->in[0].n_dim != 2)
        return false;
    if (norm->in[MN_RMS_NORM_WEIGHT].weight->cols != x->cols)
        return false;
    const mnc_weight *only = c->in[MN_LINEAR_WEIGHT].weight;
    const bool narrow = c->node->n_out == 1 && is_narrow(only->rows, x->cols);
    const bool are_few = x->rows && x->rows <= MNK_COLUMN_ROWS;
    return are_few && x->cols % 32 == 0 && !narrow;
}

/* Sums of squares of r rows, [r, k / 32], behind the forms of x. */
static uint64_t squares_bytes(int64_t k, int64_t r) {
    return (uint64_t)(r * (k / 32)) * sizeof(double);
}
static double *squares_of(const mnc_call *c, const mnk_forms *f) {
    void *at = (uint8_t *)c->shared + f->end;
    return at;
}

/* x: 32 columns; in double where the range of f32 is left. */
static double sum_squares(const float *x) {
    float sum[8] = {0};
    double all = 0;
    for (int i = 0; i < 32; i += 8)
        for (int l = 0; l < 8; l++) {
            const float value = x[i + l];
            sum[l] += value * value;
        }
    for (int l = 0; l < 8; l++)
        all += sum[l];
    if (all <= FLT_MAX)
        return all;
    all = 0;
    for (int i = 0; i < 32; i++)
        all += (double)x[i] * x[i];
    return all;
}

/* Gains of the 32 columns of a block; each loop in one type, so that it becomes vectors. */
static void gains_of(const mnc_call *norm, int64_t block, float *gain) {
    const mnc_weight *g = norm->in[MN_RMS_NORM_WEIGHT].weight;
    const float offset = (float)mnc_attr_f64(norm, MN_RMS_NORM_ATTR_OFFSET);
    const int64_t first = 32 * block;
    const uint8_t *data = g->data;
    if (g->dtype.id == MN_F32)
        memcpy(gain, data + 4 * first, 32 * sizeof *gain);
    else if (g->dtype.id == MN_BF16)
        for (int i = 0; i < 32; i++)
            gain[i] = mnk_load1(data, MN_BF16, first + i);
    else
        for (int i = 0; i < 32; i++)
            gain[i] = mnk_load1(data, MN_F16, first + i);
    for (int i = 0; i < 32; i++)
        gain[i] += offset;
}

/* This part's share of g x, in place of the norm's result, and of the squares. */
static void take_norm(const mnc_call *c, const mnc_worker *w, const mnk_forms *f) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const int64_t blocks = x->cols / 32;
    double *squares = squares_of(c, f);
    int64_t first;
    int64_t end;
    int64_t lo;
    int64_t hi;
    mnc_range_rows(w, x->rows, &first, &end);
    mnc_range_units(w, blocks, &lo, &hi);
    for (int64_t b = lo; b < hi; b++) {
        float gain[32];
        gains_of(c->maker, b, gain);
        for (int64_t i = first; i < end; i++) {
            const int64_t at = i * x->cols + 32 * b;
            const float *from = (const float *)c->maker->in[0].ptr + at;
            float *to = (float *)x->ptr + at;
            squares[i * blocks + b] = sum_squares(from);
            for (int l = 0; l < 32; l++)
                to[l] = from[l] * gain[l];
        }
    }
}

/* What outputs [lo, hi) of row i still lack. */
static void apply_norm(const mnc_call *c, const mnk_forms *f, int64_t i, float *y, int64_t lo,
                       int64_t hi) {
    const int64_t k = c->in[MN_LINEAR_X].cols;
    const int64_t blocks = k / 32;
    const double *squares = squares_of(c, f) + i * blocks;
    const double eps = mnc_attr_f64(c->maker, MN_RMS_NORM_ATTR_EPS);
    double sum[4] = {0};
    for (int64_t b = 0; b < blocks; b++)
        sum[b % 4] += squares[b];
    const double all = sum[0] + sum[1] + sum[2] + sum[3];
    const double mean = all / (double)k;
    const float by = (float)(1 / sqrt(mean + eps));
    for (int64_t j = lo; j < hi; j++)
        y[j] *= by;
}

/* Once for all weights: to 8 bits, or to tiles. */
void mnk_linear_quantise(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const planned p = planned_of(c);
    const mnk_forms f = forms_of(c, &p, w->n_threads);
    uint8_t *made = c->shared;
    int64_t lo;
    int64_t hi;
    if (mnk_linear_takes(c))
        take_norm(c, w, &f);
    if (f.kern[MNK_X_A8]) {
        uint8_t *to = made + f.at[MNK_X_A8];
        mnk_quantise_rows(w, x->ptr, x->rows, 1, x->cols, to);
    }
    if (!mnk_forms_has_tiles(&f))
        return;
    mnc_range(w, mnk_groups(x->rows), 1, &lo, &hi);
    for (int32_t form = MNK_X_TILES; form < MNK_X_FORMS; form++) {
        const int64_t bytes = mnk_group_bytes(x->cols, form);
        for (int64_t g = lo; g < hi && f.kern[form]; g++) {
            uint8_t *to = made + f.at[form] + g * bytes;
            const int64_t first = g * MNK_GROUP;
            pack_group(f.kern[form], x->ptr, first, x->rows, x->cols, to);
        }
    }
}

/* Groups of all rows, for this thread. */
static void pack_own(const mnc_call *c, const mnc_worker *w, const mnk_forms *f, int32_t form) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const mnk_linear *kern = f->kern[form];
    const int64_t k = x->cols;
    uint8_t *made = c->shared;
    uint8_t *to = made + f->at[form] + w->thread * f->own_bytes;
    for (int64_t i = 0; i < x->rows; i += MNK_GROUP, to += mnk_group_bytes(k, form)) {
        const uint8_t *rows[MNK_GROUP];
        int64_t n = 0;
        if (!kern->pack_quants) {
            pack_group(kern, x->ptr, i, x->rows, k, to);
            continue;
        }
        for (; n < MNK_GROUP && i + n < x->rows; n++) {
            const int64_t row = i + n;
            rows[n] = made + f->at[MNK_X_A8] + row * mnk_quant_bytes(k);
        }
        kern->pack_quants(rows, n, k, to);
    }
}

/* The thread's tiles, which it makes for its first part of the products. */
static void make_own(const mnc_call *c, const mnc_worker *w, const mnk_forms *f) {
    if (w->again || !f->n_own)
        return;
    for (int32_t form = MNK_X_TILES; form < MNK_X_FORMS; form++)
        if (f->kern[form])
            pack_own(c, w, f, form);
}

/* Row j of x, or its group, in the form that the kernel reads. */
static const uint8_t *row_of_x(const mnc_call *c, const mnc_worker *w, const mnk_forms *f,
                               const mnk_linear *kern, int64_t j) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const int32_t form = mnk_form_of(f, kern);
    const uint8_t *made = (const uint8_t *)c->shared + f->at[form];
    if (form == MNK_X_F32)
        return (const uint8_t *)x->ptr + j * 4 * x->cols;
    if (form == MNK_X_A8)
        return made + j * mnk_quant_bytes(x->cols);
    made += w->thread * f->own_bytes;
    return made + j / MNK_GROUP * mnk_group_bytes(x->cols, form);
}

/* ---- the node -------------------------------------------------------------------------------- */
/* A node at work: what is the same for all of its outputs. */
typedef struct {
    const mnc_call *c;
    mnc_worker *w;
    planned p;
    mnk_forms forms;
} linear;

/* Outputs [lo, hi) of weight i, of rows [first, end) of x. */
static void output(const linear *o, uint32_t i, int64_t lo, int64_t hi, int64_t first,
                   int64_t end) {
    const mnc_call *c = o->c;
    const mnk_use *use = &o->p.plan->use;
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const mnc_weight *wt = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
    const mnc_weight *bias = mnc_optional(c, MN_LINEAR_BIAS + 2 * i);
    const int64_t r = x->rows;
    const mnk_linear *kern = kernel_of(&o->p, i);
    float *y = c->out[i].ptr; /* [R, N] */
    const bool blas = use->blas && wt->dtype.id == MN_F32 && r >= BLAS_ROWS;
    bool done = false;
    if (blas)
        done = mnk_blas_rows(wt, (const float *)x->ptr + first * x->cols, end - first,
                             y + first * wt->rows, wt->rows, lo, hi);
    if (!done) {
        mnk_pair *pair = o->w->scratch;
        uint8_t *panel = (uint8_t *)o->w->scratch + pairs_bytes(c->max_rows);
        for (int64_t j = first; j < end; j++) {
            mnk_pair *of_row = &pair[j - first];
            of_row->x = row_of_x(c, o->w, &o->forms, kern, j);
            of_row->y = y + j * wt->rows;
        }
        mnk_linear_rows(kern, wt, pair, end - first, lo, hi, panel);
    }
    const bool lacks_norm = mnk_linear_takes(c);
    for (int64_t j = first; j < end && lacks_norm; j++)
        apply_norm(c, &o->forms, j, y + j * wt->rows, lo, hi);
    if (bias)
        add_bias(bias, y + first * wt->rows, end - first, wt->rows, lo, hi);
}

/* Rows of weight i among those of all weights, a multiple of 16; 0 if nobody wants its output. */
static int64_t shared_rows(const mnc_call *c, uint32_t i) {
    if (!c->out[i].ptr)
        return 0;
    return (c->in[MN_LINEAR_WEIGHT + 2 * i].weight->rows + 15) / 16 * 16;
}

static int64_t all_rows(const mnc_call *c) {
    int64_t n = 0;
    for (uint32_t i = 0; i < c->node->n_out; i++)
        n += shared_rows(c, i);
    return n;
}

/* Quantisation by blocks of 32; outputs by 16, all outputs the same share; narrow ones by rows. */
int64_t mnk_linear_cells(const mnc_call *c, uint32_t stage) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    const planned p = planned_of(c);
    const mnk_forms f = forms_of(c, &p, 1);
    int64_t n = 0;
    const bool tiles = mnk_forms_has_tiles(&f);
    if (stage == MNC_FIRST && tiles)
        return 0;
    if (stage == MNC_FIRST)
        return (x->cols + 31) / 32;
    if (x->rows > MNK_COLUMN_ROWS)
        return 0;
    const mnc_weight *only = c->in[MN_LINEAR_WEIGHT].weight;
    const bool narrow = is_narrow(only->rows, x->cols);
    if (c->node->n_out == 1 && narrow)
        return f.kern[MNK_X_F32] != NULL;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnc_weight *wt = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
        const int64_t rows = wt->rows;
        const bool alike = !n || rows / 16 == n;
        if (!c->out[i].ptr)
            return 0;
        if (rows % 16 || !alike)
            return 0;
        n = rows / 16;
    }
    return n;
}

mnc_work mnk_linear_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *x = &c->in[MN_LINEAR_X];
    (void)n_threads;
    if (!x->rows)
        return (mnc_work){0, 0};
    if (stage == MNC_FIRST) {
        const planned p = planned_of(c);
        const mnk_forms f = forms_of(c, &p, 1);
        const bool in_rows = f.kern[MNK_X_A8] || mnk_linear_takes(c);
        if (!in_rows && !mnk_forms_has_tiles(&f))
            return (mnc_work){0, 0};
        const int64_t units = in_rows ? x->rows : mnk_groups(x->rows);
        return (mnc_work){x->rows * x->cols, units};
    }
    return mnk_product_work(all_rows(c), x->cols, x->rows);
}

/* The same share of each weight: that of one memory node, where the parts are those of nodes. */
static void share_of_each(const linear *o) {
    const mnc_call *c = o->c;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const int64_t n = c->in[MN_LINEAR_WEIGHT + 2 * i].weight->rows;
        int64_t lo;
        int64_t hi;
        mnc_range_guided(o->w, n, 16, &lo, &hi);
        if (c->out[i].ptr && lo < hi)
            output(o, i, lo, hi, 0, c->in[MN_LINEAR_X].rows);
    }
}

/* This part's columns, of all rows. */
static void columns_of_part(const linear *o) {
    const mnc_call *c = o->c;
    int64_t lo;
    int64_t hi;
    int64_t first;
    int64_t end;
    mnc_range_rows(o->w, c->in[MN_LINEAR_X].rows, &first, &end);
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnc_weight *wt = c->in[MN_LINEAR_WEIGHT + 2 * i].weight;
        mnc_range_units(o->w, wt->rows, &lo, &hi);
        output(o, i, lo, hi, first, end);
    }
}

/* Outputs [lo, hi) of all weights' side by side, of rows [first, end) of x. */
static void outputs(const linear *o, int64_t lo, int64_t hi, int64_t first, int64_t end) {
    const mnc_call *c = o->c;
    int64_t begin = 0;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const int64_t n = c->in[MN_LINEAR_WEIGHT + 2 * i].weight->rows;
        const int64_t from = lo > begin ? lo - begin : 0;
        const int64_t to = hi - begin < n ? hi - begin : n;
        if (c->out[i].ptr && from < to)
            output(o, i, from, to, first, end);
        begin += shared_rows(c, i);
    }
}

/* Rows of x that are multiplied with all weights before the next: equal shares of as many as a
 * second cache holds. */
static int64_t rows_at_once(const linear *o) {
    const mnc_operand *x = &o->c->in[MN_LINEAR_X];
    int64_t most = x->rows;
    for (uint32_t i = 0; i < o->p.plan->n_weights; i++) {
        const mnk_linear *kern = kernel_of(&o->p, i);
        int64_t some = most;
        if (kern->rows_at_once)
            some = kern->rows_at_once(x->cols);
        most = some < most ? some : most;
    }
    const int64_t turns = (x->rows + most - 1) / most;
    const int64_t grain = 2 * MNK_GROUP;
    return (x->rows + turns * grain - 1) / (turns * grain) * grain;
}

void mnk_linear_node(const mnc_call *c, mnc_worker *w) {
    const int64_t r = c->in[MN_LINEAR_X].rows;
    int64_t lo;
    int64_t hi;
    linear o = {.c = c, .w = w, .p = planned_of(c)};
    o.forms = forms_of(c, &o.p, w->n_threads);
    make_own(c, w, &o.forms);
    if (w->in_cells) {
        columns_of_part(&o);
        return;
    }
    if (w->n_nodes > 1) {
        share_of_each(&o);
        return;
    }
    const int64_t n = all_rows(c);
    const int64_t some = rows_at_once(&o);
    const int64_t turns = (r + some - 1) / some;
    mnc_range_guided(w, n * turns, 16, &lo, &hi);
    for (int64_t first = 0; first < r; first += some) {
        const int64_t end = first + some < r ? first + some : r;
        const int64_t from = lo > 0 ? lo : 0;
        const int64_t to = hi < n ? hi : n;
        outputs(&o, from, to, first, end);
        lo -= n;
        hi -= n;
    }
}

/* The forms of up to r rows whose tiles are each thread's own. */
static uint64_t own_bytes(const mnk_plan *p, uint32_t n_workers, int64_t k, int64_t r) {
    mnk_forms f = {.n_own = n_workers};
    for (uint32_t range = 0; range < p->n_ranges && p->from[range] <= r; range++)
        for (uint32_t i = 0; i < p->n_weights; i++) {
            const mnk_kernels *found = mnk_plan_kernels(p, range, i);
            mnk_forms_add(&f, found->of[MNK_STORED]);
            mnk_forms_add(&f, found->of[MNK_SECOND]);
        }
    mnk_forms_place(&f, k, r, mnk_groups(r));
    return (uint64_t)f.end;
}

void mnk_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mnk_plan *plan = op->user;
    const mn_tensor *x = mnc_query_in(q, 0);
    const int64_t r = mnc_query_dim(q, x, 0);
    uint64_t *panel = &op->worker_bytes;
    int64_t k = 1;
    uint32_t forms = 0;
    for (uint32_t i = 1; i < x->n_dim; i++)
        k *= mnc_query_dim(q, x, i);
    mnk_plan_scratch(plan, k, r, panel, &forms);
    const int64_t n = mnc_query_dim(q, mnc_query_in(q, MN_LINEAR_WEIGHT), 0);
    const int64_t few = r < MNK_COLUMN_ROWS ? r : MNK_COLUMN_ROWS;
    uint64_t of_few = own_bytes(plan, q->n_workers, k, few);
    /* in class exact a row has the same bits in steps of many rows, which have the norm apart */
    const bool fuses = use->precision != MN_PRECISION_EXACT;
    if (fuses && (q->node->n_out > 1 || !is_narrow(n, k))) {
        op->begins = 1u << MNC_MAIN;
        op->takes = mnk_linear_takes;
        of_few += squares_bytes(k, few);
    }
    op->worker_bytes += pairs_bytes(r);
    op->shared_bytes = mnk_x_bytes(forms, k, r, mnk_groups(r));
    if (of_few > op->shared_bytes)
        op->shared_bytes = of_few;
}

bool mnk_linear_wants_blas(const mnc_query *q, const mnk_use *use) {
    const mn_tensor *x = mnc_query_in(q, 0);
    if (use->precision == MN_PRECISION_EXACT)
        return false;
    if (mnc_query_dim(q, x, 0) < BLAS_ROWS)
        return false;
    if (use->level >= MNK_AVX512 && use->level < MNK_NEON)
        return false;
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mn_tensor *w = mnc_query_in(q, MN_LINEAR_WEIGHT + 2 * i);
        if (w->dtype.id == MN_F32)
            return true;
    }
    return false;
}
