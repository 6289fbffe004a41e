/* bench_url_client.c -- sends the requests of minerva bench --url and measures the answers.
 *
 * One thread drives all connections (libcurl's multi interface). A slot is one request in
 * flight, with its own handle, event stream and times; it is used again for the next request, as
 * are connections. The time of a piece of text is that of the read that brought it. Answers
 * are streams; what is no stream, ends without [DONE], holds an error or a status other than 200
 * counts as failed, with the message of the first. Nothing of what the server sends is
 * trusted: lengths are limited, and the JSON is read field by field. */
#include "bench_url.h"
#include "curl_api.h"
#include "sse.h"
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BODY ((size_t)64 << 10)   /* bytes kept of an answer that is no stream */
#define ANSWER_MAX ((size_t)16 << 20)   /* of an answer to GET */
#define MAX_IN_FLIGHT ((size_t)1 << 16) /* of a Poisson process that the server cannot follow */
#define STALL_S 600L                    /* a server that sends nothing for so long has failed */

struct url_client {
    const curl_api *api;
    char *base;
    struct curl_slist *headers;
};

typedef struct {
    CURL *easy;
    struct url_run *run;
    sse stream;
    mn_text body; /* of an answer with another status than 200 */
    double sent, first, last;
    uint64_t n_pieces, n_prompt, n_cached, n_tokens;
    int busy, done;
    char error[400];
} slot;

typedef struct url_run {
    url_client *c;
    CURLM *multi;
    const url_request *requests;
    size_t n, n_begun, n_ended;
    slot **slots;
    size_t n_slots;
    double rate, begin, next_at;
    uint64_t random;
    url_result *out;
} url_run;

/* ---- samples --------------------------------------------------------------------------------- */
static void add_sample(url_samples *s, double v) {
    if (s->n == s->cap && !s->failed) {
        const size_t cap = s->cap ? s->cap * 2 : 256;
        double *grown = realloc(s->v, cap * sizeof *grown);
        s->failed = !grown;
        if (grown) {
            s->v = grown;
            s->cap = cap;
        }
    }
    if (s->n < s->cap)
        s->v[s->n++] = v;
}

void url_result_free(url_result *r) {
    free(r->first_s.v);
    free(r->token_s.v);
    free(r->total_s.v);
    memset(r, 0, sizeof *r);
}

/* ---- the client ------------------------------------------------------------------------------ */
static int bench_url_client_add_header(url_client *c, const char *line) {
    struct curl_slist *grown = c->api->slist_append(c->headers, line);
    if (grown)
        c->headers = grown;
    return grown != NULL;
}

/* base without slashes at its end, with /v1; "127.0.0.1:8080" is http. */
static char *whole_base(const char *base) {
    mn_text b = {0};
    size_t n = strlen(base);
    while (n && base[n - 1] == '/')
        n--;
    if (!strstr(base, "://"))
        mn_text_puts(&b, "http://");
    mn_text_put(&b, base, n);
    if (b.ptr && (b.len < 3 || strcmp(b.ptr + b.len - 3, "/v1") != 0))
        mn_text_puts(&b, "/v1");
    return mn_text_take(&b);
}

static int set_headers(url_client *c, const char *key) {
    char line[4096];
    int ok = bench_url_client_add_header(c, "Content-Type: application/json");
    ok = ok && bench_url_client_add_header(c, "Accept: text/event-stream, application/json");
    ok = ok && bench_url_client_add_header(
                   c, "Expect:"); // no wait for "100 Continue" before a long prompt
    if (!key || !ok)
        return ok;
    snprintf(line, sizeof line, "Authorization: Bearer %.4000s", key);
    return bench_url_client_add_header(c, line);
}

url_client *url_client_new(const char *base, const char *key) {
    const curl_api *api = curl_open("bench --url");
    url_client *c = api ? calloc(1, sizeof *c) : NULL;
    if (!api)
        return NULL;
    if (!c) {
        no_memory();
        return NULL;
    }
    c->api = api;
    c->base = whole_base(base);
    if (c->base && set_headers(c, key))
        return c;
    no_memory();
    url_client_free(c);
    return NULL;
}

void url_client_free(url_client *c) {
    if (!c)
        return;
    c->api->slist_free_all(c->headers);
    free(c->base);
    free(c);
}

const char *url_client_base(const url_client *c) {
    return c->base;
}

