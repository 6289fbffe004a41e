/* lora.c -- see lora.h. A canonical model is read by its loader; here its tensors are put together
 * in pairs, checked, and copied as f32: an adapter is small, and what files hold later has no
 * effect on it. */
#include "model/lora.h"
#include "model/rows.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SIDE_A ".lora_a"
#define SIDE_B ".lora_b"
#define SIDE_BASE ".base"
enum { COPIED_ROWS = 64 };

bool mn_canonical_is_adapter(const mn_canonical *m) {
    mn_str type = {0};
    return !mn_meta_str(&m->meta, "general.type", &type, NULL) && mn_str_is(type, "adapter");
}

/* ---- reading --------------------------------------------------------------------------------- */
static mn_status lora_check_kind(const mn_canonical *m, mn_error *err) {
    mn_str type = {"lora", 4};
    if (!mn_canonical_is_adapter(m))
        return mn_fail(err, MN_BAD_INPUT,
                       "%s is no adapter but a model; expected a GGUF file with general.type "
                       "\"adapter\", or a folder with adapter_model.safetensors",
                       m->path);
    const mn_status st = mn_meta_str(&m->meta, "adapter.type", &type, err);
    if (st && st != MN_END)
        return mn_fail_in(err, st, "%s", m->path);
    if (mn_str_is(type, "lora"))
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, "%s: key adapter.type is \"%.*s\", expected \"lora\"",
                   m->path, MN_STR_ARG(type));
}

/* The other tensor of a pair; NULL: it is missing. */
static const mn_tensor_info *lora_other(const mn_canonical *m, mn_str target, const char *side) {
    char name[256];
    if (target.len + strlen(side) >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)target.len, target.ptr, side);
    const mn_model_tensor_entry *e = mn_canonical_tensor(m, name);
    return e ? &e->info : NULL;
}

static mn_status lora_check_matrix(const mn_canonical *m, const mn_tensor_info *t, mn_error *err) {
    const uint32_t type = t->dtype.id;
    if (t->n_dim != 2)
        return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s has %u dimensions, expected 2", m->path,
                       MN_STR_ARG(t->native), t->n_dim);
    if (mn_dtype_is_weight(type) && mn_dequant_has(type))
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s: tensor %.*s has the type %s; expected a type of weights", m->path,
                   MN_STR_ARG(t->native), mn_dtype_name(type));
}

static mn_status lora_check_ranks(const mn_canonical *m, const mn_tensor_info *a,
                                  const mn_tensor_info *b, mn_error *err) {
    if (a->dim[0] != b->dim[1])
        return mn_fail(err, MN_BAD_FILE,
                       "%s: tensor %.*s has rank %lld, and %.*s has %lld; expected one rank",
                       m->path, MN_STR_ARG(a->native), (long long)a->dim[0], MN_STR_ARG(b->native),
                       (long long)b->dim[1]);
    if (a->dim[0] <= MN_LORA_MAX_RANK)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, "%s: tensor %.*s has rank %lld, expected at most %d",
                   m->path, MN_STR_ARG(a->native), (long long)a->dim[0], MN_LORA_MAX_RANK);
}

/* By the loader's own key of the product, else by GGUF's one alpha. */
static mn_status lora_read_scale(const mn_canonical *m, mn_lora_product *p, mn_error *err) {
    char key[320];
    double alpha = 0;
    snprintf(key, sizeof key, "minerva.adapter.scale.%.256s", p->target);
    mn_status st = mn_meta_f64(&m->meta, key, &p->scale, err);
    if (st == MN_END) {
        st = mn_meta_f64(&m->meta, "adapter.lora.alpha", &alpha, err);
        p->scale = alpha != 0 ? alpha / (double)p->rank : 1;
    }
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: key adapter.lora.alpha is missing: the adapter's factor is not known",
                       m->path);
    if (st)
        return mn_fail_in(err, st, "%s", m->path);
    if (isfinite(p->scale))
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE, "%s: the factor of %s is %g, expected a number", m->path,
                   p->target, p->scale);
}

