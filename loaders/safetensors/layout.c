/* layout.c -- tensors that checkpoints store otherwise than a graph wants them: described by
 * strides and planes where they lie, never moved. Tensors still have their native names here. */
#include "affine.h"
#include "families.h"
#include <string.h>

/* Linear: for the few tensors that a model has one of. */
mn_parsed_tensor *layout_find(const mn_parsed *p, mn_str stem, const char *ending) {
    const uint64_t n = strlen(ending);
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const mn_str s = p->tensors[i].native;
        if (s.len == stem.len + n && !memcmp(s.ptr, stem.ptr, stem.len) &&
            !memcmp(s.ptr + stem.len, ending, n))
            return &p->tensors[i];
    }
    return NULL;
}

/* ---- the tensors as they were at the start, by name: big models have tens of thousands ------- */
typedef struct {
    mn_str name;
    uint64_t at;
} named;
typedef struct {
    named *names;
    const void **sorted;
    uint64_t n;
} name_index;

/* For mnl_sort: by the tensors' native names. */
static int hf_layout_by_name(const void *a, const void *b) {
    return mn_str_cmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Tensors are appended while their layout is read; the index has those that were there before. */
static mn_status index_open(const mn_parsed *p, name_index *x, mn_error *err) {
    const mn_host *h = p->host;
    x->n = p->n_tensors;
    x->names = h->alloc(h->self, (x->n + 1) * sizeof *x->names, 16);
    x->sorted = h->alloc(h->self, (x->n + 1) * sizeof *x->sorted, 16);
    if (!x->names || !x->sorted)
        return mnl_fail_memory(err);
    for (uint64_t i = 0; i < x->n; i++) {
        x->names[i] = (named){p->tensors[i].native, i};
        x->sorted[i] = &x->names[i];
    }
    mnl_sort(x->sorted, x->n, hf_layout_by_name);
    return MN_OK;
}

/* Also of an index whose opening failed; the tensors themselves are p's. */
static void index_close(const mn_parsed *p, name_index *x) {
    p->host->release(p->host->self, x->names);
    p->host->release(p->host->self, (void *)x->sorted);
}

/* s against stem and ending in one. */
static int cmp_parts(mn_str s, mn_str stem, const char *ending) {
    if (s.len < stem.len)
        return mn_str_cmp(s, stem);
    const int c = memcmp(s.ptr, stem.ptr, stem.len);
    if (c)
        return c;
    return mn_str_cmp((mn_str){s.ptr + stem.len, s.len - stem.len}, mn_str_of(ending));
}

/* Among those that were there at the start; NULL if it is not, or was dropped. */
static mn_parsed_tensor *hf_layout_find(const mn_parsed *p, const name_index *x, mn_str stem,
                                        const char *ending) {
    uint64_t lo = 0;
    uint64_t hi = x->n;
    while (lo < hi) {
        const uint64_t mid = lo + (hi - lo) / 2;
        const int c = cmp_parts(((const named *)x->sorted[mid])->name, stem, ending);
        if (!c)
            return &p->tensors[((const named *)x->sorted[mid])->at];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* What became part of another tensor stays in its place until all are read. */
static void hf_layout_drop(mn_parsed_tensor *t) {
    t->n_dim = 0;
}
/* Takes dropped tensors out of the array; the order of the others stays. */
static void hf_layout_sweep(mn_parsed *p) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].n_dim)
            p->tensors[kept++] = p->tensors[i];
    p->n_tensors = kept;
}

/* expected: in words, with the dimensions that the name implies. */
static mn_status bad_shape(const mn_parsed_tensor *t, const char *expected, mn_error *err) {
    return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s' (%s, %u dimensions): expected %s",
                    MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), t->n_dim, expected);
}

/* s must end in `ending`. */
static mn_str hf_layout_stem_of(mn_str s, const char *ending) {
    return (mn_str){s.ptr, s.len - strlen(ending)};
}

/* ---- experts stored as one ------------------------------------------------------------------- */

/* One of the two tensors that `both` [.., 2F ..] holds: dim d counts F, begins at `first` units of
 * `step` bytes. */
