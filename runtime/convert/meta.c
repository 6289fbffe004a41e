/* meta.c -- the keys of a converted file: the model's own under GGUF's names, those of its
 * tokeniser, and what the file is.
 *
 * Entries are appended to the plan; strings and arrays lie in its arena or in the model, which
 * outlives it. A key that the model has is never overwritten. */
#include "convert/convert.h"
#include "text/chat/chat.h"
#include "convert/tokenizer_export.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool meta_out_begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}

static mn_status meta_out_put(mn_convert_plan *p, mn_str key, mn_value value, mn_error *err) {
    void *list = p->meta;
    if (!mn_grow(&list, &p->cap_meta, p->n_meta + 1, sizeof *p->meta))
        return mn_fail_memory(err, sizeof *p->meta);
    p->meta = list;
    p->meta[p->n_meta++] = (mn_meta_entry){key, key, value};
    return MN_OK;
}

static mn_status meta_out_put_int(mn_convert_plan *p, const char *key, int64_t i, mn_error *err) {
    const mn_value v = {
        .size = sizeof v,
        .type = MN_VALUE_INT,
        .i = i,
    };
    return meta_out_put(p, mn_str_of(key), v, err);
}

static mn_status put_real(mn_convert_plan *p, const char *key, double f, mn_error *err) {
    const mn_value v = {
        .size = sizeof v,
        .type = MN_VALUE_FLOAT,
        .f = f,
    };
    return meta_out_put(p, mn_str_of(key), v, err);
}

static mn_status meta_out_put_str(mn_convert_plan *p, const char *key, mn_str s, mn_error *err) {
    char *copy = mn_arena_strndup(&p->arena, s.ptr ? s.ptr : "", s.len);
    if (!copy)
        return mn_fail_memory(err, s.len);
    const mn_value v = {
        .size = sizeof v,
        .type = MN_VALUE_STR,
        .s = {copy, s.len},
    };
    return meta_out_put(p, mn_str_of(key), v, err);
}

static bool meta_out_is_one_of(mn_str s, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (mn_str_is(s, words[i]))
            return true;
    return false;
}

/* The file's own facts are written anew; minerva.* was applied; scaling by factors became
 * tensors. */
static bool is_dropped(const mn_convert_plan *p, mn_str key) {
    static const char *const files_own[] = {"general.file_type", "general.quantization_version",
                                            "general.alignment"};
    static const char *const tensors_now[] = {"rope.turning_count", "rope.scaling.long_factor",
                                              "rope.scaling.short_factor"};
    const size_t arch = strlen(p->hp.arch) + 1;
    if (meta_out_begins(key, "minerva.") || meta_out_begins(key, "split.") ||
        (p->imatrix.n && meta_out_begins(key, "quantize.imatrix.")) ||
        meta_out_is_one_of(key, files_own, 3))
        return true;
    if (key.len <= arch || !meta_out_begins(key, p->hp.arch))
        return false;
    const mn_str rest = {key.ptr + arch, key.len - arch};
    if (mn_convert_is_folded_key(p, rest))
        return true;
    const uint32_t scaling = p->hp.rope_scaling;
    const bool by_factors = scaling == MN_ROPE_SCALING_LLAMA3 || scaling == MN_ROPE_SCALING_DYNAMIC;
    if (by_factors && meta_out_begins(rest, "rope.scaling."))
        return true;
    /* see put_magnitude */
    if (scaling == MN_ROPE_SCALING_YARN && mn_str_ends(rest, "attn_factor"))
        return true;
    return meta_out_is_one_of(rest, tensors_now, 3);
}

/* Keys that GGUF spells in another way than the canonical model. */
static mn_status renamed(mn_convert_plan *p, mn_str *key, mn_error *err) {
    static const char *const pairs[][2] = {
        {".rope.scaling.beta_fast", ".rope.scaling.yarn_beta_fast"},
        {".rope.scaling.beta_slow", ".rope.scaling.yarn_beta_slow"}};
    for (size_t i = 0; i < MN_COUNT(pairs); i++) {
        if (!mn_str_ends(*key, pairs[i][0]))
            continue;
        char name[128];
        const int n = snprintf(name, sizeof name, "%s%s", p->hp.arch, pairs[i][1]);
        const char *copy = mn_arena_strndup(&p->arena, name, (size_t)n);
        if (!copy)
            return mn_fail_memory(err, sizeof name);
        *key = (mn_str){copy, (uint64_t)n};
    }
    return MN_OK;
}

/* p, where every layer but each p-th slides; 0: by another pattern. */
static int64_t period_of(const mn_value *v) {
    const int64_t *slides = v->array;
    int64_t period = 1;
    while (period <= (int64_t)v->n && slides[period - 1])
        period++;
    for (int64_t i = 0; i < (int64_t)v->n; i++)
        if ((slides[i] != 0) != (i % period < period - 1))
            return 0;
    return period;
}

