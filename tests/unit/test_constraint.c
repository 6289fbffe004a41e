/* test_constraint.c -- sequences and requests with constraints: what they draw fits, ends where it
 * is complete, and is the same alone, in batches, with steps ahead, after a preemption and in a
 * second life. */
#include "serving.h"

enum { PAGE = 64, N = 6 };
static uint32_t n_rounds; /* fewer on a slow device */

static mn_constraint *constraint(uint32_t kind, const char *source) {
    mn_error err = MN_ERROR;
    mn_constraint *c = NULL;
    const mn_constraint_params p = {
        .size = sizeof p, .kind = kind, .source = {source, strlen(source)}};
    if (mn_constraint_create(model, &p, &c, &err))
        fail_msg("%s", err.msg);
    return c;
}

static mn_constraint *choices(void) {
    static const mn_str list[] = {{"yes", 3}, {"no", 2}, {"yes, but", 8}};
    mn_error err = MN_ERROR;
    mn_constraint *c = NULL;
    const mn_constraint_params p = {
        .size = sizeof p, .kind = MN_CONSTRAINT_CHOICES, .choices = list, .n_choices = 3};
    if (mn_constraint_create(model, &p, &c, &err))
        fail_msg("%s", err.msg);
    return c;
}

/* Of the ids but the end token. */
static const char *text_of(const served *a) {
    static char text[20000];
    size_t n = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const mn_str t = mn_model_token_text(model, a->ids[i]);
        if (mn_model_is_stop(model, a->ids[i]))
            continue;
        memcpy(text + n, t.ptr, t.len);
        n += t.len;
    }
    text[n] = 0;
    return text;
}

/* What each of N different requests asks for; the first has no constraint. */
static mn_constraint *nth(uint32_t i) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":30},"
        "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":999},\"tags\":{\"type\":\"array\","
        "\"items\":{\"enum\":[\"red\",\"blue\"]},\"maxItems\":4}},"
        "\"required\":[\"name\",\"age\",\"tags\"],"
        "\"additionalProperties\":false}";
    switch (i % N) {
    case 1:
        return constraint(MN_CONSTRAINT_SCHEMA, schema);
    case 2:
        return constraint(MN_CONSTRAINT_REGEX, "([a-z]{2,4} ){12}end");
    case 3:
        return choices();
    case 4:
        return constraint(MN_CONSTRAINT_GRAMMAR, "root ::= (\"ab\" | \"\xc3\xa9\"){8} [0-9]{4}");
    case 5:
        return constraint(MN_CONSTRAINT_JSON, "");
    default:
        return NULL;
    }
}

static bool fits(uint32_t i, const char *text) {
    char last[8];
    int age = -1;
    const size_t n = strlen(text);
    switch (i % N) {
    case 1:
        return strstr(text, "\"age\"") && sscanf(strstr(text, "\"age\"") + 6, " %d", &age) == 1 &&
               age >= 0 && age < 1000 && text[n - 1] == '}';
    case 2:
        return n >= 39 && !strcmp(text + n - 4, " end");
    case 3:
        return !strcmp(text, "yes") || !strcmp(text, "no") || !strcmp(text, "yes, but");
    case 4:
        return n == 20 && sscanf(text + 16, "%4[0-9]", last) == 1;
    case 5:
        return strchr("{[", text[0]) && strchr("}]", text[n - 1]);
    default:
        return true;
    }
}

typedef struct {
    int32_t ids[256];
    mn_sample_params sample;
    mn_request_params request;
} asked;

/* Request i, with its own prompt, seed and constraint, which is the caller's. */
static void ask(uint32_t i, asked *a) {
    *a = (asked){.sample = {.size = sizeof a->sample,
                            .max_new = i % N % 5 ? 170 : 110,
                            .temp = 1.5f,
                            .seed = i,
                            .ignore_stop = i % N == 0,
                            .repeat_penalty = i % 2 ? 1.1f : 0,
                            .penalty_last_n = -1,
                            .constraint = nth(i)}};
    if (i % N == 2)
        a->sample.xtc_probability = 0.5f;
    if (i % N == 4)
        a->sample.dry_multiplier = 0.8f;
    a->request.sample = &a->sample;
    a->request.ids = a->ids;
    a->request.n_ids = words(i, 20 + 9 * (i % N), a->ids);
}

