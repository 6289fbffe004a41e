/* test_session.c -- sessions through minerva.h: batches, run-ahead, late stops, extend, fork,
 * pages, errors. The demo model on every CPU plugin that was built, and the first NVIDIA GPU. */
#include <minerva/minerva.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_SEQ = 20, MAX_NEW = 24 };
static mn_runtime *rt;
static mn_model *model;
static const char *device;
static uint32_t n_words = 2000; /* ids of which prompts are made; a model may have fewer */

#define OK(call)                                                                                   \
    do {                                                                                           \
        mn_error e_ = MN_ERROR;                                                                    \
        mn_status s_ = (call);                                                                     \
        if (s_)                                                                                    \
            fail_msg("%s: %x", #call, (unsigned)s_);                                               \
        (void)e_;                                                                                  \
    } while (0)

static mn_session *session(uint32_t n_seq, uint32_t n_ctx, uint32_t n_batch, uint32_t ahead) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    mn_session_params p = {.size = sizeof p,
                           .device = device,
                           .precision = MN_PRECISION_EXACT,
                           .n_seq = n_seq,
                           .n_ctx = n_ctx,
                           .n_batch = n_batch,
                           .run_ahead = ahead};
    if (mn_session_create(model, &p, &s, &err))
        fail_msg("%s", err.msg);
    return s;
}

typedef struct {
    int32_t ids[MAX_NEW + 8];
    uint32_t n;
    int32_t finish;
} answer;

/* Runs all sequences to their ends. by_seq[seq] says where a sequence's ids go. */
static void run(mn_session *s, uint32_t n_seq, answer **by_seq) {
    mn_token t[MAX_SEQ];
    mn_error err = MN_ERROR;
    for (uint32_t n = 1; n;) {
        if (mn_session_step(s, t, n_seq, &n, &err))
            fail_msg("%s", err.msg);
        for (uint32_t i = 0; i < n; i++) {
            answer *a = by_seq[t[i].seq];
            assert_true(a && a->n < MAX_NEW + 8 && !a->finish);
            a->ids[a->n++] = t[i].id;
            a->finish = t[i].finish;
        }
    }
}

static uint32_t prompt(uint32_t which, int32_t *ids) {
    uint32_t n = 3 + (which * 7) % 90;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i ? (int32_t)(6 + (which * 131 + i * i * 17) % n_words) : 0;
    return n;
}

static const mn_sample_params plenty = {.size = sizeof plenty, .max_new = MAX_NEW};

static answer alone(uint32_t which, const mn_sample_params *params, uint32_t n_batch,
                    uint32_t ahead) {
    int32_t ids[128], seq;
    answer a = {0}, *by_seq[MAX_SEQ] = {0};
    mn_session *s = session(1, 256, n_batch, ahead);
    uint32_t n = prompt(which, ids);
    OK(mn_seq_create(s, ids, n, params, &seq, NULL));
    by_seq[seq] = &a;
    run(s, 1, by_seq);
    mn_session_free(s);
    return a;
}

static void same(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

static void test_batch_like_alone(void **state) {
    (void)state;
    answer batch[MAX_SEQ] = {0}, *by_seq[MAX_SEQ] = {0};
    const uint32_t n_seq = strcmp(device, "reference") ? MAX_SEQ : 5; /* the oracle is slow */
    mn_session *s = session(n_seq, 256, 64, 1);
    for (uint32_t i = 0; i < n_seq; i++) {
        int32_t ids[128], seq;
        uint32_t n = prompt(i, ids);
        OK(mn_seq_create(s, ids, n, &plenty, &seq, NULL));
        by_seq[seq] = &batch[i];
    }
    run(s, n_seq, by_seq);
    mn_session_free(s);
    for (uint32_t i = 0; i < n_seq; i++) {
        answer one = alone(i, &plenty, 0, 1);
        same(&one, &batch[i]);
    }
}

static void test_seeds(void **state) {
    (void)state;
    mn_sample_params p = {.size = sizeof p,
                          .max_new = 20,
                          .temp = 1,
                          .top_k = 50,
                          .top_p = 0.9f,
                          .repeat_penalty = 1.1f,
                          .penalty_last_n = -1,
                          .seed = 7};
    answer a = alone(3, &p, 0, 1), b = alone(3, &p, 0, 1), c = alone(3, &p, 5, 16);
    same(&a, &b);
    same(&a, &c);
    p.seed = 8;
    answer d = alone(3, &p, 0, 1);
    assert_true(a.n != d.n || memcmp(a.ids, d.ids, a.n * sizeof *a.ids));
}

static void test_run_ahead(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        answer a = alone(i, &plenty, 0, 1), b = alone(i, &plenty, 7, 64);
        same(&a, &b);
    }
}

