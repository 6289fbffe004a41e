/* adapters.c -- adapters against PEFT, which computed the logits of tests/data/adapters: one, two
 * at once, other ones for each sequence of a batch, loaded and unloaded while others are in use,
 * and what is refused. usage: adapters DEVICE [BASE=PATH...] (BASE: another file of a fixture's
 * model, as a converted one). One line of TAP for each case. */
#include "golden.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static place at;
static bool is_oracle;
static const char *const *others; /* "BASE=PATH", up to NULL */

#define CHECK(v, condition) ((condition) || fail(v, "line %d: %s", __LINE__, #condition))
#define OK(v, err, call) (!(call) || fail(v, "line %d: %s", __LINE__, (err).msg))

/* ---- what the cases are made of -------------------------------------------------------------- */
static bool open_base(const char *name, mn_model **m, verdict *v) {
    char path[MAX_PATH];
    char below[128];
    snprintf(below, sizeof below, "fixtures/%s", name);
    data_path(path, below, "");
    for (const char *const *o = others; *o; o++)
        if (!strncmp(*o, name, strlen(name)) && (*o)[strlen(name)] == '=')
            snprintf(path, sizeof path, "%s", *o + strlen(name) + 1);
    return open_model(&at, path, m, v);
}

static mn_status load(mn_model *m, const char *as, const char *folder, float scale, mn_error *err) {
    char path[MAX_PATH];
    const mn_adapter_source source = {.path = path, .scale = scale};
    data_path(path, "adapters", folder);
    return mn_model_load_adapter(m, as, &source, 1, err);
}

typedef struct {
    float *all;
    size_t n;
} rows_kept;

static mn_status keep(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                      const float *rows) {
    rows_kept *k = arg;
    if ((size_t)(first + n_rows) * n_vocab > k->n)
        return MN_INVALID;
    memcpy(k->all + (size_t)first * n_vocab, rows, (size_t)n_rows * n_vocab * sizeof *rows);
    return MN_OK;
}

/* Logits of the prompt with the adapter (NULL: none), [n_prompt, n_vocab]; NULL: the case has
 * failed. */
static float *logits_with(mn_model *m, const fixture *f, const char *adapter, verdict *v) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    rows_kept kept = {.n = (size_t)f->n_prompt * f->n_vocab};
    const mn_session_params params = {.size = sizeof params,
                                      .device = at.device,
                                      .precision = MN_PRECISION_EXACT,
                                      .n_ctx = f->n_prompt,
                                      .flags = MN_SESSION_NO_SAMPLING,
                                      .adapter = adapter};
    kept.all = get_memory(kept.n * sizeof *kept.all);
    mn_status st = mn_session_create(m, &params, &s, &err);
    if (!st)
        st = mn_session_logits(s, f->prompt, f->n_prompt, keep, &kept, &err);
    mn_session_free(s);
    if (!st)
        return kept.all;
    free(kept.all);
    fail(v, "%s", err.msg);
    return NULL;
}

/* The logits with `name` are those of tests/data/adapters/golden. */
static bool same_as_peft(mn_model *m, const fixture *f, const char *name, const char *golden,
                         verdict *v) {
    char below[256];
    uint32_t n = 0;
    uint32_t width = 0;
    const double limit = is_oracle ? 1e-5 : 1e-4;
    snprintf(below, sizeof below, "adapters/%s", golden);
    float *want = read_logits(below, &n, &width);
    float *got = logits_with(m, f, name, v);
    bool ok = got && CHECK(v, n == f->n_prompt && width == f->n_vocab);
    if (ok) {
        const double error = relative_l2(got, want, (size_t)n * width);
        const double plain = relative_l2(f->logits, want, (size_t)n * width);
        say(v, "%s %.2g of %g (without %.2g)", golden, error, limit, plain);
        ok = CHECK(v, error <= limit) && CHECK(v, plain > 0.01);
    }
    free(got);
    free(want);
    return ok;
}

/* ---- one, and two at once -------------------------------------------------------------------- */
static bool case_peft(const char *folder, verdict *v) {
    char base[64];
    fixture f = {0};
    mn_model *m = NULL;
    mn_error err = MN_ERROR;
    snprintf(base, sizeof base, "%.*s", (int)strcspn(folder, "."), folder);
    bool ok = read_fixture(base, &f) && open_base(base, &m, v) &&
              OK(v, err, load(m, "x", folder, 1, &err)) && same_as_peft(m, &f, "x", folder, v);
    float *got = ok ? logits_with(m, &f, NULL, v) : NULL;
    ok = ok && got;
    /* without it the model is what it was */
    if (ok)
        ok = CHECK(v, relative_l2(got, f.logits, (size_t)f.n_prompt * f.n_vocab) <= 1e-4);
    free(got);
    mn_model_free(m);
    free_fixture(&f);
    return ok;
}

