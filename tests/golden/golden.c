/* golden.c -- answers that must not change: the golden driver, a program over minerva.h that
 * compares what devices compute with what another implementation computed.
 *
 *   golden [-d DEVICE] [-i ISA] [-m MODEL] [-f FILE] [-n OPERATION] CASE... [-d DEVICE ...]
 *
 * Options hold for the cases behind them: the device (cpu_simd at first), the most advanced
 * instruction set of cpu_simd (- = the best), another file of the storyteller, a file without
 * which they are skipped (a driver), an operation that the device has no kernel of: what it refuses
 * for that is skipped.
 *
 *   tokens         prompt ids of the storyteller's golden prompts
 *   story          its greedy answers, class exact
 *   story-begin    the first 8 ids of its first answer
 *   fixture:NAME   all logits and 24 greedy ids of tests/data/fixtures/NAME, and the last logits of
 *                  its prompts of several lengths, class exact
 *   long:NAME      the last logits of its long.safetensors: prompts about as long as a chunk of a
 *                  scan, and one beyond the context of the model, class exact
 *   begin:NAME     the logits and 6 greedy ids, for kernels that are slow
 *   a16:NAME       logits of a fixture with float or MXFP4 weights in class a16, as a prompt and
 *                  token by token
 *   auto:NAME      the same in the class that auto is on a CPU: a8 for packed weights
 *   argmax         the storyteller fed its golden text in class a16: the most likely ids
 *   types          the storyteller in every type of convert: logits beside those of reference
 *   quantised      its files of q8_0 and q4_0: logits beside those of reference
 *   batch          a prompt alone and in a batch of 20: the same greedy ids
 *   list:FILE      logits of the models that a script has made and listed there (models.py)
 *
 * NAME may be *: all fixtures. Each case is a line of TAP with its figures. With the variables of a
 * launcher (RANK, ...) the process is one of several, and has one case. The paths come from
 * MINERVA_SOURCE_ROOT and MINERVA_TEST_DATA, as the build sets them. Status: 0, 1 a case failed, 77
 * all were skipped. */
#include "golden.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static place at = {.device = "cpu_simd"};
static char model_path[MAX_PATH]; // of the storyteller
static const char *needed_file;
static const char *lacking; // an operation
static unsigned n_cases, n_failed, n_skipped;

/* ---- the storyteller ------------------------------------------------------------------------- */

static bool same_ids(const int32_t *found, uint32_t n_found, const int32_t *want, uint32_t n_want,
                     const char *what, verdict *v) {
    uint32_t i = 0;
    while (i < n_found && i < n_want && found[i] == want[i])
        i++;
    if (i == n_found && i == n_want)
        return true;
    return fail(v, "%s: id %u of %u is %d, expected %d of %u", what, i, n_found,
                i < n_found ? (int)found[i] : -1, i < n_want ? (int)want[i] : -1, n_want);
}

static bool case_tokens(const char *unused, verdict *v) {
    (void)unused;
    story all[MAX_STORIES];
    const uint32_t n = read_stories(all);
    mn_error err = MN_ERROR;
    mn_model *m = NULL;
    bool ok = open_model(&at, model_path, &m, v);
    for (uint32_t i = 0; ok && i < n; i++) {
        const mn_str text = {all[i].prompt, strlen(all[i].prompt)};
        int32_t *ids = NULL;
        uint32_t n_ids = 0;
        if (mn_model_tokenize(m, text, MN_TEXT_PARSE_SPECIAL, &ids, &n_ids, &err))
            ok = fail(v, "%s", err.msg);
        else
            ok = same_ids(ids, n_ids, all[i].prompt_ids, all[i].n_prompt, all[i].prompt, v);
        mn_ids_free(ids);
    }
    if (ok)
        say(v, "%u prompts", n);
    mn_model_free(m);
    free_stories(all, n);
    return ok;
}

/* The device's plugin is the one that was asked for. */
static bool ran_there(const answer *a, verdict *v) {
    const size_t n = strcspn(at.device, ":+,");
    if (at.device[n] == ',' || (!strncmp(a->device, at.device, n) && strchr(":", a->device[n])))
        return true;
    return fail(v, "ran on %s, expected %s", a->device, at.device);
}