/* An id drawn early becomes a stop id: with 32 steps ahead it is found late, and nothing of what
 * follows may show. */
static void test_late_stop(void **state) {
    (void)state;
    answer free_run = alone(1, &plenty, 0, 1);
    int32_t stop = free_run.ids[4], ids[128], seq, more[3] = {20, 30, 40};
    mn_sample_params p = {.size = sizeof p, .max_new = MAX_NEW, .n_stop = 1, .stop = &stop};
    answer result[2][2];
    memset(result, 0, sizeof result);
    for (int late = 0; late < 2; late++) {
        answer *by_seq[MAX_SEQ] = {0};
        mn_session *s = session(2, 256, 0, late ? 32 : 1);
        uint32_t n = prompt(1, ids);
        OK(mn_seq_create(s, ids, n, &p, &seq, NULL));
        by_seq[seq] = &result[late][0];
        run(s, 2, by_seq);
        assert_int_equal(result[late][0].finish, MN_FINISH_STOP);
        assert_int_equal(result[late][0].ids[result[late][0].n - 1], stop);
        /* what the cache holds shows in what follows */
        OK(mn_seq_extend(s, seq, more, 3, &plenty, NULL));
        by_seq[seq] = &result[late][1];
        run(s, 2, by_seq);
        mn_session_free(s);
    }
    same(&result[0][0], &result[1][0]);
    same(&result[0][1], &result[1][1]);
}

/* prompt, answer and more ids in one prompt give what extend gives. */
static void test_extend_like_whole(void **state) {
    (void)state;
    int32_t ids[256], seq, more[5] = {9, 8, 130, 7, 12};
    answer first = {0}, second = {0}, whole = {0}, *by_seq[MAX_SEQ] = {0};
    uint32_t n = prompt(5, ids);
    mn_sample_params ten = {.size = sizeof ten, .max_new = 10, .ignore_stop = 1};
    mn_session *s = session(2, 256, 16, 4);
    OK(mn_seq_create(s, ids, n, &ten, &seq, NULL));
    by_seq[seq] = &first;
    run(s, 2, by_seq);
    int32_t stops[40];
    for (int32_t i = 0; i < 40; i++)
        stops[i] = i + 100;
    const mn_sample_params many = {.size = sizeof many, .n_stop = 40, .stop = stops};
    assert_int_equal(mn_seq_extend(s, seq, more, 5, &many, NULL), MN_BAD_INPUT);
    assert_int_equal(mn_seq_length(s, seq), n + first.n); /* as if nobody had tried */
    OK(mn_seq_extend(s, seq, more, 5, &ten, NULL));
    by_seq[seq] = &second;
    run(s, 2, by_seq);
    assert_int_equal(mn_seq_length(s, seq), n + first.n + 5 + second.n);
    memcpy(ids + n, first.ids, first.n * sizeof *ids);
    memcpy(ids + n + first.n, more, sizeof more);
    OK(mn_seq_create(s, ids, n + first.n + 5, &ten, &seq, NULL));
    by_seq[seq] = &whole;
    run(s, 2, by_seq);
    same(&second, &whole);
    mn_session_free(s);
}

static void test_fork(void **state) {
    (void)state;
    int32_t ids[256], seq, twin, a_more[2] = {50, 60}, b_more[2] = {70, 80};
    answer first = {0}, a = {0}, b = {0}, lone = {0}, *by_seq[MAX_SEQ] = {0};
    mn_sample_params p = {.size = sizeof p,
                          .max_new = 12,
                          .ignore_stop = 1,
                          .repeat_penalty = 1.3f,
                          .penalty_last_n = -1};
    uint32_t n = prompt(11, ids); /* ends inside a page */
    mn_session *s = session(3, 256, 0, 1);
    OK(mn_seq_create(s, ids, n, &p, &seq, NULL));
    by_seq[seq] = &first;
    run(s, 3, by_seq);
    OK(mn_seq_fork(s, seq, &twin, NULL));
    OK(mn_seq_extend(s, seq, a_more, 2, &p, NULL));
    OK(mn_seq_extend(s, twin, b_more, 2, &p, NULL));
    by_seq[seq] = &a;
    by_seq[twin] = &b;
    run(s, 3, by_seq);
    mn_seq_free(s, seq); /* shared pages stay with the twin */
    memcpy(ids + n, first.ids, first.n * sizeof *ids);
    memcpy(ids + n + first.n, b_more, sizeof b_more);
    OK(mn_seq_create(s, ids, n + first.n + 2, &p, &seq, NULL));
    by_seq[seq] = &lone;
    run(s, 3, by_seq);
    same(&b, &lone);
    mn_session_free(s);
}

