/* json.c -- JSON files of a model as trees (cJSON), and what their objects say. The caller owns a
 * tree; strings that are read from it live as long as it. For what is too large to be a tree there
 * is scan.c. */
#include "text/json/json.h"
#include "json_strict.h"
#include "text_buffer.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* malloc sets errno, and nothing else that cJSON calls after a failure does. */
cJSON *mn_json_tree(const char *text, size_t n, const char **end, bool *no_memory) {
    errno = 0;
    cJSON *tree = cJSON_ParseWithLengthOpts(text, n, end, false);
    *no_memory = !tree && errno == ENOMEM;
    if (!tree)
        return NULL;
    const size_t read = (size_t)(*end - text);
    size_t length;
    const size_t wrong = json_bad_number(text, read, &length);
    if (wrong == read && json_keep_last(tree))
        return tree;
    *no_memory = wrong == read;
    *end = text + wrong;
    cJSON_Delete(tree);
    return NULL;
}

/* Parses a copy: cJSON before 1.7.18 reads one byte past a text that ends behind a comma, which may
 * be past the mapped file. */
mn_status mn_json_parse(mn_str text, const char *name, cJSON **out, mn_error *err) {
    return mn_json_parse_cut(text, NULL, 0, name, out, err);
}

/* Where the byte `at` of a text that parts were cut out of stood in the whole one. */
static size_t json_tree_place(size_t at, const mn_json_cut *cuts, size_t n_cuts) {
    for (size_t i = n_cuts; i > 0; i--)
        if (at >= cuts[i - 1].here)
            return at - cuts[i - 1].here + cuts[i - 1].there;
    return at;
}

/* json: NULL where the text is none; more: something follows it. at: the byte for messages. */
static mn_status check_tree(const cJSON *json, bool more, const char *name, size_t at,
                            mn_error *err) {
    if (!json)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, at);
    if (!cJSON_IsObject(json))
        return mn_fail(err, MN_BAD_FILE, "%s: expected an object", name);
    if (more)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: bytes after the end of the JSON object at byte %zu, expected none",
                       name, at);
    return MN_OK;
}

mn_status mn_json_parse_cut(mn_str text, const mn_json_cut *cuts, size_t n_cuts, const char *name,
                            cJSON **out, mn_error *err) {
    *out = NULL;
    mn_status st = mn_companion_text(&text, MN_COMPANION_MAX, name, err);
    if (st)
        return st;
    const size_t n = (size_t)text.len;
    const size_t valid = mn_utf8_check(text.ptr, n);
    if (valid < n)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid UTF-8 at byte %zu", name, valid);
    char *copy = mn_strndup(text.ptr ? text.ptr : "", n);
    if (!copy)
        return mn_fail_memory(err, n + 1);
    mn_json_spell_infinity(copy);
    const char *end = copy;
    bool no_memory = false;
    cJSON *json = mn_json_tree(copy, n + 1, &end, &no_memory);
    size_t at = (size_t)(end - copy);
    while (json && at < n && copy[at] && strchr(" \t\r\n", copy[at]))
        at++;
    mn_free(copy);
    if (no_memory)
        return mn_fail(err, MN_OUT_OF_MEMORY, "%s: out of memory while it was read", name);
    st = check_tree(json, at < n, name, json_tree_place(at, cuts, n_cuts), err);
    if (st)
        cJSON_Delete(json);
    else
        *out = json;
    return st;
}

mn_status mn_json_file(const mn_file *files, uint32_t n_files, const char *name, cJSON **out,
                       mn_error *err) {
    mn_str text;
    *out = NULL;
    mn_status st = mn_companion(files, n_files, name, MN_COMPANION_MAX, &text, err);
    return st || !text.ptr ? st : mn_json_parse(text, name, out, err);
}

const cJSON *mn_json_item(const cJSON *json, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(json, key);
}

/* A value in words; number: room for one. */
static const char *in_words(const cJSON *v, char number[40]) {
    if (cJSON_IsString(v))
        return v->valuestring;
    if (cJSON_IsBool(v))
        return cJSON_IsTrue(v) ? "true" : "false";
    if (!cJSON_IsNumber(v))
        return cJSON_IsArray(v) ? "a list" : "an object";
    snprintf(number, 40, "%g", v->valuedouble);
    return number;
}

/* A value of another type than expected is not used, which is not done without a word. */
static void warn_of_type(const cJSON *v, const char *key, const char *expected) {
    char number[40];
    if (!v || cJSON_IsNull(v))
        return;
    mn_log(MN_LOG_WARN, "key '%s' is %.60s, expected %s: it is not used", key, in_words(v, number),
           expected);
}

const char *mn_json_text(const cJSON *json, const char *key, const char *otherwise) {
    const cJSON *v = mn_json_item(json, key);
    if (!cJSON_IsString(v))
        warn_of_type(v, key, "a string");
    return cJSON_IsString(v) ? v->valuestring : otherwise;
}

bool mn_json_flag(const cJSON *json, const char *key, bool otherwise) {
    const cJSON *v = mn_json_item(json, key);
    if (!cJSON_IsBool(v))
        warn_of_type(v, key, "true or false");
    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : otherwise;
}

/* A NaN fails the first comparison, a fraction the last. */
bool mn_json_id(const cJSON *v, int32_t *id) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < MN_VOCAB_MAX))
        return false;
    *id = (int32_t)v->valuedouble;
    return (double)*id == v->valuedouble;
}