static bool case_both(const char *dtype, verdict *v) {
    fixture f = {0};
    mn_model *m = NULL;
    mn_error err = MN_ERROR;
    char all[MAX_PATH];
    char small[MAX_PATH];
    const mn_adapter_source both[] = {{.path = all, .scale = 1}, {.path = small, .scale = 0.5f}};
    mn_adapter_item item = {.size = sizeof item};
    data_path(all, "adapters", "llama.all");
    data_path(small, "adapters", "llama.small/adapter_model.safetensors");
    const bool ok = read_fixture("llama", &f) && open_base("llama", &m, v) &&
                    OK(v, err, mn_model_load_adapter(m, "both", both, 2, &err)) &&
                    CHECK(v, !mn_model_adapter(m, 0, &item) && item.rank == 11) &&
                    same_as_peft(m, &f, "both", "llama.both", v);
    (void)dtype;
    mn_model_free(m);
    free_fixture(&f);
    return ok;
}

/* ---- batches --------------------------------------------------------------------------------- */
enum { N_BATCH = 20, N_NEW = 12 };
typedef struct {
    int32_t ids[N_NEW];
    float logprobs[N_NEW];
    uint32_t n, n_cached;
} drawn;

/* Answers of n requests, at once, each with its adapter; text i begins at token i % 3. */
static bool run_requests(mn_session *s, const fixture *f, const char *const *adapter, uint32_t n,
                         const uint32_t *first, drawn *out, verdict *v) {
    mn_error err = MN_ERROR;
    uint32_t running = n;
    memset(out, 0, n * sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        const mn_sample_params sample = {.size = sizeof sample,
                                         .max_new = N_NEW,
                                         .ignore_stop = 1,
                                         .repeat_penalty = 1,
                                         .adapter = adapter[i]};
        const mn_request_params p = {.size = sizeof p,
                                     .flags = MN_SUBMIT_LOGPROBS,
                                     .sample = &sample,
                                     .ids = f->prompt + first[i],
                                     .n_ids = f->n_prompt - first[i],
                                     .user = &out[i]};
        uint64_t id;
        if (!OK(v, err, mn_session_submit(s, &p, &id, &err)))
            return false;
    }
    while (running) {
        mn_request_events events = {.size = sizeof events};
        if (!OK(v, err, mn_session_next(s, 1000, &events, &err)))
            return false;
        for (uint32_t i = 0; i < events.n; i++) {
            const mn_request_event *e =
                (const void *)((const char *)events.events + (size_t)i * events.stride);
            drawn *d = e->user;
            if (e->kind == MN_REQUEST_FINISH) {
                running--;
                if (e->finish != MN_FINISH_LENGTH)
                    return fail(v, "a request ended with %d", e->finish);
            }
            if (e->kind != MN_REQUEST_TOKEN || d->n == N_NEW)
                continue;
            d->n_cached = e->n_cached;
            d->ids[d->n] = e->id;
            d->logprobs[d->n++] = e->logprob;
        }
    }
    return true;
}

static mn_session *batch_session(mn_model *m, uint32_t n_seq, verdict *v) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params params = {.size = sizeof params,
                                      .device = at.device,
                                      .precision = MN_PRECISION_EXACT,
                                      .n_ctx = 192,
                                      .n_seq = n_seq};
    OK(v, err, mn_session_create(m, &params, &s, &err));
    return s;
}

static bool same_drawn(const drawn *a, const drawn *b) {
    return a->n == b->n && !memcmp(a->ids, b->ids, sizeof a->ids) &&
           !memcmp(a->logprobs, b->logprobs, sizeof a->logprobs);
}

static bool compare_batch(mn_model *m, const fixture *f, verdict *v) {
    static const char *const names[] = {"all", "", "small", "all-half", "small", "all", ""};
    const char *adapter[N_BATCH];
    uint32_t first[N_BATCH];
    drawn together[N_BATCH];
    mn_session *s = batch_session(m, N_BATCH, v);
    for (uint32_t i = 0; i < N_BATCH; i++) {
        adapter[i] = names[i % 7];
        first[i] = i % 3;
    }
    bool ok = s && run_requests(s, f, adapter, N_BATCH, first, together, v);
    mn_session_free(s);
    for (uint32_t i = 0; i < N_BATCH && ok; i++) {
        drawn alone;
        s = batch_session(m, 1, v);
        ok = s && run_requests(s, f, &adapter[i], 1, &first[i], &alone, v) &&
             (same_drawn(&alone, &together[i]) || fail(v, "sequence %u differs", i));
        mn_session_free(s);
    }
    /* the adapters do draw other ids */
    ok = ok && CHECK(v, !same_drawn(&together[0], &together[1])) &&
         CHECK(v, !same_drawn(&together[0], &together[2]));
    if (ok)
        say(v, "%d sequences as alone", N_BATCH);
    return ok;
}

