/* ahead.c -- draft heads: those of Qwen3-Next, Qwen3.5 and 3.6, which checkpoints keep apart
 * (mtp.*), are named as the layer behind the last one, as in GGUF's files and in GLM-4.5's
 * checkpoints. From there on a head is a layer like any other. Of several in mtp.* the first one;
 * the others are dropped with what the model runs without. */
#include "families.h"
#include <string.h>

/* Behind "mtp.", and in a layer; ended by {0}. */
static const name_pair ahead_names[] = {{"layers.0.", ""},
                                        {"fc.", "eh_proj."},
                                        {"pre_fc_norm_embedding.", "enorm."},
                                        {"pre_fc_norm_hidden.", "hnorm."},
                                        {"norm.", "shared_head.norm."},
                                        {0}};

/* The name as a tensor of layer n; zero: it is no tensor of the head. ptr NULL with a length: out
 * of memory. */
static mn_str ahead_name(mn_parsed *p, mn_str native, int64_t n) {
    const mn_str none = {0};
    const mn_str inner = mnl_inner_name(native);
    if (!mn_str_begins(inner, "mtp."))
        return none;
    const mn_str rest = {inner.ptr + 4, inner.len - 4};
    for (const name_pair *pair = ahead_names; pair->native; pair++) {
        const uint64_t skip = strlen(pair->native);
        if (!mn_str_begins(rest, pair->native))
            continue;
        const mn_str name =
            mn_parsed_printf(p, "model.layers.%lld.%s%.*s", (long long)n, pair->canonical,
                             (int)(rest.len - skip), rest.ptr + skip);
        return name.ptr ? name : (mn_str){NULL, 1};
    }
    return none;
}

/* Arrays with a number per layer get one more: the last one that is not 0. */
static mn_status ahead_lengthen(mn_parsed *p, mn_value *v, mn_error *err) {
    int64_t *longer = mn_parsed_alloc(p, v->n + 1, sizeof *longer);
    if (!longer)
        return mnl_fail_memory(err);
    memcpy(longer, v->array, v->n * sizeof *longer);
    for (uint64_t i = 0; i < v->n; i++)
        if (longer[i])
            longer[v->n] = longer[i];
    v->array = longer;
    v->n++;
    return MN_OK;
}

/* One layer more, which guesses ahead. */
static mn_status ahead_count(mn_parsed *p, int64_t n_layer, mn_error *err) {
    mn_str arch = {0};
    mn_status status = MN_OK;
    for (uint64_t i = 0; i < p->n_meta && !status; i++) {
        mn_parsed_meta *m = &p->meta[i];
        if (mn_str_ends(m->key, ".block_count")) {
            m->value.i = n_layer + 1;
            arch = (mn_str){m->key.ptr, m->key.len - strlen("block_count")};
        }
        if (m->value.type == (MN_VALUE_ARRAY | MN_VALUE_INT) && m->value.n == (uint64_t)n_layer &&
            (mn_str_ends(m->key, "head_count_kv") || mn_str_ends(m->key, "head_count")))
            status = ahead_lengthen(p, &m->value, err);
    }
    if (status)
        return status;
    mn_parsed_meta *m = mn_parsed_add_meta(p);
    if (!m)
        return mnl_fail_memory(err);
    m->key = mn_parsed_printf(p, "%.*snextn_predict_layers", MN_STR_ARG(arch));
    m->native = mn_str_of("mtp_num_hidden_layers");
    m->value.type = MN_VALUE_INT;
    m->value.i = 1;
    return m->key.ptr ? MN_OK : mnl_fail_memory(err);
}

mn_status ahead_read(mn_parsed *p, const model_facts *facts, mn_error *err) {
    const mn_str joined = mn_parsed_printf(p, "layers.%lld.eh_proj.", (long long)facts->n_layer);
    bool any = false;
    if (!joined.ptr)
        return mnl_fail_memory(err);
    for (uint64_t i = 0; i < p->n_tensors && facts->family->ahead; i++) {
        const mn_str name = ahead_name(p, p->tensors[i].native, facts->n_layer);
        if (!name.ptr && name.len)
            return mnl_fail_memory(err);
        if (name.ptr)
            p->tensors[i].native = name;
        any = any || mn_str_begins(mnl_inner_name(p->tensors[i].native), joined.ptr);
    }
    return any ? ahead_count(p, facts->n_layer, err) : MN_OK;
}