static void check_fit(uint32_t i, const served *got) {
    if (got->finish == MN_FINISH_FAILED)
        fail_msg("request %u: %s, after: %s", i, got->message, text_of(got));
    if (got->finish == MN_FINISH_LENGTH)
        assert_true(i % N == 0 || i % N == 5);
    else
        assert_int_equal(got->finish, MN_FINISH_STOP);
    if (got->finish == MN_FINISH_STOP && !fits(i, text_of(got)))
        fail_msg("request %u: %s", i, text_of(got));
}

static void test_fits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N * n_rounds; i++) {
        served got;
        asked a;
        ask(i, &a);
        lone(a.request, &got);
        check_fit(i, &got);
        mn_constraint_free(a.sample.constraint);
    }
}

/* In one batch, with and without steps ahead, some with logprobs, and with few pages. */
static void test_together(void **state) {
    (void)state;
    static served want[N];
    static served got[N];
    static asked a[N];
    for (uint32_t i = 0; i < N; i++) {
        ask(i, &a[i]);
        lone(a[i].request, &want[i]);
    }
    mn_session *one = open_with((mn_session_params){.n_seq = 1, .n_ctx = PAGE, .n_batch = PAGE});
    mn_session_info info = {.size = sizeof info};
    assert_int_equal(mn_session_get_info(one, &info), MN_OK);
    mn_session_free(one);
    for (uint32_t how = 0; how < 2 * n_rounds; how++) {
        mn_session *s = open_with((mn_session_params){.n_seq = N,
                                                      .n_ctx = 1024,
                                                      .n_batch = PAGE,
                                                      .run_ahead = how / 2 * 2 + 1,
                                                      .kv_bytes = how % 2 ? 4 * info.kv_bytes : 0});
        mn_session_load load = {.size = sizeof load};
        for (uint32_t i = 0; i < N; i++) {
            a[i].request.flags = (how + i) % 3 ? 0 : MN_SUBMIT_LOGPROBS;
            submit(s, a[i].request, &got[i]);
        }
        finish_all(s, got, N);
        for (uint32_t i = 0; i < N; i++)
            same_ids(&got[i], &want[i]);
        assert_int_equal(mn_session_get_load(s, &load), MN_OK);
        if (how % 2)
            assert_true(load.n_preempted > 0);
        mn_session_free(s);
    }
    for (uint32_t i = 0; i < N; i++)
        mn_constraint_free(a[i].sample.constraint);
}

/* The constraint may be freed at once; a request that goes on from any place draws the rest;
 * choices are as with seeds of their own. */
static void test_lives(void **state) {
    (void)state;
    static served got[3];
    for (uint32_t i = 1; i < 5; i++) {
        served want;
        asked a;
        int32_t ids[300];
        ask(i, &a);
        lone(a.request, &want);
        memcpy(ids, a.ids, a.request.n_ids * sizeof *ids);
        memcpy(ids + a.request.n_ids, want.ids, want.n * sizeof *ids);
        mn_session *s = open_with((mn_session_params){.n_seq = 3, .n_ctx = 1024});
        for (uint32_t k = 0; k < want.n; k += 1 + want.n / (1 + n_rounds)) {
            mn_request_params r = a.request;
            r.ids = ids;
            r.n_ids += k;
            r.n_drawn = k;
            submit(s, r, &got[0]);
            finish_all(s, got, 1);
            assert_int_equal(got[0].n, want.n - k);
            assert_memory_equal(got[0].ids, want.ids + k, (want.n - k) * sizeof *ids);
        }
        mn_request_params three = a.request;
        three.n_choices = 3;
        memset(got, 0, sizeof got);
        submit(s, three, got);
        mn_constraint_free(a.sample.constraint);
        finish_all(s, got, 3);
        same_ids(&got[0], &want);
        for (uint32_t k = 1; k < 3; k++)
            check_fit(i, &got[k]);
        mn_session_free(s);
    }
}

