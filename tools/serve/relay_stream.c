/* relay_stream.c -- cuts a server's event stream into events, and decides which of them the client
 * gets.
 *
 * Before the first token, events are held back: another server may still have to give the whole
 * answer. Afterwards they are passed on as they come, and a hash over them is kept, from "choices"
 * on: what is before it (the id of the answer, its time) is another one at each server. When the
 * answer is computed again, its events are compared with that hash and left out, and those behind
 * them get the head of the first ones: the client sees one answer with one id. */
#include "serve/relay.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of one event at most. */
enum { EVENT_MAX = 16 << 20 };

static const char mark[] = "\"choices\":";

/* The length of the first event of n bytes with the empty line behind it; 0: none is complete. */
static size_t event_length(const char *bytes, size_t n, size_t from) {
    for (size_t i = from; i + 1 < n; i++) {
        if (bytes[i] != '\n')
            continue;
        if (bytes[i + 1] == '\n')
            return i + 2;
        if (bytes[i + 1] == '\r' && i + 2 < n && bytes[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

/* 1 if a member is there with something in it: a text, a list. */
static int has_content(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return (cJSON_IsString(value) && value->valuestring[0]) || (value && value->child);
}

/* 1 if the client would see something of the model's output, or its end. */
static int shows_token(const cJSON *event) {
    const cJSON *choice = NULL;
    cJSON_ArrayForEach(choice, cJSON_GetObjectItemCaseSensitive(event, "choices")) {
        const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, "delta");
        if (has_content(choice, "text") || has_content(choice, "finish_reason") ||
            has_content(delta, "content") || has_content(delta, "reasoning_content") ||
            has_content(delta, "tool_calls"))
            return 1;
    }
    return 0;
}

/* An error event: 503 if the server is being stopped. 0: it is none. */
static int relay_stream_error_of(const cJSON *event) {
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(event, "error");
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(error, "code");
    if (!error)
        return 0;
    return cJSON_IsNumber(code) ? code->valueint : 500;
}

/* Passes an event with choices on, unless the client has it already. */
static int relay_stream_put_choices(relay_stream *t, const char *event, size_t n,
                                    const char *choices, mn_text *out) {
    const size_t n_head = (size_t)(choices - event);
    const char *list = choices + sizeof mark - 1;
    const int is_usage = !strncmp(list, "[]", 2) || !strncmp(list, " []", 3);
    if (!t->head.len)
        mn_text_put(&t->head, event, n_head);
    t->now = is_usage ? t->now : mn_fnv(t->now, choices, n - n_head);
    t->n_now += !is_usage;
    if (t->n_now <= t->n_passed && !is_usage) {
        t->differs = t->n_now == t->n_passed && t->now != t->passed;
        return !t->differs;
    }
    mn_text_put(out, t->head.ptr, t->head.len);
    mn_text_put(out, choices, n - n_head);
    return !out->failed && !t->head.failed;
}

/* What was held goes to the client: it has the events up to now. */
static void relay_stream_release(relay_stream *t, mn_text *out) {
    mn_text_put(out, t->held.ptr ? t->held.ptr : "", t->held.len);
    mn_text_clear(&t->held);
    t->has_token = 1;
}

static int has_name(const char *event, const char *name) {
    const char *found = event + sizeof "event: " - 1;
    const size_t n = strlen(name);
    return !strncmp(found, name, n) && found[n] == '\n';
}

/* 1 if the event has one of the names. */
static int has_one_of(const char *event, const char *const *names, size_t n) {
    size_t i = 0;
    while (i < n && !has_name(event, names[i]))
        i++;
    return i < n;
}

/* 1 if an event says that the server is being stopped. */
static int says_stopped(const char *event, size_t n) {
    static const char *const marks[] = {"\"error\":{\"type\":\"overloaded_error\"",
                                        "\"error\":{\"code\":\"server_is_overloaded\""};
    size_t i = 0;
    while (i < MN_COUNT(marks) && !memmem(event, n, marks[i], strlen(marks[i])))
        i++;
    return i < MN_COUNT(marks);
}

/* An event with a name, as streams of dialects have them. Before the first token the beginning of
 * the message is held back; a ping goes to the client at once. 0: the stream of this server ends
 * here. */
static int on_named(relay_stream *t, const char *event, size_t n, mn_text *out) {
    static const char *const starts[] = {"message_start", "response.created",
                                         "response.in_progress"};
    static const char *const ends[] = {"error", "message_stop", "response.completed",
                                       "response.incomplete", "response.failed"};
    const int is_start = has_one_of(event, starts, MN_COUNT(starts));
    t->is_named = 1;
    t->n_named++;
    t->refused = has_name(event, "error") && !t->has_token && says_stopped(event, n);
    if (t->refused)
        return 0;
    t->is_over |= has_one_of(event, ends, MN_COUNT(ends));
    if (!t->has_token && !is_start && !has_name(event, "ping"))
        relay_stream_release(t, out);
    mn_text *to = t->has_token || !is_start ? out : &t->held;
    mn_text_put(to, event, n);
    return !to->failed && !out->failed;
}

/* One whole event. 0: the stream of this server ends here. */
static int relay_stream_on_event(relay_stream *t, const char *event, size_t n, mn_text *out) {
    const int is_data = !strncmp(event, "data:", 5);
    const size_t n_data = is_data ? 5 + strspn(event + 5, " ") : 0;
    const int is_over = is_data && !strncmp(event + n_data, "[DONE]", 6);
    if (!is_data) {
        if (!strncmp(event, "event: ", 7))
            return on_named(t, event, n, out);
        mn_text_put(out, event, n); /* a comment */
        return !out->failed;
    }
    const char *choices = memmem(event, n, mark, sizeof mark - 1);
    if (!choices || !t->has_token) {
        cJSON *json = is_over ? NULL : cJSON_ParseWithLength(event + n_data, n - n_data);
        const int error = relay_stream_error_of(json);
        const int shows = is_over || !json || error || shows_token(json);
        cJSON_Delete(json);
        t->refused = error == 503;
        if (t->refused)
            return 0;
        if (shows)
            relay_stream_release(t, out);
    }
    t->differs = is_over && t->n_now < t->n_passed; /* a shorter answer */
    t->is_over = is_over && !t->differs;
    if (t->differs)
        return 0;
    mn_text *to = t->has_token ? out : &t->held;
    if (choices)
        return relay_stream_put_choices(t, event, n, choices, to);
    mn_text_put(to, event, n);
    return !to->failed;
}

int relay_stream_feed(relay_stream *t, const char *bytes, size_t n, mn_text *out) {
    const size_t old = t->rest.len;
    size_t at = 0;
    int ok = old + n <= EVENT_MAX;
    mn_text_put(&t->rest, bytes, n);
    ok = ok && !t->rest.failed;
    size_t from = old > 2 ? old - 2 : 0;
    while (ok) {
        const size_t length = event_length(t->rest.ptr + at, t->rest.len - at, from);
        if (!length)
            break;
        ok = relay_stream_on_event(t, t->rest.ptr + at, length, out);
        at += length;
        from = 0;
    }
    mn_text_remove(&t->rest, 0, at);
    if (t->n_now > t->n_passed && t->has_token) {
        t->n_passed = t->n_now;
        t->passed = t->now;
    }
    return ok;
}

void relay_stream_again(relay_stream *t) {
    mn_text_clear(&t->rest);
    mn_text_clear(&t->held);
    if (!t->has_token) {
        mn_text_clear(&t->head);
        t->n_named = 0;
    }
    t->n_now = 0;
    t->now = 0;
    t->is_over = 0;
    t->refused = 0;
    t->differs = 0;
}

void relay_stream_free(relay_stream *t) {
    mn_text_free(&t->rest);
    mn_text_free(&t->held);
    mn_text_free(&t->head);
}
