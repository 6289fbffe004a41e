/* plan.c -- which tensors a converted file holds, in which form and order of rows; pick.c has their
 * types.
 *
 * The plan refers to the model's tensors, which outlive it; what it makes (factors of the rotary
 * embedding) is in its arena. Nothing is read here: write.c does the rest. */
#include "convert/convert.h"
#include "model/rows.h"
#include "convert/quant.h"
#include <stdio.h>
#include <string.h>

static bool convert_begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A tensor without a canonical name keeps its own: GGUF's readers would not know it. */
static bool convert_has_name(const mn_canonical *m, mn_str name) {
    static const char *const stems[] = {
        "blk.",        "token_embd.",      "output.",        "output_norm.", "position_embd.",
        "rope_",       "token_embd_norm.", "token_types.",   "cls.",         "dense_",
        "per_layer_",  "altup_",           "enc.",           "dec.",         "token_embd_proj.",
        "attn_rel_b.", "rel_embd.",        "rel_embd_norm.", "text_conv"};
    if (!strcmp(m->format, "gguf"))
        return true;
    for (size_t i = 0; i < MN_COUNT(stems); i++)
        if (convert_begins(name, stems[i]))
            return true;
    return false;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static mn_status convert_no_memory(mn_error *err) {
    return mn_fail_memory(err, sizeof(mn_out_tensor));
}

/* Appends a tensor: its size, and where it lies in the file's data. */
static mn_status convert_place(mn_convert_plan *p, mn_out_tensor t, mn_error *err) {
    mn_str file = mn_str_of(p->model->path);
    t.cols = (uint64_t)t.dim[t.n_dim - 1];
    t.rows = 1;
    for (uint32_t d = 0; d + 1 < t.n_dim; d++)
        t.rows *= (uint64_t)t.dim[d];
    t.offset = p->data_bytes;
    const bool fit = mn_dtype_bytes(t.type, t.cols, &t.row_bytes) &&
                     mn_mul_u64(t.row_bytes, t.rows, &t.bytes) &&
                     mn_add_u64(p->data_bytes, t.bytes + MN_GGUF_ALIGNMENT - 1, &p->data_bytes);
    if (!fit)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%.*s: tensor %.*s: rows of %lld do not fit blocks of %s", MN_STR_ARG(file),
                       MN_STR_ARG(t.name), (long long)t.cols, mn_dtype_name(t.type.id));
    p->data_bytes -= p->data_bytes % MN_GGUF_ALIGNMENT;
    void *list = p->tensors;
    if (!mn_grow(&list, &p->cap_tensors, p->n_tensors + 1, sizeof t))
        return convert_no_memory(err);
    p->tensors = list;
    p->tensors[p->n_tensors++] = t;
    return MN_OK;
}

/* changed: the values are not those that are stored. */
static bool can_convert(const mn_convert_plan *p, const mn_tensor_info *t, uint32_t dtype,
                        bool changed) {
    const bool readable =
        mn_dequant_has(t->dtype.id) || mn_vendor_type_of(p->model->types, t->dtype.id);
    if (t->dtype.id == dtype && t->n_planes == 1 && !changed)
        return true;
    return readable && mn_quant_has(dtype);
}

/* A vector in parts, as F32: heads of biases that are stored in another order. NULL: no memory. */
static float *gather_vector(mn_convert_plan *p, const mn_tensor_info *t) {
    float *values = mn_arena_alloc(&p->arena, (size_t)t->dim[0], sizeof *values);
    int64_t n = 0;
    for (uint32_t i = 0; values && i < t->n_parts; i++) {
        const mn_plane *part = mn_tensor_plane(t, i, 0);
        for (int64_t j = 0; j < part->dim[0]; j++)
            values[n++] =
                mn_plane_value(part->dtype, (const uint8_t *)part->ptr + j * part->stride[0]);
    }
    return values;
}