static bool same_story(const answer *a, const story *e, verdict *v) {
    const bool stops = e->n_greedy < MAX_NEW || e->greedy_ids[e->n_greedy - 1] == 1 ||
                       e->greedy_ids[e->n_greedy - 1] == 4;
    if (!same_ids(a->ids, a->n, e->greedy_ids, e->n_greedy, e->prompt, v))
        return false;
    if (a->finish != (stops ? MN_FINISH_STOP : MN_FINISH_LENGTH))
        return fail(v, "%s: finish is %d", e->prompt, (int)a->finish);
    if (e->text && strcmp(a->text, e->text))
        return fail(v, "%s: the text is \"%.200s\"", e->prompt, a->text);
    return ran_there(a, v);
}

static bool case_story(const char *unused, verdict *v) {
    (void)unused;
    story all[MAX_STORIES];
    const uint32_t n = read_stories(all);
    answer *a = get_memory(sizeof *a);
    mn_model *m = NULL;
    bool ok = open_model(&at, model_path, &m, v);
    for (uint32_t i = 0; ok && m && i < n; i++)
        ok = get_answers(m, at.device, &all[i], 1, MAX_NEW, false, a, v) &&
             same_story(a, &all[i], v);
    if (ok)
        say(v, "%u answers", n);
    mn_model_free(m);
    free(a);
    free_stories(all, n);
    return ok;
}

static bool case_story_begin(const char *unused, verdict *v) {
    enum { N = 8 };
    (void)unused;
    story all[MAX_STORIES];
    const uint32_t n = read_stories(all);
    answer *a = get_memory(sizeof *a);
    mn_model *m = NULL;
    bool ok = open_model(&at, model_path, &m, v);
    if (ok && m)
        ok = get_answers(m, at.device, all, 1, N, false, a, v) &&
             same_ids(a->ids, a->n, all[0].greedy_ids, N, all[0].prompt, v) && ran_there(a, v);
    if (ok && m)
        say(v, "%d ids", N);
    mn_model_free(m);
    free(a);
    free_stories(all, n);
    return ok;
}

static bool case_argmax(const char *unused, verdict *v) {
    (void)unused;
    story all[MAX_STORIES];
    const uint32_t n = read_stories(all);
    mn_model *m = NULL;
    uint32_t same = 0, positions = 0, width = 0;
    bool ok = open_model(&at, model_path, &m, v);
    for (uint32_t i = 0; ok && m && i < n; i++) {
        const story *e = &all[i];
        const uint32_t n_ids = e->n_prompt + e->n_greedy;
        int32_t *ids = get_memory(n_ids * sizeof *ids);
        float *logits = NULL;
        memcpy(ids, e->prompt_ids, e->n_prompt * sizeof *ids);
        memcpy(ids + e->n_prompt, e->greedy_ids, e->n_greedy * sizeof *ids);
        ok = get_logits(m, at.device, MN_PRECISION_A16, 0, ids, n_ids - 1, &logits, &width, v);
        for (uint32_t k = 0; ok && k < e->n_greedy; k++, positions++) {
            const float *row = logits + (size_t)(e->n_prompt - 1 + k) * width;
            float most = row[0];
            for (uint32_t j = 1; j < width; j++)
                most = row[j] > most ? row[j] : most;
            same += row[e->greedy_ids[k]] == most;
        }
        free(logits);
        free(ids);
    }
    if (ok && m && same < 0.99 * positions)
        ok = fail(v, "%u of %u golden ids are the most likely ones, expected 99 %%", same,
                  positions);
    else if (ok)
        say(v, "%u of %u golden ids are the most likely ones", same, positions);
    mn_model_free(m);
    free_stories(all, n);
    return ok;
}

/* The first n ids of a golden prompt and its answer. */
static void begin_of(const story *e, uint32_t n, int32_t *ids) {
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i < e->n_prompt ? e->prompt_ids[i] : e->greedy_ids[i - e->n_prompt];
}

