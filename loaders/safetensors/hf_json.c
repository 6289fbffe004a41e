/* hf_json.c -- checked access to JSON. cJSON keeps repeated members, accepts any bytes in strings
 * and ends a string at a NUL, whatever follows: all three are refused here. */
#include "safetensors.h"
#include "text_buffer.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* text: n bytes and a NUL. cJSON does not say why it failed; malloc says so in errno. */
static mn_status parse_text(const mn_file *f, uint64_t offset, const char *text, uint64_t n,
                            cJSON **out, mn_error *err) {
    const char *end = text;
    errno = 0;
    cJSON *root = cJSON_ParseWithLengthOpts(text, (size_t)n + 1, &end, 0);
    if (!root && errno == ENOMEM)
        return mnl_fail_memory(err);
    if (!root)
        return mnl_fail(err, MN_BAD_FILE, "%.*s: not valid JSON at offset %llu",
                        MN_STR_ARG(f->name),
                        (unsigned long long)(offset + (end ? (uint64_t)(end - text) : 0)));
    uint64_t at = (uint64_t)(end - text);
    while (at < n && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
        at++;
    mn_status status = MN_OK;
    if (at < n)
        status =
            mnl_fail(err, MN_BAD_FILE,
                     "%.*s: bytes after the end of the JSON object at offset %llu, expected none",
                     MN_STR_ARG(f->name), (unsigned long long)(offset + at));
    else if (!cJSON_IsObject(root))
        status = mnl_fail(err, MN_BAD_FILE, "%.*s: the JSON text is not an object, expected one",
                          MN_STR_ARG(f->name));
    if (status)
        cJSON_Delete(root);
    else
        *out = root;
    return status;
}

/* Where a NUL is, as a byte or as \u0000; n = there is none. A backslash stands in strings
 * alone. */
static uint64_t find_nul(const char *s, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (!s[i])
            return i;
        if (s[i] != '\\' || i + 1 >= n)
            continue;
        if (n - i >= 6 && !memcmp(s + i, "\\u0000", 6))
            return i;
        i++;
    }
    return n;
}

/* Parses a copy: cJSON 1.7.15 reads one byte past a text that ends behind a comma, which may be
 * past the mapped file. */
mn_status json_parse(const mn_host *host, const mn_file *f, uint64_t offset, uint64_t n,
                     uint32_t max, cJSON **out, mn_error *err) {
    const char *text = (const char *)f->map + offset;
    if (!n || n > max)
        return mnl_fail(err, MN_BAD_FILE, "%.*s: %llu bytes of JSON, expected 1 to %u",
                        MN_STR_ARG(f->name), (unsigned long long)n, max);
    if (mn_utf8_check(text, n) < n)
        return mnl_fail(err, MN_BAD_FILE, "%.*s: not valid UTF-8, expected a JSON object",
                        MN_STR_ARG(f->name));
    char *copy = host->alloc(host->self, n + 1, 16);
    if (!copy)
        return mnl_fail_memory(err);
    memcpy(copy, text, (size_t)n);
    copy[n] = 0;
    const uint64_t nul = find_nul(copy, n);
    if (nul < n) {
        host->release(host->self, copy);
        return mnl_fail(err, MN_BAD_FILE, "%.*s: a NUL character at offset %llu, expected text",
                        MN_STR_ARG(f->name), (unsigned long long)(offset + nul));
    }
    mn_json_spell_infinity(copy);
    mn_status status = parse_text(f, offset, copy, n, out, err);
    host->release(host->self, copy);
    return status;
}

static int hf_json_by_name(const void *a, const void *b) {
    return strcmp(((const cJSON *)a)->string, ((const cJSON *)b)->string);
}

/* Members of one object have different names; cJSON would find the first one alone. */
mn_status json_unique(const mn_host *host, const mn_file *f, const cJSON *object, mn_error *err) {
    uint64_t n = 0;
    for (const cJSON *m = object->child; m; m = m->next)
        n++;
    if (n < 2)
        return MN_OK;
    const void **order = host->alloc(host->self, n * sizeof *order, 16);
    if (!order)
        return mnl_fail_memory(err);
    n = 0;
    for (const cJSON *m = object->child; m; m = m->next)
        order[n++] = m;
    mnl_sort(order, n, hf_json_by_name);
    mn_status status = MN_OK;
    for (uint64_t i = 1; i < n && !status; i++)
        if (!hf_json_by_name(order[i - 1], order[i]))
            status = mnl_fail(err, MN_BAD_FILE, "%.*s: key '%s' appears twice, expected once",
                              MN_STR_ARG(f->name), ((const cJSON *)order[i])->string);
    host->release(host->self, (void *)order);
    return status;
}

/* A member of an object; NULL where it is absent or null, which configurations use alike. */
const cJSON *json_get(const cJSON *object, const char *key) {
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(object, key);
    if (m && cJSON_IsNull(m))
        return NULL;
    return m;
}

/* How a value reads in a message: its text where it is short, else its kind. */
json_text json_describe(const cJSON *item) {
    json_text t = {"absent"};
    if (!item)
        return t;
    if (cJSON_IsNumber(item))
        snprintf(t.s, sizeof t.s, "%.17g", item->valuedouble);
    else if (cJSON_IsString(item))
        snprintf(t.s, sizeof t.s, "\"%.80s\"", item->valuestring);
    else if (cJSON_IsBool(item))
        snprintf(t.s, sizeof t.s, "%s", cJSON_IsTrue(item) ? "true" : "false");
    else if (cJSON_IsArray(item))
        snprintf(t.s, sizeof t.s, "an array");
    else
        snprintf(t.s, sizeof t.s, "%s", cJSON_IsObject(item) ? "an object" : "null");
    return t;
}

/* A whole number from lo to hi that a double holds exactly (up to 2^53); else *out stays as it
 * is. */
bool json_is_int(const cJSON *item, int64_t lo, int64_t hi, int64_t *out) {
    if (!item || !cJSON_IsNumber(item))
        return false;
    double v = item->valuedouble;
    if (!(v >= (double)lo && v <= (double)hi))
        return false;
    if (v > 9007199254740992.0 || v < -9007199254740992.0)
        return false;
    if (v != floor(v))
        return false;
    *out = (int64_t)v;
    return true;
}