/* The window pattern as GGUF has it: one true or false per layer; of Llama 4 a period. */
static mn_status as_bools(mn_convert_plan *p, mn_str key, mn_value *v, mn_error *err) {
    if (!mn_str_ends(key, ".attention.sliding_window_pattern"))
        return MN_OK;
    if (v->type != (MN_VALUE_ARRAY | MN_VALUE_INT))
        return MN_OK;
    const int64_t period = strcmp(p->hp.arch, "llama4") ? 0 : period_of(v);
    if (period) {
        *v = (mn_value){.size = sizeof *v, .type = MN_VALUE_INT, .i = period};
        return MN_OK;
    }
    uint8_t *flags = mn_arena_alloc(&p->arena, (size_t)v->n, 1);
    if (!flags)
        return mn_fail_memory(err, v->n);
    for (uint64_t i = 0; i < v->n; i++)
        flags[i] = ((const int64_t *)v->array)[i] != 0;
    v->type = MN_VALUE_ARRAY | MN_VALUE_BOOL;
    v->array = flags;
    return MN_OK;
}

/* One key of the model, if the file is to have it. The architecture is followed by the name. */
static mn_status copy_key(mn_convert_plan *p, mn_meta_entry e, const char *name, mn_error *err) {
    const bool first = mn_str_is(e.key, "general.architecture");
    if (is_dropped(p, e.key) || mn_str_is(e.key, "general.name"))
        return MN_OK;
    mn_status st = renamed(p, &e.key, err);
    if (!st)
        st = as_bools(p, e.key, &e.value, err);
    if (!st)
        st = meta_out_put(p, e.key, e.value, err);
    if (!st && first)
        st = meta_out_put_str(p, "general.name", mn_str_of(name), err);
    return st;
}

static mn_status copy_keys(mn_convert_plan *p, const char *name, mn_error *err) {
    const mn_meta *all = &p->model->meta;
    mn_status st = MN_OK;
    for (size_t i = 0; i < all->n && !st; i++)
        st = copy_key(p, all->entries[i], name, err);
    return st;
}

/* Unless the model has it. */
static mn_status put_general(mn_convert_plan *p, const char *key, const char *value,
                             mn_error *err) {
    if (mn_meta_find(&p->model->meta, key))
        return MN_OK;
    return meta_out_put_str(p, key, mn_str_of(value), err);
}

/* What other programs write of the importance matrix; of its path the file's name alone. */
static mn_status put_imatrix(mn_convert_plan *p, mn_error *err) {
    const char *slash = strrchr(p->imatrix_path, '/');
    mn_status st = meta_out_put_str(p, "quantize.imatrix.file",
                                    mn_str_of(slash ? slash + 1 : p->imatrix_path), err);
    if (!st && p->imatrix.dataset.len)
        st = meta_out_put_str(p, "quantize.imatrix.dataset", p->imatrix.dataset, err);
    if (!st)
        st = meta_out_put_int(p, "quantize.imatrix.entries_count", (int64_t)p->imatrix.n, err);
    if (!st && p->imatrix.chunks)
        st = meta_out_put_int(p, "quantize.imatrix.chunks_count", (int64_t)p->imatrix.chunks, err);
    return st;
}

/* A key of the architecture's own, unless the model has it. */
static mn_status put_missing(mn_convert_plan *p, const char *stem, mn_value v, mn_error *err) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", p->hp.arch, stem);
    if (mn_meta_find(&p->model->meta, key))
        return MN_OK;
    const char *copy = mn_arena_strndup(&p->arena, key, strlen(key));
    if (!copy)
        return mn_fail_memory(err, sizeof key);
    v.size = sizeof v;
    return meta_out_put(p, mn_str_of(copy), v, err);
}

/* The magnitude of sin and cos, which checkpoints may leave to a formula: longrope's itself, yarn's
 * over that of the formula. */
static mn_status put_magnitude(mn_convert_plan *p, mn_error *err) {
    const bool yarn = p->hp.rope_scaling == MN_ROPE_SCALING_YARN;
    const mn_rope_table *table = mn_convert_scaled_table(p);
    char key[128];
    double scale;
    if (!table || (!yarn && p->hp.rope_scaling != MN_ROPE_SCALING_LONGROPE))
        return MN_OK;
    float *freqs = mn_arena_alloc(&p->arena, (size_t)table->n_rot, sizeof *freqs);
    if (!freqs)
        return mn_fail_memory(err, (size_t)table->n_rot * sizeof *freqs);
    mn_rope_freqs(&p->hp, table, NULL, freqs, &scale);
    if (!yarn) {
        const mn_value v = {
            .type = MN_VALUE_FLOAT,
            .f = scale,
        };
        return put_missing(p, "rope.scaling.attn_factor", v, err);
    }
    if (!(p->hp.latent.yarn_log > 0))
        scale /= mn_rope_yarn_mscale(p->hp.rope_factor);
    if (fabs(scale - 1) < 1e-9)
        return MN_OK;
    snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", p->hp.arch);
    const char *copy = mn_arena_strndup(&p->arena, key, strlen(key));
    if (!copy)
        return mn_fail_memory(err, sizeof key);
    return put_real(p, copy, scale, err);
}

