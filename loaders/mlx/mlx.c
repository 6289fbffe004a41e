/* mlx.c -- MLX-quantised SafeTensors: a folder in Hugging Face layout whose config.json has
 * `quantization`. A matrix is three tensors: X.weight (words of packed bits), X.scales and, in mode
 * affine, X.biases. Values are described as stored. Scales of mxfp4, mxfp8 and nvfp4 are bytes. */
#include "../safetensors/families.h"
#include <string.h>

/* MLX's modes. bits 0: affine, of any bits; the others have one form each. */
typedef struct {
    const char *name;
    int64_t bits, group;
    uint32_t dtype;
} packing_mode;
static const packing_mode modes[] = {
    {"affine", 0, 0, 0},
    {"mxfp4", 4, 32, MN_MXFP4_SPLIT},
    {"mxfp8", 8, 32, MN_F8_E4M3_32},
    {"nvfp4", 4, 16, MN_NVFP4},
};

/* How one matrix is packed. bits 0: it is not quantised. */
typedef struct {
    int64_t bits;
    int64_t group;
    const packing_mode *mode;
} packing;

static bool is_affine(const packing *k) {
    return !k->mode->bits;
}

/* NULL: none of them; a config without the key is affine. */
static const packing_mode *mode_of(const cJSON *mode) {
    if (!mode)
        return &modes[0];
    for (size_t i = 0; i < MN_COUNT(modes); i++)
        if (cJSON_IsString(mode) && !strcmp(mode->valuestring, modes[i].name))
            return &modes[i];
    return NULL;
}

/* object: `quantization` or a member of it; `in`: its path for messages. */
static mn_status read_packing(const cJSON *object, const char *in, packing *out, mn_error *err) {
    const cJSON *mode = json_get(object, "mode");
    if (!json_is_int(json_get(object, "bits"), 1, 32, &out->bits))
        return mnl_fail(err, MN_BAD_FILE,
                        "config.json: key '%s.bits' is %s, expected 2, 3, 4, 5, 6 or 8", in,
                        json_describe(json_get(object, "bits")).s);
    if (!json_is_int(json_get(object, "group_size"), 1, 65536, &out->group))
        return mnl_fail(err, MN_BAD_FILE,
                        "config.json: key '%s.group_size' is %s, expected 16, 32, 64 or 128", in,
                        json_describe(json_get(object, "group_size")).s);
    out->mode = mode_of(mode);
    if (!out->mode)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "config.json: key '%s.mode' is %s, expected \"affine\", \"mxfp4\", "
                        "\"mxfp8\" or \"nvfp4\"",
                        in, json_describe(mode).s);
    return MN_OK;
}

/* The matrix's own entry in `quantization`: under its name, else under the same name with another
 * prefix in front; NULL: it has none. */
static const cJSON *own_entry(const cJSON *quantization, mn_str stem) {
    const mn_str inner = mnl_inner_name(stem);
    const cJSON *similar = NULL;
    for (const cJSON *own = quantization->child; own; own = own->next) {
        if (!cJSON_IsBool(own) && !cJSON_IsObject(own))
            continue;
        if (mn_str_is(stem, own->string))
            return own;
        if (mn_str_eq(inner, mnl_inner_name(mn_str_of(own->string))))
            similar = own;
    }
    return similar;
}

/* What the matrix's own entry says, else what holds for all. */
static mn_status packing_of(const cJSON *quantization, mn_str stem, packing *out, mn_error *err) {
    const cJSON *own = own_entry(quantization, stem);
    *out = (packing){0};
    if (own && cJSON_IsFalse(own))
        return MN_OK;
    if (own && cJSON_IsObject(own))
        return read_packing(own, own->string, out, err);
    return read_packing(quantization, "quantization", out, err);
}

/* The data type of a packing; false: MLX has it, Minerva does not. */
static bool packing_dtype(const packing *k, mn_dtype *out) {
    static const struct {
        int64_t bits;
        uint32_t dtype; /* in groups of 32; of 64 and 128 the next two */
    } affine[] = {{2, MN_MLX2_32}, {3, MN_MLX3_32}, {4, MN_MLX4_32},
                  {5, MN_MLX5_32}, {6, MN_MLX6_32}, {8, MN_MLX8_32}};
    const packing_mode *mode = k->mode;
    if (!is_affine(k))
        return k->bits == mode->bits && k->group == mode->group && mn_dtype_by_id(mode->dtype, out);
    for (uint32_t b = 0; b < MN_COUNT(affine); b++)
        for (uint32_t g = 0; g < 3; g++)
            if (affine[b].bits == k->bits && INT64_C(32) << g == k->group)
                return mn_dtype_by_id(affine[b].dtype + g, out);
    return false;
}

