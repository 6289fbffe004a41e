/* model.c -- mn_model_*: a path to a model with its tokeniser and chat template.
 *
 * An mn_model owns all of it until mn_model_free; sessions refer to it. It is read-only once open,
 * but for its graphs, which the first sessions build under the lock. A chat template that cannot be
 * used costs the template, not the model. */
#include "convert/imatrix.h"
#include "opened/opened.h"
#include "text/chat/chat.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file or folder that a name means; m keeps what it is known as. */
static mn_status find_path(mn_model *m, const char *name, char **out, mn_error *err) {
    mn_found *found = NULL;
    mn_status st = mn_model_find(m->rt, name, &found, err);
    mn_found_item item = {.size = sizeof item};
    if (st)
        return st;
    if (mn_found_get(found, 0, &item) != MN_OK)
        st = mn_fail(err, MN_IO_ERROR, "%s", mn_found_missing(found));
    if (!st) {
        const char *known_as = strcmp(item.place, "path") ? item.name : "";
        *out = mn_strndup(item.path, strlen(item.path));
        m->known_as = mn_strndup(known_as, strlen(known_as));
        m->found_flags = item.flags;
        if (!*out || !m->known_as)
            st = mn_fail_memory(err, strlen(item.path));
    }
    mn_found_free(found);
    return st;
}

/* The files at path, by whichever loader can read them. */
static mn_status open_canonical(mn_model *m, const char *path, uint32_t flags, mn_error *err) {
    mn_loader_ref *refs = NULL;
    uint32_t k = 0;
    mn_status st = mn_loader_refs(m->rt, &refs, &k, err);
    if (st)
        return st;
    st = mn_canonical_open(path, flags, refs, k, &m->canonical, err);
    mn_free(refs);
    /* Whose files they are is not known where the loader that would know is missing. */
    const mn_plugin_record *r = NULL;
    if (st && st != MN_OUT_OF_MEMORY)
        r = mn_registry_no_memory(m->rt->registry, "loader");
    if (r)
        return mn_fail(err, MN_OUT_OF_MEMORY, "%s: out of memory: its loader may be %s (%s)", path,
                       r->path, r->reason);
    return st;
}

/* N of "blk.N."; -1 = another name. */
static int64_t layer_of_name(mn_str name) {
    int64_t layer = -1;
    if (name.len < 5 || memcmp(name.ptr, "blk.", 4))
        return -1;
    const char *number = name.ptr + 4;
    const char *dot = memchr(number, '.', name.len - 4);
    if (!dot || !mn_parse_i64((mn_str){number, (uint64_t)(dot - number)}, &layer))
        return -1;
    return layer;
}

/* A count of layers that is too low gives answers, but not the model's. */
static void warn_of_spare_layers(const mn_model *m) {
    const mn_canonical *c = m->canonical;
    char key[96];
    int64_t n_layer = 0;
    snprintf(key, sizeof key, "%s.block_count", m->arch);
    if (mn_meta_i64(&c->meta, key, 1, INT64_MAX, &n_layer, NULL) != MN_OK)
        return;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const mn_tensor_info *t = &c->tensors[i].info;
        if (layer_of_name(t->name) < n_layer)
            continue;
        mn_str told = mn_meta_find(&c->meta, key)->native;
        if (!told.len)
            told = mn_str_of(key);
        mn_log(MN_LOG_WARN, "%s: tensor %.*s belongs to a layer that is not used: %.*s is %lld",
               c->path, MN_STR_ARG(t->native), MN_STR_ARG(told), (long long)n_layer);
        return;
    }
}

/* *out stays NULL where the model has no such template, or one that cannot be used, which is
 * logged. */
