/* relay_test.c -- the parts of a front that need no network: which events of servers the client
 * gets, wherever the bytes are cut, and which server is chosen. */
#include "serve/relay.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "relay_test.c:%d: not so: %s\n", __LINE__, #ok);                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define ROLE(id)                                                                                   \
    "data: {\"id\":\"" id                                                                          \
    "\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define WORD(id, w)                                                                                \
    "data: {\"id\":\"" id "\",\"choices\":[{\"delta\":{\"content\":\"" w "\"}}]}\n\n"
#define USAGE(id) "data: {\"id\":\"" id "\",\"choices\":[],\"usage\":{}}\n\n"
#define DONE "data: [DONE]\n\n"

/* Feeds the text in pieces of n bytes; the result of the last piece. */
static int feed(relay_stream *t, const char *text, size_t n, mn_text *out) {
    const size_t length = strlen(text);
    int ok = 1;
    for (size_t i = 0; i < length && ok; i += n)
        ok = relay_stream_feed(t, text + i, i + n < length ? n : length - i, out);
    return ok;
}

static int is(const mn_text *out, const char *text) {
    return !strcmp(out->ptr ? out->ptr : "", text);
}

/* A server breaks off before its first token, another one behind it, a third one ends. */
static void test_stream(size_t n) {
    relay_stream t = {0};
    mn_text out = {0};
    CHECK(feed(&t, ": wait\n\n" ROLE("a"), n, &out));
    CHECK(is(&out, ": wait\n\n") && !t.has_token);
    relay_stream_again(&t);
    CHECK(feed(&t, ROLE("b") WORD("b", "One") WORD("b", "two") "data: {\"id", n, &out));
    CHECK(is(&out, ": wait\n\n" ROLE("b") WORD("b", "One") WORD("b", "two")) && t.has_token);
    relay_stream_again(&t);
    mn_text_clear(&out);
    CHECK(feed(&t, ROLE("c") WORD("c", "One"), n, &out) && is(&out, ""));
    CHECK(feed(&t, WORD("c", "two") WORD("c", "three") USAGE("c") DONE, n, &out));
    CHECK(is(&out, WORD("b", "three") USAGE("b") DONE) && t.is_over && !t.differs);
    relay_stream_free(&t);
    mn_text_free(&out);
}

/* Events with names go to the client as they come, the beginning of the message with the first
 * token; the last one's name ends the stream. */
static void test_named(size_t n) {
    static const char start[] = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
    static const char ping[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    static const char begin[] = "event: content_block_start\ndata: {\"index\":0}\n\n";
    static const char *const stopped_by[] = {
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "event: error\ndata: {\"error\":{\"code\":\"server_is_overloaded\",\"param\":null}}\n\n"};
    static const char *const last[] = {
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
        "event: response.completed\ndata: {}\n\n", "event: response.incomplete\ndata: {}\n\n"};
    for (size_t i = 0; i < MN_COUNT(last); i++) {
        const char *stopped = stopped_by[i % 2];
        relay_stream t = {0};
        mn_text out = {0};
        CHECK(feed(&t, start, n, &out) && feed(&t, ping, n, &out) && is(&out, ping));
        CHECK(!feed(&t, stopped, n, &out) && is(&out, ping) && t.refused && !t.has_token);
        relay_stream_again(&t); /* another server has it now */
        mn_text_clear(&out);
        CHECK(feed(&t, start, n, &out) && is(&out, "") && feed(&t, begin, n, &out));
        CHECK(!memcmp(out.ptr, start, sizeof start - 1));
        CHECK(!strcmp(out.ptr + sizeof start - 1, begin) && t.is_named && t.has_token &&
              !t.is_over);
        mn_text_clear(&out);
        CHECK(feed(&t, last[i], n, &out) && is(&out, last[i]) && t.is_over && !t.refused);
        relay_stream_free(&t);
        mn_text_free(&out);
    }
}

/* Another answer, a shorter one, a server that is being stopped. */
static void test_ends(size_t n) {
    static const char *const others[] = {ROLE("b") WORD("b", "One") WORD("b", "too"),
                                         ROLE("b") WORD("b", "One") DONE};
    static const char stopped[] = "data: {\"error\":{\"message\":\"x\",\"code\":503}}\n\n" DONE;
    for (size_t i = 0; i < 2; i++) {
        relay_stream t = {0};
        mn_text out = {0};
        CHECK(feed(&t, ROLE("a") WORD("a", "One") WORD("a", "two"), n, &out));
        mn_text_clear(&out);
        relay_stream_again(&t);
        CHECK(!feed(&t, others[i], n, &out) && t.differs && !t.is_over && is(&out, ""));
        relay_stream_again(&t);
        CHECK(!feed(&t, stopped, n, &out) && t.refused && !t.is_over && is(&out, ""));
        relay_stream_free(&t);
        mn_text_free(&out);
    }
}

static replica *choose(replicas *all, const prompt_blocks *p, uint64_t tried, uint32_t *n_known) {
    uint64_t bits[REPLICAS_MAX / 64] = {tried};
    return replicas_choose(all, p, bits, n_known);
}

static prompt_blocks blocks_of(const char *prompt, const char *salt) {
    prompt_blocks p = {0};
    cJSON *body = cJSON_CreateObject();
    cJSON_AddStringToObject(body, "prompt", prompt);
    prompt_blocks_read(&p, body, salt);
    cJSON_Delete(body);
    return p;
}

static void test_choice(void) {
    const char *urls[] = {"http://a,http://b/", "https://c:1"};
    char text[1001];
    char longer[2001];
    replicas all = {0};
    uint32_t n = 0;
    memset(text, 'x', 1000);
    memset(longer, 'x', 1500);
    memset(longer + 1500, 'y', 500);
    text[1000] = 0;
    longer[2000] = 0;
    CHECK(!replicas_add(&all, urls, 2) && !replicas_open(&all) && all.n == 3);
    CHECK(!strcmp(all.v[1].url, "http://b") && replicas_ready(&all) == 0);
    prompt_blocks p = blocks_of(text, "");
    prompt_blocks q = blocks_of(longer, "");
    prompt_blocks other = blocks_of(text, "key");
    CHECK(p.n == 1000 / PROMPT_BLOCK && q.n > p.n && p.hashes[0] != other.hashes[0]);
    CHECK(!choose(&all, &p, 0, &n));
    for (unsigned i = 0; i < 3; i++)
        all.v[i].state = REPLICA_READY;
    all.v[0].n_mine = 2;
    all.v[1].n_others = 1;
    CHECK(choose(&all, &p, 0, &n) == &all.v[2] && n == 0); /* the least loaded one */
    CHECK(choose(&all, &p, 4, &n) == &all.v[1]);
    replicas_note(&all, &p, &all.v[0]);
    CHECK(choose(&all, &p, 0, &n) == &all.v[0] && n == p.n);
    CHECK(choose(&all, &other, 0, &n) != &all.v[0] && n == 0); /* a key's prompts are its own */
    replicas_note(&all, &q, &all.v[1]);
    CHECK(choose(&all, &q, 0, &n) == &all.v[1] && n == q.n); /* the longest beginning */
    CHECK(choose(&all, &q, 2, &n) == &all.v[0] && n == 1000 / PROMPT_BLOCK);
    all.v[1].n_mine = 17; /* much busier than one without requests */
    CHECK(choose(&all, &q, 0, &n) == &all.v[0]);
    all.v[1].n_mine = 0;
    replicas_forget(&all, &all.v[1]);
    CHECK(choose(&all, &q, 0, &n) == &all.v[0]);
    all.v[0].state = REPLICA_UNREACHABLE;
    CHECK(choose(&all, &q, 0, &n) != &all.v[0] && n == 0);
    prompt_blocks_free(&p);
    prompt_blocks_free(&q);
    prompt_blocks_free(&other);
    replicas_free(&all);
}

int main(void) {
    for (size_t n = 1; n < 200; n++) {
        test_stream(n);
        test_ends(n);
        test_named(n);
    }
    test_choice();
    return 0;
}
