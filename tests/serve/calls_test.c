/* calls_test.c -- the JSON of tool calls, thinking and text of chat answers, streamed and whole:
 * the deltas that clients join are what the events of the stream say. */
#include "../../tools/serve/chat.c"
#include <assert.h>

/* What chat.c uses and this test does not. */
uint64_t sampling_seed(void) {
    static uint64_t seed = 1u << 30;
    return seed++;
}
void logprob_entry(const answer *a, mn_text *out, int32_t id, float logprob) {
    (void)a;
    mn_text_printf(out, "{\"token\":\"%d\",\"logprob\":%g,\"bytes\":[]", id, (double)logprob);
}
void answer_serve(serve *s, http_request *r, const answer_form *form) {
    (void)s;
    (void)r;
    (void)form;
}
int answer_reserve(answer *a, uint32_t n, json_error *e) {
    return a && n && e;
}
int answer_prompt(answer *a, uint32_t i, const int32_t *ids, uint32_t n, uint32_t flags,
                  uint32_t limit, const char *param, json_error *e) {
    return a && i && ids && n && flags && limit && param && e;
}
void answer_defaults(answer *a) {
    (void)a;
}
int serve_may_fit(const served *m, size_t n, const char *param, json_error *e) {
    return m && n && param && e;
}
int serve_check_number(const serve *s, uint64_t n, json_error *e) {
    return s && n && e;
}
int serve_library_error(const mn_error *err, mn_status st, const char *param, json_error *e) {
    return err && st && param && e;
}
int ask_read(const cJSON *body, int is_chat, int64_t n_vocab, ask *out, json_error *e) {
    return body && is_chat && n_vocab && out && e;
}
void ask_default_stops(ask *a, const char *const *stops, size_t n) {
    (void)a;
    (void)stops;
    (void)n;
}
void ask_sample(const ask *a, const mn_sample_params *defaults, uint64_t seed,
                mn_sample_params *out) {
    (void)a;
    (void)defaults;
    (void)seed;
    (void)out;
}

/* ---- the test -------------------------------------------------------------------------------- */
typedef struct {
    uint32_t kind, call;
    const char *text;
} said;

/* Two calls after thinking and text; the second call's arguments come in pieces. */
static const said all[] = {
    {MN_EVENT_THINKING, 0, "Which \"city\"?"},
    {MN_EVENT_TEXT, 0, "I look.\n"},
    {MN_EVENT_CALL, 0, "get_time"},
    {MN_EVENT_ARGUMENTS, 0, "{}"},
    {MN_EVENT_CALL, 1, "get_weather"},
    {MN_EVENT_ARGUMENTS, 1, "{\"city\": "},
    {MN_EVENT_ARGUMENTS, 1, "\"Bern\\n\"}"},
};

static mn_stream_event event_of(const said *s) {
    return (mn_stream_event){s->kind, s->call, {s->text, strlen(s->text)}};
}

static cJSON *parse(mn_text *out) {
    mn_text_puts(out, "}");
    cJSON *json = cJSON_Parse(out->ptr);
    assert(json);
    mn_text_free(out);
    return json;
}