/* The sequence that pages were first made for leaves; another text is stored in what it gives back,
 * and the twin goes on from what it shares. */
static void test_fork_outlives(void **state) {
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* pages are counted alike for all, and the oracle is slow */
    int32_t ids[256], others[256], seq, twin, other, more[2] = {50, 60};
    answer first = {0}, twins = {0}, filler = {0}, lone = {0}, *by_seq[MAX_SEQ] = {0};
    const mn_sample_params p = {.size = sizeof p, .max_new = 4, .ignore_stop = 1};
    const uint32_t n = prompt(12, ids), n_other = prompt(25, others);
    assert_true(n > 64 && n_other >= 64); /* a whole page each, at least */
    mn_session *s = session(2, 128, 0, 1);
    OK(mn_seq_create(s, ids, n, &p, &seq, NULL));
    by_seq[seq] = &first;
    run(s, 2, by_seq);
    OK(mn_seq_fork(s, seq, &twin, NULL));
    mn_seq_free(s, seq);
    OK(mn_seq_create(s, others, n_other, &p, &other, NULL));
    by_seq[other] = &filler;
    run(s, 2, by_seq);
    OK(mn_seq_extend(s, twin, more, 2, &p, NULL));
    by_seq[twin] = &twins;
    run(s, 2, by_seq);
    mn_seq_free(s, other);
    memcpy(ids + n, first.ids, first.n * sizeof *ids);
    memcpy(ids + n + first.n, more, sizeof more);
    OK(mn_seq_create(s, ids, n + first.n + 2, &p, &other, NULL));
    by_seq[other] = &lone;
    run(s, 2, by_seq);
    same(&twins, &lone);
    mn_session_free(s);
}

/* What is shared is free when the last one leaves, whoever that is. */
static void test_forks_leave_nothing(void **state) {
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* pages are counted alike for all, and the oracle is slow */
    int32_t ids[128], seq, twin;
    const mn_sample_params p = {.size = sizeof p, .max_new = 1, .ignore_stop = 1};
    const uint32_t n = prompt(12, ids);
    mn_session *s = session(2, 128, 0, 1);
    for (int round = 0; round < 8; round++) {
        answer a = {0}, *by_seq[MAX_SEQ] = {&a, &a};
        OK(mn_seq_create(s, ids, n, &p, &seq, NULL));
        run(s, 2, by_seq);
        assert_int_equal(a.n, 1);
        OK(mn_seq_fork(s, seq, &twin, NULL));
        mn_seq_free(s, round % 2 ? seq : twin);
        mn_seq_free(s, round % 2 ? twin : seq);
    }
    mn_session_free(s);
}

/* Slots and pages are used again, also while steps of the old owner are in flight. */
static void test_reuse(void **state) {
    (void)state;
    answer want = alone(2, &plenty, 0, 1);
    mn_session *s = session(2, 128, 0, 16);
    for (int round = 0; round < 6; round++) {
        int32_t ids[128], seq, other;
        answer a = {0}, *by_seq[MAX_SEQ] = {0};
        mn_token t[2];
        uint32_t n = prompt((uint32_t)round + 6, ids), got;
        OK(mn_seq_create(s, ids, n, &plenty, &other, NULL));
        OK(mn_session_step(s, t, 2, &got, NULL));
        mn_seq_free(s, other);
        n = prompt(2, ids);
        OK(mn_seq_create(s, ids, n, &plenty, &seq, NULL));
        by_seq[seq] = &a;
        run(s, 2, by_seq);
        same(&want, &a);
        mn_seq_free(s, seq);
    }
    mn_session_free(s);
}

