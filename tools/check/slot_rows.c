/* slot_rows.c -- rule graph.slot_rows: rows of SLOTS and PARAMS lie 4 * dim[1] bytes apart, also
 * where a later version of plugin.h made the structs longer. Longer rows end in garbage, which
 * must not change; what is missing in shorter rows of PARAMS reads as 0. The rule gives the
 * tensors of a small case rows of another length and compares with the usual length. */
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

/* A copy of rows of `old` words as rows of `words`, with garbage in what is new; the caller frees.
 * NULL = out of memory. */
static uint8_t *other_rows(const uint8_t *from, int64_t rows, int64_t old, int64_t words) {
    const size_t bytes = (size_t)(rows * words) * 4;
    const size_t known = (size_t)(old < words ? old : words) * 4;
    uint8_t *to = malloc(bytes + 1);
    if (!to)
        return NULL;
    memset(to, GARBAGE, bytes);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * words * 4, from + r * old * 4, known);
    return to;
}

/* Gives data and result of a tensor rows of another length. False = out of memory. */
static bool set_words(op_case *o, int32_t t, int64_t words) {
    const int64_t rows = o->t[t].dim[0];
    const int64_t old = o->t[t].dim[1];
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

/* Whether the garbage behind the known words of each row has not changed. */
static bool untouched(const op_case *o, int32_t t, int64_t known) {
    const int64_t row = o->t[t].dim[1] * 4;
    const uint8_t *end = (const uint8_t *)o->result[t] + o->bytes[t];
    for (const uint8_t *at = o->result[t]; at < end; at += row)
        for (int64_t i = known * 4; i < row; i++)
            if (at[i] != GARBAGE)
                return false;
    return true;
}

static void slot_rows_compare(check *c, const op_case *got, const op_case *want, const char *op,
                              const char *what) {
    const char *where = "";
    const double e = case_differ(got, want, &where);
    if (!(e <= 1e-5))
        check_fail(c,
                   "%s with %s: '%s' differs from what rows of the usual length give (%g): rows of "
                   "SLOTS and PARAMS lie 4 * dim[1] bytes apart, never sizeof",
                   op, what, where, e);
}

/* Rows of SLOTS and PARAMS with MORE words behind them; usual: has been run with rows as they
 * are. */
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
    CHECK_OK(c, st, &err, "%s with longer rows of SLOTS and PARAMS", op);
    for (int i = 0; i < 2; i++) {
        const int32_t t = state_of(o, names[i]);
        if (t < 0)
            continue;
        CHECK(c, untouched(o, t, known[i]),
              "%s: found garbage behind a row of '%s' overwritten, expected it unchanged", op,
              names[i]);
        CHECK(c, set_words(o, t, known[i]), "out of memory");
    }
    slot_rows_compare(c, o, usual, op, "longer rows");
}

/* Rows of PARAMS that end early (o), against whole ones that are zero from there on (zeros). */
static void shorter(check *c, const case_on *on, op_case *o, op_case *zeros, const char *op) {
    mn_error err = check_error();
    const int32_t t = state_of(zeros, "params");
    const int64_t words = zeros->t[t].dim[1];
    uint8_t *params = zeros->data[t];
    for (int64_t r = 0; r < zeros->t[t].dim[0]; r++)
        memset(params + (r * words + SHORT) * 4, 0, (size_t)(words - SHORT) * 4);
    mn_status st = case_run(on, zeros, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s", op);
    CHECK(c, set_words(o, t, SHORT), "out of memory");
    check_doing(c, "%s ran with shorter rows of PARAMS", op);
    st = case_run(on, o, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s with rows of PARAMS of %d bytes", op, SHORT * 4);
    CHECK(c, set_words(o, t, words), "out of memory");
    memcpy(o->result[t], zeros->result[t], zeros->bytes[t]); // cut rows are not compared
    slot_rows_compare(c, o, zeros, op, "shorter rows of PARAMS");
}

/* o: four equal cases of an op. */
static void compare_rows(check *c, const case_on *on, uint32_t op, op_case *o[4]) {
    const char *name = case_op_name(op);
    mn_error err = check_error();
    const mn_status st = case_run(on, o[0], MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s", name);
    longer(c, on, o[1], o[0], name);
    if (!check_over(c) && state_of(o[2], "params") >= 0)
        shorter(c, on, o[3], o[2], name);
}

/* 1 = the device runs the op. */
static uint32_t try_op(check *c, const case_on *on, uint32_t op) {
    op_case *o[4];
    for (int i = 0; i < 4; i++)
        o[i] = life_case(c, op);
    const uint32_t tried = !check_over(c) && case_supported(on, o[0]);
    if (tried)
        compare_rows(c, on, op, o);
    for (int i = 0; i < 4; i++)
        case_free(o[i]);
    return tried;
}

void check_graph_slot_rows(check *c) {
    stage s;
    if (!stage_device(c, &s))
        return;
    uint32_t tried = try_op(c, &s.on, MN_OP_EMBED);
    if (!check_over(c))
        tried += try_op(c, &s.on, MN_OP_SAMPLE);
    if (check_over(c))
        return;
    stage_close(c, &s);
    if (!tried)
        check_skip(c, "the device does not support EMBED and SAMPLE in f32%s", check_no_text(&s.p));
}
