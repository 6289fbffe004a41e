/* generation.c -- how a model wants to be sampled, and what ends its answers:
 * generation_config.json of a checkpoint, general.sampling.* of a GGUF file. What a file says there
 * is a wish: a value that makes no sense is named in a warning and the usual one is used, the same
 * in every format. What is no id where an id is expected, or no JSON, is an error. */
#include "opened/opened.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GENERATION "generation_config.json"

const mn_sampling_key mn_sampling_keys[MN_SAMPLING_KEYS] = {
    {"temperature", "general.sampling.temp", 0, 100, false, false},
    {"top_k", "general.sampling.top_k", 0, INT32_MAX, true, false},
    {"top_p", "general.sampling.top_p", 0, 1, false, true},
    {"min_p", "general.sampling.min_p", 0, 1, false, false},
    {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 100, false, true},
    {"penalty_last_n", "general.sampling.penalty_last_n", -1, INT32_MAX, true, false},
    {"typical_p", "general.sampling.typical_p", 0, 1, false, true},
};
enum { TEMP, TOP_K, TOP_P, MIN_P, PENALTY, LAST_N, TYPICAL };
/* without a word of the files; a penalty of 0 is none */
static const double usual[MN_SAMPLING_KEYS] = {0.7, 0, 0.95, 0, 0, -1, 1};
/* Keys of generation_config.json that change what is drawn, and are not followed; but for this
 * value they are warned of. */
static const struct {
    const char *key;
    double neutral;
} ignored[] = {
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"encoder_no_repeat_ngram_size", 0},
    {"diversity_penalty", 0},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"guidance_scale", 1},
    {"bad_words_ids", 0},
    {"sequence_bias", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
};

