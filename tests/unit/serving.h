/* serving.h -- for tests of requests: submit, collect the events of all requests, compare answers.
 * The demo model on one device. */
#ifndef SERVING_H
#define SERVING_H
#include <minerva/minerva.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_IDS = 2048, MAX_REQUESTS = 64 };

/* What the events of one choice said. user points to it. */
typedef struct {
    uint64_t id;
    int32_t ids[MAX_IDS];
    float logprob[MAX_IDS];
    uint32_t n, n_events, n_prompt_events;
    int32_t finish;
    mn_request_event last;
    char message[200];
} served;

static mn_runtime *rt;
static mn_model *model;
static const char *device = "cpu_simd";
static uint32_t n_words = 2000; /* ids of which texts are made; a model may have fewer */

static mn_session *open_with(mn_session_params p) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    p.size = sizeof p;
    p.device = device;
    p.precision = MN_PRECISION_EXACT;
    if (mn_session_create(model, &p, &s, &err))
        fail_msg("%s", err.msg);
    return s;
}

/* A prompt of n ids; equal `text`: equal beginnings. */
static inline uint32_t words(uint32_t text, uint32_t n, int32_t *ids) {
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i ? (int32_t)(6 + (text * 131 + i * i * 17 + i) % n_words) : 0;
    return n;
}

static void submit(mn_session *s, mn_request_params p, served *out) {
    mn_error err = MN_ERROR;
    memset(out, 0, sizeof *out);
    p.size = sizeof p;
    p.user = out;
    if (mn_session_submit(s, &p, &out->id, &err))
        fail_msg("%s", err.msg);
}

static void take_event(const mn_request_event *e) {
    served *a = (served *)e->user + e->choice;
    assert_true(!a->finish);
    a->n_events++;
    a->last = *e;
    if (e->kind == MN_REQUEST_PROMPT) {
        assert_int_equal(a->n, 0);
        a->n_prompt_events++;
    } else if (e->kind == MN_REQUEST_TOKEN) {
        assert_true(a->n < MAX_IDS);
        a->logprob[a->n] = e->logprob;
        a->ids[a->n++] = e->id;
    } else {
        assert_int_equal(e->kind, MN_REQUEST_FINISH);
        a->finish = e->finish;
        if (e->message)
            snprintf(a->message, sizeof a->message, "%s", e->message);
    }
}

/* One call of mn_session_next; how many events it had. */
static uint32_t next(mn_session *s, uint32_t timeout_ms) {
    mn_error err = MN_ERROR;
    mn_request_events events = {.size = sizeof events};
    if (mn_session_next(s, timeout_ms, &events, &err))
        fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < events.n; i++)
        take_event((const void *)((const char *)events.events + (size_t)i * events.stride));
    return events.n;
}

static uint32_t count_finished(const served *all, uint32_t n) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < n; i++)
        done += all[i].finish != 0;
    return done;
}

/* Until all n have ended: not a call more, which would wait for events that do not come. */
static void finish_all(mn_session *s, const served *all, uint32_t n) {
    for (uint32_t calls = 0; count_finished(all, n) < n; calls++) {
        assert_true(calls < 100000);
        next(s, 10000);
    }
}

static inline void same_ids(const served *a, const served *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

/* The request alone, in a session of its own without shared pages. */
static inline void lone(mn_request_params p, served *out) {
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 1024});
    p.flags |= MN_SUBMIT_NO_CACHE;
    submit(s, p, out);
    finish_all(s, out, 1);
    mn_session_free(s);
}

#ifndef TEST_FLAKY_H
/* argv: a model and a device, where the build's own do not hold */
static inline int open_model(int argc, char **argv) {
    mn_error err = MN_ERROR;
    if (argc > 2)
        device = argv[2];
    if (!mn_runtime_create(NULL, &rt, &err) &&
        !mn_model_open(rt, argc > 1 ? argv[1] : NULL, &model, &err)) {
        mn_model_info info = {.size = sizeof info};
        mn_model_get_info(model, &info);
        if (info.n_vocab < n_words)
            n_words = info.n_vocab - 10;
        return 0;
    }
    fprintf(stderr, "%s\n", err.msg);
    return 1;
}

static inline int close_model(int bad) {
    mn_model_free(model);
    mn_runtime_free(rt);
    return bad != 0;
}
#else
/* A runtime with the flaky stub (flaky.h), and its demo model. */
static void begin_world(const char *const *options) {
    mn_error err = MN_ERROR;
    if (flaky_runtime(options, &rt, &err) || mn_model_open(rt, flaky_demo, &model, &err))
        fail_msg("%s", err.msg);
}
static void end_world(void) {
    mn_model_free(model);
    mn_runtime_free(rt);
}
#endif
#endif