/* Logits on the device beside those of reference, of a file of the storyteller. */
static bool beside_reference(const char *path, const char *name, verdict *v) {
    enum { N = 64 };
    story all[MAX_STORIES];
    const uint32_t n = read_stories(all);
    int32_t ids[N];
    float *got = NULL, *want = NULL;
    uint32_t width = 0, want_width = 0;
    mn_model *m = NULL;
    begin_of(&all[0], N, ids);
    free_stories(all, n);
    bool ok = open_model(&at, path, &m, v);
    ok = ok && get_logits(m, "reference", MN_PRECISION_EXACT, 0, ids, N, &want, &want_width, v);
    ok = ok && get_logits(m, at.device, MN_PRECISION_EXACT, 0, ids, N, &got, &width, v);
    if (ok && width != want_width)
        ok = fail(v, "%s: %u logits a row, expected %u", name, width, want_width);
    if (ok) {
        const double error = relative_l2(got, want, (size_t)N * width);
        say(v, "%s %.2g", name, error);
        if (!(error <= 1e-4))
            ok = fail(v, "expected at most 1e-4");
    }
    free(got);
    free(want);
    mn_model_free(m);
    return ok;
}

static bool case_types(const char *unused, verdict *v) {
    static const char *const kinds[] = {"f32",  "f16",    "bf16",   "q8_0",   "q4_0",   "q4_1",
                                        "q5_0", "q5_1",   "q2_k",   "q3_k",   "q4_k",   "q5_k",
                                        "q6_k", "iq4_nl", "iq4_xs", "q4_k_m", "q5_k_m", "mxfp4"};
    (void)unused;
    char folder[] = "/tmp/minerva-golden-XXXXXX", path[MAX_PATH];
    if (!mkdtemp(folder))
        return fail(v, "no folder below /tmp");
    bool ok = true;
    for (uint32_t i = 0; ok && i < sizeof kinds / sizeof *kinds; i++) {
        mn_error err = MN_ERROR;
        mn_model *m = NULL;
        const mn_convert_params params = {.size = sizeof params, .type = kinds[i]};
        snprintf(path, sizeof path, "%s/%s.gguf", folder, kinds[i]);
        ok = open_model(&at, model_path, &m, v);
        if (ok && mn_model_convert(m, path, &params, &err))
            ok = fail(v, "%s: %s", kinds[i], err.msg);
        mn_model_free(m);
        ok = ok && beside_reference(path, kinds[i], v);
        unlink(path);
    }
    rmdir(folder);
    return ok;
}

static bool case_quantised(const char *unused, verdict *v) {
    (void)unused;
    char path[MAX_PATH];
    data_path(path, "storyteller-q8_0.gguf", "");
    const bool ok = beside_reference(path, "q8_0", v);
    data_path(path, "storyteller-q4_0.gguf", "");
    return ok && beside_reference(path, "q4_0", v);
}

/* Prompts of the batch: the golden ones, then beginnings of golden texts. */
static void batch_prompts(const story *all, uint32_t n, story *prompts, uint32_t n_prompts) {
    for (uint32_t i = 0; i < n_prompts; i++) {
        const story *e = &all[i % n];
        const uint32_t whole = e->n_prompt + e->n_greedy;
        uint32_t length = e->n_prompt;
        if (i >= n)
            length = 3 + 11 * (i - n);
        prompts[i] = (story){.n_prompt = length < whole ? length : whole};
        prompts[i].prompt_ids = get_memory(prompts[i].n_prompt * sizeof(int32_t));
        begin_of(e, prompts[i].n_prompt, prompts[i].prompt_ids);
    }
}

static bool case_batch(const char *unused, verdict *v) {
    enum { N = 20, N_NEW = 40 };
    (void)unused;
    story all[MAX_STORIES], prompts[N];
    const uint32_t n = read_stories(all);
    answer *together = get_memory(N * sizeof *together), *alone = get_memory(sizeof *alone);
    mn_model *m = NULL;
    batch_prompts(all, n, prompts, N);
    bool ok = open_model(&at, model_path, &m, v);
    if (ok && m)
        ok = get_answers(m, at.device, prompts, N, N_NEW, false, together, v);
    for (uint32_t i = 0; ok && m && i < N; i++) {
        char what[64];
        snprintf(what, sizeof what, "prompt %u in the batch", i);
        ok = get_answers(m, at.device, &prompts[i], 1, N_NEW, false, alone, v) &&
             same_ids(together[i].ids, together[i].n, alone->ids, alone->n, what, v);
    }
    if (ok)
        say(v, "%d prompts", N);
    mn_model_free(m);
    free(together);
    free(alone);
    free_stories(prompts, N);
    free_stories(all, n);
    return ok;
}

/* ---- fixtures -------------------------------------------------------------------------------- */

