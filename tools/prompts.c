/* prompts.c -- see prompts.h. */
#include "prompts.h"
#include <cjson/cJSON.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int keep(gen *g, int32_t *ids, uint32_t n) {
    int code = 0;
    if (n == 0)
        code = complain(EXIT_USAGE, "the prompt is empty: found 0 tokens, expected at least 1");
    else if (!(g->prompt = malloc(n * sizeof *ids)))
        code = complain(EXIT_NO_MEMORY, "out of memory");
    else
        memcpy(g->prompt, ids, n * sizeof *ids);
    g->n_prompt = code ? 0 : n;
    mn_ids_free(ids);
    return code;
}

static int from_messages(app *a, gen *g, const mn_message *messages, uint32_t n,
                         const prompt_flags *flags) {
    int32_t *ids = NULL;
    uint32_t n_ids = 0;
    double begin = seconds();
    int code = talk_ids(a, flags->talk, messages, n, 0, &ids, &n_ids);
    g->tokenize_s = seconds() - begin;
    return code ? code : keep(g, ids, n_ids);
}

static int from_plain(app *a, gen *g, mn_str text, const prompt_flags *flags) {
    uint32_t how = MN_TEXT_ADD_SPECIAL | (flags->parse_special ? MN_TEXT_PARSE_SPECIAL : 0), n = 0;
    int32_t *ids = NULL;
    double begin = seconds();
    mn_status status = mn_model_tokenize(a->model, text, how, &ids, &n, &a->err);
    g->tokenize_s = seconds() - begin;
    return status == MN_OK ? keep(g, ids, n) : app_fail(a, status);
}

int prompt_from_text(app *a, gen *g, mn_str text, const prompt_flags *flags) {
    const char *system = flags->talk->flags->system;
    const mn_message messages[] = {
        {{"system", 6}, {system, system ? strlen(system) : 0}, {NULL, 0}},
        {{"user", 4}, text, {NULL, 0}}};
    if (!a->info.has_tokenizer)
        return complain(EXIT_FAILED,
                        "%s has no tokeniser: a text cannot be its prompt, --prompt-ids can",
                        a->info.path);
    if (flags->raw || !a->info.has_chat_template)
        return from_plain(a, g, text, flags);
    return system ? from_messages(a, g, messages, 2, flags)
                  : from_messages(a, g, messages + 1, 1, flags);
}

int prompt_from_history(app *a, gen *g, const prompt_flags *flags) {
    return from_messages(a, g, NULL, 0, flags);
}

int prompt_from_ids(gen *g, const arg_ints *list) {
    if (list->n == 0 || list->n > UINT32_MAX || !(g->prompt = malloc(list->n * sizeof *g->prompt)))
        return complain(EXIT_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < list->n; i++)
        g->prompt[i] = (int32_t)list->v[i];
    g->n_prompt = (uint32_t)list->n;
    return 0;
}

/* ---- a file of lines ------------------------------------------------------------------------- */
typedef struct {
    const char *path;
    size_t number;
} place;

static int bad_line(place at, const char *why) {
    return complain(EXIT_FAILED, "%s:%zu: %s",
                    strcmp(at.path, "-") == 0 ? "standard input" : at.path, at.number, why);
}

/* Whole numbers that a double holds and the API takes. */
static int is_whole(const cJSON *v, double lo, double hi) {
    return cJSON_IsNumber(v) && v->valuedouble >= lo && v->valuedouble <= hi &&
           v->valuedouble == (double)(int64_t)v->valuedouble;
}

static int line_ids(gen *g, const cJSON *list, place at) {
    const cJSON *v;
    size_t n = (size_t)cJSON_GetArraySize(list), i = 0;
    if (!cJSON_IsArray(list) || n == 0)
        return bad_line(at, "\"prompt_ids\": expected a list of at least one token id");
    if (!(g->prompt = malloc(n * sizeof *g->prompt)))
        return complain(EXIT_NO_MEMORY, "out of memory");
    cJSON_ArrayForEach(v, list) {
        if (!is_whole(v, 0, INT32_MAX))
            return bad_line(at, "\"prompt_ids\": found something else than token ids, expected "
                                "whole numbers from 0 to 2147483647");
        g->prompt[i++] = (int32_t)v->valuedouble;
    }
    g->n_prompt = (uint32_t)n;
    return 0;
}