static void test_context_full(void **state) {
    (void)state;
    int32_t ids[128], seq;
    answer a = {0}, *by_seq[MAX_SEQ] = {0};
    mn_sample_params p = {.size = sizeof p, .ignore_stop = 1};
    mn_session *s = session(1, 100, 0, 4);
    mn_error err = MN_ERROR;
    uint32_t n = prompt(12, ids); /* 87 */
    assert_int_equal(n, 87);
    OK(mn_seq_create(s, ids, n, &p, &seq, NULL));
    by_seq[seq] = &a;
    run(s, 1, by_seq);
    assert_int_equal(a.n, 100 - 87 + 1); /* the last id needs no place */
    assert_int_equal(a.finish, MN_FINISH_LENGTH);
    assert_int_equal(mn_seq_create(s, ids, 5, &p, &seq, &err), MN_OUT_OF_MEMORY); /* no slot */
    mn_seq_free(s, seq);
    mn_session_free(s);
}

static void test_errors(void **state) {
    (void)state;
    int32_t ids[300] = {0}, seq = -1;
    mn_error err = MN_ERROR;
    mn_session *s = session(1, 200, 0, 1), *none = NULL;
    assert_int_equal(mn_seq_create(s, ids, 201, NULL, &seq, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "201"));
    assert_non_null(strstr(err.msg, "200"));
    assert_int_equal(mn_seq_create(s, ids, 0, NULL, &seq, &err), MN_BAD_INPUT);
    ids[1] = 2048;
    assert_int_equal(mn_seq_create(s, ids, 2, NULL, &seq, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "2048"));
    ids[1] = -1;
    assert_int_equal(mn_seq_create(s, ids, 2, NULL, &seq, &err), MN_BAD_INPUT);
    assert_int_equal(mn_seq_extend(s, 0, ids, 1, NULL, &err), MN_INVALID);
    assert_int_equal(mn_seq_fork(s, 7, &seq, &err), MN_INVALID);
    mn_seq_free(s, 0);
    mn_session_params p = {.size = sizeof p, .device = "nosuch:3"};
    assert_int_equal(mn_session_create(model, &p, &none, &err), MN_NO_DEVICE);
    assert_non_null(strstr(err.msg, "nosuch:3"));
    assert_non_null(strstr(err.msg, device));
    p.device = device, p.n_ctx = 1 << 24, p.n_seq = 4000;
    p.kv_bytes = 1ull << 45; /* more than any machine has */
    assert_int_equal(mn_session_create(model, &p, &none, &err), MN_OUT_OF_MEMORY);
    mn_session_free(s);
}

static void test_cancel(void **state) {
    (void)state;
    int32_t ids[128], seq;
    mn_token t[1];
    uint32_t n = prompt(0, ids), got;
    mn_session *s = session(1, 256, 0, 1);
    OK(mn_seq_create(s, ids, n, &plenty, &seq, NULL));
    mn_session_cancel(s);
    assert_int_equal(mn_session_step(s, t, 1, &got, NULL), MN_CANCELLED);
    OK(mn_session_step(s, t, 1, &got, NULL)); /* once */
    assert_int_equal(got, 1);
    mn_session_free(s);
}

typedef struct {
    uint32_t rows;
    int32_t arg_max;
} seen;
static mn_status see(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab, const float *rows) {
    seen *s = arg;
    assert_int_equal(first, s->rows);
    for (uint32_t i = 0; i < n; i++) {
        s->arg_max = 0;
        for (uint32_t v = 1; v < n_vocab; v++)
            if (rows[(size_t)i * n_vocab + v] > rows[(size_t)i * n_vocab + (size_t)s->arg_max])
                s->arg_max = (int32_t)v;
    }
    s->rows += n;
    return MN_OK;
}

static void test_logits(void **state) {
    (void)state;
    int32_t ids[128];
    uint32_t n = prompt(13, ids);
    answer a = alone(13, &plenty, 0, 1);
    mn_session *s = session(1, 256, 0, 1);
    seen w = {0};
    OK(mn_session_logits(s, ids, n, see, &w, NULL));
    assert_int_equal(w.rows, n);
    assert_int_equal(w.arg_max, a.ids[0]);
    mn_session_free(s);
}

typedef struct {
    uint32_t steps, prompt, rows, outputs, n_units;
    uint64_t ns, unit_ns, bytes, flop;
} tally;