static bool open_fixture(const char *name, fixture *f, mn_model **m, verdict *v) {
    char below[512], path[MAX_PATH];
    if (!read_fixture(name, f)) {
        v->skipped = true;
        say(v, "no golden.safetensors");
        return false;
    }
    snprintf(below, sizeof below, "fixtures/%s", name);
    data_path(path, below, "");
    return open_model(&at, path, m, v);
}

/* Compares the logits of a fixture; n_batch: rows of a step, 0 = the default. */
static bool same_logits(mn_model *m, const fixture *f, uint32_t precision, uint32_t n_batch,
                        double limit, verdict *v) {
    float *got = NULL;
    uint32_t width = 0;
    if (!get_logits(m, at.device, precision, n_batch, f->prompt, f->n_prompt, &got, &width, v))
        return false;
    bool ok = width == f->n_vocab;
    if (ok) {
        const double error = relative_l2(got, f->logits, (size_t)f->n_prompt * width);
        say(v, "logits %.2g of %g", error, limit);
        ok = error <= limit || fail(v, "relative L2 error above the limit");
    } else {
        fail(v, "%u logits a row, expected %u", width, f->n_vocab);
    }
    free(got);
    return ok;
}

/* Index of the largest of n. */
static uint32_t most_likely(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The last logits of prompts of several lengths, each in a session of its own length, and the ids
 * that they make the most likely. */
static bool same_last_rows(mn_model *m, const fixture_prompts *p, uint32_t n_prompts,
                           uint32_t precision, double limit, verdict *v) {
    const int32_t *ids = p->ids;
    double worst = 0;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n_prompts; i++) {
        const uint32_t n = (uint32_t)p->lengths[i];
        const float *want = p->logits + (size_t)i * p->n_vocab;
        float *got = NULL;
        uint32_t width = 0;
        ok = get_logits(m, at.device, precision, 0, ids, n, &got, &width, v);
        if (ok && width != p->n_vocab)
            ok = fail(v, "%u logits a row, expected %u", width, p->n_vocab);
        if (ok) {
            const float *last = got + (size_t)(n - 1) * width;
            const double error = relative_l2(last, want, width);
            worst = error > worst ? error : worst;
            if (!(error <= limit))
                ok = fail(v, "a prompt of %u: error %.2g, at most %g", n, error, limit);
            else if (most_likely(last, width) != most_likely(want, width))
                ok = fail(v, "a prompt of %u: another id is the most likely", n);
        }
        free(got);
        ids += n;
    }
    if (ok)
        say(v, "%u prompts %.2g", n_prompts, worst);
    return ok;
}

/* Of prompts.safetensors; those that a script's variant of the model has no context for are left
 * out. */
static bool same_prompts(mn_model *m, const char *name, uint32_t precision, double limit,
                         verdict *v) {
    fixture_prompts p = {0};
    mn_model_info info = {.size = sizeof info};
    uint32_t n = 0;
    if (mn_model_get_info(m, &info) || !read_prompts(name, "prompts.safetensors", &p))
        return true;
    while (n < p.n && p.lengths[n] <= info.n_ctx_train)
        n++;
    const bool ok = same_last_rows(m, &p, n, precision, limit, v);
    free_prompts(&p);
    return ok;
}

static bool is_oracle(void) {
    const size_t n = strcspn(at.device, ":+,");
    return (n == 9 && !strncmp(at.device, "reference", n)) ||
           (n == 5 && !strncmp(at.device, "group", n));
}

static bool compare_fixture(const char *name, uint32_t n_greedy, verdict *v) {
    fixture f = {0};
    mn_model *m = NULL;
    answer *a = get_memory(sizeof *a);
    bool ok = open_fixture(name, &f, &m, v);
    if (ok && m) {
        const story prompt = {.prompt_ids = f.prompt, .n_prompt = f.n_prompt};
        if (n_greedy > f.n_greedy)
            n_greedy = f.n_greedy;
        ok = same_logits(m, &f, MN_PRECISION_EXACT, 0, is_oracle() ? 1e-5 : 1e-4, v) &&
             get_answers(m, at.device, &prompt, 1, n_greedy, true, a, v) &&
             same_ids(a->ids, a->n, f.greedy, n_greedy, "greedy ids", v);
        if (ok && n_greedy > 6)
            ok = same_prompts(m, name, MN_PRECISION_EXACT, is_oracle() ? 1e-5 : 1e-4, v);
    }
    if (ok)
        say(v, "%u ids", n_greedy);
    mn_model_free(m);
    free(a);
    free_fixture(&f);
    return ok;
}

