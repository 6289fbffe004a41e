/* fuzz_serve.c -- the front of the server between a hostile client and a broken engine. Input, as
 * parts in the order of time:
 *   === POST /v1/chat/completions     a request with its body; any method and path
 *   === engine                        lines of what the engine says: "token 1 5", "finish 1 2",
 *                                     "say 1 TEXT" (the tokens of a text),
 *                                     "admitted 1", "refused 1 3", "prompt 1", "vector 1 2 4",
 *                                     "down 1", "up" (the first number: the id of a generation)
 *   === wire                          bytes of an engine, as they come from its socket
 *   === gone 0                        the client of that request has left
 * Built with FUZZ_PATHS it passes on requests of these paths alone: of one dialect.
 * HTTP is stood in for by functions of this file that check the answers: one per request, JSON
 * objects or events that are such, nothing behind the end. Afterwards nothing is left. */
#include "opened/opened.h"
#include "app.h"
#include "fuzz.h"
#include "serve/answer.h"
#include "serve/embeddings.h"
#include "serve/responses_store.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CTX = 256, N_SEQ = 4 };

typedef struct {
    http_request http; /* first */
    char *words;       /* method and path */
    char *body;
    unsigned status;
    bool streams, ended, dropped, gone;
    bool has_lines; /* the stream is one of JSON lines */
    mn_text out;
} asked;

static serve server;
static served model;
static served *all_models[] = {&model};
static char model_name[] = "storyteller";
static engine_link engine;
static asked requests[FUZZ_PARTS];
static uint32_t n_requests;
static serve_flags flags;
static bool broken_engine; /* it said something: 500 may be the answer */

/* ---- what the command has elsewhere ---------------------------------------------------------- */
const unsigned char serve_page[] = "page";
const size_t serve_page_size = sizeof serve_page - 1;

int app_fail(app *a, mn_status status) {
    (void)a;
    return status != MN_OK;
}

double seconds(void) {
    static double now = 1;
    return now += 1e-3;
}

/* Ids of answers are made of it: an input can name the response of its first request. */
static uint64_t last_seed;

uint64_t sampling_seed(void) {
    return ++last_seed;
}

void app_remark(const app *a, const char *fmt, ...) {
    (void)a;
    (void)fmt;
}

int read_all_text(const char *path, char **data, size_t *n) {
    (void)path;
    *data = NULL;
    *n = 0;
    return 1;
}

int model_open_text(served *m) {
    (void)m;
    return 1;
}

int model_start(served *m) {
    (void)m;
    return 1;
}

void model_estimate(served *m) {
    (void)m;
}

void model_free_settings(served *m) {
    (void)m;
}

int models_are_several(const serve *s) {
    return !s;
}

void model_free_engines(served *m) {
    (void)m;
}

void model_close_text(served *m) {
    (void)m;
}

int args_document(const arg_page *page, const char *form) {
    (void)page;
    (void)form;
    return 1;
}

/* Downloads and removals, which are processes and files. */
static void manage(serve *s, http_request *r) {
    if (models_permit(s, r))
        http_error(r, 404, "", NULL, NULL, "");
}

void route_ollama_pull(serve *s, http_request *r) {
    manage(s, r);
}

void route_ollama_delete(serve *s, http_request *r) {
    manage(s, r);
}

void route_ollama_copy(serve *s, http_request *r) {
    manage(s, r);
}