/* All values of the matrix; NaN and infinities would make every answer with the adapter one. */
static mn_status lora_copy(mn_lora *l, const mn_canonical *m, const mn_tensor_info *t,
                           const float **out, mn_error *err) {
    const size_t n = (size_t)(t->dim[0] * t->dim[1]);
    float *to = mn_arena_alloc(&l->arena, n, sizeof *to);
    if (!to)
        return mn_fail_memory(err, n * sizeof *to);
    for (int64_t r = 0; r < t->dim[0]; r++)
        mn_row_values(t, (uint64_t)r, to + r * t->dim[1]);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(to[i]))
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s contains a NaN or an infinity",
                           m->path, MN_STR_ARG(t->native));
    *out = to;
    l->digest = mn_hash(to, n * sizeof *to, l->digest);
    return MN_OK;
}

/* The pair whose first tensor is a. */
static mn_status lora_read_pair(mn_lora *l, const mn_canonical *m, const mn_tensor_info *a,
                                const mn_tensor_info *b, mn_error *err) {
    const size_t len = (size_t)a->name.len - strlen(SIDE_A);
    mn_lora_product *p = &l->at[l->n++];
    *p = (mn_lora_product){.rank = a->dim[0], .n_in = a->dim[1], .n_out = b->dim[0]};
    p->target = mn_arena_strndup(&l->arena, a->name.ptr, len);
    if (!p->target)
        return mn_fail_memory(err, len);
    mn_status st = lora_check_matrix(m, a, err);
    if (!st)
        st = lora_check_matrix(m, b, err);
    if (!st)
        st = lora_check_ranks(m, a, b, err);
    if (!st)
        st = lora_read_scale(m, p, err);
    if (!st)
        st = lora_copy(l, m, a, &p->a, err);
    if (!st)
        st = lora_copy(l, m, b, &p->b, err);
    l->digest = mn_hash(p->target, len, l->digest);
    l->digest = mn_hash(&p->scale, sizeof p->scale, l->digest);
    l->rank = MN_MAX(l->rank, (uint32_t)p->rank);
    return st;
}

/* A matrix of the model beside the pairs: a sample of it. */
static mn_status lora_read_copy(mn_lora *l, const mn_canonical *m, const mn_tensor_info *t,
                                mn_error *err) {
    mn_lora_copy *c = &l->copies[l->n_copies++];
    const size_t len = (size_t)t->name.len - strlen(SIDE_BASE);
    const mn_status st = lora_check_matrix(m, t, err);
    if (st)
        return st;
    *c = (mn_lora_copy){.n_out = t->dim[0], .n_in = t->dim[1]};
    c->n_rows = MN_MIN(c->n_out, COPIED_ROWS);
    c->target = mn_arena_strndup(&l->arena, t->name.ptr, len);
    float *rows = mn_arena_alloc(&l->arena, (size_t)(c->n_rows * c->n_in), sizeof *rows);
    if (!c->target || !rows)
        return mn_fail_memory(err, (size_t)(c->n_rows * c->n_in) * sizeof *rows);
    for (int64_t i = 0; i < c->n_rows; i++)
        mn_row_values(t, (uint64_t)(i * c->n_out / c->n_rows), rows + i * c->n_in);
    c->rows = rows;
    return MN_OK;
}

/* A tensor of the file: the first of a pair, which is read, the second of one, or an error. */
static mn_status lora_read_tensor(mn_lora *l, const mn_canonical *m, const mn_tensor_info *t,
                                  mn_error *err) {
    const bool is_a = mn_str_ends(t->name, SIDE_A);
    if (mn_str_ends(t->name, SIDE_BASE))
        return lora_read_copy(l, m, t, err);
    if (!is_a && !mn_str_ends(t->name, SIDE_B))
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: tensor %.*s is no part of a LoRA product; expected names that end with "
                       "%s and %s",
                       m->path, MN_STR_ARG(t->native), SIDE_A, SIDE_B);
    const mn_str target = {t->name.ptr, t->name.len - strlen(SIDE_A)};
    const mn_tensor_info *other = lora_other(m, target, is_a ? SIDE_B : SIDE_A);
    if (!other)
        return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s has no %s beside it", m->path,
                       MN_STR_ARG(t->native), is_a ? "lora_b" : "lora_a");
    return is_a ? lora_read_pair(l, m, t, other, err) : MN_OK;
}