static mn_status open_template(mn_model *m, const char *name, mn_jinja **out, mn_error *err) {
    const mn_file_set *f = &m->canonical->files;
    /* a template that cannot be parsed costs the template, not the model */
    mn_error why = MN_ERROR_INIT;
    mn_text source = {0};
    mn_status st = mn_chat_template_find(&m->canonical->meta, f->files, f->n, name, &source, err);
    if (st && st != MN_END)
        st = mn_fail_in(err, st, "%s", m->canonical->path);
    if (!st && source.len) { /* an empty one would make every prompt empty: it is none */
        mn_model_take_forms(m, (mn_str){source.ptr, source.len});
        st = mn_jinja_parse((mn_str){source.ptr, source.len}, out, &why);
        if (st == MN_OUT_OF_MEMORY)
            mn_fail(err, st, "%s", why.msg);
        else if (st) {
            mn_log(MN_LOG_WARN, "%s: the chat template cannot be used: %s", m->canonical->path,
                   why.msg);
            st = MN_OK;
        }
    }
    mn_text_free(&source);
    return st == MN_END ? MN_OK : st;
}

/* The tokeniser and the chat templates; without a tokeniser no text, which is no error. */
static mn_status open_text(mn_model *m, mn_error *err) {
    const mn_file_set *f = &m->canonical->files;
    mn_status st = mn_tokenizer_create(&m->canonical->meta, f->files, f->n, &m->tokenizer, err);
    if (st == MN_END)
        return MN_OK;
    if (st)
        return mn_fail_in(err, st, "%s", m->canonical->path);
    st = open_template(m, "default", &m->chat, err);
    if (!st)
        st = open_template(m, "tool_use", &m->chat_tools, err);
    mn_model_default_forms(m);
    return st;
}

/* "" where the key is absent; NULL = out of memory. */
static char *copy_meta(const mn_model *m, const char *key) {
    mn_str s = {0};
    mn_meta_str(&m->canonical->meta, key, &s, NULL);
    return mn_strndup(s.ptr ? s.ptr : "", s.len);
}

/* What follows the last '/' of the first len bytes. */
static mn_str last_part(const char *path, size_t len) {
    size_t from = len;
    while (from && path[from - 1] != '/')
        from--;
    return (mn_str){path + from, len - from};
}

/* The model's name; a file that has none, or only repeats its architecture, is called by its file
 * name, a checkpoint by its folder's. */
static char *display_name(const mn_model *m) {
    const mn_meta_entry *said = mn_meta_find(&m->canonical->meta, "general.name");
    if (said && said->value.type != MN_VALUE_STR)
        mn_log(MN_LOG_WARN, "%s: key general.name is not a string, expected one: it is not used",
               m->canonical->path);
    char *name = copy_meta(m, "general.name");
    if (name && name[0] && strcmp(name, m->arch))
        return name;
    mn_free(name);
    if (m->known_as[0]) {
        const mn_str last = last_part(m->known_as, strcspn(m->known_as, ":"));
        return mn_strndup(last.ptr, (size_t)last.len);
    }
    char *full = realpath(m->canonical->path, NULL); /* "." has no name */
    const char *path = full ? full : m->canonical->path;
    mn_str last = last_part(path, strlen(path));
    if (mn_str_ends(last, ".safetensors") && last.ptr > path + 1)
        last = last_part(path, (size_t)(last.ptr - path) - 1);
    name = mn_strndup(last.ptr, last.len);
    free(full);
    return name;
}

/* ---- experts in the order of their use ------------------------------------------------------- */
/* The entry that has counts of the layer's experts; NULL: there is none. */
static const mn_imatrix_entry *entry_of_layer(const mn_imatrix *x, int64_t layer) {
    static const char *const stems[] = {"down", "gate", "up", "gate_up"};
    for (size_t i = 0; i < MN_COUNT(stems); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%lld.ffn_%s_exps.weight", (long long)layer, stems[i]);
        const mn_imatrix_entry *e = mn_imatrix_find(x, mn_str_of(name));
        if (e && e->counts && e->n_counts > 1)
            return e;
    }
    return NULL;
}