static const char *text_at(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItem(object, name);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

static void free_texts(generation *g) {
    mn_text_free(&g->content);
    mn_text_free(&g->thinking);
    mn_text_free(&g->calls);
    mn_text_free(&g->logprobs);
}

/* Joins deltas as clients do, with `step` events per chunk. */
static void streamed(size_t step) {
    answer a = {0};
    a.ask.stream = 1;
    a.ask.with_thinking = 1;
    generation g = {.n_ids = 5, .n_prompt = 4};
    char content[64] = "", thinking[64] = "", names[2][32] = {"", ""}, arguments[2][64] = {"", ""};
    char ids[2][16] = {"", ""};
    for (size_t i = 0; i < MN_COUNT(all); i++) {
        const mn_stream_event e = event_of(&all[i]);
        chat_text(&a, &g, &e);
        if ((i + 1) % step && i + 1 < MN_COUNT(all))
            continue;
        mn_text out = {0};
        mn_text_puts(&out, "{");
        chat_chunk(&a, &g, NULL, &out);
        cJSON *chunk = parse(&out);
        const cJSON *delta = cJSON_GetObjectItem(chunk, "delta");
        const cJSON *call = NULL;
        if (text_at(delta, "content"))
            strcat(content, text_at(delta, "content"));
        if (text_at(delta, "reasoning_content"))
            strcat(thinking, text_at(delta, "reasoning_content"));
        cJSON_ArrayForEach(call, cJSON_GetObjectItem(delta, "tool_calls")) {
            const int at = cJSON_GetObjectItem(call, "index")->valueint;
            const cJSON *function = cJSON_GetObjectItem(call, "function");
            assert(at == 0 || at == 1);
            if (text_at(function, "name")) { /* id and name come once */
                assert(!names[at][0] && !strcmp(text_at(call, "type"), "function"));
                strcat(names[at], text_at(function, "name"));
                strcat(ids[at], text_at(call, "id"));
            }
            assert(text_at(function, "arguments") && names[at][0]);
            strcat(arguments[at], text_at(function, "arguments"));
        }
        cJSON_Delete(chunk);
    }
    assert(!strcmp(content, "I look.\n") && !strcmp(thinking, "Which \"city\"?"));
    assert(!strcmp(names[0], "get_time") && !strcmp(arguments[0], "{}"));
    assert(!strcmp(names[1], "get_weather"));
    assert(!strcmp(arguments[1], "{\"city\": \"Bern\\n\"}"));
    assert(strlen(ids[0]) == 9 && strlen(ids[1]) == 9 && strcmp(ids[0], ids[1]));
    assert(g.n_calls == 2);
    free_texts(&g);
}

static void whole(size_t n) {
    answer a = {0};
    a.ask.with_thinking = 1;
    generation g = {.n_ids = 5, .n_prompt = 4};
    mn_text out = {0};
    for (size_t i = 0; i < n; i++) {
        const mn_stream_event e = event_of(&all[i]);
        chat_text(&a, &g, &e);
    }
    mn_text_puts(&out, "{");
    chat_whole(&a, &g, n > 2 ? "tool_calls" : "stop", &out);
    cJSON *choice = parse(&out);
    const cJSON *message = cJSON_GetObjectItem(choice, "message");
    const cJSON *calls = cJSON_GetObjectItem(message, "tool_calls");
    assert(!strcmp(text_at(message, "role"), "assistant"));
    assert(n < 2 || !strcmp(text_at(message, "content"), "I look.\n"));
    assert(cJSON_GetArraySize(calls) == (n >= 3) + (n >= 5));
    if (n == MN_COUNT(all)) {
        const cJSON *last = cJSON_GetObjectItem(cJSON_GetArrayItem(calls, 1), "function");
        cJSON *arguments = cJSON_Parse(text_at(last, "arguments"));
        assert(!strcmp(text_at(arguments, "city"), "Bern\n"));
        cJSON_Delete(arguments);
    }
    cJSON_Delete(choice);
    free_texts(&g);
}

/* A call without text has null content; its message can be sent back. */
static void only_call(void) {
    answer a = {0};
    a.ask.with_thinking = 1;
    generation g = {.n_ids = 5, .n_prompt = 4};
    mn_text out = {0};
    for (size_t i = 2; i < 4; i++) {
        const mn_stream_event e = event_of(&all[i]);
        chat_text(&a, &g, &e);
    }
    mn_text_puts(&out, "{");
    chat_whole(&a, &g, "tool_calls", &out);
    cJSON *choice = parse(&out);
    cJSON *message = cJSON_GetObjectItem(choice, "message");
    json_error e = {0};
    assert(cJSON_IsNull(cJSON_GetObjectItem(message, "content")));
    assert(check_message(message, 0, &e) && !e.failed);
    cJSON_Delete(choice);
    free_texts(&g);
}

int main(void) {
    for (size_t step = 1; step <= MN_COUNT(all); step++)
        streamed(step);
    for (size_t n = 1; n <= MN_COUNT(all); n++)
        whole(n);
    only_call();
    return 0;
}