static mn_status half(mn_parsed *p, const mn_parsed_tensor *both, const char *ending,
                      const char *name, mn_plane plane, const int64_t *dim, uint32_t n_dim,
                      mn_error *err) {
    const mn_str stem = hf_layout_stem_of(both->native, ending);
    mn_parsed_tensor t = *both;
    t.native = mn_parsed_printf(p, "%.*s%s", MN_STR_ARG(stem), name);
    mn_plane *out = mn_tensor_planes(p, &t, 1, 1);
    if (!t.native.ptr || !out)
        return mnl_fail_memory(err);
    *out = plane;
    t.name = t.native;
    t.n_dim = n_dim;
    for (uint32_t i = 0; i < MN_MAX_DIM; i++)
        t.dim[i] = i < n_dim ? dim[i] : 0;
    mn_parsed_tensor *to = mn_parsed_add_tensor(p);
    if (!to)
        return mnl_fail_memory(err);
    *to = t;
    return MN_OK;
}

/* plane, with `skip` bytes left out in front. */
static mn_plane from(const mn_parsed_tensor *t, int64_t skip) {
    mn_plane out = t->plane;
    out.ptr = (const char *)out.ptr + skip;
    out.bytes -= (uint64_t)skip;
    memset(out.dim, 0, sizeof out.dim);
    memset(out.stride, 0, sizeof out.stride);
    return out;
}

/* dim, stride: [n], strides in bytes; later dims stay 0. */
static void set_dims(mn_plane *p, uint32_t n, const int64_t *dim, const int64_t *stride) {
    for (uint32_t i = 0; i < n; i++) {
        p->dim[i] = dim[i];
        p->stride[i] = stride[i];
    }
}

/* gate_up_proj: which of the two dims holds gate and up, and do they come in turn? */
static mn_status split_gate_up(mn_parsed *p, const mn_parsed_tensor *t, const char *ending,
                               fused_experts how, mn_error *err) {
    const mn_parsed_tensor both = *t; /* the array may move */
    const int64_t es = both.dtype.block_bytes;
    const int64_t E = both.dim[0];
    const int64_t rows = both.dim[1];
    const int64_t cols = both.dim[2];
    const bool in_cols = how == FUSED_GPT_OSS || how == FUSED_COLUMNS;
    const int64_t F = (in_cols ? cols : rows) / 2;
    const int64_t D = in_cols ? rows : cols;
    if (both.n_dim != 3 || 2 * F != (in_cols ? cols : rows) || both.dtype.block_elems != 1)
        return bad_shape(&both, "experts x (gate and up) x inputs", err);
    const int64_t each = rows * cols * es;
    int64_t stride[3] = {each, cols * es, es};
    int64_t up_at = F * cols * es;
    if (how == FUSED_GPT_OSS) {
        memcpy(stride, (int64_t[]){each, 2 * es, cols * es}, sizeof stride);
        up_at = es;
    } else if (how == FUSED_COLUMNS) {
        memcpy(stride, (int64_t[]){each, es, cols * es}, sizeof stride);
        up_at = F * es;
    }
    mn_status status = MN_OK;
    for (int up = 0; up < 2 && !status; up++) {
        mn_plane plane = from(&both, up * up_at);
        set_dims(&plane, 3, (int64_t[]){E, F, D}, stride);
        status = half(p, &both, ending, up ? "up_proj" : "gate_proj", plane, (int64_t[]){E, F, D},
                      3, err);
    }
    return status;
}

/* shared_mlp.input_linear [2F, D]: gate, then up. */
static mn_status split_shared(mn_parsed *p, const mn_parsed_tensor *t, const char *ending,
                              mn_error *err) {
    const mn_parsed_tensor both = *t;
    const int64_t es = both.dtype.block_bytes;
    const int64_t F = both.dim[0] / 2;
    const int64_t D = both.dim[1];
    if (both.n_dim != 2 || both.dim[0] % 2 || both.dtype.block_elems != 1)
        return bad_shape(&both, "(gate and up) x inputs", err);
    mn_status status = MN_OK;
    for (int up = 0; up < 2 && !status; up++) {
        mn_plane plane = from(&both, up * F * D * es);
        set_dims(&plane, 2, (int64_t[]){F, D}, (int64_t[]){D * es, es});
        status = half(p, &both, ending, up ? "up.weight" : "gate.weight", plane, (int64_t[]){F, D},
                      2, err);
    }
    return status;
}

