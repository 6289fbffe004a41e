/* bench_url_prompts.c -- the requests of minerva bench --url: random token ids, random words, or
 * the lines of a file.
 *
 * Prompts are random so that no server answers from a cache that users would not have: the share
 * that requests have in common is stated by --shared alone. All bodies of a test are made
 * before its clock starts. ignore_eos makes answers as long as -n says; servers of the
 * kind (llama-server, vLLM, minerva serve) know the field, the others are counted by what they
 * send. The lines of a file belong to url_prompts (url_lines_free). */
#include "bench_url.h"
#include "text_buffer.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static const char completions[] = "/completions", chat_completions[] = "/chat/completions";

/* Words that most vocabularies have as one token. */
static const char *const words[] = {
    "the",   "and",   "time",  "house", "water", "light", "night", "world", "small", "green",
    "tree",  "river", "stone", "over",  "under", "day",   "hand",  "voice", "door",  "bird",
    "three", "seven", "long",  "old",   "new",   "road",  "city",  "story", "found", "went",
    "came",  "said",  "white", "black", "blue",  "red",   "ship",  "sea",   "wind",  "fire",
};

uint64_t url_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Which id or word stands at position i of a prompt: shared prompts have the first n_shared from
 * the run's own stream, the rest from the request's. */
typedef struct {
    uint64_t common, own;
    uint32_t n_shared;
} prompt_stream;

static prompt_stream stream_of(const url_prompts *p, uint64_t test, size_t request, uint32_t n) {
    prompt_stream s = {p->seed, p->seed ^ (test << 40) ^ (request + 1), 0};
    s.own = url_random(&s.own);
    s.n_shared = (uint32_t)((double)n * p->shared / 100 + 0.5);
    return s;
}

static uint64_t stream_next(prompt_stream *s, uint32_t i) {
    return url_random(i < s->n_shared ? &s->common : &s->own);
}

/* The first and last ids of a vocabulary are often special tokens: neither is used. */
static cJSON *random_ids(const url_prompts *p, prompt_stream s, uint32_t n) {
    const uint64_t n_vocab = p->n_vocab ? p->n_vocab : 1000;
    const uint64_t lo = n_vocab / 10;
    const uint64_t span = n_vocab * 8 / 10 ? n_vocab * 8 / 10 : 1;
    int *ids = malloc((n + 1u) * sizeof *ids);
    if (!ids)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int)(lo + stream_next(&s, i) % span);
    cJSON *list = cJSON_CreateIntArray(ids, (int)n);
    free(ids);
    return list;
}

static char *random_words(prompt_stream s, uint32_t n) {
    mn_text text = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            mn_text_puts(&text, " ");
        mn_text_puts(&text, words[stream_next(&s, i) % MN_COUNT(words)]);
    }
    return mn_text_take(&text);
}

/* Adds the prompt to the body; 0: out of memory. */
static int bench_url_prompts_add_text(cJSON *body, const url_prompts *p, const char *text) {
    if (!p->chat)
        return cJSON_AddStringToObject(body, "prompt", text) != NULL;
    cJSON *list = cJSON_AddArrayToObject(body, "messages");
    cJSON *message = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(list, message)) {
        cJSON_Delete(message);
        return 0;
    }
    return cJSON_AddStringToObject(message, "role", "user") &&
           cJSON_AddStringToObject(message, "content", text);
}

static int bench_url_prompts_add_prompt(cJSON *body, const url_prompts *p, prompt_stream s,
                                        uint32_t n) {
    if (!p->chat && !p->words) {
        cJSON *ids = random_ids(p, s, n);
        return ids && cJSON_AddItemToObject(body, "prompt", ids);
    }
    char *text = random_words(s, n);
    const int ok = text && bench_url_prompts_add_text(body, p, text);
    free(text);
    return ok;
}

/* Adds a member unless the line of the file has it. `item` is the body's or freed. */
static int add_missing(cJSON *body, const char *key, cJSON *item) {
    if (!item || cJSON_HasObjectItem(body, key)) {
        cJSON_Delete(item);
        return item != NULL;
    }
    return cJSON_AddItemToObject(body, key, item);
}