/* The entry of the importance matrix for the tensor that is about to be placed. */
static mn_status find_importance(mn_convert_plan *p, mn_out_tensor *t, mn_error *err) {
    mn_imatrix_entry *e = mn_imatrix_find(&p->imatrix, t->name);
    const uint64_t cols = (uint64_t)t->dim[t->n_dim - 1];
    if (!e || t->n_dim < 2)
        return MN_OK;
    if (t->columns.width) { /* made with columns in one of two orders, nobody knows which */
        e->used = true;
        mn_log(MN_LOG_INFO, "%s: %.*s is rounded without it", p->imatrix_path, MN_STR_ARG(t->name));
        return MN_OK;
    }
    const uint64_t rows = mn_row_count(t->src);
    const uint64_t n_mat = t->n_dim > 2 ? (uint64_t)t->dim[0] : 1;
    if (e->n != cols && e->n != cols * n_mat)
        return mn_fail(err, MN_BAD_INPUT,
                       "%s: %.*s: found %llu values, expected %llu for each of %llu matrices: made "
                       "with another model",
                       p->imatrix_path, MN_STR_ARG(t->name), (unsigned long long)e->n,
                       (unsigned long long)cols, (unsigned long long)n_mat);
    e->used = true;
    t->weights = e->weights;
    t->weight_rows = rows;
    if (e->n != cols)
        t->weight_rows = rows / n_mat;
    return MN_OK;
}

mn_row_order mn_convert_turn(const mn_convert_plan *p, mn_str name, bool *columns) {
    const mn_ssm *s = &p->hp.ssm;
    mn_str rest;
    *columns = false;
    if (mn_tensor_layer(name, &rest) < 0 || s->n_head <= s->n_group || s->heads_in_turn ||
        !p->plain.ssm.heads_in_turn)
        return (mn_row_order){0};
    return mn_row_order_in_turn(&p->hp, rest, columns);
}

/* In which order rows and columns are written. */
static void find_order(const mn_convert_plan *p, mn_out_tensor *out) {
    bool columns = false;
    const mn_row_order turn = mn_convert_turn(p, out->name, &columns);
    out->order = mn_row_order_of(&p->hp, p->hp.rope_pairing, p->plain.rope_pairing, out->name);
    if (turn.width && columns)
        out->columns = turn;
    else if (turn.width)
        out->order = turn;
}

static mn_status convert_put_tensor(mn_convert_plan *p, const mn_tensor_info *t, mn_error *err) {
    mn_out_tensor out = {
        .name = mn_convert_name_there(p, t->name),
        .src = t,
        .n_dim = t->n_dim,
    };
    mn_str rest;
    mn_tensor_layer(t->name, &rest);
    memcpy(out.dim, t->dim, sizeof out.dim);
    const mn_status picked = mn_convert_pick(p, t, &out.wanted, err);
    if (picked)
        return picked;
    mn_dtype_by_id(mn_convert_fitting(out.wanted, t->dim[t->n_dim - 1]), &out.type);
    find_order(p, &out);
    if (t->n_dim == 1 && t->n_parts > 1) {
        const uint32_t id = t->dtype.id;
        if (mn_row_order_moves(&out.order) || (id != MN_F32 && id != MN_F16 && id != MN_BF16))
            return mn_fail(err, MN_UNSUPPORTED,
                           "%s: tensor %.*s is a vector in %u parts, expected one", p->model->path,
                           MN_STR_ARG(t->native), t->n_parts);
        out.wanted = MN_F32;
        mn_dtype_by_id(MN_F32, &out.type);
        out.values = gather_vector(p, t);
        if (!out.values)
            return convert_no_memory(err);
        return convert_place(p, out, err);
    }
    mn_status merged = mn_convert_merge_into(p, t, &out, err);
    if (!merged)
        merged = mn_convert_fold(p, &out, err);
    if (merged)
        return merged;
    const bool splits = out.columns.width % t->dtype.block_elems; /* heads end inside of blocks */
    if (!can_convert(p, t, out.type.id, out.n_merges || out.factors || splits))
        return mn_fail(err, MN_UNSUPPORTED, "%s: tensor %.*s: %s cannot be converted to %s",
                       p->model->path, MN_STR_ARG(t->native),
                       mn_vendor_dtype_name(p->model->types, t->dtype.id),
                       mn_dtype_name(out.type.id));
    const bool is_norm = mn_str_ends(rest, "norm.weight") && !convert_begins(rest, "ssm_norm.");
    if (p->hp.norm_offset != p->plain.norm_offset && is_norm)
        out.add = (float)p->hp.norm_offset;
    out.codes = out.type.id == MN_Q4_1 && !out.n_merges && !out.factors && !out.columns.width &&
                mn_convert_fits_q4_1(t);
    const mn_status st = find_importance(p, &out, err);
    if (st)
        return st;
    return convert_place(p, out, err);
}