/* gate_up_proj_bias [E, 2F], gate and up in turn. */
static mn_status split_bias(mn_parsed *p, const mn_parsed_tensor *t, const char *ending,
                            mn_error *err) {
    const mn_parsed_tensor both = *t;
    const int64_t es = both.dtype.block_bytes;
    const int64_t E = both.dim[0];
    const int64_t F = both.dim[1] / 2;
    if (both.n_dim != 2 || both.dim[1] % 2)
        return bad_shape(&both, "experts x (gate and up)", err);
    mn_status status = MN_OK;
    for (int up = 0; up < 2 && !status; up++) {
        mn_plane plane = from(&both, up * es);
        set_dims(&plane, 2, (int64_t[]){E, F}, (int64_t[]){2 * F * es, 2 * es});
        status = half(p, &both, ending, up ? "up_proj.bias" : "gate_proj.bias", plane,
                      (int64_t[]){E, F}, 2, err);
    }
    return status;
}

/* A matrix [.., in, out] as [.., out, in]. */
static mn_status hf_layout_transpose(mn_parsed *p, mn_parsed_tensor *t, mn_error *err) {
    if (t->n_dim < 2 || t->dtype.block_elems != 1)
        return bad_shape(t, "a matrix", err);
    const uint32_t a = t->n_dim - 2;
    const uint32_t b = t->n_dim - 1;
    mn_plane *plane = mn_tensor_planes(p, t, 1, 1);
    if (!plane)
        return mnl_fail_memory(err);
    *plane = t->plane;
    const int64_t dim = t->dim[a];
    const int64_t stride = plane->stride[a];
    t->dim[a] = plane->dim[a] = t->dim[b];
    t->dim[b] = plane->dim[b] = dim;
    plane->stride[a] = plane->stride[b];
    plane->stride[b] = stride;
    return MN_OK;
}

/* query_key_value [groups (heads of q + 2) d, ..] with the heads of each group side by side: as
 * parts of d rows, all heads of q, then of k, then of v. */
static mn_status regroup_qkv(mn_parsed *p, mn_parsed_tensor *t, const model_facts *facts,
                             mn_error *err) {
    const int64_t groups = facts->n_head_kv;
    const int64_t heads = facts->n_head / groups; /* of q in a group */
    const int64_t n = groups * (heads + 2);
    const int64_t d = t->dim[0] / n;
    if (t->n_dim > 2 || t->dim[0] % n || t->dtype.block_elems != 1)
        return bad_shape(t, "rows for each head of q, k and v", err);
    mn_plane *planes = mn_tensor_planes(p, t, (uint32_t)n, 1);
    if (!planes)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / heads * (heads + 2) + i % heads;
        if (i >= groups * heads) {
            const int64_t behind = i - groups * heads; /* k of each group, then v */
            at = behind % groups * (heads + 2) + heads + behind / groups;
        }
        planes[i] = from(t, at * d * t->plane.stride[0]);
        planes[i].bytes = (uint64_t)(d * t->plane.stride[0]);
        set_dims(&planes[i], t->n_dim, t->dim, t->plane.stride);
        planes[i].dim[0] = d;
    }
    return MN_OK;
}

/* A vector that is stored as a matrix of one row. */
static mn_status without_one(mn_parsed *p, mn_parsed_tensor *t, mn_error *err) {
    if (t->n_dim != 2 || t->dim[0] != 1)
        return bad_shape(t, "one row", err);
    mn_plane *plane = mn_tensor_planes(p, t, 1, 1);
    if (!plane)
        return mnl_fail_memory(err);
    *plane = from(t, 0);
    set_dims(plane, 1, &t->dim[1], &t->plane.stride[1]);
    t->n_dim = 1;
    t->dim[0] = t->dim[1];
    t->dim[1] = 0;
    return MN_OK;
}

/* A table of positions without its first n rows. */
static mn_status cut_positions(mn_parsed *p, mn_parsed_tensor *t, int64_t n, mn_error *err) {
    if (t->n_dim != 2 || t->dim[0] <= n || t->dtype.block_elems != 1)
        return bad_shape(t, "more positions than pad_token_id + 1", err);
    mn_plane *plane = mn_tensor_planes(p, t, 1, 1);
    if (!plane)
        return mnl_fail_memory(err);
    const uint64_t skipped = (uint64_t)(n * t->plane.stride[0]);
    *plane = t->plane;
    plane->ptr = (const char *)plane->ptr + skipped;
    plane->bytes -= skipped;
    plane->dim[0] -= n;
    t->dim[0] -= n;
    return MN_OK;
}

