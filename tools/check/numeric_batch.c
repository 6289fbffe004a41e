/* numeric_batch.c -- rule numeric.batch: MN_ESTIMATE_DETERMINISTIC. A program runs a step of many
 * rows, then steps that have some of these rows alone, at other places and in another order; each
 * row must have the bits that it had at first. The rule owns the case and plan of each trial. */
#include "numeric.h"
#include <stdlib.h>
#include <string.h>

enum { ALL = 70, STRIDE = 11 }; /* without a common divisor */

/* One op in one type and class. */
typedef struct {
    numeric *n;
    uint32_t op, dtype, precision;
    op_shape shape;
    case_plan *plan;
    op_case *all; /* with the weights; has run with every row */
    uint32_t grain;
} batch;

/* Row i of a step that begins with row `from`. Rows of one sequence stay behind one another. */
static int64_t source_of(const batch *b, int64_t from, int64_t i) {
    const bool is_sequence = b->op == MN_OP_ATTENTION && b->shape.n_seqs == 1;
    return (from + i * (is_sequence ? 1 : STRIDE)) % ALL;
}

static int64_t symbol_of(const op_case *c, const char *name) {
    for (uint32_t i = 0; i < c->g.n_symbols; i++)
        if (!strcmp(c->sym[i].name, name))
            return i;
    return -1;
}

static bool batch_has_rows(const op_case *c, uint32_t t) {
    return c->t[t].n_dim && c->t[t].dim[0] == ~INT64_C(0);
}

static uint64_t batch_row_bytes(const op_case *c, uint32_t t) {
    return c->bytes[t] / ALL;
}

/* The rows that the step has, at their places. */
static void batch_take_rows(const batch *b, op_case *c, int64_t n, int64_t from) {
    for (uint32_t t = 0; t < c->g.n_tensors; t++) {
        const uint64_t bytes = batch_row_bytes(c, t);
        if (c->t[t].role != MN_ROLE_INPUT || !batch_has_rows(c, t))
            continue;
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)c->data[t] + (uint64_t)i * bytes,
                   (const char *)b->all->data[t] + (uint64_t)source_of(b, from, i) * bytes, bytes);
    }
}

/* SEQS [n_seqs, 4]: first row, rows, slot: one sequence with all rows, or each row its own. */
static void take_sequences(const batch *b, op_case *c, int64_t n, int64_t from) {
    const int64_t symbol = symbol_of(c, "n_seqs");
    uint32_t t = 0;
    if (symbol < 0)
        return;
    while (strcmp(c->t[t].name.ptr, "seqs"))
        t++;
    int32_t *to = c->data[t];
    const int32_t *all = b->all->data[t];
    if (b->shape.n_seqs == 1) {
        to[1] = (int32_t)n;
        return;
    }
    c->value[symbol] = n;
    for (int64_t i = 0; i < n; i++) {
        to[4 * i] = (int32_t)i;
        to[4 * i + 1] = 1;
        to[4 * i + 2] = all[4 * source_of(b, from, i) + 2];
    }
}

static void judge_row(const batch *b, const op_case *c, int64_t n, int64_t place, int64_t source) {
    for (uint32_t t = 0; t < c->g.n_tensors; t++) {
        const uint64_t bytes = batch_row_bytes(c, t);
        const char *got = (const char *)c->result[t] + (uint64_t)place * bytes;
        const char *want = (const char *)b->all->result[t] + (uint64_t)source * bytes;
        if (c->t[t].role != MN_ROLE_OUTPUT || !batch_has_rows(c, t))
            continue;
        CHECK(b->n->c, !memcmp(got, want, bytes),
              "%s %s, class %s: '%s' of a row has other bits as row %lld of %lld than as row %lld "
              "of %d, expected the same: the estimate states MN_ESTIMATE_DETERMINISTIC",
              case_op_name(b->op), b->dtype ? mn_dtype_name(b->dtype) : "", /* none: no weights */
              check_class_name(b->precision), c->t[t].name.ptr, (long long)place, (long long)n,
              (long long)source, ALL);
    }
}

static op_case *make(const batch *b) {
    return case_random(b->op, b->dtype, &b->shape, 77);
}

/* rows: at least; as many as the device rounds them up to. */
static void compare_step(batch *b, int64_t rows, int64_t from) {
    check *c = b->n->c;
    mn_error err = check_error();
    const int64_t n = numeric_bucket(rows, ALL, b->grain);
    op_case *some = make(b);
    CHECK(c, some && !some->failed, "out of memory");
    some->value[0] = n;
    batch_take_rows(b, some, n, from);
    take_sequences(b, some, n, from);
    check_doing(c, "%s ran with %lld of %d rows", case_op_name(b->op), (long long)n, ALL);
    const mn_status st = case_step(b->plan, some, &err);
    check_status(c, st, &err, "%s of %lld rows", case_op_name(b->op), (long long)n);
    for (int64_t i = 0; i < n && !check_over(c); i++)
        judge_row(b, some, n, i, source_of(b, from, i));
    b->n->n_cases++;
    case_free(some);
}