/* Words of a row and scales of a row say bits times group: where these are not as config.json has
 * them, the bits for its group are meant, if there are such. */
static void fit_bits(const mn_parsed_tensor *t, const mn_parsed_tensor *s, packing *k) {
    const uint32_t last = t->n_dim - 1;
    mn_dtype type;
    if (!packing_dtype(k, &type) || !is_affine(k) || t->n_dim != s->n_dim ||
        t->dim[last] > INT64_MAX / 32)
        return;
    const int64_t bits = t->dim[last] * 32;
    const int64_t n = s->dim[last];
    if (bits % n || bits / n % k->group)
        return;
    const int64_t fit = bits / n / k->group;
    const packing other = {.bits = fit, .group = k->group, .mode = k->mode};
    if (packing_dtype(&other, &type))
        k->bits = fit;
}

/* May a tensor of this type hold scales or biases? MLX stores scales of all small floats as u8. */
static bool is_scale(const mn_parsed_tensor *s, const packing *k) {
    if (!is_affine(k))
        return s->dtype.id == MN_U8;
    return s->dtype.id == MN_F16 || s->dtype.id == MN_BF16 || s->dtype.id == MN_F32;
}

/* scales or biases: one per group of each row. */
static mn_status mlx_check_extra(const mn_parsed_tensor *t, const mn_parsed_tensor *x,
                                 int64_t n_groups, const packing *k, mn_error *err) {
    const uint32_t last = t->n_dim - 1;
    bool fits = x->n_dim == t->n_dim && is_scale(x, k);
    fits = fits && x->dim[last] == n_groups;
    for (uint32_t i = 0; fits && i < last; i++)
        fits = x->dim[i] == t->dim[i];
    if (fits)
        return MN_OK;
    return mnl_fail(err, MN_BAD_FILE,
                    "tensor '%.*s' (%s): expected %lld values per row, as many rows as '%.*s'; or "
                    "'quantization' of config.json lists its bits under another name",
                    MN_STR_ARG(x->native), mn_dtype_name(x->dtype.id), (long long)n_groups,
                    MN_STR_ARG(t->native));
}

static void add_plane(mn_plane *to, const mn_parsed_tensor *from, uint32_t kind) {
    *to = from->plane;
    to->kind = kind;
}

/* The scale of a whole tensor, 1: NVFP4 of MLX has none. */
static mn_status add_one(mn_parsed *p, uint32_t n_dim, mn_plane *to, mn_error *err) {
    float *one = mn_parsed_alloc(p, 1, sizeof *one);
    if (!one)
        return mnl_fail_memory(err);
    *one = 1;
    *to = (mn_plane){.ptr = one, .bytes = sizeof *one, .kind = MN_PLANE_TENSOR_SCALE};
    to->dtype = MN_F32;
    for (uint32_t d = 0; d < n_dim; d++)
        to->dim[d] = 1;
    return MN_OK;
}

/* t's planes: codes, scales, and what the type has beside them. */
static mn_status mlx_planes(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *s,
                            const mn_parsed_tensor *b, mn_dtype type, mn_error *err) {
    const uint32_t last = t->n_dim - 1;
    mn_plane *planes = mn_tensor_planes(p, t, 1, type.n_planes);
    if (!planes)
        return mnl_fail_memory(err);
    add_plane(&planes[0], t, MN_PLANE_DATA);
    planes[0].dtype = type.id;
    planes[0].dim[last] = t->dim[last];
    planes[0].stride[last] = type.block_bytes;
    add_plane(&planes[1], s, MN_PLANE_SCALE);
    if (b)
        add_plane(&planes[2], b, MN_PLANE_BIAS);
    t->dtype = type;
    if (type.id != MN_NVFP4)
        return MN_OK;
    planes[1].dtype = MN_F8_E4M3;
    return add_one(p, t->n_dim, &planes[2], err);
}

