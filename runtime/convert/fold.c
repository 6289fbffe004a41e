/* fold.c -- factors that other readers of GGUF expect in the weights: those of Falcon-H1, which its
 * checkpoints state in their configuration and GGUF has no keys for. A factor behind a product is
 * in the matrix and in its bias, one in front of it in the matrix alone. */
#include "convert/convert.h"
#include <math.h>
#include <string.h>

/* A factor that is not stated is 0. */
static double stated(double factor) {
    return factor > 0 ? factor : 1;
}

static bool folds(const mn_convert_plan *p) {
    return !strcmp(p->hp.arch, "falcon-h1");
}

bool mn_convert_is_folded_key(const mn_convert_plan *p, mn_str rest) {
    static const char *const keys[] = {"embedding_scale",         "logit_scale",
                                       "attention.scale",         "attention.in_scale",
                                       "attention.out_scale",     "ssm.in_scale",
                                       "ssm.out_scale",           "ssm.part_scales",
                                       "feed_forward.gate_scale", "feed_forward.down_scale"};
    for (size_t i = 0; i < MN_COUNT(keys) && folds(p); i++)
        if (mn_str_is(rest, keys[i]))
            return true;
    return false;
}

/* Of the scores: the keys' part of what q k is scaled by. */
static double factor_of_keys(const mn_hparams *h) {
    const mn_layer_shape *l = &h->layer[0];
    return l->attn_scale * sqrt((double)l->head_dim_k);
}

static double factor_of_logits(const mn_hparams *h) {
    return h->logit_scale > 0 ? 1 / h->logit_scale : 1;
}

/* Row r of ssm_in: z, x, B, C and dt one behind the other. */
static double factor_of_part(const mn_ssm *s, int64_t r) {
    const int64_t n_bc = s->n_group * s->state;
    const int64_t ends[] = {s->inner, 2 * s->inner, 2 * s->inner + n_bc, 2 * (s->inner + n_bc)};
    size_t part = 0;
    while (part < MN_COUNT(ends) && r >= ends[part])
        part++;
    return stated(s->parts[part]);
}

/* What the product of this tensor is multiplied by, in front of it and behind it, in row r. */
static void fold_factors(const mn_hparams *h, mn_str rest, int64_t r, double *front,
                         double *behind) {
    const mn_ssm *s = &h->ssm;
    const struct {
        const char *stem;
        double front, behind;
    } rows[] = {{"attn_q.", h->attn_in_scale, 1},
                {"attn_k.", h->attn_in_scale, factor_of_keys(h)},
                {"attn_v.", h->attn_in_scale, 1},
                {"attn_output.", 1, h->attn_out_scale},
                {"ssm_in.", s->in_scale, factor_of_part(s, r)},
                {"ssm_out.", 1, s->out_scale},
                {"ffn_gate.", 1, h->gate_scale},
                {"ffn_down.", 1, h->down_scale},
                {"token_embd.", 1, h->embd_scale},
                {"output.", 1, factor_of_logits(h)}};
    *front = *behind = 1;
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        if (!mn_str_begins(rest, rows[i].stem))
            continue;
        *front = stated(rows[i].front);
        *behind = stated(rows[i].behind);
    }
}

mn_status mn_convert_fold(mn_convert_plan *p, mn_out_tensor *out, mn_error *err) {
    const bool is_vector = out->n_dim == 1;
    const int64_t n = out->dim[0];
    mn_str rest;
    bool any = false;
    if (!folds(p) || out->n_dim > 2)
        return MN_OK;
    if (mn_tensor_layer(out->name, &rest) < 0)
        rest = out->name;
    float *factors = mn_arena_alloc(&p->arena, (size_t)n, sizeof *factors);
    if (!factors)
        return mn_fail_memory(err, (uint64_t)n * sizeof *factors);
    for (int64_t r = 0; r < n; r++) {
        double front;
        double behind;
        fold_factors(&p->hp, rest, r, &front, &behind);
        factors[r] = (float)(is_vector ? behind : front * behind);
        any = any || factors[r] < 1 || factors[r] > 1;
    }
    if (any)
        out->factors = factors;
    return MN_OK;
}

/* Where the embedding makes the logits, too, and one of its factors is not 1, the file has it
 * twice. */
bool mn_convert_needs_output(const mn_convert_plan *p) {
    const double embd = stated(p->hp.embd_scale);
    const double logits = factor_of_logits(&p->hp);
    return folds(p) && p->hp.tied && (embd < 1 || embd > 1 || logits < 1 || logits > 1);
}

/* Readers of Falcon-H1 know this norm without an ending. */
mn_str mn_convert_name_there(const mn_convert_plan *p, mn_str name) {
    mn_str rest;
    if (folds(p) && mn_tensor_layer(name, &rest) >= 0 && mn_str_is(rest, "ffn_norm.weight"))
        name.len -= strlen(".weight");
    return name;
}