/* Gemma 4's readers want the keys of all its variants: that there are no embeddings for each layer,
 * and the widths of heads of window layers, also where those are the others' or there are none. */
static mn_status put_gemma4(mn_convert_plan *p, mn_error *err) {
    const mn_layer_shape *l = p->hp.layer;
    mn_value flags = {.type = MN_VALUE_ARRAY | MN_VALUE_BOOL, .n = (uint64_t)p->hp.n_layer};
    uint8_t *slides = mn_arena_alloc(&p->arena, (size_t)p->hp.n_layer, sizeof *slides);
    int64_t window = 0;
    if (!slides)
        return mn_fail_memory(err, (uint64_t)p->hp.n_layer);
    for (int64_t i = 0; i < p->hp.n_layer; i++) {
        slides[i] = l[i].window > 0;
        window = MN_MAX(window, l[i].window);
    }
    flags.array = slides;
    mn_status st =
        mn_convert_arch_int(p, "embedding_length_per_layer_input", p->hp.n_of_layer, err);
    if (!st)
        st = mn_convert_arch_int(p, "attention.key_length_swa", l->head_dim_k, err);
    if (!st)
        st = mn_convert_arch_int(p, "attention.value_length_swa", l->head_dim_v, err);
    if (!st)
        st = mn_convert_arch_int(p, "attention.sliding_window", window, err);
    if (st)
        return st;
    return put_missing(p, "attention.sliding_window_pattern", flags, err);
}

/* What other readers insist on: the width of experts; Phi 3's window, 0 where it has none; Gemma
 * 4's variant; the magnitude. */
static mn_status put_derived(mn_convert_plan *p, mn_error *err) {
    mn_value width = {.type = MN_VALUE_INT};
    mn_value window = {.type = MN_VALUE_INT};
    mn_status st = MN_OK;
    bool equal = true;
    for (int64_t i = 0; i < p->hp.n_layer; i++) {
        const mn_layer_shape *l = &p->hp.layer[i];
        if (!l->n_expert)
            continue;
        equal = equal && (!width.i || width.i == l->n_ff_expert);
        width.i = l->n_ff_expert;
    }
    if (width.i && equal)
        st = put_missing(p, "expert_feed_forward_length", width, err);
    if (!st && p->hp.zero_window)
        st = put_missing(p, "attention.sliding_window", window, err);
    if (!st && !strcmp(p->hp.arch, "gemma4"))
        st = put_gemma4(p, err);
    if (st)
        return st;
    return put_magnitude(p, err);
}

/* GGUF has no key for the activation: where it is not the architecture's own, one of ours says
 * it. */
static mn_status put_act(mn_convert_plan *p, mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(&p->model->meta, "minerva.hidden_act");
    if (!e || p->hp.act == p->plain.act)
        return MN_OK;
    mn_log(MN_LOG_WARN,
           "%s: its activation \"%.*s\" is not the one that %s has in GGUF: other programs will "
           "not know",
           p->model->path, MN_STR_ARG(e->value.s), p->hp.arch);
    return meta_out_put(p, e->key, e->value, err);
}

/* general.file_type: what was asked for, else what most of the weights are. */
static int64_t file_type(const mn_convert_plan *p) {
    uint64_t bytes[128] = {0};
    uint32_t most = MN_F32;
    if (p->type)
        return p->type->file_type;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const uint32_t id = p->tensors[i].type.id;
        if (id < MN_COUNT(bytes))
            bytes[id] += p->tensors[i].rows * p->tensors[i].cols;
    }
    for (uint32_t i = 0; i < MN_COUNT(bytes); i++)
        if (bytes[i] > bytes[most])
            most = i;
    const mn_convert_type *k = mn_convert_type_of(most);
    if (k)
        return k->file_type;
    return 1024; /* "guessed" in other programs */
}

/* "1.1B", "95K", "8x7B": parameters with two digits or more; where there are experts, those of a
 * model of one, times the experts. */
static double count_parameters(const mn_convert_plan *p) {
    const double n_expert = (double)p->hp.n_expert;
    double sum = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        const double n = (double)t->rows * (double)t->cols;
        const bool experts =
            mn_str_ends(t->name, "_exps.weight") || mn_str_ends(t->name, "_exps.bias");
        sum += experts && n_expert > 0 ? n / n_expert : n;
    }
    return sum;
}

