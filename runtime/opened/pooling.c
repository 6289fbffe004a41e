/* pooling.c -- how a model's files want hidden states pooled into an embedding: {arch}.pooling_type
 * of GGUF; modules.json and 1_Pooling/config.json of sentence-transformers.
 *
 * Read once, when a model is opened. What cannot be done (another pooling, other layers behind it,
 * a damaged file) costs the defaults, not the model: it is an error where they are asked for. */
#include "opened/opened.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define MODULES "modules.json"
enum { CONFIG_MAX = 1 << 20 };

/* Why the defaults cannot be used; the first reason stays. */
static mn_status refuse_pooling(mn_model *m, const char *why) {
    if (m->embed.refusal)
        return MN_OK;
    m->embed.refusal = mn_strndup(why, strlen(why));
    return m->embed.refusal ? MN_OK : MN_OUT_OF_MEMORY;
}

/* ---- keys of GGUF ---------------------------------------------------------------------------- */
static mn_status read_keys(mn_model *m) {
    enum { NONE, RANK = 4 };
    const mn_meta *meta = &m->canonical->meta;
    mn_error why = MN_ERROR_INIT;
    char key[96];
    int64_t type = NONE;
    bool norm = true;
    snprintf(key, sizeof key, "%.64s.pooling_type", m->arch);
    mn_status st = mn_meta_i64(meta, key, NONE, RANK, &type, &why);
    if (st && st != MN_END)
        return refuse_pooling(m, why.msg);
    st = mn_meta_bool(meta, MN_EMBED_NORM_KEY, &norm, &why);
    if (st && st != MN_END)
        return refuse_pooling(m, why.msg);
    if (!norm)
        m->embed.norm = MN_NORM_NONE;
    if (type == RANK)
        return refuse_pooling(m, "its pooling_type is 4 (rank): the model scores pairs of texts");
    if (type != NONE)
        m->embed.pooling = (uint32_t)type; /* the numbers are MN_POOLING_*'s */
    m->embed.stated = type != NONE;
    return MN_OK;
}

/* ---- sentence-transformers ------------------------------------------------------------------- */
/* A plain folder name: a path out of the model's folder is none. */
static bool is_plain(const char *s) {
    if (!*s || *s == '.')
        return false;
    for (; *s; s++) {
        const bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (!letter && !(*s >= '0' && *s <= '9') && !strchr("._-", *s))
            return false;
    }
    return true;
}

/* FOLDER/DIR, where FOLDER is the model's. */
static void put_folder(const mn_model *m, const char *dir, mn_text *out) {
    const char *model = m->canonical->path;
    const char *slash = strrchr(model, '/');
    if (mn_path_is_dir(model))
        mn_text_printf(out, "%s/", model);
    else if (slash)
        mn_text_printf(out, "%.*s/", (int)(slash - model), model);
    mn_text_puts(out, dir);
}

/* The parsed FOLDER/DIR/config.json. */
static mn_status read_config(const mn_model *m, const char *dir, cJSON **out, mn_error *err) {
    mn_text path = {0};
    char *data = NULL;
    uint64_t bytes = 0;
    put_folder(m, dir, &path);
    mn_text_puts(&path, "/config.json");
    mn_status st = path.failed ? mn_fail_memory(err, 256) : MN_OK;
    if (!st)
        st = mn_read_file(path.ptr, CONFIG_MAX, &data, &bytes, err);
    if (!st)
        st = mn_json_parse((mn_str){data, bytes}, path.ptr, out, err);
    mn_free(data);
    mn_text_free(&path);
    return st;
}

/* The pooling that config names: a word, or one flag of several; 0 = none that is here. */
static uint32_t pooling_of(const cJSON *config) {
    static const char *const words[][2] = {
        [MN_POOLING_MEAN] = {"mean", "pooling_mode_mean_tokens"},
        [MN_POOLING_CLS] = {"cls", "pooling_mode_cls_token"},
        [MN_POOLING_LAST] = {"lasttoken", "pooling_mode_lasttoken"},
    };
    const char *word = mn_json_text(config, "pooling_mode", "");
    uint32_t found = 0;
    uint32_t n_set = 0;
    const cJSON *v;
    for (uint32_t i = MN_POOLING_MEAN; i <= MN_POOLING_LAST; i++)
        if (!strcmp(word, words[i][0]) || mn_json_flag(config, words[i][1], false))
            found = i;
    cJSON_ArrayForEach(v, config) {
        const bool is_mode = !strncmp(v->string, "pooling_mode_", 13);
        n_set += is_mode && cJSON_IsTrue(v);
    }
    if (*word)
        return n_set ? 0 : found;
    return n_set == 1 ? found : 0;
}