mn_status mn_model_companion(const mn_model *m, const char *name, cJSON **out, mn_error *err) {
    const mn_file_set *f = &m->canonical->files;
    mn_status st = mn_json_file(f->files, f->n, name, out, err);
    return st ? mn_fail_in(err, st, "%s", m->canonical->path) : MN_OK;
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* A value as it stands in the file, for messages. */
static void put_json(mn_text *out, const cJSON *v) {
    if (cJSON_IsString(v))
        mn_text_json(out, (mn_str){v->valuestring, strnlen(v->valuestring, 60)});
    else if (cJSON_IsNumber(v))
        mn_text_printf(out, "%g", v->valuedouble);
    else if (cJSON_IsBool(v))
        mn_text_puts(out, cJSON_IsTrue(v) ? "true" : "false");
    else
        mn_text_puts(out, cJSON_IsArray(v) ? "a list" : "an object");
}

static void put_meta(mn_text *out, const mn_value *v) {
    if (v->type == MN_VALUE_STR)
        mn_text_json(out, (mn_str){v->s.ptr, MN_MIN(v->s.len, 60)});
    else if (v->type == MN_VALUE_FLOAT)
        mn_text_printf(out, "%g", v->f);
    else if (v->type == MN_VALUE_INT)
        mn_text_printf(out, "%lld", (long long)v->i);
    else if (v->type == MN_VALUE_BOOL)
        mn_text_puts(out, v->i ? "true" : "false");
    else
        mn_text_puts(out, "an array");
}

static bool fits_key(const mn_sampling_key *k, double v) {
    return v >= k->lo && v <= k->hi && (!k->above_zero || (float)v > 0) &&
           (!k->whole || v == floor(v));
}

/* found: as the file has it; where: "FILE: key 'K'" */
static void complain(const mn_model *m, int i, const char *where, const mn_text *found) {
    const mn_sampling_key *k = &mn_sampling_keys[i];
    char instead[40];
    snprintf(instead, sizeof instead, "%g is used", usual[i]);
    const bool open = k->above_zero && k->lo <= 0;
    mn_log(MN_LOG_WARN, "%s: %s is %s, expected %s %s %g %s %g: %s", m->canonical->path, where,
           found->ptr ? found->ptr : "", k->whole ? "an integer" : "a number",
           open ? "above" : "from", k->lo, open ? "up to" : "to", k->hi,
           i == PENALTY ? "no penalty is used" : instead);
}

/* What the files say under key i; NAN: nothing, or nothing of use, which is warned of. */
static double said(const mn_model *m, const cJSON *generation, int i) {
    const mn_sampling_key *k = &mn_sampling_keys[i];
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(generation, k->json);
    const cJSON *v = cJSON_IsNull(given) ? NULL : given;
    const mn_meta_entry *e = v ? NULL : mn_meta_find(&m->canonical->meta, k->key);
    mn_text found = {0};
    mn_text where = {0};
    double value = NAN;
    if (v) {
        mn_text_printf(&where, GENERATION ": key '%s'", k->json);
        put_json(&found, v);
        value = cJSON_IsNumber(v) ? v->valuedouble : NAN;
    } else if (e) {
        mn_text_printf(&where, "key %s", k->key);
        put_meta(&found, &e->value);
        value = e->value.type == MN_VALUE_FLOAT ? e->value.f : NAN;
        if (e->value.type == MN_VALUE_INT)
            value = (double)e->value.i;
    }
    const bool bad = (v || e) && !fits_key(k, value);
    if (bad)
        complain(m, i, where.ptr ? where.ptr : k->json, &found);
    else if (i == TEMP && !(value > 0) && !isnan(value))
        mn_log(MN_LOG_WARN, "%s: %s is 0: the most likely token is always taken",
               m->canonical->path, where.ptr ? where.ptr : k->json);
    mn_text_free(&found);
    mn_text_free(&where);
    return bad ? NAN : value;
}

/* false, null and an empty list are neutral, too. */
static bool is_neutral(const cJSON *v, double neutral) {
    if (!v || cJSON_IsNull(v) || cJSON_IsFalse(v))
        return true;
    if (cJSON_IsArray(v) || cJSON_IsObject(v))
        return !v->child;
    return cJSON_IsNumber(v) && v->valuedouble == neutral;
}

static void warn_of_ignored(const mn_model *m, const cJSON *generation) {
    for (size_t i = 0; i < MN_COUNT(ignored); i++)
        if (!is_neutral(mn_json_item(generation, ignored[i].key), ignored[i].neutral))
            mn_log(MN_LOG_WARN, "%s: " GENERATION ": key '%s' is ignored: there is no such sampler",
                   m->canonical->path, ignored[i].key);
}

static void read_defaults(mn_model *m, const cJSON *generation) {
    double v[MN_SAMPLING_KEYS];
    for (int i = 0; i < MN_SAMPLING_KEYS; i++) {
        m->sampling[i] = said(m, generation, i);
        v[i] = isnan(m->sampling[i]) ? usual[i] : m->sampling[i];
    }
    m->defaults = (mn_sample_params){.size = sizeof m->defaults,
                                     .temp = (float)v[TEMP],
                                     .top_k = (int32_t)v[TOP_K],
                                     .top_p = (float)v[TOP_P],
                                     .min_p = (float)v[MIN_P],
                                     .typical_p = v[TYPICAL] < 1 ? (float)v[TYPICAL] : 0};
    warn_of_ignored(m, generation);
    if (!(v[PENALTY] > 0) || v[PENALTY] == 1)
        return;
    m->defaults.repeat_penalty = (float)v[PENALTY];
    m->defaults.penalty_last_n = (int32_t)v[LAST_N]; /* Transformers knows no other than all */
}

/* ---- what ends an answer --------------------------------------------------------------------- */

/* A stop id, once. */
static mn_status add_stop(mn_model *m, int32_t id, mn_error *err) {
    for (uint32_t i = 0; i < m->n_stop; i++)
        if (m->stop[i] == id)
            return MN_OK;
    int32_t *more = mn_realloc(m->stop, m->n_stop + 1u, sizeof *more);
    if (!more)
        return mn_fail_memory(err, (m->n_stop + 1ull) * sizeof *m->stop);
    m->stop = more;
    m->stop[m->n_stop++] = id;
    return MN_OK;
}

/* An id that the model does not have. n_vocab 0: not known. effect: what it does not do. */
static void warn_of_id(const mn_model *m, const char *where, int64_t id, int64_t n_vocab,
                       const char *effect) {
    if (n_vocab && id >= n_vocab)
        mn_log(MN_LOG_WARN,
               "%s: %s is %lld, expected 0 to %lld (the vocabulary's size less 1): it %s",
               m->canonical->path, where, (long long)id, (long long)n_vocab - 1, effect);
}

/* The tokeniser says what a text begins with; here an id is only looked at. */
static void check_bos(const mn_model *m, const cJSON *generation, int64_t n_vocab) {
    const cJSON *bos = mn_json_item(generation, "bos_token_id");
    int32_t id = -1;
    if (mn_json_id(bos, &id))
        warn_of_id(m, GENERATION ": key 'bos_token_id'", id, n_vocab, "begins no text");
}

/* An id that is no integer. */
static mn_status fail_id(const mn_model *m, const char *where, const cJSON *found, mn_error *err) {
    mn_text text = {0};
    put_json(&text, found);
    mn_status st = mn_fail(err, MN_BAD_FILE, "%s: %s is %s, expected an id or a list of ids",
                           m->canonical->path, where, text.ptr ? text.ptr : "no id");
    mn_text_free(&text);
    return st;
}

/* eos_token_id of a file: one id or a list; add: they are stop ids. */
static mn_status read_eos(mn_model *m, const cJSON *json, const char *file, bool adds,
                          int64_t n_vocab, mn_error *err) {
    const cJSON *eos = mn_json_item(json, "eos_token_id");
    if (!eos || cJSON_IsNull(eos))
        return MN_OK;
    mn_text where = {0};
    mn_text_printf(&where, "%s: key 'eos_token_id'", file);
    mn_status st = where.failed ? mn_fail_memory(err, 64) : MN_OK;
    const cJSON *item = cJSON_IsArray(eos) ? eos->child : eos;
    for (; item && !st; item = cJSON_IsArray(eos) ? item->next : NULL) {
        int32_t id = -1;
        if (!mn_json_id(item, &id))
            st = fail_id(m, where.ptr, item, err);
        else
            warn_of_id(m, where.ptr, id, n_vocab, "ends no answer");
        if (!st && adds)
            st = add_stop(m, id, err);
    }
    mn_text_free(&where);
    return st;
}

/* config.json's counts where generation_config.json names none; a GGUF file has a key. The stops of
 * a model without a tokeniser are these; a tokeniser has read them by itself. */
static mn_status read_ends(mn_model *m, const cJSON *generation, int64_t n_vocab, mn_error *err) {
    static const char key[] = "tokenizer.ggml.eos_token_id";
    const bool adds = !m->tokenizer;
    const cJSON *own = mn_json_item(generation, "eos_token_id");
    mn_status st = read_eos(m, generation, GENERATION, adds, n_vocab, err);
    if (!st && (!own || cJSON_IsNull(own))) {
        cJSON *config = NULL;
        st = mn_model_companion(m, "config.json", &config, err);
        const cJSON *text = mn_json_item(config, "text_config"); /* of models with several parts */
        if (!st)
            st = read_eos(m, mn_json_item(config, "eos_token_id") ? config : text, "config.json",
                          adds, n_vocab, err);
        cJSON_Delete(config);
    }
    int64_t eos = -1;
    if (st || !mn_meta_find(&m->canonical->meta, key))
        return st;
    st = mn_meta_i64(&m->canonical->meta, key, -1, UINT32_MAX, &eos, err);
    if (st)
        return mn_fail_in(err, st, "%s", m->canonical->path);
    if (eos < 0 || eos == UINT32_MAX)
        return MN_OK; /* -1 and UINT32_MAX are written for "none" */
    warn_of_id(m, "key tokenizer.ggml.eos_token_id", eos, n_vocab, "ends no answer");
    /* an id of the model that the tokeniser has no token for is an end, too */
    const bool unknown = m->tokenizer && eos >= mn_tokenizer_n_vocab(m->tokenizer);
    return (adds || unknown) && eos <= INT32_MAX ? add_stop(m, (int32_t)eos, err) : MN_OK;
}

mn_status mn_generation_read(mn_model *m, mn_error *err) {
    const mn_model_tensor_entry *embd = mn_canonical_tensor(m->canonical, "token_embd.weight");
    const int64_t n_vocab = embd && embd->info.n_dim == 2 ? embd->info.dim[0] : 0;
    cJSON *generation = NULL;
    uint32_t n = 0;
    mn_status st = mn_model_companion(m, GENERATION, &generation, err);
    if (!st) {
        read_defaults(m, generation);
        check_bos(m, generation, n_vocab);
    }
    const int32_t *own = m->tokenizer ? mn_tokenizer_stop_ids(m->tokenizer, &n) : NULL;
    for (uint32_t i = 0; i < n && !st; i++)
        st = add_stop(m, own[i], err);
    if (!st)
        st = read_ends(m, generation, n_vocab, err);
    cJSON_Delete(generation);
    return st;
}
