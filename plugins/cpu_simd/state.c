/* state.c -- CONV_STATE, SSM_SCAN and GATED_DELTA. Work is shared out by sequence and by columns of
 * the state, which do not depend on one another; the rows of a sequence follow one another in each
 * part. So one sequence keeps all threads busy, and a block of columns is in a cache for all rows
 * of a step. The state is read and written once in a step: of one row that is what takes time.
 *
 * States: of a convolution the last inputs, [W - 1, C]; of the others for each head its columns in
 * blocks of MNK_STATE_COLS (the last one may be narrower), [N, cols] or [Dk, cols] each, so that a
 * block lies dense. Columns are the elements of x (SSM_SCAN) or of v (GATED_DELTA). */
#include "nodes.h"
#include "../cpu_host/states.h"
#include <float.h>
#include <math.h>

#define CONV_BLOCK 256 /* channels of a part */

static const mnk_state *rows_of_node(const mnc_call *c) {
    const mnk_use *use = c->user;
    return mnk_find_vector(use->level)->state;
}

/* n numbers of a vector of weights as f32. */
static void weights_as_f32(const mnc_weight *w, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mnk_load1(w->data, w->dtype.id, i);
}

/* A or -exp(A), for each head `repeat` times. */
static void rates_of(const mnc_call *c, uint32_t a, bool is_log, int64_t n_head, int64_t repeat,
                     float *out) {
    const mnc_weight *w = c->in[a].weight;
    for (int64_t h = n_head; h-- > 0;) {
        float rate = mnk_load1(w->data, w->dtype.id, h);
        if (is_log)
            rate = -expf(rate);
        for (int64_t i = 0; i < repeat; i++)
            out[h * repeat + i] = rate;
    }
}

/* ---- CONV_STATE ------------------------------------------------------------------------------ */
/* Scratch: weights of a block as they are and by taps, bias, zeros, rows' addresses. */
typedef struct {
    const mnc_call *call;
    const mnk_state *rows;
    mn_conv_shape shape;
    int64_t c0; /* first channel and number of the block */
    int64_t n;
    float *stored;   /* [CONV_BLOCK, W] */
    float *weight;   /* [W, n] */
    float *bias;     /* [CONV_BLOCK], or NULL */
    float *zeros;    /* [CONV_BLOCK] */
    const float **x; /* [W] inputs of a row, its own last */
} conv;

static uint64_t conv_bytes(const mn_conv_shape *s) {
    return (uint64_t)(2 * s->width + 2) * CONV_BLOCK * sizeof(float) +
           (uint64_t)s->width * sizeof(float *);
}

static void conv_lay_out(conv *v, void *scratch) {
    v->x = scratch;
    v->stored = (float *)(v->x + v->shape.width);
    v->weight = v->stored + CONV_BLOCK * v->shape.width;
    v->bias = v->weight + CONV_BLOCK * v->shape.width;
    v->zeros = v->bias + CONV_BLOCK;
    memset(v->zeros, 0, CONV_BLOCK * sizeof *v->zeros);
}

/* Weights and bias of the block. */
static void conv_load_block(conv *v, int64_t block) {
    const mnc_weight *w = v->call->in[MN_CONV_STATE_WEIGHT].weight;
    const mnc_weight *bias = mnc_optional(v->call, MN_CONV_STATE_BIAS);
    const int64_t width = v->shape.width;
    v->c0 = block * CONV_BLOCK;
    v->n = v->shape.channels - v->c0;
    if (v->n > CONV_BLOCK)
        v->n = CONV_BLOCK;
    const uint8_t *first = mnc_row(w, v->c0);
    const bool dense =
        w->dtype.id == MN_F32 && !w->groups && w->row_bytes == (uint64_t)width * sizeof(float);
    const float *stored = v->stored;
    if (dense)
        stored = (const float *)first;
    for (int64_t i = 0; !dense && i < v->n; i++) {
        const uint8_t *row = mnc_row(w, v->c0 + i);
        float *to = v->stored + i * width;
        for (int64_t j = 0; j < width; j++)
            to[j] = mnk_load1(row, w->dtype.id, j);
    }
    v->rows->conv_turn(stored, v->n, width, v->weight);
    if (!bias)
        return;
    for (int64_t i = 0; i < v->n; i++)
        v->bias[i] = mnk_load1(bias->data, bias->dtype.id, v->c0 + i);
}

/* A row's inputs are read where they lie: in x, or in the state that the step begins with, which is
 * overwritten when no row is left, the oldest first. */