static mn_status lora_read(mn_lora *l, const mn_canonical *m, mn_error *err) {
    mn_str form = {0};
    mn_status st = lora_check_kind(m, err);
    if (st)
        return st;
    mn_meta_str(&m->meta, "minerva.adapter.form", &form, NULL);
    l->checkpoint_rows = mn_str_is(form, "peft");
    l->at = mn_arena_alloc(&l->arena, m->n_tensors + 1, sizeof *l->at);
    l->copies = mn_arena_alloc(&l->arena, m->n_tensors + 1, sizeof *l->copies);
    l->path = mn_arena_strndup(&l->arena, m->path, strlen(m->path));
    if (!l->at || !l->copies || !l->path)
        return mn_fail_memory(err, m->n_tensors * sizeof *l->at);
    for (size_t i = 0; i < m->n_tensors && !st; i++)
        st = lora_read_tensor(l, m, &m->tensors[i].info, err);
    if (!st && !l->n)
        st = mn_fail(err, MN_BAD_FILE, "%s: an adapter without tensors, expected some", m->path);
    return st;
}

mn_status mn_lora_open(const char *path, const mn_loader_ref *loaders, uint32_t n_loaders,
                       mn_lora *out, mn_error *err) {
    mn_canonical *m = NULL;
    *out = (mn_lora){0};
    mn_status st = mn_canonical_open(path, MN_MAP_READ, loaders, n_loaders, &m, err);
    if (!st)
        st = lora_read(out, m, err);
    mn_canonical_close(m);
    if (st)
        mn_lora_close(out);
    return st;
}

void mn_lora_close(mn_lora *l) {
    mn_arena_free(&l->arena);
    *l = (mn_lora){0};
}

/* ---- beside a model -------------------------------------------------------------------------- */
/* By its canonical name, or by the name that the model's files have for it. */
static const mn_model_tensor_entry *lora_matrix(const mn_canonical *base, const char *name) {
    const mn_model_tensor_entry *e = mn_canonical_tensor(base, name);
    for (size_t i = 0; i < base->n_tensors && !e; i++)
        if (mn_str_is(base->tensors[i].info.native, name))
            e = &base->tensors[i];
    return e;
}

/* Experts, by the names that files have for them. */
static bool lora_is_experts(const char *target) {
    mn_str rest;
    if (strstr(target, "experts") || strstr(target, "_exps."))
        return true;
    if (mn_tensor_layer(mn_str_of(target), &rest) < 0 || !mn_str_begins(rest, "ffn_"))
        return false;
    const char *dot = memchr(rest.ptr, '.', (size_t)rest.len);
    return dot && dot[1] >= '0' && dot[1] <= '9';
}

static mn_status lora_no_matrix(const mn_lora *l, const mn_canonical *base,
                                const mn_lora_product *p, mn_error *err) {
    if (lora_is_experts(p->target))
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s adapts %s: experts are not adapted here; expected matrices that every "
                       "token uses (or an adapter that is merged into the model)",
                       l->path, p->target);
    return mn_fail(err, MN_BAD_INPUT,
                   "%s adapts %s, which %s has not; expected an adapter of this model", l->path,
                   p->target, base->path);
}

/* Families whose checkpoints rotate neighbours, as GGUF does: nothing is reordered. */
static bool lora_keeps_rows(const char *arch) {
    static const char *const archs[] = {"ernie4_5",  "ernie4_5-moe", "chatglm",  "glm4",
                                        "command-r", "cohere2",      "deepseek2"};
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        if (!strcmp(arch, archs[i]))
            return true;
    return false;
}

/* The pairing of the adapter's rows: GGUF's, or that of the model's checkpoint. */
static uint32_t lora_pairing(const mn_lora *l, const mn_canonical *base, const mn_hparams *hp) {
    const uint32_t plain = mn_arch_pairing(hp->arch);
    if (!l->checkpoint_rows)
        return plain;
    if (strcmp(base->format, "gguf"))
        return hp->rope_pairing;
    return lora_keeps_rows(hp->arch) ? plain : MN_ROPE_HALVES;
}

