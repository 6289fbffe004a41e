/* convert.c -- mn_model_convert: a model as one GGUF file. The plan is made first
 * (runtime/convert): what cannot be converted is said before a byte is written. */
#include "opened/opened.h"
#include "convert/convert.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* "" and NULL: *out NULL, the types stay as they are. */
static mn_status find_type(const char *name, const mn_convert_type **out, mn_error *err) {
    *out = name && *name ? mn_convert_type_find(name) : NULL;
    if (!name || !*name || *out)
        return MN_OK;
    mn_text known = {0};
    mn_convert_type_list(&known);
    const mn_status st = mn_fail(err, MN_INVALID, "unknown type \"%.40s\"; known: %s", name,
                                 known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

/* How the model's makers say it should be sampled, under GGUF's names. */
static mn_status put_sampling(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_SAMPLING_KEYS && !st; i++) {
        const mn_sampling_key *k = &mn_sampling_keys[i];
        if (isnan(m->sampling[i]))
            continue;
        st = k->whole ? mn_convert_int(p, k->key, (int64_t)m->sampling[i], err)
                      : mn_convert_real(p, k->key, m->sampling[i], err);
    }
    return st;
}

/* The prompt of a reranker that is asked with one; that of a GGUF file is there already. */
static mn_status put_prompt(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    mn_text usual = {0};
    if (!m->score.known || !m->score.prompted ||
        mn_meta_find(&m->canonical->meta, MN_PAIR_PROMPT_KEY))
        return MN_OK;
    mn_pair_prompt(&usual);
    const char *copy = usual.failed ? NULL : mn_arena_strndup(&p->arena, usual.ptr, usual.len);
    mn_text_free(&usual);
    if (!copy)
        return mn_fail_memory(err, 1024);
    return mn_convert_str(p, MN_PAIR_PROMPT_KEY, mn_str_of(copy), err);
}

/* Of a reranker that answers yes or no the rows of these two tokens as a head, which other programs
 * score with. */
static mn_status put_words(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    enum { RANK = 4 };
    static const mn_str labels[] = {{"yes", 3}, {"no", 2}};
    const mn_head *h = &m->score.head;
    mn_status st = put_prompt(p, m, err);
    if (!m->score.known || !m->score.words)
        return st;
    if (!st)
        st =
            mn_convert_put_matrix(p, "cls.output.weight", m->score.words, 2, h->layer[0].n_in, err);
    if (!st)
        st = mn_convert_arch_int(p, "pooling_type", RANK, err);
    if (!st)
        st = mn_convert_arch_strs(p, "classifier.output_labels", labels, 2, err);
    return st;
}

/* Rows of the table of token types; readers of encoders want the key where there is none, too. */
static mn_status put_token_types(mn_convert_plan *p, mn_error *err) {
    const mn_model_tensor_entry *e = mn_canonical_tensor(p->model, "token_types.weight");
    int64_t n = 1;
    if (e && e->info.n_dim == 2)
        n = e->info.dim[0];
    return p->hp.bidirectional ? mn_convert_int(p, "tokenizer.ggml.token_type_count", n, err)
                               : MN_OK;
}

/* How embeddings are made of an encoder, or of a model whose files say it: modules.json is not part
 * of GGUF, and GGUF has no key for the norm. */
static mn_status put_pooling(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    if (m->embed.refusal || m->score.words || !(m->embed.stated || p->hp.bidirectional))
        return MN_OK; /* the pooling_type of a head is another one */
    mn_status st = mn_convert_arch_int(p, "pooling_type", m->embed.pooling, err);
    if (!st && m->embed.norm == MN_NORM_NONE)
        st = mn_convert_bool(p, MN_EMBED_NORM_KEY, false, err);
    return st;
}

/* Layer `no` behind the pooling, out of a folder of its own. */
static mn_status put_dense_layer(mn_convert_plan *p, const mn_head_layer *l, uint32_t no,
                                 mn_error *err) {
    char name[48];
    snprintf(name, sizeof name, "dense_%u.weight", no);
    mn_status st = mn_convert_put_matrix(p, name, l->weight, l->n_out, l->n_in, err);
    snprintf(name, sizeof name, "dense_%u.bias", no);
    if (!st && l->bias)
        st = mn_convert_put_matrix(p, name, l->bias, 0, l->n_out, err);
    snprintf(name, sizeof name, "dense_%u_feat_in", no);
    if (!st)
        st = mn_convert_arch_int(p, name, l->n_in, err);
    snprintf(name, sizeof name, "dense_%u_feat_out", no);
    return st ? st : mn_convert_arch_int(p, name, l->n_out, err);
}

/* Layers behind the pooling: those that are no tensors of the model yet; activations, for which
 * GGUF has no key. */
static mn_status put_dense(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    static const char *const acts[] = {"none", "tanh", "gelu", "relu", "silu"};
    const mn_head *h = &m->embed.dense;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < h->n && !st; i++) {
        const uint32_t no = MN_DENSE_FIRST + i;
        char name[48];
        snprintf(name, sizeof name, "minerva.dense_%u.activation", no);
        const char *key = mn_arena_strndup(&p->arena, name, strlen(name));
        if (!key)
            return mn_fail_memory(err, sizeof name);
        if (m->embed.from_folders)
            st = put_dense_layer(p, &h->layer[i], no, err);
        if (!st && h->layer[i].act != MN_HEAD_NONE)
            st = mn_convert_str(p, key, mn_str_of(acts[h->layer[i].act]), err);
    }
    return st;
}