/* 0: the class is not deterministic, or refused. */
static bool states_it(batch *b) {
    const case_on *on = &b->n->here;
    mn_estimate e = {.size = sizeof e};
    const mn_compile ask = case_question(b->all, b->precision);
    if (on->be->estimate(on->dev, &ask, &e, NULL) || !(e.flags & MN_ESTIMATE_DETERMINISTIC))
        return false;
    b->grain = e.row_grain;
    return true;
}

/* Rows alone and among others; a sequence's rows must not run past its end. */
static void batch_compare_steps(batch *b) {
    static const struct {
        int64_t rows, from;
    } steps[] = {{1, 0}, {1, 37}, {1, ALL - 1}, {3, 5}, {3, 64}, {17, 31}, {ALL, 0}};
    const check *c = b->n->c;
    for (size_t i = 0; i < MN_COUNT(steps) && !check_over(c); i++)
        compare_step(b, steps[i].rows, steps[i].from);
}

static void try_class(batch *b) {
    const case_on *on = &b->n->here;
    mn_error err = check_error();
    b->all = make(b);
    if (b->all && case_supported(on, b->all) && states_it(b)) {
        check_doing(b->n->c, "%s ran with %d rows", case_op_name(b->op), ALL);
        mn_status st = case_open(on, b->all, b->precision, &b->plan, &err);
        const bool refused = MN_STATUS_CLASS(st) == MN_CLASS_REFUSE;
        if (!st)
            st = case_step(b->plan, b->all, &err);
        if (!refused && !check_status(b->n->c, st, &err, "%s, class %s", case_op_name(b->op),
                                      check_class_name(b->precision)))
            batch_compare_steps(b);
    }
    case_close(b->plan);
    case_free(b->all);
}

/* The tokens of a page, where the op has a cache; false = the device has none of this type. */
static bool find_pages(batch *b) {
    mn_memory_layout l = {.size = sizeof l};
    mn_status st = MN_OUT_OF_MEMORY;
    if (b->op != MN_OP_ATTENTION)
        return true;
    op_case *c = make(b);
    if (c && !c->failed && case_supported(&b->n->here, c)) {
        const mn_compile ask = case_question(c, b->precision);
        st = b->n->here.be->memory_layout(b->n->here.dev, &ask, 0, &l, NULL);
    }
    case_free(c);
    b->shape.page_tokens = l.page_tokens;
    return !st && l.page_tokens;
}

static void batch_try_op(numeric *n, uint32_t op, uint32_t dtype, const op_shape *shape) {
    for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && !check_over(n->c); p++) {
        batch b = {.n = n, .op = op, .dtype = dtype, .precision = p, .shape = *shape};
        if (op == MN_OP_ATTENTION)
            b.shape.kv_dtype = p == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
        if (find_pages(&b))
            try_class(&b);
    }
}

/* Variants of ATTENTION: biases by distance; relative keys and queries. */
#define BIASES .variant = 256
#define TABLES .variant = 1024 + 2048

static void batch_try_all_ops(numeric *n) {
    static const uint32_t types[] = {MN_F32, MN_F16, MN_Q8_0, MN_Q4_0, MN_Q4_K};
    static const op_shape plain = {.rows = ALL, .k = 512, .n = 96};
    static const op_shape experts = {.rows = ALL, .k = 256, .n = 64, .n_expert = 8, .n_used = 2};
    static const op_shape attention[] = {
        {.rows = ALL, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = 150, .n_seqs = 1},
        {.rows = ALL, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = 90, .n_seqs = ALL},
        {.rows = ALL, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = 150, .n_seqs = 1, BIASES},
        {.rows = ALL, .n_head = 4, .n_head_kv = 4, .dim = 64, .past = 90, .n_seqs = ALL, BIASES},
        {.rows = ALL, .n_head = 4, .n_head_kv = 4, .dim = 32, .past = 90, .n_seqs = ALL, TABLES}};
    batch_try_op(n, MN_OP_RMS_NORM, MN_F32, &plain);
    for (size_t i = 0; i < MN_COUNT(attention); i++)
        batch_try_op(n, MN_OP_ATTENTION, MN_DTYPE_NONE, &attention[i]);
    batch_try_op(n, MN_OP_MOE_ROUTE, MN_DTYPE_NONE, &experts);
    batch_try_op(n, MN_OP_MOE_COMBINE, MN_DTYPE_NONE, &experts);
    for (size_t i = 0; i < MN_COUNT(types); i++) {
        batch_try_op(n, MN_OP_LINEAR, types[i], &plain);
        batch_try_op(n, MN_OP_MOE_LINEAR, types[i], &experts);
    }
    if (!n->n_cases)
        check_skip(n->c, "no class of these operations states MN_ESTIMATE_DETERMINISTIC%s",
                   check_no_text(&n->plugin));
    check_found(n->c, "%u steps, bit for bit", n->n_cases);
}

void check_numeric_batch(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        batch_try_all_ops(&n);
    numeric_close(&n);
}