static mn_status order_layer(mn_model *m, const char *path, const mn_imatrix *x, int64_t layer,
                             int64_t n_expert, uint32_t *n_ordered, mn_error *err) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)layer);
    const mn_model_tensor_entry *router = mn_canonical_tensor(m->canonical, name);
    const mn_imatrix_entry *e = router ? entry_of_layer(x, layer) : NULL;
    if (!e)
        return MN_OK;
    if (n_expert != (int64_t)e->n_counts)
        return mn_fail(err, MN_BAD_INPUT,
                       "expert_counts: %s: %.*s has counts of %llu experts; the layer of %s has "
                       "%lld",
                       path, MN_STR_ARG(e->name), (unsigned long long)e->n_counts,
                       m->canonical->path, (long long)n_expert);
    *n_ordered += 1;
    return mn_canonical_order_experts(m->canonical, layer, e->counts, (uint32_t)e->n_counts, err);
}

static int64_t key_of(const mn_model *m, const char *what) {
    char key[96];
    int64_t n = 0;
    snprintf(key, sizeof key, "%s.%s", m->arch, what);
    return mn_meta_i64(&m->canonical->meta, key, 0, INT32_MAX, &n, NULL) ? 0 : n;
}

/* The share of choices that falls on the first quarter of the experts, the mean of all layers. */
static double share_of_quarter(const mn_model *m, int64_t n_layer, int64_t n_expert) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < n_layer; i++) {
        const double *share = mn_canonical_expert_share(m->canonical, i);
        sum += share ? share[n_expert / 4] : 0;
        n += share != NULL;
    }
    return n ? sum / (double)n : 0;
}

/* The setting expert_counts: before a graph is built, the experts of the model's layers are put in
 * the order of their use, so that a device which has some of them has those that are used most.
 * MN_BAD_INPUT: the file has no counts of this model. */
static mn_status order_experts(mn_model *m, mn_error *err) {
    const char *path = mn_config_get_str(m->rt->config, "expert_counts");
    const int64_t n_layer = key_of(m, "block_count");
    const int64_t n_group = key_of(m, "expert_group_count");
    mn_imatrix x = {0};
    const int64_t n_expert = key_of(m, "expert_count");
    uint32_t n_ordered = 0;
    if (!*path || !n_expert)
        return MN_OK;
    if (n_group > 1 && n_group > key_of(m, "expert_group_used_count")) {
        mn_log(MN_LOG_WARN,
               "%s: expert_counts has no effect: its router chooses among groups of experts, "
               "which cannot be put in another order",
               m->canonical->path);
        return MN_OK;
    }
    mn_status st = mn_imatrix_read(path, &x, err);
    if (st)
        mn_fail_in(err, st, "expert_counts");
    for (int64_t i = 0; i < n_layer && !st; i++)
        st = order_layer(m, path, &x, i, n_expert, &n_ordered, err);
    if (!st && !n_ordered)
        st =
            mn_fail(err, MN_BAD_INPUT,
                    "expert_counts: %s has no counts of experts of %s; expected the importance "
                    "matrix of a text that this model has read (minerva imatrix, in the form gguf)",
                    path, m->canonical->path);
    if (!st)
        mn_log(
            MN_LOG_INFO,
            "%s: experts of %u layers are in the order of their use: %lld of %lld had %.0f %% of "
            "the choices",
            m->canonical->path, n_ordered, (long long)n_expert / 4, (long long)n_expert,
            100 * share_of_quarter(m, n_layer, n_expert));
    mn_imatrix_free(&x);
    return st;
}

/* ---- open ------------------------------------------------------------------------------------ */
mn_status mn_model_open(mn_runtime *rt, const char *path, mn_model **out, mn_error *err) {
    return mn_model_open_with(rt, path, NULL, out, err);
}

/* How the files are mapped, as the caller asks, and whether it ignores what no graph uses. */
static mn_status read_params(const mn_model_params *params, uint32_t *flags, bool *ignore,
                             mn_error *err) {
    const uint32_t known = MN_MODEL_READ | MN_MODEL_GUARD | MN_MODEL_IGNORE_UNUSED;
    mn_model_params p = {.size = sizeof p};
    mn_status st = mn_args_take(MN_SIZED_MODEL_PARAMS, &p, params, err);
    if (st)
        return st;
    *flags = 0;
    if (p.flags & MN_MODEL_READ)
        *flags |= MN_MAP_READ;
    if (p.flags & MN_MODEL_GUARD)
        *flags |= MN_MAP_GUARD;
    *ignore = p.flags & MN_MODEL_IGNORE_UNUSED;
    return mn_args_flags(err, "mn_model_params.flags", p.flags, known);
}