static bool case_batch(const char *base, verdict *v) {
    fixture f = {0};
    mn_model *m = NULL;
    mn_error err = MN_ERROR;
    const bool ok = read_fixture(base, &f) && open_base(base, &m, v) &&
                    OK(v, err, load(m, "all", "llama.all", 1, &err)) &&
                    OK(v, err, load(m, "small", "llama.small", 1, &err)) &&
                    OK(v, err, load(m, "all-half", "llama.all", 0.5f, &err)) &&
                    compare_batch(m, &f, v);
    mn_model_free(m);
    free_fixture(&f);
    return ok;
}

/* ---- the prefix cache, loading, unloading ---------------------------------------------------- */
static bool one(mn_session *s, const fixture *f, const char *adapter, drawn *out, verdict *v) {
    const uint32_t first = 0;
    return run_requests(s, f, &adapter, 1, &first, out, v);
}

static bool compare_life(mn_model *m, mn_session *s, const fixture *f, verdict *v) {
    mn_error err = MN_ERROR;
    drawn a, b, c, none;
    bool ok = one(s, f, "a", &a, v) && one(s, f, "", &none, v) && one(s, f, "a", &b, v);
    /* pages of one adapter are not another's */
    ok = ok && CHECK(v, same_drawn(&a, &b)) && CHECK(v, !same_drawn(&a, &none)) &&
         CHECK(v, !a.n_cached && !none.n_cached && b.n_cached);
    /* the same name, another adapter, in the same place */
    ok = ok && OK(v, err, mn_model_unload_adapter(m, "a", &err)) &&
         OK(v, err, load(m, "a", "llama.small", 1, &err)) && one(s, f, "a", &c, v) &&
         CHECK(v, !same_drawn(&a, &c) && !same_drawn(&none, &c) && !c.n_cached);
    ok = ok && OK(v, err, mn_model_unload_adapter(m, "a", &err)) &&
         OK(v, err, load(m, "b", "llama.all", 1, &err)) && one(s, f, "b", &b, v) &&
         CHECK(v, same_drawn(&a, &b));
    return ok;
}

/* A sequence goes on with an adapter that is unloaded; it and its forks keep it. */
static bool compare_held(mn_model *m, mn_session *s, const fixture *f, verdict *v) {
    const mn_sample_params p = {.size = sizeof p, .max_new = 4, .ignore_stop = 1, .adapter = "b"};
    const mn_sample_params other = {.size = sizeof other, .max_new = 4, .adapter = ""};
    mn_error err = MN_ERROR;
    mn_adapter_item item = {.size = sizeof item};
    mn_token tokens[8];
    uint32_t n = 1;
    int32_t seq = -1;
    int32_t fork = -1;
    bool ok = OK(v, err, mn_seq_create(s, f->prompt, f->n_prompt, &p, &seq, &err)) &&
              CHECK(v, !mn_model_adapter(m, 0, &item) && item.n_users == 1) &&
              OK(v, err, mn_model_unload_adapter(m, "b", &err)) &&
              CHECK(v, mn_model_adapter(m, 0, &item) == MN_END) &&
              CHECK(v, load(m, "c", "llama.all", 1, &err) == MN_BAD_INPUT) && /* still in place */
              CHECK(v, strstr(err.msg, "places") != NULL);
    while (ok && n)
        ok = OK(v, err, mn_session_step(s, tokens, 8, &n, &err));
    ok = ok && OK(v, err, mn_seq_fork(s, seq, &fork, &err)) &&
         CHECK(v, mn_seq_extend(s, fork, f->prompt, 1, &other, &err) == MN_INVALID) &&
         CHECK(v, strstr(err.msg, "adapter") != NULL);
    mn_seq_free(s, seq);
    ok = ok && CHECK(v, load(m, "c", "llama.all", 1, &err) == MN_BAD_INPUT);
    mn_seq_free(s, fork);
    return ok && OK(v, err, load(m, "c", "llama.all", 1, &err));
}

