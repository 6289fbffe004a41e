/* config.c -- which tokens begin and end texts, from the files beside a
 * tokenizer.json. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <string.h>

typedef struct {
    cJSON *tokenizer, *map, *generation, *config;
} side_cars;

/* "bos_token": a string, or an object with "content". */
static int32_t token_of(const mn_tokenizer *tok, const cJSON *json, const char *key) {
    const cJSON *v = mn_json_item(json, key);
    if (cJSON_IsObject(v))
        v = mn_json_item(v, "content");
    return cJSON_IsString(v) ? mn_tokenizer_find(tok, mn_str_of(v->valuestring)) : -1;
}

/* Models of several parts keep the text part's keys in "text_config". */
static const cJSON *config_item(const cJSON *json, const char *key) {
    const cJSON *v = mn_json_item(json, key);
    return v ? v : mn_json_item(mn_json_item(json, "text_config"), key);
}

/* *id stays where no file names the token. */
static void name_token(const mn_tokenizer *tok, const side_cars *s, const char *name, int32_t *id) {
    char key[32], id_key[32];
    size_t n = strlen(name);
    memcpy(key, name, n);
    memcpy(key + n, "_token", 7);
    memcpy(id_key, key, n + 6);
    memcpy(id_key + n + 6, "_id", 4);
    int32_t found = token_of(tok, s->tokenizer, key);
    if (found < 0)
        found = token_of(tok, s->map, key);
    if (found < 0 && !mn_json_id(config_item(s->config, id_key), &found))
        return;
    if ((uint32_t)found < tok->vocab.n)
        *id = found;
    else if (strcmp(name, "pad")) /* often one past the end, and of no use here */
        mn_log(MN_LOG_WARN, "config.json: key '%s' is %d, expected 0 to %u (the tokens less 1)",
               id_key, (int)found, tok->vocab.n - 1);
}

/* eos_token_id: one id or a list. */
static mn_status put_stops(mn_tokenizer *tok, const cJSON *v, const char *file, mn_error *err) {
    if (!v || cJSON_IsNull(v))
        return MN_OK;
    const cJSON *item = cJSON_IsArray(v) ? v->child : v;
    for (; item; item = cJSON_IsArray(v) ? item->next : NULL) {
        int32_t id = -1;
        if (!mn_json_id(item, &id))
            return mn_fail(err, MN_BAD_FILE, "%s: eos_token_id: expected an id or a list of ids",
                           file);
        if (!mn_ids_put_once(&tok->stop, id))
            return mn_fail_memory(err, sizeof id);
    }
    return MN_OK;
}

static mn_status read_stops(mn_tokenizer *tok, const side_cars *s, mn_error *err) {
    mn_status st =
        put_stops(tok, mn_json_item(s->generation, "eos_token_id"), "generation_config.json", err);
    if (st || tok->stop.n)
        return st;
    st = put_stops(tok, config_item(s->config, "eos_token_id"), "config.json", err);
    if (!st && tok->eos >= 0 && !mn_ids_put_once(&tok->stop, tok->eos))
        st = mn_fail_memory(err, sizeof tok->eos);
    int32_t call = mn_tokenizer_find(tok, mn_str_of("<|call|>")),
            end = mn_tokenizer_find(tok, mn_str_of("<|return|>"));
    bool harmony = call >= 0 && end >= 0;
    if (!st && harmony && !(mn_ids_put_once(&tok->stop, end) && mn_ids_put_once(&tok->stop, call)))
        st = mn_fail_memory(err, sizeof end);
    return st;
}

/* These classes build their template from two flags, whatever tokenizer.json says. */
static mn_status apply_flags(mn_tokenizer *tok, const cJSON *config, mn_error *err) {
    const cJSON *class = mn_json_item(config, "tokenizer_class");
    const cJSON *bos = mn_json_item(config, "add_bos_token"),
                *eos = mn_json_item(config, "add_eos_token");
    if (!cJSON_IsString(class))
        return MN_OK;
    mn_json_flag(config, "add_bos_token", false); /* warns of another type */
    mn_json_flag(config, "add_eos_token", false);
    if (strncmp(class->valuestring, "Llama", 5) != 0 &&
        strncmp(class->valuestring, "Gemma", 5) != 0)
        return MN_OK;
    bool ok = true;
    if (cJSON_IsBool(bos) && (tok->bos >= 0 || cJSON_IsFalse(bos))) {
        tok->prefix.n = 0;
        ok = cJSON_IsFalse(bos) || mn_ids_put(&tok->prefix, tok->bos);
    }
    if (ok && cJSON_IsBool(eos) && (tok->eos >= 0 || cJSON_IsFalse(eos))) {
        tok->suffix.n = 0;
        ok = cJSON_IsFalse(eos) || mn_ids_put(&tok->suffix, tok->eos);
    }
    return ok ? MN_OK : mn_fail_memory(err, sizeof tok->bos);
}

mn_status mn_tokenizer_stop_from_files(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                                       mn_error *err) {
    side_cars s = {0};
    mn_status st = mn_json_file(files, n_files, "tokenizer_config.json", &s.tokenizer, err);
    if (!st)
        st = mn_json_file(files, n_files, "special_tokens_map.json", &s.map, err);
    if (!st)
        st = mn_json_file(files, n_files, "generation_config.json", &s.generation, err);
    if (!st)
        st = mn_json_file(files, n_files, "config.json", &s.config, err);
    if (!st) {
        name_token(tok, &s, "bos", &tok->bos);
        name_token(tok, &s, "eos", &tok->eos);
        name_token(tok, &s, "pad", &tok->pad);
        if (tok->unk < 0)
            name_token(tok, &s, "unk", &tok->unk);
        st = apply_flags(tok, s.tokenizer, err);
    }
    if (!st)
        st = read_stops(tok, &s, err);
    cJSON_Delete(s.tokenizer);
    cJSON_Delete(s.map);
    cJSON_Delete(s.generation);
    cJSON_Delete(s.config);
    return st;
}
