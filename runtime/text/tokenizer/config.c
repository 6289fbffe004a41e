/* config.c -- which tokens begin and end texts, from the files beside a tokenizer.json or a
 * tokenizer.model: tokenizer_config.json, special_tokens_map.json, generation_config.json and
 * config.json. The trees live as long as the call. A token that a file names and the vocabulary
 * does not have is a warning: many files have one, and it does no harm. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    cJSON *tokenizer, *map, *generation, *config;
} companions;

/* "bos_token": a string, or an object with "content"; -1 = no such token. */
static int32_t token_of(const mn_tokenizer *tok, const cJSON *json, const char *key) {
    const cJSON *v = mn_json_item(json, key);
    if (cJSON_IsObject(v))
        v = mn_json_item(v, "content");
    if (!cJSON_IsString(v))
        return -1;
    return mn_tokenizer_find(tok, mn_str_of(v->valuestring));
}

/* Models of several parts keep the text part's keys in "text_config". */
static const cJSON *config_item(const cJSON *json, const char *key) {
    const cJSON *v = mn_json_item(json, key);
    return v ? v : mn_json_item(mn_json_item(json, "text_config"), key);
}

/* name: bos, eos, ...; *id stays where no file names the token. */
static void name_token(const mn_tokenizer *tok, const companions *s, const char *name,
                       int32_t *id) {
    char key[32];
    char id_key[32];
    snprintf(key, sizeof key, "%s_token", name);
    snprintf(id_key, sizeof id_key, "%s_token_id", name);
    int32_t found = token_of(tok, s->tokenizer, key);
    if (found < 0)
        found = token_of(tok, s->map, key);
    if (found < 0 && !mn_json_id(config_item(s->config, id_key), &found))
        return;
    if ((uint32_t)found < tok->vocab.n)
        *id = found;
    else if (strcmp(name, "pad") != 0) // often one past the end, and of no use here
        mn_log(MN_LOG_WARN, "config.json: key '%s' is %d, expected 0 to %u (the tokens less 1)",
               id_key, (int)found, tok->vocab.n - 1);
}

/* eos_token_id: one id or a list. */
static mn_status put_stops(mn_tokenizer *tok, const cJSON *v, const char *file, mn_error *err) {
    mn_status st = MN_OK;
    if (!v || cJSON_IsNull(v))
        return MN_OK;
    const bool list = cJSON_IsArray(v);
    const cJSON *item = list ? v->child : v;
    while (!st && item) {
        int32_t id = -1;
        if (!mn_json_id(item, &id))
            return mn_fail(err, MN_BAD_FILE, "%s: eos_token_id: expected an id or a list of ids",
                           file);
        st = mn_ids_put_once(&tok->stop, id, err);
        item = list ? item->next : NULL;
    }
    return st;
}

/* generation_config.json's ends, else config.json's and the tokeniser's own; with Harmony's tokens
 * both of its ends, which no config.json names. */
static mn_status read_stops(mn_tokenizer *tok, const companions *s, mn_error *err) {
    const cJSON *generation = mn_json_item(s->generation, "eos_token_id");
    const int32_t call = mn_tokenizer_find(tok, mn_str_of("<|call|>"));
    const int32_t end = mn_tokenizer_find(tok, mn_str_of("<|return|>"));
    mn_status st = put_stops(tok, generation, "generation_config.json", err);
    if (st || tok->stop.n)
        return st;
    st = put_stops(tok, config_item(s->config, "eos_token_id"), "config.json", err);
    if (!st)
        st = mn_ids_put_once(&tok->stop, tok->eos, err);
    if (st || call < 0 || end < 0)
        return st;
    st = mn_ids_put_once(&tok->stop, end, err);
    return st ? st : mn_ids_put_once(&tok->stop, call, err);
}

/* Sets what is added, if the flag is there, and the token that it asks for. */
static mn_status apply_flag(mn_id_list *list, const cJSON *flag, int32_t id, mn_error *err) {
    if (!cJSON_IsBool(flag) || (id < 0 && cJSON_IsTrue(flag)))
        return MN_OK;
    list->n = 0;
    return cJSON_IsTrue(flag) ? mn_ids_put(list, id, err) : MN_OK;
}

/* These classes build their template from two flags, whatever tokenizer.json says. */
static mn_status apply_flags(mn_tokenizer *tok, const cJSON *config, mn_error *err) {
    const char *class = cJSON_GetStringValue(mn_json_item(config, "tokenizer_class"));
    const cJSON *bos = mn_json_item(config, "add_bos_token");
    const cJSON *eos = mn_json_item(config, "add_eos_token");
    if (!class)
        return MN_OK;
    mn_json_flag(config, "add_bos_token", false); // warns of another type
    mn_json_flag(config, "add_eos_token", false);
    if (strncmp(class, "Llama", 5) != 0 && strncmp(class, "Gemma", 5) != 0)
        return MN_OK;
    mn_status st = apply_flag(&tok->prefix, bos, tok->bos, err);
    return st ? st : apply_flag(&tok->suffix, eos, tok->eos, err);
}

mn_status mn_tokenizer_stop_from_files(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                                       mn_error *err) {
    companions s = {0};
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
