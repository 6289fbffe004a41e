/* prompts.c -- makes the token ids of prompts: from text, a conversation, ids, or a file of JSON
 * lines (minerva run --prompts).
 *
 * A line's own settings replace those of the flags in its gen. An error of one line is stored in
 * its gen, printed with its result, and does not stop the others. The gens are the caller's
 * (gen_free). Text becomes ids by the chat template (talk.c) or the tokeniser. Interface:
 * prompts.h. */
#include "prompts.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Space for n ids in g, which has none yet. 0, or the exit code with the error printed. */
static int make_prompt(gen *g, size_t n) {
    if (n == 0)
        return complain(EXIT_USAGE, "the prompt is empty: found 0 tokens, expected at least 1");
    if (n <= UINT32_MAX)
        g->prompt = malloc(n * sizeof *g->prompt);
    if (!g->prompt)
        return no_memory();
    g->n_prompt = (uint32_t)n;
    return 0;
}

/* Copies the library's ids into g, and frees them. */
static int prompts_keep(gen *g, int32_t *ids, uint32_t n) {
    int code = make_prompt(g, n);
    if (code == 0)
        memcpy(g->prompt, ids, n * sizeof *ids);
    mn_ids_free(ids);
    return code;
}

/* The chat template with n messages; also measures g->tokenize_s. */
static int from_messages(app *a, gen *g, const mn_message *messages, uint32_t n,
                         const prompt_flags *flags) {
    int32_t *ids = NULL;
    uint32_t n_ids = 0;
    double begin = seconds();
    int code = talk_ids(a, flags->talk, messages, n, 0, &ids, &n_ids);
    g->tokenize_s = seconds() - begin;
    return code ? code : prompts_keep(g, ids, n_ids);
}

/* The text without a chat template. */
static int from_plain(app *a, gen *g, mn_str text, const prompt_flags *flags) {
    const uint32_t special = flags->parse_special ? MN_TEXT_PARSE_SPECIAL : 0;
    const uint32_t how = MN_TEXT_ADD_SPECIAL | special;
    int32_t *ids = NULL;
    uint32_t n = 0;
    double begin = seconds();
    mn_status status = mn_model_tokenize(a->model, text, how, &ids, &n, &a->err);
    g->tokenize_s = seconds() - begin;
    return status == MN_OK ? prompts_keep(g, ids, n) : app_fail(a, status);
}

int prompt_from_text(app *a, gen *g, mn_str text, const prompt_flags *flags) {
    const char *system = flags->system;
    const mn_message messages[] = {
        {{"system", 6}, {system, system ? strlen(system) : 0}, {NULL, 0}},
        {{"user", 4}, text, {NULL, 0}}};
    const int code =
        app_need_tokenizer(a, EXIT_FAILED, ": found a text as the prompt, expected --prompt-ids");
    if (code)
        return code;
    const int has_template = talk_has_template(a, flags->talk);
    if (system && !flags->raw && !has_template)
        return complain(
            EXIT_FAILED,
            "%s has no chat template: found a system message, expected --chat-template with it",
            a->info.path);
    if (!flags->raw && !has_template && a->info.found & MN_FOUND_FOREIGN_TEMPLATE)
        return complain(EXIT_FAILED,
                        "%s: its chat template is ollama's, which is not run, and its file has "
                        "none: expected --chat-template (or --raw)",
                        app_model_name(a));
    if (flags->raw || !has_template)
        return from_plain(a, g, text, flags);
    const uint32_t n = system ? 2 : 1;
    return from_messages(a, g, messages + 2 - n, n, flags);
}

int prompt_from_history(app *a, gen *g, const prompt_flags *flags) {
    return from_messages(a, g, NULL, 0, flags);
}

int prompt_from_ids(gen *g, const arg_ints *list) {
    const int code = make_prompt(g, list->n);
    for (uint32_t i = 0; i < g->n_prompt; i++)
        g->prompt[i] = (int32_t)list->v[i];
    return code;
}

/* ---- a file of lines ------------------------------------------------------------------------- */
/* The values of a line's keys; NULL: not given. They belong to the line's JSON object. */
typedef struct {
    const cJSON *prompt, *prompt_ids, *max_tokens, *seed, *temp, *stop, *system;
} line_keys;