static void conv_sequence(const conv *v, const mnc_sequence *s) {
    const mnc_call *c = v->call;
    const int64_t n_channel = v->shape.channels;
    const int64_t past = v->shape.width - 1;
    const float *x = (const float *)c->in[MN_CONV_STATE_X].ptr + v->c0; /* [T, C] */
    float *y = (float *)c->out[MN_CONV_STATE_OUT_Y].ptr + v->c0;        /* [T, C] */
    const float *bias = NULL;
    const int32_t *row_pos = mnc_row_pos(c);
    if (mnc_optional(c, MN_CONV_STATE_BIAS))
        bias = v->bias;
    for (int64_t j = 0; j < past; j++) {
        v->x[j] = v->zeros;
        if (s->from)
            v->x[j] = s->from + j * n_channel + v->c0;
    }
    for (int64_t t = s->row_lo; t < s->row_hi; t++) {
        if (row_pos[t] < 0)
            continue;
        v->x[past] = x + t * n_channel;
        v->rows->conv_row(v->x, v->weight, v->shape.width, bias, v->n, y + t * n_channel);
        memmove(v->x, v->x + 1, (size_t)past * sizeof *v->x);
    }
    const size_t bytes = (size_t)v->n * sizeof(float);
    for (int64_t j = 0; j < past; j++) {
        float *to = s->to + j * n_channel + v->c0;
        memmove(to, v->x[j], bytes);
    }
}

static int64_t conv_blocks(const mn_conv_shape *s) {
    return (s->channels + CONV_BLOCK - 1) / CONV_BLOCK;
}

void mnk_conv_node(const mnc_call *c, mnc_worker *w) {
    conv v = {.call = c, .rows = rows_of_node(c), .shape = mnc_conv_of(c)};
    const int64_t n_seqs = mnc_n_sequences(c);
    int64_t loaded = -1;
    int64_t lo;
    int64_t hi;
    conv_lay_out(&v, w->scratch);
    mnc_range_guided(w, conv_blocks(&v.shape) * n_seqs, 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t block = i / n_seqs;
        mnc_sequence s;
        if (!mnc_sequence_at(c, i % n_seqs, &s))
            continue;
        if (block != loaded)
            conv_load_block(&v, block);
        loaded = block;
        conv_sequence(&v, &s);
    }
}

mnc_work mnk_conv_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mn_conv_shape s = mnc_conv_of(c);
    const int64_t n_rows = c->in[MN_CONV_STATE_X].rows;
    const int64_t units = conv_blocks(&s) * mnc_n_sequences(c);
    (void)stage;
    (void)n_threads;
    const int64_t ns = s.channels * (s.width + n_rows);
    return (mnc_work){ns, units};
}

/* ---- blocks of columns, of SSM_SCAN and GATED_DELTA ------------------------------------------ */
/* A head's state: [n, dim] in blocks of columns. */
typedef struct {
    int64_t n_head;
    int64_t dim;
    int64_t n;
} heads;
static int64_t blocks_of_head(const heads *s) {
    return (s->dim + MNK_STATE_COLS - 1) / MNK_STATE_COLS;
}

/* Unit i of a node: sequence, head and block of columns. */
typedef struct {
    mnc_sequence seq;
    int64_t head;
    int64_t col; /* first of the block, and number */
    int64_t cols;
    const float *from; /* of the block */
    float *to;
} unit;
/* False: the sequence has nothing to do. Where it begins with zeros, they are written. */
static bool unit_at(const mnc_call *c, const heads *s, int64_t i, unit *u) {
    const int64_t n_blocks = blocks_of_head(s);
    if (!mnc_sequence_at(c, i / (s->n_head * n_blocks), &u->seq))
        return false;
    u->head = i / n_blocks % s->n_head;
    u->col = i % n_blocks * MNK_STATE_COLS;
    u->cols = s->dim - u->col;
    if (u->cols > MNK_STATE_COLS)
        u->cols = MNK_STATE_COLS;
    const int64_t column = u->head * s->dim + u->col;
    const int64_t at = column * s->n;
    const int64_t n = s->n * u->cols;
    u->to = u->seq.to + at;
    if (u->seq.from) {
        u->from = u->seq.from + at;
        return true;
    }
    memset(u->to, 0, (size_t)n * sizeof(float));
    u->from = u->to;
    return true;
}

static mnk_state_row unit_row(const heads *s, const unit *u) {
    return (mnk_state_row){
        .from = u->from,
        .to = u->to,
        .n = s->n,
        .cols = u->cols,
    };
}