/* Sequences of mn_seq_create; extending one begins a new answer, with or without a constraint. */
static void test_sequences(void **state) {
    (void)state;
    served got = {0};
    mn_error err = MN_ERROR;
    mn_token t[2];
    int32_t seq;
    int32_t free_seq;
    uint32_t n = 1;
    mn_constraint *c = choices();
    mn_sample_params p = {.size = sizeof p, .max_new = 60, .temp = 1.5f, .constraint = c};
    const mn_sample_params plain = {.size = sizeof plain, .max_new = 30, .ignore_stop = 1};
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 256, .run_ahead = 4});
    assert_int_equal(mn_seq_create(s, (int32_t[]){0, 7, 9}, 3, &p, &seq, &err), MN_OK);
    assert_int_equal(mn_seq_create(s, (int32_t[]){0, 8}, 2, &plain, &free_seq, &err), MN_OK);
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (got.n = 0, n = 1; n;) {
            assert_int_equal(mn_session_step(s, t, 2, &n, &err), MN_OK);
            for (uint32_t i = 0; i < n; i++)
                if (t[i].seq == seq)
                    got.ids[got.n++] = t[i].id;
        }
        assert_int_equal(fits(3, text_of(&got)), turn != 1);
        p.constraint = turn ? c : NULL;
        assert_int_equal(mn_seq_extend(s, seq, (int32_t[]){40, 50}, 2, &p, &err), MN_OK);
    }
    mn_session_free(s);
    mn_constraint_free(c);
}

/* ---- text that a constraint forces ----------------------------------------------------------- */
/* Alone, in batches, with drafts of a lookup, with one row a step, which verifies none, and with
 * logprobs. */
#ifdef __SANITIZE_ADDRESS__
enum { WAYS = 5, FORCED = 2 };
#else
enum { WAYS = 5, FORCED = 3 };
#endif

static mn_constraint *long_names(void) {
    return constraint(
        MN_CONSTRAINT_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"the temperature of the garden\":{\"enum\":[1,2,3]},"
        "\"whether somebody came to play\":{\"type\":\"boolean\"},"
        "\"na\xc3\xafve caf\xc3\xa9 \xf0\x9f\x98\x80 of the little "
        "girl\":{\"type\":\"string\",\"maxLength\":"
        "5}},\"required\":[\"the temperature of the garden\",\"whether somebody came to play\","
        "\"na\xc3\xafve caf\xc3\xa9 \xf0\x9f\x98\x80 of the little "
        "girl\"],\"additionalProperties\":false}");
}

static mn_session *open_way(uint32_t way) {
    mn_session_params p = {.n_seq = way == 1 ? FORCED : 1, .n_ctx = 512};
    if (way == 2)
        p.speculate = MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS;
    if (way == 3)
        p.n_batch = 1;
    return open_with(p);
}

static void run_way(uint32_t way, mn_constraint *c, served *got) {
    mn_session *s = open_way(way);
    mn_session_stats stats = {.size = sizeof stats};
    uint64_t n_forced = 0;
    for (uint32_t i = 0; i < FORCED; i++) {
        int32_t ids[32];
        const mn_sample_params sample = {
            .size = sizeof sample, .max_new = 200, .temp = 1.2f, .seed = i, .constraint = c};
        const mn_request_params r = {.sample = &sample,
                                     .ids = ids,
                                     .n_ids = words(i, 20, ids),
                                     .flags = way == 4 ? MN_SUBMIT_LOGPROBS : 0};
        submit(s, r, &got[i]);
        if (way != 1)
            finish_all(s, &got[i], 1);
    }
    finish_all(s, got, FORCED);
    assert_int_equal(mn_session_get_stats(s, &stats), MN_OK);
    for (uint32_t i = 0; i < FORCED; i++) {
        const mn_request_event e = got[i].last;
        assert_int_equal(got[i].finish, MN_FINISH_STOP);
        assert_int_equal(e.n_steps + e.n_forced + e.n_accepted, got[i].n);
        assert_true(way == 3 ? !e.n_forced : e.n_forced > 4);
        n_forced += e.n_forced;
    }
    assert_int_equal(stats.n_forced, n_forced);
    mn_session_free(s);
}