static mn_status convert_put_values(mn_convert_plan *p, const char *name, const float *values,
                                    int64_t n, mn_error *err) {
    mn_out_tensor out = {
        .name = mn_str_of(name),
        .values = values,
        .n_dim = 1,
        .dim = {n},
    };
    mn_dtype_by_id(MN_F32, &out.type);
    return convert_place(p, out, err);
}

mn_status mn_convert_put_matrix(mn_convert_plan *p, const char *name, const float *values,
                                int64_t rows, int64_t cols, mn_error *err) {
    const char *copy = mn_arena_strndup(&p->arena, name, strlen(name));
    if (!copy)
        return convert_no_memory(err);
    if (!rows)
        return convert_put_values(p, copy, values, cols, err);
    mn_out_tensor out = {
        .name = mn_str_of(copy),
        .values = values,
        .n_dim = 2,
        .dim = {rows, cols},
    };
    mn_dtype_by_id(MN_F32, &out.type);
    return convert_place(p, out, err);
}

/* Where checkpoints have numbers in their configuration GGUF has tensors: the factors of llama3's
 * and longrope's scaling, and of heads that rotate in part. */
const mn_rope_table *mn_convert_scaled_table(const mn_convert_plan *p) {
    for (uint32_t i = 0; i < p->hp.n_rope; i++)
        if (p->hp.rope[i].scaled)
            return &p->hp.rope[i];
    return NULL;
}

/* What does not rotate has a factor that no angle survives, as in the field's files. */
static mn_status put_factors(mn_convert_plan *p, mn_error *err) {
    const mn_rope_table *table = mn_convert_scaled_table(p);
    int64_t n = 0;
    if (table)
        n = table->n_rot / 2;
    const bool llama3 = p->hp.rope_scaling == MN_ROPE_SCALING_LLAMA3;
    mn_hparams unscaled = p->hp;
    double mscale;
    const bool gemma4 = !strcmp(p->hp.arch, "gemma4"); /* its readers insist on the tensor */
    if (!table || (!llama3 && !gemma4 && table->n_turn == n))
        return MN_OK;
    if (mn_canonical_tensor(p->model, "rope_freqs.weight"))
        return MN_OK;
    float *f = mn_arena_alloc(&p->arena, (size_t)n, sizeof *f);
    float *g = mn_arena_alloc(&p->arena, (size_t)n, sizeof *g);
    if (!f || !g)
        return convert_no_memory(err);
    if (llama3)
        unscaled.rope_scaling = MN_ROPE_SCALING_NONE;
    mn_rope_freqs(&unscaled, table, NULL, f, &mscale);
    mn_rope_freqs(&p->hp, table, NULL, g, &mscale);
    for (int64_t i = 0; i < n; i++) {
        if (i < table->n_turn)
            f[i] = f[i] / g[i];
        else
            f[i] = 1e30f;
    }
    return convert_put_values(p, "rope_freqs.weight", f, n, err);
}

/* longrope's factors, which checkpoints have as a key, as a tensor. */
static mn_status put_longrope(mn_convert_plan *p, const char *which, mn_error *err) {
    char key[128];
    char name[64];
    const void *array = NULL;
    uint64_t n = 0;
    snprintf(name, sizeof name, "rope_factors_%s.weight", which);
    snprintf(key, sizeof key, "%s.rope.scaling.%s_factor", p->hp.arch, which);
    if (mn_canonical_tensor(p->model, name))
        return MN_OK;
    mn_status st = mn_meta_array(&p->model->meta, key, MN_VALUE_FLOAT, &array, &n, err);
    if (st) {
        if (st == MN_END)
            return MN_OK;
        return st;
    }
    float *f = mn_arena_alloc(&p->arena, (size_t)n, sizeof *f);
    const char *kept = mn_arena_strndup(&p->arena, name, strlen(name));
    if (!f || !kept)
        return convert_no_memory(err);
    for (uint64_t i = 0; i < n; i++)
        f[i] = (float)((const double *)array)[i];
    return convert_put_values(p, kept, f, (int64_t)n, err);
}

