/* generation.c -- how a model wants to be sampled, and what ends its answers. */
#include "api/api.h"
#include "text/json.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

bool mn_model_side_car(const mn_model *m, const char *name, cJSON **out) {
    const mn_file_set *f = &m->canonical->files;
    return mn_json_file(f->files, f->n, name, out, NULL) != MN_OUT_OF_MEMORY;
}

static bool add(mn_model *m, double id) {
    if (!(id >= 0 && id <= INT32_MAX && id == floor(id)))
        return true;
    for (uint32_t i = 0; i < m->n_stop; i++)
        if (m->stop[i] == (int32_t)id)
            return true;
    int32_t *more = mn_realloc(m->stop, m->n_stop + 1u, sizeof *more);
    if (!more)
        return false;
    m->stop = more;
    m->stop[m->n_stop++] = (int32_t)id;
    return true;
}

static bool add_json(mn_model *m, const cJSON *json) {
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(json, "eos_token_id"), *one;
    bool ok = !cJSON_IsNumber(eos) || add(m, eos->valuedouble);
    if (cJSON_IsArray(eos))
        cJSON_ArrayForEach(one, eos) ok = ok && (!cJSON_IsNumber(one) || add(m, one->valuedouble));
    return ok;
}

/* A model without a tokeniser still says what ends a text. */
static bool stops_without_tokenizer(mn_model *m, const cJSON *generation) {
    int64_t eos;
    bool ok = add_json(m, generation);
    if (ok && !m->n_stop) {
        cJSON *config = NULL;
        ok = mn_model_side_car(m, "config.json", &config) && add_json(m, config);
        cJSON_Delete(config);
    }
    if (ok && mn_meta_i64(&m->canonical->meta, "tokenizer.ggml.eos_token_id", 0, INT32_MAX, &eos,
                          NULL) == MN_OK)
        ok = add(m, (double)eos);
    return ok;
}

static double clamp(double v, double lo, double hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

/* generation_config.json's key, else metadata's, else otherwise. */
static double recommended(const mn_model *m, const cJSON *json, const char *key,
                          const char *meta_key, double otherwise) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    double d = otherwise;
    if (cJSON_IsNumber(v))
        d = v->valuedouble;
    else
        mn_meta_f64(&m->canonical->meta, meta_key, &d, NULL);
    return isfinite(d) ? d : otherwise;
}

static void read_defaults(mn_model *m, const cJSON *generation) {
    m->defaults = (mn_sample_params){.size = sizeof m->defaults};
    m->defaults.temp = (float)clamp(
        recommended(m, generation, "temperature", "general.sampling.temp", 0.7), 0, 100);
    m->defaults.top_p =
        (float)clamp(recommended(m, generation, "top_p", "general.sampling.top_p", 0.95), 0, 1);
    m->defaults.top_k = (int32_t)clamp(
        recommended(m, generation, "top_k", "general.sampling.top_k", 0), 0, INT32_MAX);
    m->defaults.min_p =
        (float)clamp(recommended(m, generation, "min_p", "general.sampling.min_p", 0), 0, 1);
    const double penalty =
        recommended(m, generation, "repetition_penalty", "general.sampling.penalty_repeat", 0);
    if (!(penalty > 0) || penalty == 1)
        return;
    m->defaults.repeat_penalty = (float)clamp(penalty, 0.01, 100);
    m->defaults.penalty_last_n = /* Transformers knows no other than all */
        (int32_t)clamp(
            recommended(m, generation, "penalty_last_n", "general.sampling.penalty_last_n", -1), -1,
            INT32_MAX);
}

mn_status mn_model_sample_defaults(const mn_model *m, mn_sample_params *out) {
    return m ? mn_args_give(MN_SIZED_SAMPLE_PARAMS, out, &m->defaults) : MN_INVALID;
}

mn_status mn_generation_read(mn_model *m, mn_error *err) {
    cJSON *generation = NULL;
    uint32_t n = 0;
    bool ok = mn_model_side_car(m, "generation_config.json", &generation);
    read_defaults(m, generation);
    const int32_t *own = m->tokenizer ? mn_tokenizer_stop_ids(m->tokenizer, &n) : NULL;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = add(m, own[i]);
    if (ok && !m->tokenizer)
        ok = stops_without_tokenizer(m, generation);
    cJSON_Delete(generation);
    return ok ? MN_OK : mn_fail_memory(err, (m->n_stop + 1ull) * sizeof *m->stop);
}