/* Three times as long: more than a block of the prefix cache. */
static bool repeat_prompt(fixture *f) {
    const size_t n = f->n_prompt;
    int32_t *ids = get_memory(3 * n * sizeof *ids);
    for (size_t i = 0; i < 3 * n; i++)
        ids[i] = f->prompt[i % n];
    free(f->prompt);
    f->prompt = ids;
    f->n_prompt = (uint32_t)(3 * n);
    return true;
}

static bool case_life(const char *base, verdict *v) {
    const mn_adapter_room room = {.size = sizeof room, .n_adapters = 1, .rank = 8};
    fixture f = {0};
    mn_model *m = NULL;
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    bool ok = read_fixture(base, &f) && open_base(base, &m, v) && repeat_prompt(&f) &&
              OK(v, err, mn_model_set_adapter_room(m, &room, &err)) &&
              OK(v, err, load(m, "a", "llama.all", 1, &err));
    if (ok)
        s = batch_session(m, 2, v);
    ok = ok && s && CHECK(v, mn_model_set_adapter_room(m, &room, &err) == MN_INVALID) &&
         compare_life(m, s, &f, v) && compare_held(m, s, &f, v);
    mn_session_free(s);
    mn_model_free(m);
    free_fixture(&f);
    return ok;
}

/* ---- what is refused ------------------------------------------------------------------------- */
static bool refuses(mn_model *m, const char *folder, mn_status want, const char *word, verdict *v) {
    mn_error err = MN_ERROR;
    const mn_status st = load(m, "x", folder, 1, &err);
    if (st == want && strstr(err.msg, word))
        return true;
    return fail(v, "%s: status %#x, \"%s\", expected %#x and \"%s\"", folder, st, err.msg, want,
                word);
}

static bool case_refused(const char *name, verdict *v) {
    fixture f = {0};
    mn_model *m = NULL;
    mn_model *none = NULL;
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_adapter_room room = {.size = sizeof room, .n_adapters = 2, .rank = 4};
    (void)name;
    bool ok =
        read_fixture("llama", &f) && open_base("llama", &m, v) && open_base("llama", &none, v);
    ok = ok && OK(v, err, mn_model_set_adapter_room(m, &room, &err)) &&
         refuses(m, "llama.all", MN_BAD_INPUT, "rank 8, the model has room for rank 4", v) &&
         refuses(m, "gpt2.conv", MN_BAD_INPUT, "expected an adapter of this model", v) &&
         refuses(m, "gemma3.some", MN_BAD_INPUT, "expected an adapter of this model", v) &&
         refuses(m, "../fixtures/llama", MN_BAD_INPUT, "is no adapter but a model", v) &&
         OK(v, err, load(m, "x", "llama.small", 1, &err)) &&
         refuses(m, "llama.small", MN_BAD_INPUT, "is loaded already", v) &&
         CHECK(v, mn_model_unload_adapter(m, "y", &err) == MN_BAD_INPUT) &&
         CHECK(v, strstr(err.msg, "loaded: x") != NULL);
    ok = ok && CHECK(v, !!(s = batch_session(none, 1, v))) &&
         refuses(none, "llama.small", MN_UNSUPPORTED, "without room for adapters", v);
    mn_session_free(s);
    mn_model_free(m);
    mn_model_free(none);
    free_fixture(&f);
    return ok;
}

/* ---- the driver ------------------------------------------------------------------------------ */
static const struct {
    bool (*run)(const char *name, verdict *v);
    const char *what, *name;
} cases[] = {
    {case_peft, "as PEFT", "llama.all"},      {case_peft, "as PEFT", "llama.small"},
    {case_peft, "as PEFT", "qwen3.patterns"}, {case_peft, "as PEFT", "gemma3.some"},
    {case_peft, "as PEFT", "gpt2.conv"},      {case_both, "as PEFT", "llama.both"},
    {case_batch, "batch", "llama"},           {case_life, "loaded and unloaded", "llama"},
    {case_refused, "refused", "llama"},
};

int main(int argc, char **argv) {
    const size_t n = sizeof cases / sizeof *cases;
    int failed = 0;
    if (argc < 2)
        give_up("usage: adapters DEVICE [BASE=PATH...]", "adapters");
    at.device = argv[1];
    is_oracle = !strcmp(at.device, "reference");
    others = (const char *const *)argv + 2;
    printf("1..%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        verdict v = {0};
        const bool ok = cases[i].run(cases[i].name, &v);
        failed += !ok;
        printf("%s %zu - %s %s # %s\n", ok ? "ok" : "not ok", i + 1, cases[i].what, cases[i].name,
               v.said);
        fflush(stdout);
    }
    close_place(&at);
    return failed != 0;
}