static const struct {
    const char *name;
    size_t offset;
} keys[] = {
    {"prompt", offsetof(line_keys, prompt)},
    {"prompt_ids", offsetof(line_keys, prompt_ids)},
    {"max_tokens", offsetof(line_keys, max_tokens)},
    {"n", offsetof(line_keys, max_tokens)},
    {"seed", offsetof(line_keys, seed)},
    {"temp", offsetof(line_keys, temp)},
    {"stop", offsetof(line_keys, stop)},
    {"system", offsetof(line_keys, system)},
};
#define KEYS                                                                                       \
    "\"prompt\" or \"prompt_ids\", and any of \"max_tokens\" (or \"n\"), \"seed\", \"temp\", "     \
    "\"stop\" and \"system\""

/* An error of one key of the line. */
static int bad_key(const char *key, const char *expected) {
    return complain(EXIT_FAILED, "\"%.60s\": %s", key, expected);
}

static int prompts_read_keys(const cJSON *object, line_keys *k) {
    const cJSON *v = NULL;
    if (!cJSON_IsObject(object))
        return complain(EXIT_FAILED, "expected one JSON object {%s}", KEYS);
    cJSON_ArrayForEach(v, object) {
        const cJSON **field = NULL;
        for (size_t i = 0; i < MN_COUNT(keys) && !field; i++)
            if (!strcmp(v->string, keys[i].name))
                field = (const cJSON **)(void *)((char *)k + keys[i].offset);
        if (!field)
            return bad_key(v->string, "unknown key, expected " KEYS);
        if (*field)
            return bad_key(v->string, "found twice");
        *field = v;
    }
    if (!k->prompt == !k->prompt_ids)
        return complain(EXIT_FAILED,
                        k->prompt ? "found \"prompt\" and \"prompt_ids\", expected one of them"
                                  : "expected \"prompt\" or \"prompt_ids\"");
    return 0;
}

/* 1 if v is a whole number from lo to hi. */
static int is_whole(const cJSON *v, double lo, double hi) {
    return cJSON_IsNumber(v) && v->valuedouble >= lo && v->valuedouble <= hi &&
           v->valuedouble == (double)(int64_t)v->valuedouble;
}

static int line_ids(gen *g, const cJSON *list) {
    const cJSON *v = NULL;
    const size_t n = (size_t)cJSON_GetArraySize(list);
    if (!cJSON_IsArray(list) || n == 0)
        return bad_key("prompt_ids", "expected a list of at least one token id");
    if (make_prompt(g, n) != 0)
        return EXIT_NO_MEMORY;
    int32_t *to = g->prompt;
    cJSON_ArrayForEach(v, list) {
        if (!is_whole(v, 0, INT32_MAX))
            return bad_key("prompt_ids", "found something else than token ids, expected whole "
                                         "numbers from 0 to 2147483647");
        *to++ = (int32_t)v->valuedouble;
    }
    return 0;
}

/* Appends a copy of the string; gen_free frees it (owns_stop). */
static int prompts_add_stop(gen *g, const cJSON *v) {
    const char *text = cJSON_GetStringValue(v);
    const char **grown = realloc(g->stop.v, (g->stop.n + 1) * sizeof *grown);
    if (grown)
        g->stop.v = grown;
    char *copy = grown ? strdup(text) : NULL;
    if (!copy)
        return no_memory();
    g->stop.v[g->stop.n++] = copy;
    return 0;
}

/* The strings of the line replace those of --stop. */
static int line_stop(gen *g, const cJSON *stop) {
    static const char expected[] = "expected a string that is not empty, or a list of them";
    const cJSON *v = NULL;
    int code = 0;
    g->stop = (arg_texts){NULL, 0};
    g->owns_stop = 1;
    if (cJSON_IsString(stop) && stop->valuestring[0])
        return prompts_add_stop(g, stop);
    if (!cJSON_IsArray(stop))
        return bad_key("stop", expected);
    cJSON_ArrayForEach(v, stop) {
        if (!cJSON_IsString(v) || !v->valuestring[0])
            return bad_key("stop", expected);
        code = prompts_add_stop(g, v);
        if (code)
            break;
    }
    return code;
}