static mn_status put_size_label(mn_convert_plan *p, mn_error *err) {
    static const char units[] = "KMBT";
    char times[24] = "";
    char label[48];
    double n = count_parameters(p) / 1e3;
    int unit = 0;
    while (n > 1e3 && units[unit + 1]) {
        n /= 1e3;
        unit++;
    }
    int digits = n < 9.5;
    if (n < 0.5)
        digits = 2;
    if (p->hp.n_expert)
        snprintf(times, sizeof times, "%lldx", (long long)p->hp.n_expert);
    snprintf(label, sizeof label, "%s%.*f%c", times, digits, n, units[unit]);
    return put_general(p, "general.size_label", label, err);
}

static mn_status put_template(mn_convert_plan *p, const char *name, const char *key,
                              mn_error *err) {
    const mn_file_set *f = &p->model->files;
    mn_text source = {0};
    mn_status st = mn_chat_template_find(&p->model->meta, f->files, f->n, name, &source, err);
    if (!st)
        st = meta_out_put_str(p, key, (mn_str){source.ptr, source.len}, err);
    mn_text_free(&source);
    if (st == MN_END)
        return MN_OK;
    return st;
}

/* The model's rows of the vocabulary may be more than the tokeniser's ids: each gets an entry. */
static mn_status put_tokenizer(mn_convert_plan *p, const mn_tokenizer *tok, mn_error *err) {
    const mn_file_set *f = &p->model->files;
    const mn_meta base = {p->meta, p->n_meta};
    mn_meta keys = {0};
    mn_status st = mn_tokenizer_export(tok, &base, f->files, f->n, (uint32_t)p->hp.n_vocab,
                                       &p->arena, &keys, err);
    for (size_t i = 0; i < keys.n && !st; i++)
        st = meta_out_put(p, keys.entries[i].key, keys.entries[i].value, err);
    mn_free(keys.entries);
    if (!st)
        st = put_template(p, "default", "tokenizer.chat_template", err);
    if (st)
        return st;
    return put_template(p, "tool_use", "tokenizer.chat_template.tool_use", err);
}

mn_status mn_convert_meta(mn_convert_plan *p, const char *name, const mn_tokenizer *tok,
                          mn_error *err) {
    const bool has_keys = mn_meta_find(&p->model->meta, "tokenizer.ggml.model") ||
                          mn_meta_find(&p->model->meta, "tokenizer.huggingface.json");
    mn_status st = copy_keys(p, name, err);
    if (!st)
        st = put_derived(p, err);
    if (!st)
        st = put_act(p, err);
    if (!st)
        st = put_general(p, "general.type", "model", err);
    if (!st)
        st = put_size_label(p, err);
    if (!st)
        st = meta_out_put_int(p, "general.file_type", file_type(p), err);
    if (!st && p->imatrix.n)
        st = put_imatrix(p, err);
    if (!st)
        st = meta_out_put_int(p, "general.quantization_version", 2, err);
    if (st || has_keys)
        return st;
    if (!tok)
        return meta_out_put_str(p, "tokenizer.ggml.model", mn_str_of("none"), err);
    return put_tokenizer(p, tok, err);
}

mn_status mn_convert_real(mn_convert_plan *p, const char *key, double v, mn_error *err) {
    if (mn_meta_find(&p->model->meta, key))
        return MN_OK;
    return put_real(p, key, v, err);
}

mn_status mn_convert_arch_int(mn_convert_plan *p, const char *stem, int64_t i, mn_error *err) {
    const mn_value v = {.type = MN_VALUE_INT, .i = i};
    return put_missing(p, stem, v, err);
}

mn_status mn_convert_arch_strs(mn_convert_plan *p, const char *stem, const mn_str *strs, uint64_t n,
                               mn_error *err) {
    const mn_value v = {.type = MN_VALUE_ARRAY | MN_VALUE_STR, .array = strs, .n = n};
    return put_missing(p, stem, v, err);
}

mn_status mn_convert_bool(mn_convert_plan *p, const char *key, bool b, mn_error *err) {
    const mn_value v = {.size = sizeof v, .type = MN_VALUE_BOOL, .i = b};
    return meta_out_put(p, mn_str_of(key), v, err);
}

mn_status mn_convert_str(mn_convert_plan *p, const char *key, mn_str s, mn_error *err) {
    return meta_out_put_str(p, key, s, err);
}

mn_status mn_convert_int(mn_convert_plan *p, const char *key, int64_t v, mn_error *err) {
    if (mn_meta_find(&p->model->meta, key))
        return MN_OK;
    return meta_out_put_int(p, key, v, err);
}