/* ---- MXFP4 as released: X_blocks [E, N, K/32, 16] and X_scales [E, N, K/32] ------------------ */

/* Every `step`-th row of both from row `first` on: the experts' matrices [E, N / step, K]. */
static mn_status mxfp4_rows(mn_parsed *p, const mn_parsed_tensor *blocks,
                            const mn_parsed_tensor *scales, int64_t step, int64_t first,
                            const char *name, mn_error *err) {
    const int64_t E = blocks->dim[0];
    const int64_t N = blocks->dim[1];
    const int64_t G = blocks->dim[2];
    mn_parsed_tensor t = *blocks;
    const mn_str stem = hf_layout_stem_of(blocks->native, "_blocks");
    mn_str base = stem; /* up to and with the last dot */
    while (base.len && base.ptr[base.len - 1] != '.')
        base.len--;
    t.native = t.name = mn_parsed_printf(p, "%.*s%s", MN_STR_ARG(base), name);
    mn_plane *planes = mn_tensor_planes(p, &t, 1, 2);
    if (!t.native.ptr || !planes)
        return mnl_fail_memory(err);
    planes[0] = from(blocks, first * G * 16);
    planes[0].dtype = MN_MXFP4_SPLIT;
    set_dims(&planes[0], 3, (int64_t[]){E, N / step, G * 32},
             (int64_t[]){N * G * 16, step * G * 16, 16});
    planes[1] = from(scales, first * G);
    planes[1].kind = MN_PLANE_SCALE;
    planes[1].dtype = MN_U8;
    set_dims(&planes[1], 3, (int64_t[]){E, N / step, G}, (int64_t[]){N * G, step * G, 1});
    mn_dtype_by_id(MN_MXFP4_SPLIT, &t.dtype);
    t.n_dim = 3;
    memset(t.dim, 0, sizeof t.dim);
    memcpy(t.dim, planes[0].dim, 3 * sizeof t.dim[0]);
    mn_parsed_tensor *to = mn_parsed_add_tensor(p);
    if (!to)
        return mnl_fail_memory(err);
    *to = t;
    return MN_OK;
}

/* gate_up_proj has gate and up in turn, row by row: two tensors with twice the stride. */
static mn_status read_mxfp4(mn_parsed *p, const name_index *x, mn_parsed_tensor *t, mn_error *err) {
    const mn_str stem = hf_layout_stem_of(t->native, "_blocks");
    mn_parsed_tensor *s = hf_layout_find(p, x, stem, "_scales");
    if (!s)
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s' has no '%.*s_scales'",
                        MN_STR_ARG(t->native), MN_STR_ARG(stem));
    const mn_parsed_tensor blocks = *t;
    const mn_parsed_tensor scales = *s;
    const bool both = mn_str_ends(stem, "gate_up_proj");
    if (blocks.dtype.id != MN_U8 || blocks.n_dim != 4 || blocks.dim[3] != 16 ||
        (both && blocks.dim[1] % 2))
        return bad_shape(&blocks, "u8 [experts, rows, groups, 16]", err);
    if (scales.dtype.id != MN_U8 || scales.n_dim != 3 ||
        memcmp(scales.dim, blocks.dim, 3 * sizeof scales.dim[0]))
        return bad_shape(&scales, "u8 [experts, rows, groups] like its blocks", err);
    hf_layout_drop(s);
    hf_layout_drop(t);
    if (!both)
        return mxfp4_rows(p, &blocks, &scales, 1, 0, "down_proj", err);
    mn_status status = mxfp4_rows(p, &blocks, &scales, 2, 0, "gate_proj", err);
    if (status)
        return status;
    return mxfp4_rows(p, &blocks, &scales, 2, 1, "up_proj", err);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* GPT-2's Conv1D, and down_proj of gpt-oss and Qwen3-VL-MoE, are stored [in, out]. */
