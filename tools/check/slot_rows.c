/* slot_rows.c -- rule graph.slot_rows: rows of SLOTS and PARAMS lie 4 * dim[1] bytes apart,
 * whatever a plugin knows of them. Rows that are longer end in garbage, which stays as it is; rows
 * of PARAMS that are shorter read as zeros behind their end. */
#include "life.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GARBAGE 0xb7
#define MORE 6  /* words behind a row: an even number, as rows of PARAMS are 8 bytes apart */
#define SHORT 8 /* words of a row of PARAMS that is cut: up to and with frequency_penalty */

/* The state tensor of that name, or -1. */
static int32_t state_of(const op_case *o, const char *name) {
    for (uint32_t i = 0; i < o->g.n_tensors; i++)
        if (o->t[i].role == MN_ROLE_STATE && !strcmp(o->t[i].name.ptr, name))
            return (int32_t)i;
    return -1;
}

/* from, rows of `old` words, as rows of `words`, with garbage in what is new. NULL = out of
 * memory. */
static uint8_t *other_rows(const uint8_t *from, int64_t rows, int64_t old, int64_t words) {
    uint8_t *to = malloc((size_t)(rows * words) * 4 + 1);
    if (!to)
        return NULL;
    memset(to, GARBAGE, (size_t)(rows * words) * 4);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * words * 4, from + r * old * 4, (size_t)(old < words ? old : words) * 4);
    return to;
}

/* Gives data and result of a tensor rows of another length. False = out of memory. */
static bool set_words(op_case *o, int32_t t, int64_t words) {
    const int64_t rows = o->t[t].dim[0], old = o->t[t].dim[1];
    uint8_t *data = other_rows(o->data[t], rows, old, words);
    uint8_t *result = other_rows(o->result[t], rows, old, words);
    if (!data || !result) {
        free(data);
        free(result);
        return false;
    }
    free(o->data[t]);
    free(o->result[t]);
    o->data[t] = data;
    o->result[t] = result;
    o->t[t].dim[1] = words;
    o->bytes[t] = (uint64_t)(rows * words) * 4;
    return true;
}

/* Is what lies behind the known words of each row as it was? */
static bool untouched(const op_case *o, int32_t t, int64_t known) {
    const uint8_t *p = o->result[t];
    const int64_t words = o->t[t].dim[1];
    for (int64_t r = 0; r < o->t[t].dim[0]; r++)
        for (int64_t i = known * 4; i < words * 4; i++)
            if (p[r * words * 4 + i] != GARBAGE)
                return false;
    return true;
}

static void compare(check *c, const op_case *got, const op_case *want, const char *op,
                    const char *what) {
    const char *where = "";
    const double e = case_differ(got, want, &where);
    if (!(e <= 1e-5))
        check_fail(c,
                   "%s with %s: '%s' differs from what rows of the usual length give (%g): rows of "
                   "SLOTS and PARAMS lie 4 * dim[1] bytes apart, never sizeof",
                   op, what, where, e);
}

/* Rows of both with MORE words behind them. */
static void longer(check *c, const case_on *on, op_case *o, const op_case *usual, const char *op) {
    static const char *const names[] = {"slots", "params"};
    int64_t known[2] = {0, 0};
    mn_error err = check_error();
    for (int i = 0; i < 2; i++) {
        const int32_t t = state_of(o, names[i]);
        if (t < 0)
            continue;
        known[i] = o->t[t].dim[1];
        CHECK(c, set_words(o, t, known[i] + MORE), "out of memory");
    }
    check_doing(c, "%s ran with longer rows of SLOTS and PARAMS", op);
    const mn_status st = case_run(on, o, MN_PRECISION_EXACT, &err);
    CHECK(c, !st, "%s with longer rows of SLOTS and PARAMS: found status 0x%x (%s)", op,
          (unsigned)st, err.msg);
    for (int i = 0; i < 2; i++) {
        const int32_t t = state_of(o, names[i]);
        if (t < 0)
            continue;
        CHECK(c, untouched(o, t, known[i]),
              "%s: what is behind the known bytes of a row of '%s' "
              "was written",
              op, names[i]);
        CHECK(c, set_words(o, t, known[i]), "out of memory");
    }
    compare(c, o, usual, op, "longer rows");
}

/* Rows of PARAMS that end early, against whole ones that are zero from there on. */
static void shorter(check *c, const case_on *on, op_case *o, op_case *zeros, const char *op) {
    mn_error err = check_error();
    const int32_t t = state_of(zeros, "params");
    const int64_t words = zeros->t[t].dim[1];
    for (int64_t r = 0; r < zeros->t[t].dim[0]; r++)
        memset((uint8_t *)zeros->data[t] + (r * words + SHORT) * 4, 0, (size_t)(words - SHORT) * 4);
    mn_status st = case_run(on, zeros, MN_PRECISION_EXACT, &err);
    CHECK(c, !st && set_words(o, t, SHORT), "%s: found status 0x%x (%s)", op, (unsigned)st,
          err.msg);
    check_doing(c, "%s ran with shorter rows of PARAMS", op);
    st = case_run(on, o, MN_PRECISION_EXACT, &err);
    CHECK(c, !st, "%s with rows of PARAMS of %d bytes: found status 0x%x (%s)", op, SHORT * 4,
          (unsigned)st, err.msg);
    CHECK(c, set_words(o, t, words), "out of memory");
    memcpy(o->result[t], zeros->result[t], zeros->bytes[t]); /* its tail is not there to compare */
    compare(c, o, zeros, op, "shorter rows of PARAMS");
}

static void try_op(check *c, const case_on *on, uint32_t op, uint32_t *seen) {
    const op_shape shape = life_shape();
    const char *name = case_op_name(op);
    mn_error err = check_error();
    op_case *o[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        o[i] = case_random(op, MN_F32, &shape, 11);
        if (!o[i] || o[i]->failed) {
            check_fail(c, "out of memory");
            goto out;
        }
    }
    if (!case_supported(on, o[0], NULL))
        goto out;
    ++*seen;
    const mn_status st = case_run(on, o[0], MN_PRECISION_EXACT, &err);
    if (st)
        check_fail(c, "%s: found status 0x%x (%s)", name, (unsigned)st, err.msg);
    if (!st)
        longer(c, on, o[1], o[0], name);
    if (!check_over(c) && state_of(o[2], "params") >= 0)
        shorter(c, on, o[3], o[2], name);
out:
    for (int i = 0; i < 4; i++)
        case_free(o[i]);
}

void check_graph_slot_rows(check *c) {
    static const uint32_t ops[] = {MN_OP_EMBED, MN_OP_SAMPLE};
    check_host h;
    check_plugin p;
    uint32_t seen = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    const case_on on = life_on(&p);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !check_over(c); i++)
        try_op(c, &on, ops[i], &seen);
    if (!seen)
        check_skip(c, "the device says no to EMBED and SAMPLE in f32");
    if (!check_over(c) || !seen)
        check_close(c, &p);
}
