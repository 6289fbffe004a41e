/* states.c -- the small tensors of layers with a state, as other readers of GGUF expect them:
 * decay rates as numbers instead of their logarithms, convolutions without their dimension of 1,
 * numbers of heads of Mamba and of Kimi delta attention as columns, Mamba's norm by groups. All of
 * them are F32 there. */
#include "convert/convert.h"
#include "model/rows.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum { AS_IT_IS, RATES, WINDOWS, HEADS, GROUPS } state_form;

static state_form form_of(mn_str rest) {
    static const struct {
        const char *name;
        state_form form;
    } rows[] = {{"ssm_a_log", RATES},
                {"ssm_d", HEADS},
                {"ssm_conv1d.weight", WINDOWS},
                {"shortconv.conv.weight", WINDOWS},
                {"ssm_norm.weight", GROUPS}};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (mn_str_is(rest, rows[i].name))
            return rows[i].form;
    return AS_IT_IS;
}

/* All values in the order of the tensor's dims; NULL: no memory. */
static float *state_values(mn_convert_plan *p, const mn_tensor_info *t, int64_t *n) {
    const int64_t cols = t->dim[t->n_dim - 1];
    const int64_t n_rows = (int64_t)mn_row_count(t);
    *n = n_rows * cols;
    float *values = mn_arena_alloc(&p->arena, (size_t)*n, sizeof *values);
    for (int64_t i = 0; values && i < n_rows; i++)
        mn_row_values(t, (uint64_t)i, values + i * cols);
    return values;
}

/* Numbers of heads, or windows of `each` numbers, in the order of heads that is written; NULL: no
 * memory. */
static float *state_in_order(mn_convert_plan *p, const mn_tensor_info *t, float *values, int64_t n,
                             int64_t each) {
    bool columns = false;
    const mn_row_order o = mn_convert_turn(p, t->name, &columns);
    if (!mn_row_order_moves(&o))
        return values;
    float *moved = mn_arena_alloc(&p->arena, (size_t)n, sizeof *moved);
    for (int64_t i = 0; moved && i < n; i++)
        moved[i] = values[(int64_t)mn_row_of(o, (uint64_t)(i / each)) * each + i % each];
    return moved;
}

static bool layer_has(const mn_convert_plan *p, int64_t layer, const char *rest) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, rest);
    return mn_canonical_tensor(p->model, name) != NULL;
}

/* The delta rule's numbers of heads are a vector there, unless a decay has a number for each
 * element of k; its norm is that of one head. */
static bool is_mamba(const mn_convert_plan *p, int64_t layer) {
    return layer_has(p, layer, "ssm_d");
}

/* [n] values of the form under their name there. */
static mn_status put_state(mn_convert_plan *p, state_form form, bool columns, const char *name,
                           const float *values, int64_t n, mn_error *err) {
    int64_t rows = 0;
    int64_t cols = n;
    switch (form) {
    case WINDOWS:
        cols = p->hp.ssm.conv;
        rows = n / cols;
        break;
    case GROUPS:
        rows = p->hp.ssm.n_group;
        cols = n / rows;
        break;
    default:
        if (!columns)
            break;
        rows = n;
        cols = 1;
    }
    return mn_convert_put_matrix(p, name, values, rows, cols, err);
}

mn_status mn_convert_state(mn_convert_plan *p, const mn_tensor_info *t, bool *taken,
                           mn_error *err) {
    mn_str rest;
    char name[64];
    int64_t n;
    const int64_t layer = mn_tensor_layer(t->name, &rest);
    const state_form form = form_of(rest);
    const bool mamba = is_mamba(p, layer);
    const bool usual = form == GROUPS && !mamba;
    *taken = layer >= 0 && form != AS_IT_IS && !usual && mn_dequant_has(t->dtype.id);
    if (!*taken)
        return MN_OK;
    float *values = state_values(p, t, &n);
    if (values)
        values = state_in_order(p, t, values, n, form == WINDOWS ? p->hp.ssm.conv : 1);
    if (!values)
        return mn_fail_memory(err, (uint64_t)n);
    snprintf(name, sizeof name, "%.*s", MN_STR_ARG(t->name));
    if (form == RATES) {
        snprintf(name, sizeof name, "blk.%lld.ssm_a", (long long)layer);
        for (int64_t i = 0; i < n; i++)
            values[i] = -expf(values[i]);
    }
    return put_state(p, form, mamba || layer_has(p, layer, "ssm_f_a.weight"), name, values, n, err);
}
