/* params.c -- what callers ask of a sequence, checked before anything is changed: ids of a prompt,
 * and sampling parameters as a slot of the device holds them. Reads only what does not change in
 * the life of a session: any thread may submit. */
#include "session/requests/requests.h"
#include <float.h>
#include <math.h>
#include <string.h>

mn_status mn_params_check_ids(const mn_limits *l, const int32_t *ids, uint32_t n, uint32_t before,
                              mn_error *err) {
    const int64_t n_vocab = l->graph->hp.n_vocab;
    if (!n)
        return mn_fail(err, MN_BAD_INPUT, "the prompt is empty: no token to begin with");
    if (n > l->n_ctx || before > l->n_ctx - n)
        return mn_fail(
            err, MN_BAD_INPUT,
            "the prompt has %u tokens%s, the context %u (-c; the model was trained for %lld)",
            before + n, before ? " with what came before" : "", l->n_ctx,
            (long long)l->graph->hp.n_ctx_train);
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab)
            continue;
        return mn_fail(err, MN_BAD_INPUT,
                       "token id %d at place %u is outside the vocabulary of %lld", ids[i], i,
                       (long long)n_vocab);
    }
    return MN_OK;
}

mn_status mn_params_check_text(const mn_limits *l, uint32_t n_text, mn_error *err) {
    if (!l->n_text || n_text <= l->n_text)
        return MN_OK;
    return mn_fail(err, MN_BAD_INPUT,
                   "the prompt has %u tokens, a step %u rows: an encoder reads it in one step "
                   "(--batch)",
                   n_text, l->n_text);
}

/* Each id once. */
static mn_status add_stop(mn_slot_params *p, int32_t id, mn_error *err) {
    for (int32_t i = 0; i < p->n_stop; i++)
        if (p->stop[i] == id)
            return MN_OK;
    if (p->n_stop >= MN_MAX_STOP)
        return mn_fail(err, MN_BAD_INPUT, "more than %d stop ids", MN_MAX_STOP);
    p->stop[p->n_stop++] = id;
    return MN_OK;
}

/* Not what SAMPLE could do something with: a NaN would be taken for greedy. */
static mn_status check_params(const mn_sample_params *p, mn_error *err) {
    const struct {
        const char *name;
        float value;
        float min;
        float max;
    } rows[] = {
        {"temp", p->temp, -FLT_MAX, FLT_MAX},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"repeat_penalty", p->repeat_penalty, 0, FLT_MAX},
        {"frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
        {"presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            return mn_fail(
                err, MN_INVALID, "mn_sample_params.%s: found %g, expected a number from %g to %g",
                rows[i].name, (double)rows[i].value, (double)rows[i].min, (double)rows[i].max);
    if (p->top_k < 0)
        return mn_fail(err, MN_INVALID, "mn_sample_params.top_k: found %d, expected 0 or more",
                       p->top_k);
    return MN_OK;
}

mn_status mn_params_take(const mn_sample_params *given, mn_sample_params *out, mn_error *err) {
    *out = (mn_sample_params){.size = sizeof *out};
    mn_status st = mn_args_take(MN_SIZED_SAMPLE_PARAMS, out, given, err);
    if (!st && out->n_stop && !out->stop)
        st = mn_fail(err, MN_INVALID, "mn_sample_params.stop is NULL, n_stop is %u", out->n_stop);
    return st ? st : check_params(out, err);
}

mn_status mn_params_check_bias(const mn_limits *l, const mn_sample_params *p, mn_error *err) {
    if (p->n_bias > MN_MAX_BIAS)
        return mn_fail(err, MN_BAD_INPUT, "%u biases of ids, at most %d", p->n_bias, MN_MAX_BIAS);
    if (p->n_bias && !p->bias)
        return mn_fail(err, MN_INVALID, "mn_sample_params.bias is NULL, n_bias is %u", p->n_bias);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const mn_logit_bias b = p->bias[i];
        if (b.id < 0 || b.id >= l->graph->hp.n_vocab)
            return mn_fail(err, MN_BAD_INPUT,
                           "a bias for token id %d, which is outside the vocabulary of %lld", b.id,
                           (long long)l->graph->hp.n_vocab);
        if (isnan(b.bias) || b.bias > FLT_MAX)
            return mn_fail(err, MN_INVALID, "the bias of token id %d is %g, expected a number",
                           b.id, (double)b.bias);
        for (uint32_t k = 0; k < i; k++)
            if (p->bias[k].id == b.id)
                return mn_fail(err, MN_BAD_INPUT, "token id %d has two biases", b.id);
    }
    return MN_OK;
}

mn_status mn_params_adapter(const mn_limits *l, const mn_sample_params *p, const mn_adapter **out,
                            mn_error *err) {
    *out = NULL;
    if (p->adapter && !*p->adapter)
        return MN_OK;
    if (p->adapter)
        return mn_adapter_find(l->model->adapters, p->adapter, out, err);
    mn_adapter_hold(l->model->adapters, l->adapter);
    *out = l->adapter;
    return MN_OK;
}

static mn_status check_constraint(const mn_limits *l, const mn_sample_params *p,
                                  const mn_slot_params *slot, mn_error *err) {
    if (!p->constraint)
        return MN_OK;
    if (p->constraint->model != l->model)
        return mn_fail(err, MN_INVALID,
                       "mn_sample_params.constraint: made for another model, expected one of the "
                       "session's");
    if (!slot->n_stop)
        return mn_fail(err, MN_UNSUPPORTED,
                       "a constraint needs an end token: the model has none, and no stop id is "
                       "given");
    return MN_OK;
}

mn_status mn_params_of_slot(const mn_limits *l, const mn_sample_params *p, mn_slot_params *out,
                            mn_error *err) {
    *out = (mn_slot_params){.seed = p->seed,
                            .temp = p->temp,
                            .top_k = p->top_k,
                            .top_p = p->top_p,
                            .min_p = p->min_p,
                            .repeat_penalty = p->repeat_penalty,
                            .frequency_penalty = p->frequency_penalty,
                            .presence_penalty = p->presence_penalty,
                            .penalty_last_n = p->penalty_last_n,
                            .min_new = (int32_t)MN_MIN(p->min_new, INT32_MAX)};
    mn_status st = mn_samplers_of_slot(p, out, err);
    if (!st)
        st = mn_params_check_bias(l, p, err);
    const mn_model *m = l->model;
    const bool stops = !p->ignore_stop || p->constraint;
    if (p->constraint)
        out->min_new = 0; /* its masks say when stop ids are drawn */
    for (uint32_t i = 0; i < m->n_stop && stops && !st; i++)
        if (m->stop[i] < l->graph->hp.n_vocab)
            st = add_stop(out, m->stop[i], err);
    for (uint32_t i = 0; i < p->n_stop && !st; i++)
        st = add_stop(out, p->stop[i], err);
    return st ? st : check_constraint(l, p, out, err);
}
