/* row_order.c -- see row_order.h. What is reordered follows from the hyper-parameters: the heads of
 * a layer, and how many dims of each rotate. */
#include "model/row_order.h"
#include <string.h>

int64_t mn_tensor_layer(mn_str name, mn_str *rest) {
    int64_t layer = 0;
    uint64_t at = 4;
    *rest = name;
    if (!mn_str_begins(name, "blk."))
        return -1;
    for (; at < name.len && layer < MN_MAX_LAYER; at++) {
        const int digit = name.ptr[at] - '0';
        if (digit < 0 || digit > 9)
            break;
        layer = layer * 10 + digit;
    }
    if (at >= name.len || name.ptr[at] != '.')
        return -1;
    *rest = (mn_str){name.ptr + at + 1, name.len - at - 1};
    return layer;
}

/* Rows of the tensor whose elements rotate in pairs: those of q, of k, of both; 0 = none. */
static uint64_t rotated_rows(const mn_layer_shape *l, mn_str rest) {
    const uint64_t head = (uint64_t)l->head_dim_k;
    const uint64_t q = (uint64_t)l->n_head * head;
    const uint64_t k = (uint64_t)l->n_head_kv * head;
    if (mn_str_begins(rest, "attn_q.") || mn_str_begins(rest, "attn_q_norm."))
        return q;
    if (mn_str_begins(rest, "attn_k.") || mn_str_begins(rest, "attn_k_norm."))
        return k;
    if (mn_str_begins(rest, "attn_qkv."))
        return q + k;
    return 0;
}

mn_row_order mn_row_order_of(const mn_hparams *h, uint32_t from, uint32_t to, mn_str name) {
    const mn_row_order none = {0};
    mn_str rest;
    const int64_t layer = mn_tensor_layer(name, &rest);
    if (from == to || layer < 0 || layer >= h->n_layer || !h->n_rope)
        return none;
    const mn_layer_shape *l = &h->layer[layer];
    const mn_rope_table *t = &h->rope[MN_MAX(l->rope, 0)]; /* where none rotate, too */
    const mn_row_order o = {
        .head = (uint64_t)l->head_dim_k,
        .rot = (uint64_t)t->n_rot,
        .end = rotated_rows(l, rest),
        .back = to == MN_ROPE_HALVES,
    };
    if (o.end)
        return o;
    return none;
}

mn_row_order mn_row_order_in_turn(const mn_hparams *h, mn_str rest, bool *columns) {
    const mn_ssm *s = &h->ssm;
    const uint64_t dim_v = (uint64_t)(s->n_head ? s->inner / s->n_head : 0);
    const uint64_t behind_k = 2 * (uint64_t)(s->n_group * s->state);
    const struct {
        const char *name;
        uint64_t first, width;
    } rows[] = {{"attn_qkv.weight", behind_k, dim_v},
                {"ssm_conv1d.weight", behind_k, dim_v},
                {"attn_gate.weight", 0, dim_v},
                {"ssm_out.weight", 0, dim_v},
                {"ssm_beta.weight", 0, 1},
                {"ssm_alpha.weight", 0, 1},
                {"ssm_dt.bias", 0, 1},
                {"ssm_a_log", 0, 1}};
    mn_row_order o = {0};
    *columns = mn_str_is(rest, "ssm_out.weight");
    for (size_t i = 0; i < MN_COUNT(rows) && s->n_group; i++)
        if (mn_str_is(rest, rows[i].name))
            o = (mn_row_order){.first = rows[i].first,
                               .width = rows[i].width,
                               .n_group = (uint64_t)s->n_group,
                               .each = (uint64_t)(s->n_head / s->n_group)};
    return o;
}

/* A head of each group in turn. */
static uint64_t row_in_turn(mn_row_order o, uint64_t row) {
    if (row < o.first || row - o.first >= o.width * o.n_group * o.each)
        return row;
    const uint64_t head = (row - o.first) / o.width;
    const uint64_t from = head % o.n_group * o.each + head / o.n_group;
    return o.first + from * o.width + (row - o.first) % o.width;
}

uint64_t mn_row_of(mn_row_order o, uint64_t row) {
    if (o.width)
        return row_in_turn(o, row);
    if (!o.head || row >= o.end || row % o.head >= o.rot)
        return row;
    const uint64_t i = row % o.head;
    const uint64_t half = o.rot / 2;
    const uint64_t from = row - i;
    if (o.back)
        return from + i % half * 2 + i / half;
    return from + i / 2 + i % 2 * half;
}