static void add_step(void *arg, const mn_step_profile *step) {
    tally *s = arg;
    uint32_t at = 0;
    assert_true(step->size == sizeof *step && step->unit_stride >= sizeof(mn_step_unit));
    s->steps++;
    s->rows += step->n_rows;
    s->prompt += step->n_prompt;
    s->outputs += step->n_outputs;
    s->ns += step->time_ns;
    for (uint32_t i = 0; i < step->n_units; i++) {
        const mn_step_unit *u =
            (const void *)((const char *)step->units + (size_t)i * step->unit_stride);
        assert_true(u->node >= at && u->n_nodes > 0 && u->name[0] && u->op[0]);
        assert_string_equal(u->device, device);
        at = u->node;
        s->unit_ns += u->time_ns;
        s->bytes += u->bytes;
        s->flop += u->flop;
    }
    s->n_units += step->n_units;
}

/* A profile changes nothing but what is told: ids are those of steps that run ahead. */
static void test_profile(void **state) {
    (void)state;
    const answer want = alone(5, &plenty, 0, 4);
    int32_t ids[128], seq;
    answer got = {0}, *by_seq[MAX_SEQ] = {0};
    tally all = {0}, rest = {0};
    mn_error err = MN_ERROR;
    mn_session *s = session(1, 256, 0, 4);
    const uint32_t n = prompt(5, ids);
    const mn_status st = mn_session_profile(s, add_step, &all, &err);
    if (st == MN_UNSUPPORTED) {
        assert_non_null(strstr(err.msg, device));
        mn_session_free(s);
        return;
    }
    assert_int_equal(st, MN_OK);
    OK(mn_seq_create(s, ids, n, &plenty, &seq, NULL));
    by_seq[seq] = &got;
    run(s, 1, by_seq);
    same(&got, &want);
    assert_int_equal(all.prompt, n);
    assert_true(all.steps >= got.n && all.rows >= n + got.n - 1);
    assert_true(all.outputs >= got.n && all.n_units >= 10 * all.steps);
    assert_true(all.unit_ns && all.unit_ns <= all.ns && all.bytes && all.flop);
    mn_seq_free(s, seq);
    OK(mn_session_profile(s, add_step, &rest, NULL));
    OK(mn_session_profile(s, NULL, NULL, NULL));
    OK(mn_seq_create(s, ids, n, &plenty, &seq, NULL));
    got = (answer){0};
    by_seq[seq] = &got;
    run(s, 1, by_seq);
    same(&got, &want);
    assert_int_equal(rest.steps, 0);
    mn_session_free(s);
}

static int count(void *arg, const char *text, uint64_t n) {
    (void)text;
    *(uint64_t *)arg += n;
    return 0;
}

static void test_generate(void **state) {
    (void)state;
    uint64_t bytes = 0;
    mn_model_info info = {.size = sizeof info};
    OK(mn_model_get_info(model, &info));
    if (!info.has_tokenizer)
        return;
    mn_session *s = session(1, 256, 0, 1);
    OK(mn_generate(s, "Tell me a story.", &plenty, count, &bytes, NULL));
    assert_true(bytes > 20);
    mn_session_free(s);
}

/* argv[1]: the demo model, where the build's own path does not hold; argv[2]: this device alone */
int main(int argc, char **argv) {
    static const char *const devices[] = {"reference", "cpu_simd", "cuda:0", "opencl"};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch_like_alone),
                                       cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_run_ahead),
                                       cmocka_unit_test(test_late_stop),
                                       cmocka_unit_test(test_extend_like_whole),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_fork_outlives),
                                       cmocka_unit_test(test_forks_leave_nothing),
                                       cmocka_unit_test(test_reuse),
                                       cmocka_unit_test(test_context_full),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_cancel),
                                       cmocka_unit_test(test_logits),
                                       cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_generate)};
    mn_error err = MN_ERROR;
    int bad = 0;
    if (mn_runtime_create(NULL, &rt, &err) ||
        mn_model_open(rt, argc > 1 ? argv[1] : NULL, &model, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    mn_model_info info = {.size = sizeof info};
    mn_model_get_info(model, &info);
    if (info.n_vocab < n_words)
        n_words = info.n_vocab - 10;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        mn_device_item d;
        bool there = false;
        if (argc > 2 && strcmp(argv[2], devices[i]))
            continue;
        for (uint32_t k = 0; !there && !mn_runtime_device(rt, k, &d); k++)
            there = !strcmp(d.name, devices[i]) && d.usable;
        if (!there) {
            printf("skipped: %s is not built\n", devices[i]);
            continue;
        }
        device = devices[i];
        bad += cmocka_run_group_tests_name(device, tests, NULL, NULL);
    }
    mn_model_free(model);
    mn_runtime_free(rt);
    return bad != 0;
}