/* What the model is called, what it says of sampling, and what is odd about it. */
static mn_status read_facts(mn_model *m, mn_error *err) {
    m->arch = copy_meta(m, "general.architecture");
    if (!m->arch)
        return mn_fail_memory(err, 64);
    m->name = display_name(m);
    if (!m->name)
        return mn_fail_memory(err, 64);
    warn_of_spare_layers(m);
    mn_status st = mn_pooling_read(m, err);
    if (!st)
        st = mn_head_read(m, err);
    return st ? st : mn_generation_read(m, err);
}

/* Without files yet; NULL: out of memory. */
static mn_model *make_model(mn_runtime *rt) {
    mn_model *m = mn_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->rt = rt;
    pthread_mutex_init(&m->lock, NULL);
    m->told = mn_calloc(1, sizeof *m->told);
    m->token_table = mn_token_table_create();
    m->held = mn_held_create();
    m->adapters = mn_adapters_create();
    if (m->held && m->told && m->token_table && m->adapters)
        return m;
    mn_model_free(m);
    return NULL;
}

/* Files, tokeniser, templates, and what is asked of them often. */
static mn_status read_model(mn_model *m, const char *path, uint32_t flags, mn_error *err) {
    char *full = NULL;
    mn_status st = find_path(m, path, &full, err);
    if (!st)
        st = open_canonical(m, full, flags, err);
    if (!st && mn_canonical_is_adapter(m->canonical))
        st = mn_fail(err, MN_BAD_INPUT,
                     "%s is an adapter, not a model: open the model that it belongs to, and this "
                     "with --lora",
                     m->canonical->path);
    if (!st)
        st = open_text(m, err);
    if (!st)
        st = read_facts(m, err);
    mn_free(full);
    if (m->canonical)
        st = mn_canonical_settle(m->canonical, true, st, err);
    return st;
}

mn_status mn_model_open_with(mn_runtime *rt, const char *path, const mn_model_params *params,
                             mn_model **out, mn_error *err) {
    uint32_t flags = 0;
    bool ignore = false;
    mn_status st = mn_args_need(err, "mn_model_open", (mn_arg[]){{"rt", rt}, {"out", out}, {0}});
    if (!st)
        st = mn_args_same_process(err, "mn_model_open", rt);
    if (!st && path && !*path)
        st = mn_fail(err, MN_INVALID,
                     "mn_model_open: path is empty, expected a file or a folder, or NULL");
    if (!st)
        st = read_params(params, &flags, &ignore, err);
    if (st)
        return st;
    mn_model *m = make_model(rt);
    if (!m)
        return mn_fail_memory(err, sizeof *m);
    st = read_model(m, path, flags, err);
    if (!st)
        st = order_experts(m, err);
    if (st) {
        mn_model_free(m);
        return st;
    }
    m->canonical->ignore_unused = ignore || mn_config_get_bool(rt->config, "ignore_unused");
    *out = m;
    mn_log(MN_LOG_DEBUG, "model %s: %s, architecture %s", m->canonical->path, m->canonical->format,
           m->arch);
    return MN_OK;
}

void mn_model_free(mn_model *m) {
    if (!m || mn_pool_is_stranded(m->rt->pool))
        return;
    mn_model_graphs_free(m);
    mn_adapters_free(m->adapters);
    mn_grammar_vocab_free(m->grammar_vocab);
    mn_tokenizer_free(m->tokenizer);
    mn_jinja_free(m->chat);
    mn_jinja_free(m->chat_tools);
    mn_canonical_close(m->canonical);
    pthread_mutex_destroy(&m->lock);
    mn_free(m->arch);
    mn_free(m->name);
    mn_free(m->known_as);
    mn_free(m->embed.refusal);
    mn_head_free(m);
    mn_arena_free(&m->embed.dense.arena);
    mn_free(m->stop);
    mn_free(m->told);
    mn_held_free(m->held);
    mn_token_table_free(m->token_table);
    mn_free(m);
}