static bool case_fixture(const char *name, verdict *v) {
    return compare_fixture(name, 24, v);
}

/* Prompts of long.safetensors; the fixtures without have no such layers. */
static bool case_long(const char *name, verdict *v) {
    fixture_prompts p = {0};
    mn_model *m = NULL;
    char below[512], path[MAX_PATH];
    if (!read_prompts(name, "long.safetensors", &p)) {
        v->skipped = true;
        say(v, "no long.safetensors");
        return false;
    }
    snprintf(below, sizeof below, "fixtures/%s", name);
    data_path(path, below, "");
    const bool ok = open_model(&at, path, &m, v) && m &&
                    same_last_rows(m, &p, p.n, MN_PRECISION_EXACT, is_oracle() ? 1e-5 : 1e-4, v);
    mn_model_free(m);
    free_prompts(&p);
    return ok;
}

static bool case_begin(const char *name, verdict *v) {
    return compare_fixture(name, 6, v);
}

/* In another class: as a prompt, and token by token. */
static bool compare_class(const char *name, uint32_t precision, double limit, verdict *v) {
    fixture f = {0};
    mn_model *m = NULL;
    bool ok = open_fixture(name, &f, &m, v);
    const bool has_encoder = !strncmp(name, "t5", 2); // which reads a text in one step
    if (ok && m)
        ok = same_logits(m, &f, precision, 512, limit, v) &&
             (has_encoder || same_logits(m, &f, precision, 1, limit, v));
    mn_model_free(m);
    free_fixture(&f);
    return ok;
}

static bool case_a16(const char *name, verdict *v) {
    if (strstr(name, "mlx")) {
        v->skipped = true;
        say(v, "packed weights");
        return false;
    }
    /* cuda rounds x to f16 for 16-bit weights, and multiplies weights of f32 as they are. The
     * scores of T5 are not scaled: 4.6e-3 of t5-v1.1. */
    const double limit = fixture_is_bf16(name) ? 3e-3 : 2e-3;
    return compare_class(name, MN_PRECISION_A16, !strcmp(name, "t5-v1.1") ? 6e-3 : limit, v);
}

static bool case_auto(const char *name, verdict *v) {
    const bool packed = strstr(name, "mlx") || strstr(name, "mxfp4");
    const bool has_experts = strstr(name, "moe") || strstr(name, "qwen3-next");
    const uint32_t class = packed ? MN_PRECISION_A8 : MN_PRECISION_A16;
    /* cpu_simd rounds x to bf16 for weights of bf16, where the CPU multiplies such: eight times as
     * coarse as f16 (with AMX 0.039 of t5-v1.1). Such a row, and one of 8 bits, may choose another
     * expert (0.057 of qwen3-next). */
    return compare_class(name, class, packed || has_experts ? 1e-1 : 5e-2, v);
}

/* ---- models of scripts ----------------------------------------------------------------------- */

/* What the logits of an entry should be, as a fixture has them. */
static bool get_wanted(const listed *l, fixture *want, verdict *v) {
    mn_model *m = NULL;
    if (l->fixture)
        return read_fixture(l->fixture, want) || fail(v, "fixture %s is not there", l->fixture);
    want->prompt = get_memory(l->n_ids * sizeof *l->ids);
    want->n_prompt = l->n_ids;
    memcpy(want->prompt, l->ids, l->n_ids * sizeof *l->ids);
    const bool ok = open_model(&at, l->beside, &m, v) &&
                    get_logits(m, "reference", MN_PRECISION_EXACT, 0, l->ids, l->n_ids,
                               &want->logits, &want->n_vocab, v);
    mn_model_free(m);
    return ok;
}

static void compare_listed(const listed *l, verdict *v) {
    fixture want = {0};
    mn_model *m = NULL;
    const double limit = is_oracle() ? l->limit : 1e-4;
    if (get_wanted(l, &want, v) && open_model(&at, l->model, &m, v) &&
        same_logits(m, &want, MN_PRECISION_EXACT, 0, limit, v) && l->fixture)
        same_prompts(m, l->fixture, MN_PRECISION_EXACT, limit, v);
    mn_model_free(m);
    free_fixture(&want);
}