static int line_object(app *a, gen *g, const cJSON *object, const prompt_flags *flags, place at) {
    const cJSON *text = NULL, *ids = NULL, *n = NULL, *v;
    char why[160];
    if (!cJSON_IsObject(object))
        return bad_line(at, "expected one JSON object {\"prompt\" or \"prompt_ids\", \"n\"}");
    cJSON_ArrayForEach(v, object) {
        const cJSON **field = !strcmp(v->string, "prompt")       ? &text
                              : !strcmp(v->string, "prompt_ids") ? &ids
                              : !strcmp(v->string, "n")          ? &n
                                                                 : NULL;
        snprintf(why, sizeof why, "\"%.60s\": %s", v->string,
                 field ? "found twice"
                       : "unknown key, expected \"prompt\", \"prompt_ids\" or \"n\"");
        if (!field || *field)
            return bad_line(at, why);
        *field = v;
    }
    if (!text == !ids)
        return bad_line(at, text ? "found \"prompt\" and \"prompt_ids\", expected one of them"
                                 : "expected \"prompt\" or \"prompt_ids\"");
    if (n && !is_whole(n, 1, INT32_MAX) && !is_whole(n, -1, -1))
        return bad_line(at, "\"n\": expected a whole number from 1 to 2147483647, or -1");
    if (text && !cJSON_IsString(text))
        return bad_line(at, "\"prompt\": expected a string");
    g->max_new = n ? (int64_t)n->valuedouble : flags->max_new;
    if (ids)
        return line_ids(g, ids, at);
    int code =
        prompt_from_text(a, g, (mn_str){text->valuestring, strlen(text->valuestring)}, flags);
    if (code)
        bad_line(at, "this prompt cannot be used");
    return code;
}

/* An escaped NUL would end the parser's string early: a prompt cut without a word. */
static int has_nul(const char *line) {
    for (const char *s = line; *s; s++) {
        if (*s != '\\')
            continue;
        if (strncmp(s, "\\u0000", 6) == 0)
            return 1;
        if (s[1])
            s++;
    }
    return 0;
}

static int read_line(app *a, gen *g, const char *line, size_t n, const prompt_flags *flags,
                     place at) {
    if (strlen(line) != n || has_nul(line))
        return bad_line(at, "a NUL character cannot be in a prompt");
    cJSON *object = cJSON_ParseWithOpts(line, NULL, 1);
    int code =
        object
            ? line_object(a, g, object, flags, at)
            : bad_line(at,
                       "not valid JSON, expected one object {\"prompt\" or \"prompt_ids\", \"n\"}");
    cJSON_Delete(object);
    return code;
}

static gen *one_more(gen **list, size_t n) {
    gen *grown = realloc(*list, (n + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    *list = grown;
    return memset(&grown[n], 0, sizeof *grown);
}

int prompts_from_file(app *a, const char *path, const prompt_flags *flags, gen **out, size_t *n) {
    char *data;
    size_t bytes;
    int code = read_all(path, &data, &bytes);
    place at = {path, 0};
    for (char *line = data, *end = data + bytes; code == 0 && line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        *stop = 0;
        at.number++;
        if (stop != line + strspn(line, " \t\r")) {
            gen *g = one_more(out, *n);
            code = g ? read_line(a, g, line, (size_t)(stop - line), flags, at)
                     : complain(EXIT_NO_MEMORY, "out of memory");
            *n += g != NULL;
        }
        line = stop + 1;
    }
    free(data);
    if (code == 0 && *n == 0)
        code = complain(EXIT_FAILED, "%s: no prompts in it", path);
    return code;
}