/* The names are spelled as the tokeniser spells them: as many tokens as in the text by itself, or
 * few more, where the model has chosen a part of a token behind which nothing was forced. */
static void check_spelling(const served *got) {
    mn_error err = MN_ERROR;
    uint32_t n = 0;
    int32_t *ids = NULL;
    const char *text = text_of(got);
    assert_int_equal(text[0], '{');
    assert_non_null(strstr(text, "\"the temperature of the garden\":"));
    assert_non_null(
        strstr(text, "\"na\xc3\xafve caf\xc3\xa9 \xf0\x9f\x98\x80 of the little girl\":"));
    assert_int_equal(text[strlen(text) - 1], '}');
    assert_int_equal(mn_model_tokenize(model, (mn_str){text, strlen(text)}, 0, &ids, &n, &err),
                     MN_OK);
    assert_true(got->n <= n + 16);
    mn_ids_free(ids);
}

static void test_forced(void **state) {
    (void)state;
    static served got[WAYS][FORCED];
    mn_constraint *c = long_names();
    for (uint32_t way = 0; way < WAYS; way++)
        run_way(way, c, got[way]);
    for (uint32_t i = 0; i < FORCED; i++) {
        check_spelling(&got[0][i]);
        for (uint32_t way = 1; way < WAYS; way++)
            same_ids(&got[way][i], &got[0][i]);
    }
    mn_constraint_free(c);
}

static void refused(uint32_t kind, const char *source, mn_status want, const char *place) {
    mn_error err = MN_ERROR;
    mn_constraint *c = NULL;
    const mn_constraint_params p = {
        .size = sizeof p, .kind = kind, .source = {source, strlen(source)}};
    assert_int_equal(mn_constraint_create(model, &p, &c, &err), want);
    if (!strstr(err.msg, place))
        fail_msg("%s", err.msg);
}

static void test_refusals(void **state) {
    (void)state;
    refused(MN_CONSTRAINT_SCHEMA, "{\"properties\":{\"a\":{\"not\":{}}}}", MN_UNSUPPORTED,
            "#/properties/a/not");
    refused(MN_CONSTRAINT_REGEX, "(a", MN_BAD_INPUT, "byte 2");
    refused(MN_CONSTRAINT_GRAMMAR, "root ::= x", MN_BAD_INPUT, "line 1");
    refused(9, "", MN_INVALID, "kind");
    served got;
    asked a;
    mn_error err = MN_ERROR;
    uint64_t id;
    ask(3, &a);
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 1024});
    a.request.size = sizeof a.request;
    a.request.n_drawn = 5; /* of the prompt: not what the constraint allows */
    assert_int_equal(mn_session_submit(s, &a.request, &id, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "constraint"));
    a.request.n_drawn = 0;
    a.sample.ignore_stop = 1; /* ends where nothing else can follow, and goes on where it can */
    a.sample.min_new = 3;
    submit(s, a.request, &got);
    finish_all(s, &got, 1);
    assert_int_equal(got.finish, MN_FINISH_STOP);
    assert_true(!strcmp(text_of(&got), "no") || !strcmp(text_of(&got), "yes, but"));
    mn_session_free(s);
    mn_constraint_free(a.sample.constraint);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),     cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_together),
        cmocka_unit_test(test_lives),    cmocka_unit_test(test_forced),
    };
    const struct CMUnitTest some[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_forced),
    };
    if (open_model(argc, argv))
        return 1;
    n_rounds = argc > 2 ? 1 : 3;
    if (argc > 2)
        return close_model(cmocka_run_group_tests(some, NULL, NULL));
    return close_model(cmocka_run_group_tests(tests, NULL, NULL));
}