/* A handle with what all requests have in common; path below the base. NULL: out of memory. */
static CURL *new_handle(const url_client *c) {
    CURL *easy = c->api->easy_init();
    if (!easy)
        return NULL;
    c->api->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    c->api->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    c->api->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    c->api->easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
    c->api->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 30L);
    c->api->easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c->api->easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, STALL_S);
    return easy;
}

static int bench_url_client_set_url(const url_client *c, CURL *easy, const char *path) {
    mn_text url = {0};
    mn_text_puts(&url, c->base);
    mn_text_puts(&url, path);
    const int ok = !url.failed && c->api->easy_setopt(easy, CURLOPT_URL, url.ptr) == CURLE_OK;
    mn_text_free(&url);
    return ok;
}

/* The message of an error object {"error": {"message": ...}} or {"error": "..."}; else the text's
 * first line. */
static void error_text(const char *text, size_t n, char *dst, size_t n_dst) {
    cJSON *json = cJSON_ParseWithLength(text, n);
    const cJSON *error = cJSON_GetObjectItem(json, "error");
    const cJSON *message = cJSON_IsObject(error) ? cJSON_GetObjectItem(error, "message") : error;
    const size_t line = n ? strcspn(text, "\r\n") : 0;
    if (cJSON_IsString(message))
        snprintf(dst, n_dst, "%s", message->valuestring);
    else
        snprintf(dst, n_dst, "%.*s", (int)(line < 200 ? line : 200), n ? text : "");
    cJSON_Delete(json);
}

static size_t keep_text(char *bytes, size_t size, size_t n, void *arg) {
    mn_text *text = arg;
    if (text->len + size * n > ANSWER_MAX)
        return 0;
    mn_text_put(text, bytes, size * n);
    return text->failed ? 0 : size * n;
}

int url_client_get(url_client *c, const char *path, char **text) {
    const curl_api *api = c->api;
    CURL *easy = new_handle(c);
    mn_text body = {0};
    long status = 0;
    char why[300];
    if (!easy || !bench_url_client_set_url(c, easy, path)) {
        if (easy)
            api->easy_cleanup(easy);
        return no_memory();
    }
    api->easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep_text);
    api->easy_setopt(easy, CURLOPT_WRITEDATA, &body);
    const CURLcode result = api->easy_perform(easy);
    api->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    api->easy_cleanup(easy);
    if (result == CURLE_OK && status == 200) {
        *text = mn_text_take(&body);
        return *text ? 0 : no_memory();
    }
    error_text(body.ptr, body.len, why, sizeof why);
    mn_text_free(&body);
    if (result != CURLE_OK)
        return complain(EXIT_FAILED, "%s%s: %s", c->base, path, api->easy_strerror(result));
    return complain(EXIT_FAILED, "%s%s: found HTTP status %ld, expected 200: %s", c->base, path,
                    status, why);
}

/* ---- an answer as it arrives ----------------------------------------------------------------- */
/* 1 if the member is a string with text in it. */
static int has_text(const cJSON *object, const char *key) {
    const cJSON *v = cJSON_GetObjectItem(object, key);
    return cJSON_IsString(v) && v->valuestring[0];
}

/* 1 if a choice of the event brings text, thinking or a part of a tool call. */
static int brings_text(const cJSON *event) {
    const cJSON *choice = NULL;
    cJSON_ArrayForEach(choice, cJSON_GetObjectItem(event, "choices")) {
        const cJSON *delta = cJSON_GetObjectItem(choice, "delta");
        if (has_text(choice, "text") || has_text(delta, "content"))
            return 1;
        if (has_text(delta, "reasoning_content") || has_text(delta, "reasoning"))
            return 1;
        if (cJSON_IsArray(cJSON_GetObjectItem(delta, "tool_calls")))
            return 1;
    }
    return 0;
}

static uint64_t bench_url_client_count_of(const cJSON *object, const char *key) {
    const cJSON *v = cJSON_GetObjectItem(object, key);
    const int ok = cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 1e15;
    return ok ? (uint64_t)v->valuedouble : 0;
}

static void read_usage(slot *s, const cJSON *usage) {
    const cJSON *details = cJSON_GetObjectItem(usage, "prompt_tokens_details");
    if (!cJSON_IsObject(usage))
        return;
    s->n_prompt = bench_url_client_count_of(usage, "prompt_tokens");
    s->n_tokens = bench_url_client_count_of(usage, "completion_tokens");
    s->n_cached = bench_url_client_count_of(details, "cached_tokens");
}