/* ---- the program ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*run)(const char *argument, verdict *v);
    bool of_fixture;
} cases[] = {
    {"tokens", case_tokens, false},
    {"story", case_story, false},
    {"story-begin", case_story_begin, false},
    {"argmax", case_argmax, false},
    {"types", case_types, false},
    {"quantised", case_quantised, false},
    {"batch", case_batch, false},
    {"fixture", case_fixture, true},
    {"long", case_long, true},
    {"begin", case_begin, true},
    {"a16", case_a16, true},
    {"auto", case_auto, true},
};

/* The device says that it cannot run the operation it is known to lack. */
static void settle_lacking(verdict *v) {
    const char *found = lacking && v->failed ? strstr(v->said, "cannot run ") : NULL;
    if (!found || !strstr(found, lacking))
        return;
    v->failed = false;
    v->skipped = true;
    *v->said = 0;
    say(v, "it has no %s", lacking);
}

/* A line of TAP. */
static void report(verdict *v, const char *what, const char *of) {
    const char *isa = at.isa ? at.isa : "";
    settle_lacking(v);
    n_cases++;
    n_failed += v->failed;
    n_skipped += v->skipped;
    printf("%s %u - %s%s%s on %s%s%s%s%s\n", v->failed ? "not ok" : "ok", n_cases, what,
           *of ? " " : "", of, at.device, *isa ? ", at most " : "", isa,
           v->skipped ? " # SKIP " : ": ", v->said);
    fflush(stdout);
}

static void run_list(const char *path) {
    uint32_t n = 0;
    listed *all = read_list(path, &n);
    for (uint32_t i = 0; i < n; i++) {
        verdict v = {0};
        compare_listed(&all[i], &v);
        report(&v, all[i].what, "");
    }
    free_list(all, n);
}

static void run_case(size_t i, const char *argument) {
    verdict v = {0};
    if (needed_file && access(needed_file, F_OK)) {
        v.skipped = true;
        say(&v, "%s is not there", needed_file);
    } else {
        cases[i].run(argument, &v);
    }
    const char *slash = strstr(model_path, ".gguf") ? strrchr(model_path, '/') : NULL;
    if (cases[i].of_fixture)
        report(&v, cases[i].name, argument);
    else
        report(&v, cases[i].name, slash ? slash + 1 : "");
}

/* CASE or CASE:NAME, NAME perhaps *. */
static void run_word(const char *word) {
    char names[MAX_FIXTURES][64];
    const size_t n = strcspn(word, ":");
    const char *argument = word[n] ? word + n + 1 : NULL;
    if (argument && n == 4 && !strncmp(word, "list", n)) {
        run_list(argument);
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strncmp(cases[i].name, word, n) || cases[i].name[n])
            continue;
        if (cases[i].of_fixture != (argument != NULL))
            break;
        const bool all = argument && !strcmp(argument, "*");
        const uint32_t n_names = all ? list_fixtures(names) : 1;
        for (uint32_t k = 0; k < n_names; k++)
            run_case(i, all ? names[k] : argument);
        return;
    }
    give_up("is no case", word);
}

/* An option for the cases behind it. */
static void set_option(char option, const char *value) {
    if (option == 'f')
        needed_file = value;
    if (option == 'm')
        snprintf(model_path, sizeof model_path, "%s", value);
    if (option == 'n')
        lacking = strcmp(value, "-") ? value : NULL;
    if (option == 'f' || option == 'm' || option == 'n')
        return;
    close_place(&at); // with another device or instruction set the plugins are opened again
    if (option == 'd')
        at.device = value;
    else
        at.isa = strcmp(value, "-") ? value : NULL;
}

int main(int argc, char **argv) {
    storyteller_path(model_path, "");
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const bool is_option = word[0] == '-' && word[1] && strchr("dfimn", word[1]) && !word[2];
        if (is_option && i + 1 < argc)
            set_option(word[1], argv[++i]);
        else
            run_word(word);
    }
    close_place(&at);
    printf("1..%u\n", n_cases);
    if (!n_cases)
        give_up("no case", "golden [-d DEVICE] [-i ISA] [-m MODEL] [-f FILE] CASE...");
    if (n_failed)
        return 1;
    return n_skipped == n_cases ? 77 : 0;
}