#define MAX_SEED 9007199254740992.0 /* 2^53: what JSON numbers hold exactly */
static int line_settings(gen *g, const line_keys *k) {
    if (k->max_tokens && !is_whole(k->max_tokens, 1, INT32_MAX) && !is_whole(k->max_tokens, -1, -1))
        return bad_key(k->max_tokens->string,
                       "expected a whole number from 1 to 2147483647, or -1");
    if (k->seed && !is_whole(k->seed, 0, MAX_SEED))
        return bad_key("seed", "expected a whole number from 0 to 9007199254740992");
    if (k->temp &&
        !(cJSON_IsNumber(k->temp) && k->temp->valuedouble >= 0 && k->temp->valuedouble <= 100))
        return bad_key("temp", "expected a number from 0 to 100");
    if (k->prompt && !cJSON_IsString(k->prompt))
        return bad_key("prompt", "expected a string");
    if (k->system && !(cJSON_IsString(k->system) && k->prompt))
        return bad_key("system", k->prompt ? "expected a string"
                                           : "expected \"prompt\" with it, found \"prompt_ids\"");
    if (k->max_tokens)
        g->max_new = (int64_t)k->max_tokens->valuedouble;
    if (k->seed)
        g->sample.seed = (uint64_t)k->seed->valuedouble;
    if (k->temp)
        g->sample.temp = (float)k->temp->valuedouble;
    return k->stop ? line_stop(g, k->stop) : 0;
}

static int line_object(app *a, gen *g, const cJSON *object, const prompt_flags *flags) {
    line_keys k = {0};
    prompt_flags own = *flags;
    int code = prompts_read_keys(object, &k);
    if (code == 0)
        code = line_settings(g, &k);
    if (code)
        return code;
    if (k.prompt_ids)
        return line_ids(g, k.prompt_ids);
    if (k.system && flags->raw)
        return bad_key("system", "found --raw, which uses no chat template");
    if (k.system)
        own.system = k.system->valuestring;
    const char *text = k.prompt->valuestring;
    return prompt_from_text(a, g, (mn_str){text, strlen(text)}, &own);
}

/* 1 if the line has an escaped NUL, at which cJSON would cut the string without an error. */
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

static int line_json(app *a, gen *g, const char *line, size_t n, const prompt_flags *flags) {
    if (strlen(line) != n || has_nul(line))
        return complain(EXIT_FAILED, "found a NUL character, expected text without one");
    size_t length = 0;
    const size_t at = json_bad_number(line, n, &length);
    if (at < n)
        return complain(EXIT_FAILED, "not valid JSON at byte %zu: found %.*s, expected a number",
                        at, (int)(length < 40 ? length : 40), line + at);
    errno = 0; /* malloc sets it; cJSON says no more than NULL */
    cJSON *object = cJSON_ParseWithOpts(line, NULL, 1);
    if (!object && errno == ENOMEM)
        return no_memory();
    int code = object ? line_object(a, g, object, flags)
                      : complain(EXIT_FAILED, "not valid JSON, expected one object {%s}", KEYS);
    cJSON_Delete(object);
    return code;
}

/* Fills g from the line of n bytes. 0 also if the line cannot be used: g->error has the message
 * then. */
static int read_line(app *a, gen *g, const char *line, size_t n, const prompt_flags *flags) {
    char why[600] = "";
    g->max_new = flags->max_new;
    g->sample = flags->sample;
    g->stop = *flags->stop;
    if (flags->own_seeds)
        g->sample.seed = sampling_seed();
    complain_into(why, sizeof why);
    int code = line_json(a, g, line, n, flags);
    complain_into(NULL, 0);
    if (code == 0)
        return 0;
    g->error = strdup(why);
    if (code == EXIT_NO_MEMORY || !g->error)
        return no_memory();
    return 0;
}

/* The new element n of the list, zeroed; NULL: out of memory. */
static gen *one_more(gen **list, size_t n) {
    gen *grown = realloc(*list, (n + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    *list = grown;
    return memset(&grown[n], 0, sizeof *grown);
}

/* Appends the prompt of one line, from line to stop, to the list; a blank line has none. */
static int add_line(app *a, const char *line, const char *stop, size_t number,
                    const prompt_flags *flags, gen **out, size_t *n) {
    if (stop == line + strspn(line, " \t\r"))
        return 0;
    gen *g = one_more(out, *n);
    if (!g)
        return no_memory();
    g->line = number;
    ++*n;
    return read_line(a, g, line, (size_t)(stop - line), flags);
}

int prompts_from_file(app *a, const char *path, const prompt_flags *flags, gen **out, size_t *n) {
    char *data;
    size_t bytes, number = 0;
    int code = read_all(path, &data, &bytes);
    char *end = data + bytes;
    for (char *line = data; code == 0 && line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        *stop = 0;
        code = add_line(a, line, stop, ++number, flags, out, n);
        line = stop + 1;
    }
    free(data);
    if (code == 0 && *n == 0)
        code = complain(EXIT_FAILED, "%s: found no prompt, expected one JSON object per line {%s}",
                        input_name(path), KEYS);
    return code;
}