/* Behind the rows of a sequence: where it had none, the state is carried. */
static void unit_carry(const mnk_state_row *r) {
    if (r->from != r->to)
        memcpy(r->to, r->from, (size_t)(r->n * r->cols) * sizeof(float));
}

static int64_t n_units(const mnc_call *c, const heads *s) {
    return mnc_n_sequences(c) * s->n_head * blocks_of_head(s);
}

/* A row's elements are all read and written for each column; memory is slower for one row. */
static mnc_work heads_work(const mnc_call *c, const heads *s, int64_t n_rows) {
    const int64_t passes = 2 * mnc_n_sequences(c) + n_rows;
    const int64_t n_state = s->n_head * s->dim * s->n;
    return (mnc_work){n_state * passes / 4, n_units(c, s)};
}

/* ---- SSM_SCAN -------------------------------------------------------------------------------- */
typedef struct {
    const mnc_call *call;
    const mnk_state *rows;
    mn_ssm_shape shape;
    heads heads;
    int64_t x_width; /* H P */
    int64_t b_width; /* G N */
    int64_t width;   /* of a row of XBC */
    const float *xbc;
    const float *dt;
    float *sizes; /* shared: of each row the sizes of its steps and the decays, [T, 2, H] */
} scan;

static scan scan_of(const mnc_call *c) {
    const mn_ssm_shape s = mnc_ssm_of(c);
    scan v = {.call = c, .shape = s};
    v.rows = rows_of_node(c);
    v.heads = (heads){s.n_head, s.dim, s.n};
    v.x_width = s.n_head * s.dim;
    v.b_width = s.n_group * s.n;
    v.width = v.x_width + 2 * v.b_width;
    v.xbc = c->in[MN_SSM_SCAN_XBC].ptr;
    v.dt = c->in[MN_SSM_SCAN_DT].ptr;
    v.sizes = c->shared;
    return v;
}

void mnk_scan_prepare(const mnc_call *c, mnc_worker *w) {
    const scan v = scan_of(c);
    const int64_t n_head = v.shape.n_head;
    const double most = mnc_attr_f64(c, MN_SSM_SCAN_ATTR_DT_MAX);
    const float least = (float)mnc_attr_f64(c, MN_SSM_SCAN_ATTR_DT_MIN);
    const bool is_log = mnc_attr_int(c, MN_SSM_SCAN_ATTR_A_LOG);
    const mnc_weight *dt_bias = c->in[MN_SSM_SCAN_DT_BIAS].weight;
    float limit = INFINITY;
    float *rate = w->scratch;
    float *bias = rate + n_head;
    int64_t lo;
    int64_t hi;
    if (most != 0)
        limit = (float)most;
    mnc_range(w, c->in[MN_SSM_SCAN_DT].rows, 1, &lo, &hi);
    rates_of(c, MN_SSM_SCAN_A, is_log, n_head, 1, rate);
    weights_as_f32(dt_bias, n_head, bias);
    for (int64_t t = lo; t < hi; t++) {
        const float *dt = v.dt + t * n_head;
        float *size = v.sizes + t * 2 * n_head;
        v.rows->decays(dt, bias, rate, n_head, least, limit, size, size + n_head);
    }
}

/* Row t for the unit: r has the state and what does not differ from row to row. */
static void scan_fill(const scan *v, const unit *u, int64_t t, mnk_state_row *r) {
    const mn_ssm_shape *s = &v->shape;
    const int64_t group = u->head / (s->n_head / s->n_group);
    const int64_t column = u->head * s->dim + u->col;
    const float *row = v->xbc + t * v->width;
    const float *size = v->sizes + t * 2 * s->n_head;
    float *y = v->call->out[MN_SSM_SCAN_OUT_Y].ptr; /* [T, H P] */
    r->x = row + column;
    r->write = row + v->x_width + group * s->n;
    r->read = r->write + v->b_width;
    r->x_by = size[u->head];
    r->decay = size + s->n_head + u->head;
    r->y = y + t * v->x_width + column;
}