static int bench_url_client_on_event(void *arg, const char *data, size_t n) {
    slot *s = arg;
    if (n >= 6 && !memcmp(data, "[DONE]", 6)) {
        s->done = 1;
        return 0;
    }
    cJSON *event = cJSON_ParseWithLength(data, n);
    const cJSON *error = cJSON_GetObjectItem(event, "error");
    if (error && !cJSON_IsNull(error))
        error_text(data, n, s->error, sizeof s->error);
    else if (!cJSON_IsObject(event))
        snprintf(s->error, sizeof s->error, "an event is no JSON object: %.80s", data);
    else
        read_usage(s, cJSON_GetObjectItem(event, "usage"));
    if (!s->error[0] && brings_text(event)) {
        const double now = seconds();
        if (s->n_pieces++)
            add_sample(&s->run->out->token_s, now - s->last);
        else
            s->first = now;
        s->last = now;
    }
    cJSON_Delete(event);
    return s->error[0] != 0;
}

/* libcurl's write function: fewer bytes than given ends the transfer. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg) {
    slot *s = arg;
    long status = 0;
    n *= size;
    s->run->c->api->easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        if (s->body.len + n <= ERROR_BODY)
            mn_text_put(&s->body, bytes, n);
        return n;
    }
    const int code = sse_feed(&s->stream, bytes, n, bench_url_client_on_event, s);
    if (code == SSE_NO_MEMORY)
        snprintf(s->error, sizeof s->error, "out of memory");
    if (code == SSE_TOO_LONG)
        snprintf(s->error, sizeof s->error, "an event is longer than %zu bytes", SSE_MAX);
    return code ? 0 : n;
}

/* ---- requests in flight ---------------------------------------------------------------------- */
/* A slot that is free, new if none is. NULL: out of memory. */
static slot *free_slot(url_run *r) {
    for (size_t i = 0; i < r->n_slots; i++)
        if (!r->slots[i]->busy)
            return r->slots[i];
    slot **grown = realloc(r->slots, (r->n_slots + 1) * sizeof *grown);
    if (grown)
        r->slots = grown;
    slot *s = grown ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    r->slots[r->n_slots++] = s;
    s->run = r;
    s->easy = new_handle(r->c);
    if (!s->easy)
        return NULL;
    const curl_api *api = r->c->api;
    api->easy_setopt(s->easy, CURLOPT_PRIVATE, s);
    api->easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    api->easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    return s;
}

/* Sends the next request. */
static int begin_next(url_run *r) {
    const url_request *q = &r->requests[r->n_begun];
    const curl_api *api = r->c->api;
    slot *s = free_slot(r);
    if (!s || !bench_url_client_set_url(r->c, s->easy, q->path))
        return no_memory();
    s->busy = 1;
    s->done = 0;
    s->error[0] = 0;
    s->n_pieces = s->n_prompt = s->n_cached = s->n_tokens = 0;
    api->easy_setopt(s->easy, CURLOPT_POSTFIELDS, q->body);
    s->sent = seconds();
    r->n_begun++;
    const CURLMcode code = api->multi_add_handle(r->multi, s->easy);
    if (code == CURLM_OK)
        return 0;
    return complain(EXIT_FAILED, "libcurl: %s", api->multi_strerror(code));
}

/* What is wrong with an answer that has ended, into s->error; empty: nothing. */
static void bench_url_client_judge(slot *s, CURLcode code, long status) {
    char why[300];
    if (s->error[0])
        return;
    if (code != CURLE_OK) {
        snprintf(s->error, sizeof s->error, "%s", s->run->c->api->easy_strerror(code));
    } else if (status != 200) {
        error_text(s->body.ptr, s->body.len, why, sizeof why);
        snprintf(s->error, sizeof s->error, "HTTP status %ld: %s", status, why);
    } else if (!s->done) {
        snprintf(s->error, sizeof s->error, "the answer ended without [DONE]");
    }
}

static void end_request(slot *s, CURLcode code) {
    url_run *r = s->run;
    url_result *out = r->out;
    long status = 0;
    r->c->api->easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    bench_url_client_judge(s, code, status);
    if (s->error[0]) {
        if (out->n_failed++ == 0) {
            snprintf(out->error, sizeof out->error, "%s", s->error);
            out->http = status;
        }
    } else {
        out->n_ok++;
        out->n_prompt += s->n_prompt;
        out->n_cached += s->n_cached;
        out->n_tokens += s->n_tokens ? s->n_tokens : s->n_pieces;
        add_sample(&out->total_s, seconds() - s->sent);
        if (s->n_pieces)
            add_sample(&out->first_s, s->first - s->sent);
    }
    r->c->api->multi_remove_handle(r->multi, s->easy);
    sse_free(&s->stream);
    memset(&s->stream, 0, sizeof s->stream);
    mn_text_clear(&s->body);
    s->busy = 0;
    r->n_ended++;
}