void route_ollama_absent(serve *s, http_request *r) {
    manage(s, r);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */
static asked *of(const http_request *r) {
    return (asked *)(uintptr_t)r;
}

/* Lists are answers of llama-server alone. path NULL: out of memory. */
static bool may_be_list(const char *path) {
    if (!path)
        return false;
    return !strncmp(path, "/completion", 11) || !strncmp(path, "/embedding", 10) ||
           !strcmp(path, "/infill") || !strcmp(path, "/slots");
}

static void check_json(const asked *x, mn_str text) {
    cJSON *json = cJSON_ParseWithLength(text.ptr, text.len);
    FUZZ_CHECK(cJSON_IsObject(json) || (cJSON_IsArray(json) && may_be_list(x->http.path)));
    FUZZ_CHECK(mn_utf8_check(text.ptr, text.len) == text.len);
    cJSON_Delete(json);
}

static void set_status(asked *x, unsigned status) {
    static const unsigned known[] = {200, 400, 403, 404, 405, 429, 503};
    bool expected = status == 500 && broken_engine;
    for (size_t i = 0; i < MN_COUNT(known); i++)
        expected |= status == known[i];
    FUZZ_CHECK(expected);
    FUZZ_CHECK(!x->status && !x->gone);
    x->status = status;
}

/* A second answer is dropped by http.c: an error may meet a request that was just answered. */
void http_answer(http_request *r, unsigned status, const char *type, mn_text *body) {
    asked *x = of(r);
    if (!x->status) {
        set_status(x, status);
        if (type && !strcmp(type, "application/json"))
            check_json(x, (mn_str){body->ptr, body->len});
        if (status == 200)
            fuzz_accepted = true;
        x->ended = true;
    }
    mn_text_free(body);
}

void http_header(http_request *r, const char *name, const char *value) {
    (void)r;
    FUZZ_CHECK(*name && !strpbrk(value, "\r\n"));
}

void http_begin(http_request *r, const char *type) {
    asked *x = of(r);
    x->has_lines = !strcmp(type, "application/x-ndjson");
    FUZZ_CHECK(x->has_lines || !strcmp(type, "text/event-stream"));
    set_status(x, 200);
    x->streams = true;
    fuzz_accepted = true;
}

void http_put(http_request *r, const char *bytes, size_t n) {
    asked *x = of(r);
    FUZZ_CHECK(!x->ended &&
               !x->gone); /* of several prompts one may begin before all are admitted */
    mn_text_put(&x->out, bytes, n);
}

void http_end(http_request *r) {
    asked *x = of(r);
    FUZZ_CHECK(x->streams && !x->ended);
    x->ended = true;
}

/* Short or long, requests are read at once: there are no threads. */
char *http_take_body(http_request *r) {
    (void)r;
    return NULL;
}

size_t http_unsent(const http_request *r) {
    return of(r)->out.len & 1023; /* the client reads most of it */
}

void http_drop(http_request *r) {
    of(r)->dropped = true;
}

unsigned http_connections(const http_server *s) {
    (void)s;
    return n_requests;
}

/* 1 if the name of an event says that no other one follows. */
static bool is_last(const char *event) {
    static const char *const ends[] = {"event: message_stop\n", "event: error\n",
                                       "event: response.completed\n",
                                       "event: response.incomplete\n"};
    bool found = false;
    for (size_t i = 0; i < MN_COUNT(ends); i++)
        found |= !strncmp(event, ends[i], strlen(ends[i]));
    return found;
}

/* Every line is an object, and the last one of a stream that has ended is said to be. */
static void check_lines(const asked *x) {
    const char *at = x->out.ptr ? x->out.ptr : "";
    bool last = false;
    while (*at) {
        const char *stop = strchr(at, '\n');
        FUZZ_CHECK(stop && !last);
        if (!stop)
            return;
        const mn_str line = {at, (uint64_t)(stop - at)};
        cJSON *json = cJSON_ParseWithLength(line.ptr, line.len);
        last = cJSON_IsTrue(json_field(json, "done")) || json_field(json, "error");
        cJSON_Delete(json);
        check_json(x, line);
        at = stop + 1;
    }
    FUZZ_CHECK(!x->streams || !x->ended || last || x->dropped);
}

/* Every event is "data: OBJECT", with a line of its name before it in dialects, and the last one of
 * a stream that has ended "data: [DONE]", or is named so. */
static void check_events(const asked *x) {
    static const char done[] = "data: [DONE]";
    const char *at = x->out.ptr ? x->out.ptr : "";
    bool last = false;
    const bool is_llama = may_be_list(x->http.path); /* each prompt has an end */
    while (*at) {
        const char *stop = strstr(at, "\n\n");
        FUZZ_CHECK(stop && (!last || is_llama));
        if (!stop)
            return;
        const size_t n = (size_t)(stop - at);
        const bool is_done = n == sizeof done - 1 && !memcmp(at, done, n);
        const bool is_named = !strncmp(at, "event: ", 7);
        const char *data = is_named ? strstr(at, "\ndata: ") : at;
        last = is_done || is_last(at) || is_llama;
        FUZZ_CHECK(n > 6 && data && data < stop);
        data += is_named;
        if (!is_done && *at != ':')
            check_json(x, (mn_str){data + 6, (size_t)(stop - data) - 6});
        at = stop + 2;
    }
    FUZZ_CHECK(!x->streams || !x->ended || last || x->dropped);
}

/* ---- time ------------------------------------------------------------------------------------ */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    char plugins[4096];
    mn_error err = MN_ERROR_INIT;
    (void)argc;
    (void)argv;
    fuzz_quiet();
    fuzz_plugins(FUZZ_PLUGINS, plugins, sizeof plugins);
    const mn_setting settings[] = {
        {"plugin_path_only", plugins}, {"probe_timeout", "0"}, {"threads", "1"}};
    const mn_runtime_params params = {.size = sizeof params,
                                      .flags = MN_RUNTIME_NO_BACKENDS,
                                      .n_settings = MN_COUNT(settings),
                                      .settings = settings};
    model.a.info.size = sizeof model.a.info;
    if (mn_runtime_create(&params, &model.a.rt, &err) ||
        mn_model_open(model.a.rt, FUZZ_MODEL, &model.a.model, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    mn_model_get_info(model.a.model, &model.a.info);
    model.a.model->calls = mn_call_family_in(mn_str_of("<tool_call>"));
    return 0;
}

static void begin(void) {
    const app kept = model.a;
    memset(&server, 0, sizeof server);
    memset(&model, 0, sizeof model);
    memset(&engine, 0, sizeof engine);
    memset(requests, 0, sizeof requests);
    n_requests = 0;
    broken_engine = false;
    last_seed = 0;
    flags = (serve_flags){.embeddings = 1, .max_queue = 8, .per_key = 16};
    engine.fd = -1;
    engine.state = LINK_READY;
    engine.info_texts[0] = (char *)(uintptr_t) "cpu";
    engine.info = (wire_ready){.n_ctx = N_CTX, .n_seq = N_SEQ};
    model.a = kept;
    server.responses = responses_store_open(64 << 10);
    server.flags = &flags;
    server.models.v = all_models;
    server.models.n = 1;
    server.models.n_sequences = N_SEQ;
    server.next_id = 1;
    model.s = &server;
    model.name = model_name;
    model.is_open = 1;
    model.own = flags;
    model.links = &engine;
    model.n_links = 1;
    model.n_ctx = N_CTX;
    model.n_seq = N_SEQ;
    model.sample.size = sizeof model.sample;
}

#ifndef FUZZ_PATHS
#define FUZZ_PATHS ""
#endif
/* 1 if the path begins with one of FUZZ_PATHS, with blanks between; "": every path does. */
static bool is_fuzzed(const char *path, size_t n) {
    const char *at = FUZZ_PATHS;
    if (!*at)
        return true;
    while (*at) {
        const size_t len = strcspn(at, " ");
        if (n >= len && !memcmp(path, at, len))
            return true;
        at += len + strspn(at + len, " ");
    }
    return false;
}

static void ask_for(const mn_file *part) {
    asked *x = &requests[n_requests];
    const char *name = part->name.ptr;
    const size_t n = (size_t)part->name.len;
    const char *blank = memchr(name, ' ', n);
    if (!blank || memchr(name, 0, n) || !is_fuzzed(blank + 1, n - (size_t)(blank + 1 - name)))
        return;
    n_requests++;
    x->words = mn_strndup(name, n);
    x->body = mn_strndup(part->map, (size_t)part->bytes);
    if (!x->words || !x->body)
        return;
    x->words[blank - name] = 0;
    x->http = (http_request){.method = x->words,
                             .path = x->words + (blank - name) + 1,
                             .body = x->body,
                             .n_body = (size_t)part->bytes,
                             .key = -1};
    serve_request(&server, &x->http);
}

static void leave(asked *x) {
    if (!x->http.method || x->gone)
        return;
    serve_gone(&server, &x->http);
    x->gone = true;
}

/* What came from the engine, as engine_link.c passes it on. */
static bool pass_on(const wire_message *m) {
    const engine_calls *calls = &serve_engine_calls;
    wire_event event;
    wire_refused refused;
    wire_vector vector;
    uint64_t id = 0;
    broken_engine = true;
    if (m->type == WIRE_EVENT && wire_get_event(m, &event))
        calls->event(&model, &engine, &event);
    else if (m->type == WIRE_ADMITTED && wire_get_id(m, &id))
        calls->admitted(&model, &engine, id);
    else if (m->type == WIRE_REFUSED && wire_get_refused(m, &refused))
        calls->refused(&model, &engine, &refused);
    else if (m->type == WIRE_VECTOR && wire_get_vector(m, &vector))
        calls->vector(&model, &engine, &vector);
    else if (m->type == WIRE_BEAT && wire_get_beat(m, &engine.beat))
        engine.beat_at = seconds();
    else
        return false;
    return true;
}

static void read_wire(const void *bytes, size_t n) {
    wire_in in = {.bytes = malloc(n + 1), .n = n, .cap = n + 1};
    wire_message m;
    FUZZ_CHECK(in.bytes);
    if (n)
        memcpy(in.bytes, bytes, n);
    while (wire_next(&in, &m) > 0 && pass_on(&m))
        ;
    wire_free(&in);
}

static void put_event(mn_text *out, uint64_t id, uint32_t kind, const int *number) {
    static const int32_t ids[] = {1, 5, 9};
    static const float values[] = {-0.5f, -1.0f, -100.0f};
    const generation *g = generation_find(&server, id);
    wire_event e = {.id = id, .kind = kind, .logprob = -0.25f, .n_cached = 3};
    if (kind == MN_REQUEST_TOKEN) {
        e.token = number[0];
        e.finish = number[1];
        e.n_drawn = g ? g->n_ids - g->n_prompt + 1 : 1;
        e.n_top = 3;
        e.top_ids = ids;
        e.top_logprobs = values;
    } else
        e.finish = number[0];
    wire_put_event(out, &e);
}

/* The tokens of a text, in which \n is a line end. */
static void say_text(uint64_t id, const char *line) {
    char text[1024];
    size_t n = 0;
    int32_t *ids = NULL;
    uint32_t n_ids = 0;
    for (const char *at = line; *at && n < sizeof text; at++) {
        const bool end = at[0] == '\\' && at[1] == 'n';
        text[n++] = end ? '\n' : *at;
        at += end;
    }
    if (mn_model_tokenize(model.a.model, (mn_str){text, n}, 0, &ids, &n_ids, NULL))
        return;
    for (uint32_t i = 0; i < n_ids; i++) {
        mn_text out = {0};
        put_event(&out, id, MN_REQUEST_TOKEN, (int[]){ids[i], 0});
        read_wire(out.ptr, out.len);
        mn_text_free(&out);
    }
    mn_ids_free(ids);
}

/* One line of a script: what the engine sends, or what happens to it. */
static void say(const char *line) {
    static const float values[64];
    char verb[16];
    unsigned long long id = 0;
    int number[2] = {0, 0};
    mn_text out = {0};
    if (sscanf(line, "%15s %llu %d %d", verb, &id, &number[0], &number[1]) < 1)
        return;
    const char *rest = strchr(line, ' ');
    rest = rest ? strchr(rest + 1, ' ') : NULL;
    if (!strcmp(verb, "say") && rest)
        say_text(id, rest + 1);
    else if (!strcmp(verb, "token"))
        put_event(&out, id, MN_REQUEST_TOKEN, number);
    else if (!strcmp(verb, "finish"))
        put_event(&out, id, MN_REQUEST_FINISH, number);
    else if (!strcmp(verb, "prompt"))
        put_event(&out, id, MN_REQUEST_PROMPT, number);
    else if (!strcmp(verb, "admitted"))
        wire_put_id(&out, WIRE_ADMITTED, id);
    else if (!strcmp(verb, "refused"))
        wire_put_refused(&out,
                         &(wire_refused){id, number[0], number[0] & 1u, mn_str_of("no \"room\"")});
    else if (!strcmp(verb, "vector"))
        wire_put_vector(
            &out, &(wire_vector){id, (uint32_t)number[0] % 8, (uint32_t)number[1] % 8, values});
    else if (!strcmp(verb, "down") && engine.state == LINK_READY) {
        engine.state = LINK_WAITING;
        broken_engine |= id == 1;
        serve_engine_calls.down(&model, &engine, id == 1);
    } else if (!strcmp(verb, "up") && engine.state != LINK_READY) {
        engine.state = LINK_READY;
        serve_engine_calls.ready(&model, &engine);
    }
    read_wire(out.ptr ? out.ptr : "", out.len);
    mn_text_free(&out);
}

static void say_all(const mn_file *part) {
    char *script = mn_strndup(part->map, (size_t)part->bytes);
    char *rest = NULL;
    if (!script)
        return;
    for (char *line = strtok_r(script, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        say(line);
    mn_free(script);
}

/* What the front sent is what an engine can read. */
static void check_sent(void) {
    wire_in in = {
        .bytes = (unsigned char *)engine.out.ptr, .n = engine.out.len, .cap = engine.out.cap};
    wire_message m;
    wire_submit submit;
    wire_embed embed;
    uint64_t id = 0;
    while (wire_next(&in, &m) > 0) {
        const bool known = (m.type == WIRE_SUBMIT && wire_get_submit(&m, &submit)) ||
                           (m.type == WIRE_ABORT && wire_get_id(&m, &id)) ||
                           (m.type == WIRE_EMBED && wire_get_embed(&m, &embed));
        FUZZ_CHECK(known);
        if (m.type == WIRE_SUBMIT)
            FUZZ_CHECK(submit.n_ids <= N_CTX && submit.sample.max_new <= N_CTX);
    }
    FUZZ_CHECK(in.at == in.n);
    mn_text_free(&engine.out);
}

static void end(void) {
    for (uint32_t i = 0; i < n_requests; i++) {
        asked *x = &requests[i];
        leave(x);
        if (x->has_lines)
            check_lines(x);
        else
            check_events(x);
        mn_text_free(&x->out);
        mn_free(x->words);
        mn_free(x->body);
    }
    responses_store_free(server.responses);
    FUZZ_CHECK(!server.answers && !server.n_generations);
    for (size_t i = 0; i < MN_COUNT(server.n_per_key); i++)
        FUZZ_CHECK(!server.n_per_key[i]);
    check_sent();
}

static bool begins(mn_str name, const char *with) {
    const size_t n = strlen(with);
    return name.len >= n && !memcmp(name.ptr, with, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    begin();
    fuzz_split(data, n, "POST /v1/chat/completions", &parts);
    for (uint32_t i = 0; i < parts.n; i++) {
        const mn_file *part = &parts.file[i];
        if (mn_str_is(part->name, "engine"))
            say_all(part);
        else if (mn_str_is(part->name, "wire"))
            read_wire(part->map, (size_t)part->bytes);
        else if (begins(part->name, "gone ") && part->name.len == 6)
            leave(&requests[(uint32_t)(unsigned char)part->name.ptr[5] % FUZZ_PARTS]);
        else
            ask_for(part);
    }
    end();
    fuzz_free(&parts);
    return 0;
}