static mn_status lora_bind_one(const mn_lora *l, const mn_canonical *base, const mn_hparams *hp,
                               mn_lora_product *p, mn_error *err) {
    p->base = lora_matrix(base, p->target);
    p->head = !strcmp(p->target, "output.weight") || !strcmp(p->target, "lm_head.weight");
    if (p->head && !p->base && hp->tied)
        p->base = mn_canonical_tensor(base, "token_embd.weight");
    if (!p->base || lora_is_experts(p->target))
        return lora_no_matrix(l, base, p, err);
    const mn_tensor_info *t = &p->base->info;
    if (!p->head && mn_str_is(t->name, "token_embd.weight"))
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s adapts the embedding, which is unsupported; expected matrices of "
                       "layers and the output matrix",
                       l->path);
    if (base->orders && mn_str_ends(t->name, ".ffn_gate_inp.weight"))
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s adapts %s, whose experts stand in the order of their use; expected a "
                       "model that was opened without the setting expert_counts",
                       l->path, p->target);
    if (t->n_dim != 2 || t->dim[0] != p->n_out || t->dim[1] != p->n_in)
        return mn_fail(err, MN_BAD_INPUT,
                       "%s: the products of %s are [%lld, %lld], and the matrix of %s is "
                       "[%lld, %lld]; expected an adapter of this model",
                       l->path, p->target, (long long)p->n_out, (long long)p->n_in, base->path,
                       (long long)t->dim[0], (long long)(t->n_dim > 1 ? t->dim[1] : 1));
    const bool grouped =
        !strcmp(hp->arch, "gptneox") || !strcmp(hp->arch, "falcon") || !strcmp(hp->arch, "bloom");
    if (grouped && l->checkpoint_rows && strstr(p->target, "attn_qkv"))
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s adapts %s, whose rows stand in another order in GGUF; expected an "
                       "adapter that was converted to GGUF",
                       l->path, p->target);
    p->order = mn_row_order_of(hp, lora_pairing(l, base, hp), hp->rope_pairing, t->name);
    return MN_OK;
}

/* Whether the rows are the model's, as far as its type holds them. */
static bool lora_is_equal(const mn_lora_copy *c, const mn_tensor_info *t, float *row) {
    const uint32_t id = t->dtype.id;
    const bool is_float = id == MN_F32 || id == MN_F16 || id == MN_BF16 || id == MN_F64;
    const double limit = is_float ? 1e-2 : 0.3;
    double apart = 0;
    double whole = 0;
    for (int64_t i = 0; i < c->n_rows; i++) {
        mn_row_values(t, (uint64_t)(i * c->n_out / c->n_rows), row);
        for (int64_t k = 0; k < c->n_in; k++) {
            const double x = c->rows[i * c->n_in + k];
            apart += (row[k] - x) * (row[k] - x);
            whole += x * x;
        }
    }
    return apart <= limit * limit * whole;
}

/* A matrix that the adapter's file has is the model's: another one would be the adapter's own. */
static mn_status lora_check_copy(const mn_lora *l, const mn_canonical *base, const mn_hparams *hp,
                                 const mn_lora_copy *c, mn_error *err) {
    const mn_model_tensor_entry *e = lora_matrix(base, c->target);
    if (!e && hp->tied && !strcmp(c->target, "output.weight"))
        e = mn_canonical_tensor(base, "token_embd.weight");
    const mn_tensor_info *t = e ? &e->info : NULL;
    bool equal = t && t->n_dim == 2 && t->dim[0] == c->n_out && t->dim[1] == c->n_in;
    if (equal && mn_dequant_has(t->dtype.id)) {
        float *row = mn_alloc((size_t)c->n_in, sizeof *row);
        if (!row)
            return mn_fail_memory(err, (size_t)c->n_in * sizeof *row);
        equal = lora_is_equal(c, t, row);
        mn_free(row);
    }
    if (equal)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s has a matrix %s of its own, which differs from that of %s and is not used; "
                   "expected an adapter that leaves it as it is (or merge both with PEFT)",
                   l->path, c->target, base->path);
}

mn_status mn_lora_bind(mn_lora *l, const mn_canonical *base, const mn_hparams *hp, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < l->n && !st; i++)
        st = lora_bind_one(l, base, hp, &l->at[i], err);
    for (size_t i = 0; i < l->n_copies && !st; i++)
        st = lora_check_copy(l, base, hp, &l->copies[i], err);
    return st;
}

void mn_lora_add_row(const mn_lora_product *p, double factor, uint64_t row, float *x) {
    const float *b = p->b + mn_row_of(p->order, row) * (uint64_t)p->rank;
    for (int64_t j = 0; j < p->rank; j++) {
        const float f = (float)(factor * p->scale * b[j]);
        const float *a = p->a + j * p->n_in;
        for (int64_t i = 0; i < p->n_in; i++)
            x[i] += f * a[i];
    }
}