/* t: X.weight, of words; becomes the matrix. */
static mn_status mlx_join(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *s,
                          const mn_parsed_tensor *b, const packing *k, mn_error *err) {
    const uint32_t last = t->n_dim - 1;
    mn_dtype type;
    if (!packing_dtype(k, &type))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': %lld bits in groups of %lld; expected 2, 3, 4, 5, 6 or 8 "
                        "bits in groups of 32, 64 "
                        "or 128, or mxfp4, mxfp8, nvfp4",
                        MN_STR_ARG(t->native), (long long)k->bits, (long long)k->group);
    const int64_t cols = t->dim[last] * 32 / k->bits;
    const bool is_matrix = t->n_dim == 2 || t->n_dim == 3;
    const bool whole = t->dim[last] * 32 % k->bits == 0 && cols % k->group == 0;
    if (t->dtype.id != MN_I32 || !is_matrix || !whole)
        return mnl_fail(
            err, MN_BAD_FILE,
            "tensor '%.*s' (%s): expected rows of words of 32 bits, whole groups of %lld",
            MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), (long long)k->group);
    if (!b == is_affine(k))
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s': its biases are %s%s",
                        MN_STR_ARG(t->native), b ? "there, which it lacks in mode " : "missing",
                        b ? k->mode->name : "");
    mn_status status = mlx_check_extra(t, s, cols / k->group, k, err);
    if (!status && b)
        status = mlx_check_extra(t, b, cols / k->group, k, err);
    if (status)
        return status;
    t->dim[last] = cols;
    return mlx_planes(p, t, s, b, type, err);
}

/* X.weight, X.scales and X.biases become one tensor, X.weight; the others are dropped later. */
static mn_status join_stem(mn_parsed *p, const cJSON *quantization, mn_str stem, mn_error *err) {
    packing k;
    mn_parsed_tensor *t = layout_find(p, stem, ".weight");
    const mn_parsed_tensor *s = layout_find(p, stem, ".scales");
    const mn_parsed_tensor *b = layout_find(p, stem, ".biases");
    mn_status status = packing_of(quantization, stem, &k, err);
    if (status)
        return status;
    if (!t || !k.bits)
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s.scales' is there, and %s", MN_STR_ARG(stem),
                        t ? "config.json says that the matrix is not quantised"
                          : "its weight is missing");
    if (s)
        fit_bits(t, s, &k);
    return mlx_join(p, t, s, b, &k, err);
}

/* All X.weight that have X.scales; then scales and biases go. */
static mn_status join_all(mn_parsed *p, const model_facts *facts, mn_error *err) {
    const cJSON *quantization = json_get(facts->config, "quantization");
    mn_status status = MN_OK;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors && !status; i++) {
        const mn_str s = p->tensors[i].native;
        if (mn_str_ends(s, ".scales"))
            status = join_stem(p, quantization, (mn_str){s.ptr, s.len - 7}, err);
    }
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (!mn_str_ends(p->tensors[i].native, ".scales") &&
            !mn_str_ends(p->tensors[i].native, ".biases"))
            p->tensors[kept++] = p->tensors[i];
    p->n_tensors = kept;
    return status;
}

/* MN_OK: config.json has an object `quantization`; looked for without parsing the rest of the
 * folder. What is damaged is no MLX model; without memory nothing can be said. */
static mn_status is_mlx(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                        mn_error *err) {
    const mn_file *config = NULL;
    cJSON *root = NULL;
    mn_status status = MN_BAD_FILE;
    if (model_is_ours(files, n, stride))
        config = model_file(files, n, stride, "config.json");
    if (config)
        status = json_parse(host, config, 0, config->bytes, CONFIG_MAX, &root, err);
    bool yes = !status && cJSON_IsObject(json_get(root, "quantization"));
    cJSON_Delete(root);
    if (yes || status == MN_OUT_OF_MEMORY)
        return status;
    return mnl_fail(err, MN_BAD_FILE, "config.json has no object 'quantization': not an MLX model");
}

/* More sure than the loader of plain checkpoints, which would take this folder for its own. */
static mn_status guess(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *g) {
    const mn_status status = is_mlx(host, files, n, stride, NULL);
    if (!status) {
        g->confidence = 95;
        strcpy(g->why, "model*.safetensors, and config.json with 'quantization'");
    }
    return status == MN_OUT_OF_MEMORY ? status : MN_OK;
}

/* As a plain checkpoint, whose matrices are joined before they get their names. */
static mn_status open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                      mn_parsed **out, mn_error *err) {
    const mn_status status = is_mlx(host, files, n, stride, err);
    return status ? status : model_open(host, files, n, stride, join_all, out, err);
}

static const mn_loader_kind kind = {
    "mlx", guess,          "no model*.safetensors beside a config.json with 'quantization'",
    open,  model_patterns, MODEL_PATTERNS};

MN_PLUGIN_NOTE("mlx", MN_KIND_LOADER, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mn_loader_plugin(host, &kind, err);
}