static bool transposed(const mn_parsed_tensor *t, const struct model_family *f) {
    static const char *const conv1d[] = {"c_attn.weight", "c_proj.weight", "c_fc.weight"};
    for (size_t i = 0; f->conv1d && i < MN_COUNT(conv1d); i++)
        if (mn_str_ends(t->native, conv1d[i]))
            return true;
    if (f->fused != FUSED_GPT_OSS && f->fused != FUSED_COLUMNS)
        return false;
    return mn_str_ends(t->native, "experts.down_proj");
}

/* F8 by all its writers: X.weight with X.weight_scale_inv or X.weight_scale; experts stored as one
 * without the ".weight". */
static mn_status read_f8(mn_parsed *p, const name_index *x, uint64_t i, const model_facts *facts,
                         bool *read, mn_error *err) {
    static const char *const endings[] = {"_scale_inv", "_scale"};
    const mn_str name = p->tensors[i].native;
    mn_parsed_tensor *s = NULL;
    for (size_t k = 0; k < MN_COUNT(endings) && !s; k++)
        s = hf_layout_find(p, x, name, endings[k]);
    *read = s && s->n_dim;
    if (*read) {
        const uint64_t scales = (uint64_t)(s - p->tensors);
        const bool latent = facts->family->latent && mn_str_ends(name, "kv_b_proj.weight");
        mn_status status;
        if (latent)
            status = latent_split_f8(p, i, s, facts, err);
        else
            status = f8_read(p, i, s, transposed(&p->tensors[i], facts->family), err);
        if (latent)
            hf_layout_drop(&p->tensors[i]);
        hf_layout_drop(&p->tensors[scales]);
        return status;
    }
    if (p->tensors[i].n_dim > 1 && json_get(facts->config, "quantization_config"))
        return mnl_fail(
            err, MN_BAD_FILE,
            "tensor '%.*s' is %s and has no '%.*s_scale' or '%.*s_scale_inv'; config.json has a "
            "quantization_config, expected one of them",
            MN_STR_ARG(name), mn_dtype_name(p->tensors[i].dtype.id), MN_STR_ARG(name),
            MN_STR_ARG(name));
    return MN_OK; /* plain numbers */
}

/* Packed nibbles are bytes with scales of F8. */
static mn_status read_nvfp4(mn_parsed *p, const name_index *x, mn_parsed_tensor *t, mn_error *err) {
    mn_parsed_tensor *scale = hf_layout_find(p, x, t->native, "_scale");
    if (t->dtype.id != MN_U8 || !t->n_dim)
        return MN_OK;
    if (!scale || !scale->n_dim || scale->dtype.id != MN_F8_E4M3)
        return MN_OK;
    mn_parsed_tensor *whole = hf_layout_find(p, x, t->native, "_scale_2");
    const mn_status st = nvfp4_read(p, t, scale, whole, err);
    hf_layout_drop(scale);
    if (whole)
        hf_layout_drop(whole);
    return st;
}

/* ---- small integers in groups ---------------------------------------------------------------- */