void mnk_scan_node(const mnc_call *c, mnc_worker *w) {
    const scan v = scan_of(c);
    const mnc_weight *d = c->in[MN_SSM_SCAN_D].weight;
    const int32_t *row_pos = mnc_row_pos(c);
    int64_t lo;
    int64_t hi;
    unit u;
    mnc_range_guided(w, n_units(c, &v.heads), 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        if (!unit_at(c, &v.heads, i, &u))
            continue;
        mnk_state_row r = unit_row(&v.heads, &u);
        r.y_by = 1;
        r.pass_by = mnk_load1(d->data, d->dtype.id, u.head);
        for (int64_t t = u.seq.row_lo; t < u.seq.row_hi; t++) {
            if (row_pos[t] < 0)
                continue;
            scan_fill(&v, &u, t, &r);
            v.rows->scan_row(&r);
            r.from = r.to;
        }
        unit_carry(&r);
    }
}

mnc_work mnk_scan_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const scan v = scan_of(c);
    const int64_t n_rows = c->in[MN_SSM_SCAN_DT].rows;
    (void)n_threads;
    if (stage == MNC_FIRST)
        return (mnc_work){n_rows * v.shape.n_head * 5, n_rows};
    return heads_work(c, &v.heads, n_rows);
}

/* ---- GATED_DELTA ----------------------------------------------------------------------------- */
/* A row of the shared scratch: decays [n_decay], what is written [Hv], factors of the heads of q
 * and of k [2, Hk]. */
typedef struct {
    const mnc_call *call;
    const mnk_state *rows;
    mn_delta_shape shape;
    heads heads;
    int64_t of_head; /* decays of a head: 1 or Dk */
    int64_t n_decay; /* of all */
    int64_t shared;  /* numbers of a row in shared scratch */
    int64_t k_width; /* Hk Dk */
    int64_t v_width; /* Hv Dv */
    int64_t width;   /* of a row of QKV */
    const float *qkv;
    bool in_turn;
} delta;

static delta delta_sizes(const mn_delta_shape *s) {
    delta v = {.shape = *s};
    v.heads = (heads){s->n_head_v, s->dim_v, s->dim_k};
    v.of_head = 1;
    if (s->per_element)
        v.of_head = s->dim_k;
    v.n_decay = s->n_head_v * v.of_head;
    v.shared = v.n_decay + s->n_head_v + 2 * s->n_head_k;
    v.k_width = s->n_head_k * s->dim_k;
    v.v_width = s->n_head_v * s->dim_v;
    v.width = 2 * v.k_width + v.v_width;
    return v;
}

static delta delta_of(const mnc_call *c) {
    const mn_delta_shape s = mnc_delta_of(c);
    delta v = delta_sizes(&s);
    v.call = c;
    v.rows = rows_of_node(c);
    v.qkv = c->in[MN_GATED_DELTA_QKV].ptr;
    v.in_turn = mnc_attr_int(c, MN_GATED_DELTA_ATTR_HEADS);
    return v;
}

/* factor / the length of a head. Sums that leave the range of f32 are computed again in double. */
static float over_length(const delta *v, const float *x, double eps, double factor) {
    const int64_t n = v->shape.dim_k;
    if (eps == 0)
        return (float)factor;
    double sum = v->rows->squares(x, n);
    if (!(sum <= FLT_MAX)) {
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
    }
    return (float)(factor / sqrt(sum + eps));
}

/* Factors of the heads of q and of k in row t, [2, Hk]. */
static void delta_lengths(const delta *v, int64_t t, float *out) {
    const double eps = mnc_attr_f64(v->call, MN_GATED_DELTA_ATTR_EPS);
    const int64_t n_head = v->shape.n_head_k;
    const int64_t dim = v->shape.dim_k;
    const float *q = v->qkv + t * v->width;
    const float *k = q + v->k_width;
    double scale = mnc_attr_f64(v->call, MN_GATED_DELTA_ATTR_SCALE);
    if (scale == 0)
        scale = 1 / sqrt((double)dim);
    for (int64_t h = 0; h < n_head; h++) {
        out[h] = over_length(v, q + h * dim, eps, scale);
        out[n_head + h] = over_length(v, k + h * dim, eps, 1);
    }
}