mn_status mn_model_get_info(const mn_model *m, mn_model_info *out) {
    if (!m)
        return MN_INVALID;
    const mn_canonical *c = m->canonical;
    const mn_model_tensor_entry *embd = mn_canonical_tensor(c, "token_embd.weight");
    char key[96];
    int64_t ctx = 0;
    snprintf(key, sizeof key, "%.64s.context_length", m->arch);
    mn_meta_i64(&c->meta, key, 0, INT64_MAX, &ctx, NULL);
    int64_t width = 0;
    snprintf(key, sizeof key, "%.64s.embedding_length", m->arch);
    mn_meta_i64(&c->meta, key, 0, INT64_MAX, &width, NULL);
    if (m->embed.dense.n)
        width = m->embed.dense.layer[m->embed.dense.n - 1].n_out;
    int64_t vocab = 0;
    if (embd && embd->info.n_dim == 2)
        vocab = embd->info.dim[0];
    else if (m->tokenizer)
        vocab = mn_tokenizer_n_vocab(m->tokenizer);
    mn_model_info info = {.size = sizeof info,
                          .n_tensors = (uint32_t)c->n_tensors,
                          .path = c->path,
                          .format = c->format,
                          .arch = m->arch,
                          .name = m->name,
                          .n_params = c->n_params,
                          .n_bytes = c->n_bytes,
                          .n_vocab = vocab,
                          .n_ctx_train = ctx,
                          .has_tokenizer = m->tokenizer != NULL,
                          .has_chat_template = m->chat != NULL,
                          .is_encoder = mn_hparams_is_encoder(c),
                          .is_reranker = m->score.known,
                          .n_embd = width,
                          .known_as = m->known_as,
                          .found = m->found_flags,
                          .draft_head = mn_hparams_has_head(c)};
    return mn_args_give(MN_SIZED_MODEL_INFO, out, &info);
}

mn_status mn_model_meta(const mn_model *m, uint32_t i, mn_str *key, mn_value *value) {
    if (!m || !key || !value)
        return MN_INVALID;
    if (i >= m->canonical->meta.n)
        return MN_END;
    *key = m->canonical->meta.entries[i].key;
    *value = m->canonical->meta.entries[i].value;
    return MN_OK;
}

/* The file that holds the tensor's first plane. */
static mn_str file_of(const mn_canonical *c, const mn_tensor_info *t) {
    const char *at = t->planes->ptr;
    for (uint32_t i = 0; i < c->files.n; i++) {
        const char *map = c->files.files[i].map;
        if (at >= map && at < map + c->files.files[i].bytes)
            return c->files.files[i].name;
    }
    return (mn_str){"", 0};
}

mn_status mn_model_tensor(const mn_model *m, uint32_t i, mn_tensor_item *out) {
    if (!m || !out)
        return MN_INVALID;
    if (i >= m->canonical->n_tensors)
        return MN_END;
    const mn_model_tensor_entry *e = &m->canonical->tensors[i];
    *out = (mn_tensor_item){.name = e->info.name,
                            .native = e->info.native,
                            .dtype = mn_vendor_dtype_name(m->canonical->types, e->info.dtype.id),
                            .n_dim = e->info.n_dim,
                            .bytes = e->bytes,
                            .file = file_of(m->canonical, &e->info)};
    memcpy(out->dim, e->info.dim, sizeof out->dim);
    return MN_OK;
}

mn_status mn_model_sample_defaults(const mn_model *m, mn_sample_params *out) {
    return m ? mn_args_give(MN_SIZED_SAMPLE_PARAMS, out, &m->defaults) : MN_INVALID;
}

mn_status mn_model_embed_defaults(const mn_model *m, uint32_t *pooling, uint32_t *norm,
                                  mn_error *err) {
    const mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {0}});
    return st ? st : mn_pooling_defaults(m, pooling, norm, err);
}