/* How a format names the tensors of a matrix, the codes first; NULL: it has none such. */
typedef struct {
    const char *data, *scale, *zero, *shape, *order, *whole, *bias;
    uint32_t dtype; /* of the codes; MN_DTYPE_NONE: the reader checks it */
    bool is_bnb;    /* of folders of bitsandbytes, and of no others */
    mn_status (*read)(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
} packed_format;
static const packed_format packed_formats[] = {
    {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx",
     ".weight_global_scale", NULL, MN_DTYPE_NONE, false, compressed_read},
    {".weight", ".weight_scale", ".weight_zero_point", NULL, ".weight_g_idx", NULL, NULL, MN_I8,
     false, bytes_read},
    {".qweight", ".scales", ".qzeros", NULL, ".g_idx", NULL, ".bias", MN_DTYPE_NONE, false,
     columns_read},
    {".weight", ".weight.absmax", NULL, NULL, NULL, NULL, NULL, MN_U8, true, nf4_read},
    {".W_q", ".scale", ".zero", ".shape", NULL, NULL, NULL, MN_DTYPE_NONE, false, hqq_read},
    {"._weight_qdata", "._weight_scale", "._weight_zero_point", NULL, NULL,
     "._weight_act_pre_scale", NULL, MN_DTYPE_NONE, false, torchao_read},
    {".weight", ".SCB", NULL, ".weight_format", NULL, NULL, NULL, MN_I8, true, int8_read},
};

/* The format whose codes t holds; NULL: none's. */
static const packed_format *packed_format_of(const mn_parsed_tensor *t, bool is_bnb) {
    for (size_t i = 0; i < MN_COUNT(packed_formats); i++) {
        const packed_format *f = &packed_formats[i];
        if (mn_str_ends(t->native, f->data) && f->is_bnb == is_bnb &&
            (f->dtype == MN_DTYPE_NONE || f->dtype == t->dtype.id))
            return f;
    }
    return NULL;
}

/* NULL: it is not there, or was dropped. */
static mn_parsed_tensor *packed_member(const mn_parsed *p, const name_index *x, mn_str stem,
                                       const char *ending) {
    mn_parsed_tensor *t = hf_layout_find(p, x, stem, ending);
    return t && t->n_dim ? t : NULL;
}

/* Members of x by their names. */
static void packed_find(const mn_parsed *p, const name_index *x, const packed_format *f,
                        packed_matrix *out) {
    const char *const endings[] = {f->scale, f->zero, f->shape, f->order, f->whole, f->bias};
    mn_parsed_tensor **const to[] = {&out->scale, &out->zero,  &out->shape,
                                     &out->order, &out->whole, &out->bias};
    for (size_t i = 0; i < MN_COUNT(endings); i++)
        if (endings[i])
            *to[i] = packed_member(p, x, out->stem, endings[i]);
    out->axis = packed_member(p, x, out->stem, ".axis");
    out->packing = packed_member(p, x, out->stem, ".packing");
    if (!f->is_bnb)
        return;
    out->map = packed_member(p, x, out->stem, ".weight.quant_map");
    out->state = packed_member(p, x, out->stem, ".weight.quant_state.bitsandbytes__nf4");
    out->is_fp4 = !out->state;
    if (out->is_fp4)
        out->state = packed_member(p, x, out->stem, ".weight.quant_state.bitsandbytes__fp4");
    out->nested = packed_member(p, x, out->stem, ".weight.nested_absmax");
    out->nested_map = packed_member(p, x, out->stem, ".weight.nested_quant_map");
}

/* AutoGPTQ gives each matrix a bias, of zeros where the model has none. */
static bool is_all_zero(const mn_parsed_tensor *t) {
    const uint8_t *at = t->plane.ptr;
    uint64_t i = 0;
    while (i < t->plane.bytes && !at[i])
        i++;
    return i == t->plane.bytes;
}

/* What HQQ says beside each matrix: the rest follows from its tensors. */
static void packed_drop_words(mn_parsed *p, const name_index *x, mn_str stem) {
    static const char *const words[] = {
        ".packing",       ".unpack_view_dtype",  ".compute_dtype",
        ".nbits",         ".group_size",         ".axis",
        ".view_as_float", ".quant_scale",        ".quant_zero",
        ".offload_meta",  ".encoded_state_dict", ".stores_quant_config",
        ".channel_wise",  ".optimize",           ".round_zero"};
    for (size_t i = 0; i < MN_COUNT(words); i++) {
        mn_parsed_tensor *t = packed_member(p, x, stem, words[i]);
        if (t)
            hf_layout_drop(t);
    }
}

/* t and its companions become X.weight, if they are a matrix of such a format. */
static mn_status read_packed(mn_parsed *p, const name_index *x, mn_parsed_tensor *t,
                             const model_facts *facts, mn_error *err) {
    const cJSON *config = json_get(facts->config, "quantization_config");
    const packed_format *f = packed_format_of(t, method_is_bnb(config));
    if (!f || !t->n_dim || t->planes)
        return MN_OK;
    packed_matrix m = {.data = t, .stem = hf_layout_stem_of(t->native, f->data)};
    if (facts->family->grouped_qkv && mn_str_ends(m.stem, ".query_key_value"))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': the heads of q, k and v lie side by side and are packed; "
                        "expected so of plain matrices alone",
                        MN_STR_ARG(t->native));
    packed_find(p, x, f, &m);
    const mn_status status = f->read(p, &m, config, err);
    if (status)
        return status;
    if (f->read == hqq_read)
        packed_drop_words(p, x, m.stem);
    if (m.bias && !is_all_zero(m.bias))
        m.bias = NULL;
    mn_parsed_tensor *const others[] = {m.scale, m.zero, m.shape, m.order,  m.whole,
                                        m.bias,  m.map,  m.state, m.nested, m.nested_map};
    for (size_t i = 0; i < MN_COUNT(others); i++)
        if (others[i])
            hf_layout_drop(others[i]);
    t->native = t->name = mn_parsed_printf(p, "%.*s.weight", MN_STR_ARG(m.stem));
    if (!t->native.ptr)
        return mnl_fail_memory(err);
    return MN_OK;
}