/* The embedding again, as the matrix that makes logits. */
static mn_status put_output(mn_convert_plan *p, mn_error *err) {
    const mn_model_tensor_entry *e = mn_canonical_tensor(p->model, "token_embd.weight");
    mn_tensor_info *t = mn_arena_alloc(&p->arena, 1, sizeof *t);
    if (!t)
        return convert_no_memory(err);
    *t = e->info;
    t->name = mn_str_of("output.weight");
    return convert_put_tensor(p, t, err);
}

/* The hyper-parameters without minerva.* keys. */
static mn_status convert_read_plain(mn_convert_plan *p, mn_error *err) {
    const mn_meta *all = &p->model->meta;
    mn_canonical without = *p->model;
    mn_meta_entry *kept = mn_arena_alloc(&p->arena, all->n + 1, sizeof *kept);
    size_t n = 0;
    if (!kept)
        return convert_no_memory(err);
    for (size_t i = 0; i < all->n; i++)
        if (!convert_begins(all->entries[i].key, "minerva."))
            kept[n++] = all->entries[i];
    without.meta = (mn_meta){kept, n};
    return mn_hparams_read(&without, &p->arena, &p->plain, err);
}

static bool imatrix_is_used(const mn_convert_plan *p) {
    for (size_t i = 0; i < p->imatrix.n; i++)
        if (p->imatrix.at[i].used)
            return true;
    return false;
}

mn_status mn_convert_tensors(mn_convert_plan *p, mn_error *err) {
    mn_status st = mn_hparams_read(p->model, &p->arena, &p->hp, err);
    if (!st)
        st = convert_read_plain(p, err);
    if (!st)
        st = mn_convert_bind_adapters(p, err);
    for (size_t i = 0; i < p->model->n_tensors && !st; i++) {
        const mn_tensor_info *t = &p->model->tensors[i].info;
        bool taken = false;
        if (strcmp(p->model->format, "gguf") != 0)
            st = mn_convert_state(p, t, &taken, err);
        if (taken || st)
            continue;
        if (convert_has_name(p->model, t->name))
            st = convert_put_tensor(p, t, err);
        else
            p->n_left_out++;
    }
    if (!st && mn_convert_needs_output(p))
        st = put_output(p, err);
    if (!st)
        st = mn_convert_check_merged(p, err);
    if (!st && p->imatrix.n && !imatrix_is_used(p))
        st = mn_fail(err, MN_BAD_INPUT,
                     "%s: none of its %zu entries (%.*s, ...) is a matrix of the model",
                     p->imatrix_path, p->imatrix.n, MN_STR_ARG(p->imatrix.at[0].name));
    for (size_t i = 0; i < p->rules.n && !st; i++)
        if (!p->rules.at[i].name.used)
            st = mn_fail(err, MN_INVALID,
                         "\"%.200s\" applies to no tensor: no name of a matrix matches, or earlier "
                         "patterns have all that do",
                         p->rules.at[i].name.text.ptr);
    if (!st)
        st = put_factors(p, err);
    if (!st)
        st = put_longrope(p, "long", err);
    if (st)
        return st;
    return put_longrope(p, "short", err);
}

void mn_convert_plan_free(mn_convert_plan *p) {
    mn_convert_rules_free(&p->rules);
    mn_imatrix_free(&p->imatrix);
    for (uint32_t i = 0; i < p->n_adapters; i++)
        mn_lora_close(&p->adapters[i].lora);
    mn_free(p->adapters);
    mn_free(p->tensors);
    mn_free(p->meta);
    mn_arena_free(&p->arena);
    *p = (mn_convert_plan){0};
}