/* What GGUF has no keys for of a head that scores texts: its readers assume these by the
 * architecture. */
static mn_status put_head(mn_convert_plan *p, const mn_model *m, mn_error *err) {
    static const char *const keys[] = {MN_HEAD_ACT_KEY, MN_HEAD_POOLING_KEY};
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(keys) && !st; i++) {
        mn_str value = {0};
        if (!mn_meta_str(&m->canonical->meta, keys[i], &value, NULL))
            st = mn_convert_str(p, keys[i], value, err);
    }
    return st;
}

/* What cannot be run is not converted: a weight is missing, or has another shape. */
static mn_status check_runs(const mn_model *m, mn_error *err) {
    mn_model_graph *g = NULL;
    const mn_status st = mn_model_graph_build(m->canonical, 0, false, &g, err);
    if (!st && g->remark)
        mn_log(MN_LOG_WARN, "%s: %s", m->canonical->path, g->remark);
    mn_model_graph_free(g);
    return st;
}

/* Each tensor of the file, then the size of the whole. */
static mn_status tell_items(const mn_convert_plan *p, const mn_convert_params *params,
                            mn_error *err) {
    mn_text head = {0};
    const mn_status st = mn_gguf_header(p, &head, err);
    const uint64_t total = head.len + p->data_bytes;
    for (size_t i = 0; i < p->n_tensors && !st; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        const mn_vendor_types *types = p->model->types;
        mn_convert_item item = {.name = t->name,
                                .dtype = mn_dtype_name(t->type.id),
                                .stored = "",
                                .n_dim = t->n_dim,
                                .bytes = t->bytes};
        if (t->src)
            item.stored = mn_vendor_dtype_name(types, t->src->dtype.id);
        memcpy(item.dim, t->dim, sizeof item.dim);
        params->item(params->arg, &item, total);
    }
    mn_text_free(&head);
    if (!st)
        params->item(params->arg, NULL, total);
    return st;
}

/* The files of adapters, which the plan owns. */
static mn_status open_adapters(const mn_model *m, const mn_convert_params *params,
                               mn_convert_plan *p, mn_error *err) {
    mn_loader_ref *refs = NULL;
    uint32_t n_refs = 0;
    if (!params->n_adapters)
        return MN_OK;
    if (!params->adapters)
        return mn_fail(err, MN_INVALID, "mn_convert_params.adapters is NULL, n_adapters is %u",
                       params->n_adapters);
    p->adapters = mn_calloc(params->n_adapters, sizeof *p->adapters);
    if (!p->adapters)
        return mn_fail_memory(err, params->n_adapters * sizeof *p->adapters);
    mn_status st = mn_loader_refs(m->rt, &refs, &n_refs, err);
    for (uint32_t i = 0; i < params->n_adapters && !st; i++) {
        p->adapters[i].factor = (double)params->adapters[i].scale;
        st = mn_lora_open(params->adapters[i].path, refs, n_refs, &p->adapters[i].lora, err);
        p->n_adapters++;
    }
    mn_free(refs);
    return st;
}

mn_status mn_model_convert(const mn_model *m, const char *path, const mn_convert_params *params,
                           mn_error *err) {
    mn_convert_params own = {.size = sizeof own};
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"path", path}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_args_take(MN_SIZED_CONVERT_PARAMS, &own, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_convert_params.flags", own.flags,
                           MN_CONVERT_REPLACE | MN_CONVERT_DRY_RUN);
    if (st)
        return st;
    if (m->canonical->orders)
        return mn_fail(err, MN_INVALID,
                       "%s: its experts stand in the order of their use; expected a model that was "
                       "opened without the setting expert_counts",
                       m->canonical->path);
    mn_convert_plan p = {.model = m->canonical};
    const mn_convert_run run = {m->rt->pool, own.flags & MN_CONVERT_REPLACE, own.progress, own.arg};
    st = find_type(own.type, &p.type, err);
    if (!st)
        st = mn_convert_rules_read(own.types, own.n_types, &p.rules, err);
    if (!st && own.imatrix) {
        p.imatrix_path = own.imatrix;
        st = mn_imatrix_read(own.imatrix, &p.imatrix, err);
    }
    if (!st)
        st = open_adapters(m, &own, &p, err);
    if (!st)
        st = check_runs(m, err);
    if (!st)
        st = mn_convert_tensors(&p, err);
    if (!st)
        st = mn_convert_meta(&p, m->name, m->tokenizer, err);
    if (!st)
        st = put_sampling(&p, m, err);
    if (!st)
        st = put_words(&p, m, err);
    if (!st)
        st = put_pooling(&p, m, err);
    if (!st)
        st = put_dense(&p, m, err);
    if (!st)
        st = put_head(&p, m, err);
    if (!st)
        st = put_token_types(&p, err);
    if (!st)
        mn_convert_remark(&p);
    if (!st && own.item)
        st = tell_items(&p, &own, err);
    if (!st && !(own.flags & MN_CONVERT_DRY_RUN))
        st = mn_convert_write(&p, path, &run, err);
    mn_convert_plan_free(&p);
    return st;
}