/* What every request has. */
static int add_common(cJSON *body, const url_prompts *p, uint32_t n_gen) {
    cJSON *options = cJSON_CreateObject();
    int ok = options && cJSON_AddBoolToObject(options, "include_usage", 1);
    ok = add_missing(body, "stream_options", options) && ok;
    ok = ok && add_missing(body, "model", cJSON_CreateString(p->model));
    if (p->n_gen_given || !p->file)
        ok = ok && add_missing(body, "max_tokens", cJSON_CreateNumber(n_gen));
    if (!p->file)
        ok = ok && add_missing(body, "ignore_eos", cJSON_CreateBool(1));
    ok = ok && add_missing(body, "temperature", cJSON_CreateNumber(0));
    cJSON_DeleteItemFromObject(body, "stream");
    return ok && cJSON_AddBoolToObject(body, "stream", 1);
}

/* One request, from the file's line or at random. */
static int make_one(const url_prompts *p, prompt_stream s, const cJSON *line, uint32_t n_prompt,
                    uint32_t n_gen, url_request *out) {
    cJSON *body = line ? cJSON_Duplicate(line, 1) : cJSON_CreateObject();
    int ok = body != NULL;
    if (!line)
        ok = ok && bench_url_prompts_add_prompt(body, p, s, n_prompt);
    ok = ok && add_common(body, p, n_gen);
    out->body = ok ? cJSON_PrintUnformatted(body) : NULL;
    out->path = cJSON_HasObjectItem(body, "messages") ? chat_completions : completions;
    cJSON_Delete(body);
    return out->body ? 0 : no_memory();
}

int url_requests_make(const url_prompts *p, uint64_t test, uint32_t n_prompt, uint32_t n_gen,
                      url_request *out, size_t n) {
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        const prompt_stream s = stream_of(p, test, i, n_prompt);
        const cJSON *line = p->file ? p->lines[i % p->n_lines] : NULL;
        code = make_one(p, s, line, n_prompt, n_gen, &out[i]);
    }
    return code;
}

void url_requests_free(url_request *requests, size_t n) {
    for (size_t i = 0; requests && i < n; i++)
        cJSON_free(requests[i].body);
    free(requests);
}

/* ---- a file of requests ---------------------------------------------------------------------- */
/* One line: the body of a request. prompt_ids, which run --prompts knows, becomes prompt. */
static int bench_url_prompts_read_line(url_prompts *p, const char *path, size_t number,
                                       const char *line, size_t n) {
    size_t length = 0;
    const size_t bad = json_bad_number(line, n, &length);
    cJSON *body = bad < n ? NULL : cJSON_ParseWithLength(line, n);
    if (!json_keep_last(body)) {
        cJSON_Delete(body);
        return no_memory();
    }
    if (cJSON_HasObjectItem(body, "prompt_ids"))
        cJSON_AddItemToObject(body, "prompt", cJSON_DetachItemFromObject(body, "prompt_ids"));
    const int has_prompt = cJSON_HasObjectItem(body, "prompt");
    const int has_messages = cJSON_HasObjectItem(body, "messages");
    if (!cJSON_IsObject(body) || has_prompt == has_messages) {
        cJSON_Delete(body);
        return complain(EXIT_FAILED,
                        "%s:%zu: expected one JSON object with \"prompt\", \"prompt_ids\" or "
                        "\"messages\"",
                        input_name(path), number);
    }
    void **grown = realloc(p->lines, (p->n_lines + 1) * sizeof *grown);
    if (!grown) {
        cJSON_Delete(body);
        return no_memory();
    }
    p->lines = grown;
    p->lines[p->n_lines++] = body;
    return 0;
}

int url_lines_read(url_prompts *p, const char *path) {
    char *text = NULL;
    size_t n = 0, number = 0;
    int code = read_all_text(path, &text, &n);
    p->file = 1;
    for (size_t at = 0; at < n && code == 0; number++) {
        const size_t length = strcspn(text + at, "\n");
        const size_t blank = strspn(text + at, " \t\r");
        if (blank < length)
            code = bench_url_prompts_read_line(p, path, number + 1, text + at, length);
        at += length + 1;
    }
    free(text);
    if (code == 0 && p->n_lines == 0)
        code = complain(EXIT_FAILED, "%s: found no line, expected requests as JSON objects",
                        input_name(path));
    return code;
}

void url_lines_free(url_prompts *p) {
    for (size_t i = 0; i < p->n_lines; i++)
        cJSON_Delete(p->lines[i]);
    free(p->lines);
    p->lines = NULL;
    p->n_lines = 0;
}