static void end_requests(url_run *r) {
    const curl_api *api = r->c->api;
    int left = 0;
    CURLMsg *m = api->multi_info_read(r->multi, &left);
    for (; m; m = api->multi_info_read(r->multi, &left)) {
        slot *s = NULL;
        const CURLcode code = m->data.result;
        api->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&s);
        if (m->msg == CURLMSG_DONE && s)
            end_request(s, code);
    }
}

/* The next arrival of a Poisson process: the gaps are exponential. */
static void draw_arrival(url_run *r) {
    const double u = (double)(url_random(&r->random) >> 11) * 0x1p-53;
    r->next_at += -log1p(-u) / r->rate;
}

/* Sends what is due: as many as there are users, or what has arrived by now. */
static int begin_due(url_run *r, uint32_t users) {
    int code = 0;
    while (code == 0 && r->n_begun < r->n) {
        const size_t in_flight = r->n_begun - r->n_ended;
        const size_t most = r->rate > 0 ? MAX_IN_FLIGHT : users;
        if (in_flight >= most || (r->rate > 0 && seconds() < r->next_at))
            break;
        code = begin_next(r);
        if (r->rate > 0)
            draw_arrival(r);
    }
    return code;
}

/* Milliseconds until there is something to do other than bytes that arrive. */
static int wait_ms(const url_run *r) {
    const double most = 0.25; // Ctrl-C is seen then
    if (r->rate <= 0 || r->n_begun == r->n)
        return (int)(most * 1e3);
    const double left = r->next_at - seconds();
    return left > 0 ? (int)(fmin(left, most) * 1e3) : 0;
}

static int drive(url_run *r, uint32_t users) {
    const curl_api *api = r->c->api;
    char what[80];
    int code = 0, running = 0;
    snprintf(what, sizeof what, "%zu requests, %u users at a time", r->n, users);
    if (r->rate > 0)
        snprintf(what, sizeof what, "%zu requests, %g per second", r->n, r->rate);
    progress *bar = progress_begin(what);
    while (code == 0 && r->n_ended < r->n) {
        code = begin_due(r, users);
        CURLMcode m = api->multi_perform(r->multi, &running);
        end_requests(r);
        progress_at(bar, r->n_ended, r->n);
        if (interrupt_seen())
            code = EXIT_INTERRUPTED;
        const int waits = r->n_begun > r->n_ended ? running > 0 : r->rate > 0;
        if (code == 0 && m == CURLM_OK && waits)
            m = api->multi_poll(r->multi, NULL, 0, wait_ms(r), NULL);
        if (code == 0 && m != CURLM_OK)
            code = complain(EXIT_FAILED, "libcurl: %s", api->multi_strerror(m));
    }
    progress_end(bar);
    return code;
}

static void free_slots(url_run *r) {
    for (size_t i = 0; i < r->n_slots; i++) {
        slot *s = r->slots[i];
        if (s->busy)
            r->c->api->multi_remove_handle(r->multi, s->easy);
        if (s->easy)
            r->c->api->easy_cleanup(s->easy);
        sse_free(&s->stream);
        mn_text_free(&s->body);
        free(s);
    }
    free(r->slots);
}

int url_client_run(url_client *c, const url_request *requests, size_t n, uint32_t users,
                   double rate, uint64_t seed, url_result *out) {
    url_run r = {.c = c, .requests = requests, .n = n, .rate = rate, .random = seed, .out = out};
    memset(out, 0, sizeof *out);
    r.multi = c->api->multi_init();
    if (!r.multi)
        return no_memory();
    c->api->multi_setopt(r.multi, CURLMOPT_MAXCONNECTS, (long)MAX_IN_FLIGHT);
    r.begin = r.next_at = seconds();
    if (rate > 0)
        draw_arrival(&r);
    int code = drive(&r, users);
    out->wall_s = seconds() - r.begin;
    free_slots(&r);
    c->api->multi_cleanup(r.multi);
    if (code == 0 && (out->first_s.failed || out->token_s.failed || out->total_s.failed))
        code = no_memory();
    return code;
}