void mnk_delta_prepare(const mnc_call *c, mnc_worker *w) {
    const delta v = delta_of(c);
    const int64_t n_head = v.shape.n_head_v;
    const int64_t n = v.n_decay;
    const float *gates = c->in[MN_GATED_DELTA_GATE].ptr; /* [T, Hv] or [T, Hv, Dk] */
    const float *betas = c->in[MN_GATED_DELTA_BETA].ptr; /* [T, Hv] */
    const double beta_scale = mnc_attr_f64(c, MN_GATED_DELTA_ATTR_BETA_SCALE);
    const bool is_log = mnc_attr_int(c, MN_GATED_DELTA_ATTR_A_LOG);
    float by = 1;
    float *rate = w->scratch;
    float *bias = rate + n;
    int64_t lo;
    int64_t hi;
    if (beta_scale != 0)
        by = (float)beta_scale;
    mnc_range(w, c->in[MN_GATED_DELTA_QKV].rows, 1, &lo, &hi);
    rates_of(c, MN_GATED_DELTA_A, is_log, n_head, v.of_head, rate);
    weights_as_f32(c->in[MN_GATED_DELTA_DT_BIAS].weight, n, bias);
    for (int64_t t = lo; t < hi; t++) {
        float *decay = (float *)c->shared + t * v.shared;
        float *write = decay + n;
        v.rows->decays(gates + t * n, bias, rate, n, 0, INFINITY, NULL, decay);
        v.rows->sigmoids(betas + t * n_head, n_head, by, write);
        delta_lengths(&v, t, write + n_head);
    }
}

/* Row t for the unit. k is as it is in QKV, so that its factor stands where it is written or read;
 * a decay that all elements have stands before their sum. */
static void delta_fill(const delta *v, const unit *u, int64_t t, mnk_state_row *r) {
    const mn_delta_shape *s = &v->shape;
    const int64_t column = u->head * s->dim_v + u->col;
    const float *q = v->qkv + t * v->width;
    const float *k = q + v->k_width;
    const float *decay = (const float *)v->call->shared + t * v->shared;
    const float *beta = decay + v->n_decay;
    const float *q_by = beta + s->n_head_v;
    const float *k_by = q_by + s->n_head_k;
    float *y = v->call->out[MN_GATED_DELTA_OUT_Y].ptr; /* [T, Hv, Dv] */
    int64_t at = u->head / (s->n_head_v / s->n_head_k);
    if (v->in_turn)
        at = u->head % s->n_head_k;
    r->decay = decay + u->head * v->of_head;
    r->read = q + at * s->dim_k;
    r->write = k + at * s->dim_k;
    r->x = k + v->k_width + column;
    r->y = y + t * v->v_width + column;
    r->y_by = q_by[at];
    r->x_by = beta[u->head] * k_by[at];
    r->known_by = k_by[at];
    if (!r->each)
        r->known_by *= *r->decay;
}

void mnk_delta_node(const mnc_call *c, mnc_worker *w) {
    const delta v = delta_of(c);
    const int32_t *row_pos = mnc_row_pos(c);
    int64_t lo;
    int64_t hi;
    unit u;
    mnc_range_guided(w, n_units(c, &v.heads), 1, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        if (!unit_at(c, &v.heads, i, &u))
            continue;
        mnk_state_row r = unit_row(&v.heads, &u);
        r.each = v.shape.per_element;
        for (int64_t t = u.seq.row_lo; t < u.seq.row_hi; t++) {
            if (row_pos[t] < 0)
                continue;
            delta_fill(&v, &u, t, &r);
            v.rows->delta_row(&r);
            r.from = r.to;
        }
        unit_carry(&r);
    }
}

mnc_work mnk_delta_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const delta v = delta_of(c);
    const int64_t n_rows = c->in[MN_GATED_DELTA_QKV].rows;
    const int64_t of_row = 5 * v.shared + v.k_width / 8;
    (void)n_threads;
    if (stage == MNC_FIRST)
        return (mnc_work){n_rows * of_row, n_rows};
    return heads_work(c, &v.heads, n_rows);
}

/* ---- scratch --------------------------------------------------------------------------------- */
void mnk_state_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *x = mnc_query_in(q, 0);
    const mn_graph *g = q->graph;
    const mn_node *n = q->node;
    const uint64_t rows = (uint64_t)mnc_query_dim(q, x, 0);
    (void)use;
    if (n->op == MN_OP_CONV_STATE) {
        const mn_conv_shape s = mnp_conv_shape(g, n);
        op->worker_bytes = conv_bytes(&s);
    } else if (n->op == MN_OP_SSM_SCAN) {
        const mn_ssm_shape s = mnp_ssm_shape(g, n);
        op->worker_bytes = 2 * (uint64_t)s.n_head * sizeof(float);
        op->shared_bytes = rows * op->worker_bytes;
    } else {
        const mn_delta_shape s = mnp_delta_shape(g, n);
        const delta v = delta_sizes(&s);
        op->worker_bytes = 2 * (uint64_t)v.n_decay * sizeof(float);
        op->shared_bytes = rows * (uint64_t)v.shared * sizeof(float);
    }
}