/* The tensor at i, by its type and by the family's names. Those that were read already have
 * planes, those that were dropped no dimensions. */
static mn_status hf_layout_read_one(mn_parsed *p, const name_index *x, uint64_t i,
                                    const model_facts *facts, mn_error *err) {
    static const char *const fused[] = {"gate_up_proj", "gate_up_proj_bias"};
    const struct model_family *f = facts->family;
    mn_parsed_tensor *t = &p->tensors[i];
    if (t->planes || !t->n_dim)
        return MN_OK;
    if (t->dtype.id == MN_F8_E4M3 || t->dtype.id == MN_F8_E5M2) {
        bool read;
        mn_status status = read_f8(p, x, i, facts, &read, err);
        if (status || read)
            return status;
    }
    if (transposed(t, f))
        return hf_layout_transpose(p, t, err);
    if (facts->unused_positions && mn_str_ends(t->native, ".position_embeddings.weight"))
        return cut_positions(p, t, facts->unused_positions, err);
    if (mn_str_ends(t->native, "_blocks") && f->fused == FUSED_GPT_OSS)
        return read_mxfp4(p, x, t, err);
    if (f->fused == FUSED_SHARED && mn_str_ends(t->native, "shared_mlp.input_linear.weight")) {
        const mn_status status = split_shared(p, t, "input_linear.weight", err);
        hf_layout_drop(&p->tensors[i]);
        return status;
    }
    if (f->fused == FUSED_SHARED &&
        mn_str_ends(t->native, "block_sparse_moe.input_linear.weight")) {
        const mn_status status = split_gate_up(p, t, "input_linear.weight", f->fused, err);
        hf_layout_drop(&p->tensors[i]);
        return status;
    }
    const bool is_qkv = mn_str_ends(t->native, ".query_key_value.weight") ||
                        mn_str_ends(t->native, ".query_key_value.bias");
    if (f->grouped_qkv && is_qkv)
        return regroup_qkv(p, t, facts, err);
    if (f->latent && mn_str_ends(t->native, "kv_b_proj.weight")) {
        const mn_status status = latent_split(p, i, facts, err);
        hf_layout_drop(&p->tensors[i]);
        return status;
    }
    if (mn_str_ends(t->native, "moe_statics.e_score_correction_bias"))
        return without_one(p, t, err);
    for (int k = 0; k < 2 && f->fused; k++) {
        char ending[40] = "experts.";
        strcat(ending, fused[k]);
        if (!mn_str_ends(t->native, ending))
            continue;
        mn_status status;
        if (k)
            status = split_bias(p, t, fused[k], err);
        else
            status = split_gate_up(p, t, fused[k], f->fused, err);
        hf_layout_drop(&p->tensors[i]);
        return status;
    }
    return MN_OK;
}

/* From the tensors as stored to those of the graph, in place. */
mn_status layout_read(mn_parsed *p, const model_facts *facts, mn_error *err) {
    name_index x = {0};
    mn_status status = index_open(p, &x, err);
    /* before their scales are looked at, which are F8 without scales, wherever these stand */
    for (uint64_t i = 0; i < x.n && !status; i++)
        status = read_nvfp4(p, &x, &p->tensors[i], err);
    for (uint64_t i = 0; i < x.n && !status; i++)
        status = read_packed(p, &x, &p->tensors[i], facts, err);
    /* those it adds are read */
    for (uint64_t i = 0; i < x.n && !status; i++)
        status = hf_layout_read_one(p, &x, i, facts, err);
    index_close(p, &x);
    hf_layout_sweep(p);
    return status;
}