static mn_status read_pooling(mn_model *m, const cJSON *module) {
    const char *dir = mn_json_text(module, "path", "");
    mn_error why = MN_ERROR_INIT;
    cJSON *config = NULL;
    if (!is_plain(dir))
        return refuse_pooling(m, MODULES ": the path of its Pooling is no name of a folder");
    if (read_config(m, dir, &config, &why))
        return refuse_pooling(m, why.msg);
    const uint32_t pooling = pooling_of(config);
    cJSON_Delete(config);
    if (!pooling)
        return refuse_pooling(m, MODULES ": its Pooling is none of cls, mean and last token");
    m->embed.pooling = pooling;
    m->embed.stated = true;
    return MN_OK;
}

/* A layer behind the pooling; behind Normalize it would be another model. */
static mn_status read_dense(mn_model *m, const cJSON *module) {
    const char *dir = mn_json_text(module, "path", "");
    mn_error why = MN_ERROR_INIT;
    mn_text path = {0};
    if (!is_plain(dir))
        return refuse_pooling(m, MODULES ": the path of its Dense is no name of a folder");
    if (m->embed.norm == MN_NORM_L2)
        return refuse_pooling(m, MODULES ": its Dense follows Normalize, expected it before");
    put_folder(m, dir, &path);
    mn_status st = path.failed ? MN_OUT_OF_MEMORY : mn_dense_read_folder(m, path.ptr, &why);
    mn_text_free(&path);
    if (st == MN_OUT_OF_MEMORY)
        return st;
    return st ? refuse_pooling(m, why.msg) : MN_OK;
}

/* "sentence_transformers.models.Normalize": what follows the last dot counts. */
static mn_status read_module(mn_model *m, const cJSON *module) {
    const char *type = mn_json_text(module, "type", "");
    const char *dot = strrchr(type, '.');
    const char *kind = dot ? dot + 1 : type;
    char why[160];
    if (!strcmp(kind, "Transformer"))
        return MN_OK;
    if (!strcmp(kind, "Pooling"))
        return read_pooling(m, module);
    if (!strcmp(kind, "Dense"))
        return read_dense(m, module);
    if (!strcmp(kind, "Normalize")) {
        m->embed.norm = MN_NORM_L2;
        return MN_OK;
    }
    snprintf(why, sizeof why,
             MODULES ": module \"%.60s\": known are Transformer, Pooling, Dense, "
                     "Normalize",
             kind);
    return refuse_pooling(m, why);
}

/* modules.json is a list; the text is made an object for the parser of objects. */
static mn_status parse_modules(mn_str text, cJSON **out, mn_error *err) {
    mn_text object = {0};
    mn_text_printf(&object, "{\"modules\":%.*s}", (int)text.len, text.ptr);
    mn_status st = object.failed ? mn_fail_memory(err, text.len) : MN_OK;
    if (!st)
        st = mn_json_parse((mn_str){object.ptr, object.len}, MODULES, out, err);
    mn_text_free(&object);
    return st;
}

static mn_status read_modules(mn_model *m) {
    const mn_file_set *f = &m->canonical->files;
    mn_error why = MN_ERROR_INIT;
    mn_str text = {0};
    cJSON *json = NULL;
    const cJSON *module;
    mn_status st = mn_companion(f->files, f->n, MODULES, CONFIG_MAX, &text, &why);
    if (!st && !text.ptr)
        return MN_OK;
    if (!st)
        st = parse_modules(text, &json, &why);
    if (st)
        return refuse_pooling(m, why.msg);
    m->embed.norm = MN_NORM_NONE;
    st = MN_OK;
    cJSON_ArrayForEach(module, mn_json_item(json, "modules")) {
        if (!st)
            st = read_module(m, module);
    }
    cJSON_Delete(json);
    return st;
}

/* The layers that are tensors of the model itself. */
static mn_status read_dense_tensors(mn_model *m) {
    mn_error why = MN_ERROR_INIT;
    mn_status st = mn_dense_read_tensors(m, &why);
    if (!st || st == MN_OUT_OF_MEMORY)
        return st;
    return refuse_pooling(m, why.msg);
}

/* ---- all ------------------------------------------------------------------------------------- */
mn_status mn_pooling_read(mn_model *m, mn_error *err) {
    m->embed.pooling = MN_POOLING_LAST;
    m->embed.norm = MN_NORM_L2;
    if (mn_hparams_is_encoder(m->canonical))
        m->embed.pooling = MN_POOLING_MEAN;
    mn_status st = read_keys(m);
    if (!st)
        st = read_dense_tensors(m);
    if (!st)
        st = read_modules(m);
    if (m->embed.refusal)
        m->embed.dense.n = 0; /* a pooling that is named is without them */
    return st ? mn_fail_memory(err, 256) : MN_OK;
}

mn_status mn_pooling_defaults(const mn_model *m, uint32_t *pooling, uint32_t *norm, mn_error *err) {
    if (m->embed.refusal)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: %s: name the pooling (mean, cls or last) to embed without it",
                       m->canonical->path, m->embed.refusal);
    if (pooling)
        *pooling = m->embed.pooling;
    if (norm)
        *norm = m->embed.norm;
    return MN_OK;
}
