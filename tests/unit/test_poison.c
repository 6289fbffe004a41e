/* test_poison.c -- one element of one weight is NaN or infinite: what every device makes of it.
 *
 * test_poison TITLE FIXTURE... [--isa NAME] [--all]: of each model (a folder of
 * tests/data/fixtures, or "storyteller") every kind of weight in turn holds NaN and +Inf: those
 * without a layer and those of the first and the last layer; without --all NaN goes into the first
 * layer and infinity into the last. A short prompt runs in class exact on reference and on
 * cpu_simd: where the logits are numbers they agree, NaN and infinity stand in the same places, and
 * the errors have the same words. In the other classes a sequence that ends with an error on
 * reference ends with one, too. NaN must end it unless the weight is that of one expert, which the
 * prompt may never ask.
 *
 * The model is copied to a folder of its own, and a copy is poisoned in place while it is
 * closed. */
#include <minerva/minerva.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_PROMPT = 6, N_NEW = 2 };
static const int32_t prompt[N_PROMPT] = {3, 17, 42, 17, 99, 5};

typedef struct {
    mn_status status;
    char error[700];
    int32_t ids[N_NEW];
    uint32_t n_ids;
    float *logits; /* [N_PROMPT, n_vocab] */
    uint32_t n_vocab;
} outcome;

typedef struct {
    char name[256], dtype[8];
    int64_t at, bytes, elems; /* in the file */
    int64_t row;              /* elements of a row */
} weight;

static mn_runtime *rt;
static unsigned n_bad, n_runs, n_failed_runs;

static void give_up(const char *what, const char *on) {
    fprintf(stderr, "test_poison: %s: %s\n", what, on);
    exit(1);
}

/* ---- one run --------------------------------------------------------------------------------- */
static mn_status keep_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                           const float *rows) {
    outcome *o = arg;
    if (!o->logits)
        o->logits = malloc(sizeof *rows * N_PROMPT * n_vocab);
    if (!o->logits)
        return MN_OUT_OF_MEMORY;
    o->n_vocab = n_vocab;
    memcpy(o->logits + (size_t)first * n_vocab, rows, sizeof *rows * n_rows * n_vocab);
    return MN_OK;
}

/* Greedy ids until the end or the first error. */
static mn_status draw(mn_session *s, outcome *o, mn_error *err) {
    const mn_sample_params params = {.size = sizeof params, .max_new = N_NEW, .ignore_stop = 1};
    int32_t seq = -1;
    uint32_t n = 1;
    mn_status st = mn_seq_create(s, prompt, N_PROMPT, &params, &seq, err);
    while (!st && n) {
        mn_token t[1];
        st = mn_session_step(s, t, 1, &n, err);
        if (!st && n && o->n_ids < N_NEW)
            o->ids[o->n_ids++] = t[0].id;
        const bool says_so = n == 1 && t[0].finish == MN_FINISH_FAILED && t[0].id == -1;
        if (st == MN_BAD_FILE && !says_so)
            give_up("a failed sequence without MN_FINISH_FAILED", err->msg);
    }
    return st;
}

static outcome run(const char *folder, const char *device, uint32_t precision) {
    outcome o = {0};
    mn_model *m = NULL;
    mn_session *s = NULL;
    mn_error err = MN_ERROR;
    const mn_session_params p = {.size = sizeof p,
                                 .device = device,
                                 .precision = precision,
                                 .n_seq = 1,
                                 .n_ctx = 64,
                                 .run_ahead = 3};
    o.status = mn_model_open(rt, folder, &m, &err);
    if (!o.status)
        o.status = mn_session_create(m, &p, &s, &err);
    if (!o.status && precision == MN_PRECISION_EXACT)
        o.status = mn_session_logits(s, prompt, N_PROMPT, keep_rows, &o, &err);
    if (!o.status)
        o.status = draw(s, &o, &err);
    if (o.status)
        snprintf(o.error, sizeof o.error, "%s", err.msg);
    mn_session_free(s);
    mn_model_free(m);
    n_runs++;
    n_failed_runs += o.status != 0;
    return o;
}

/* ---- two outcomes ---------------------------------------------------------------------------- */

/* Whether two numbers are both NaN, the same infinity, or both finite. */
static bool same_kind(float a, float b) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b))
        return a == b;
    return true;
}

/* Where and how the logits differ; NULL = they agree. */
static const char *logits_differ(const outcome *a, const outcome *b) {
    static char text[200];
    double error = 0, norm = 0;
    if (!a->logits != !b->logits || a->n_vocab != b->n_vocab)
        return "only one of them has logits";
    for (size_t i = 0; a->logits && i < (size_t)N_PROMPT * a->n_vocab; i++) {
        const float x = a->logits[i], y = b->logits[i];
        snprintf(text, sizeof text, "logit %zu of position %zu is %g on reference and %g",
                 i % a->n_vocab, i / a->n_vocab, (double)x, (double)y);
        if (!same_kind(x, y))
            return text;
        if (!isfinite(x))
            continue;
        error += ((double)x - (double)y) * ((double)x - (double)y);
        norm += (double)x * (double)x;
    }
    snprintf(text, sizeof text, "relative L2 of the finite logits %g", sqrt(error / norm));
    return error <= 1e-8 * norm ? NULL : text;
}

/* An error of a step begins with the device that computed it. */
static const char *behind_device(const char *error) {
    const char *colon = strstr(error, ": ");
    return colon ? colon + 2 : error;
}

static const char *outcomes_differ(const outcome *a, const outcome *b) {
    if (a->status != b->status || strcmp(behind_device(a->error), behind_device(b->error)) != 0)
        return "another error";
    if (a->n_ids != b->n_ids || memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) != 0)
        return "other ids";
    return logits_differ(a, b);
}

static void complain(const char *where, const char *what, const outcome *a, const outcome *b) {
    n_bad++;
    printf("FAIL  %s: %s\n      reference: %x %s\n      cpu_simd:  %x %s\n", where, what,
           (unsigned)a->status, a->error, (unsigned)b->status, b->error);
}

typedef enum { RUNS, MAY_FAIL, FAILS } expected;

/* All devices and classes on the file as it is. */
static void compare(const char *folder, const char *where, expected want) {
    outcome a = run(folder, "reference", MN_PRECISION_EXACT),
            b = run(folder, "cpu_simd", MN_PRECISION_EXACT), c = {0};
    if (want != MAY_FAIL)
        c = run(folder, "cpu_simd", MN_PRECISION_A8);
    const char *what = outcomes_differ(&a, &b);
    if (want == RUNS && (a.status || c.status))
        what = "the model itself does not run";
    if (want == FAILS && !a.status)
        what = "text is made of it";
    if (what)
        complain(where, what, &a, &b);
    else if (want == FAILS && c.status != MN_BAD_FILE)
        complain(where, "class a8 goes on where class exact ends with an error", &a, &c);
    if (a.status && a.status != MN_BAD_FILE)
        complain(where, "found another status than MN_BAD_FILE", &a, &b);
    if (a.status == MN_BAD_FILE && (!strstr(a.error, folder) || !strstr(a.error, "position ")))
        complain(where, "the error names neither file nor position", &a, &b);
    free(a.logits);
    free(b.logits);
    free(c.logits);
}

/* ---- weights of a .safetensors file ---------------------------------------------------------- */

/* The layer in a name: the first number between dots; -1 = none. *expert: the second, else -1. */
static long layer_of(const char *name, long *expert) {
    long found[2] = {-1, -1};
    int n = 0;
    for (const char *p = name; *p && n < 2; p++)
        if (p[0] == '.' && p[1] >= '0' && p[1] <= '9')
            found[n++] = strtol(p + 1, NULL, 10);
    *expert = found[1];
    return found[0];
}

static weight weight_of(const cJSON *v, int64_t data) {
    weight w = {.elems = 1, .row = 1};
    const cJSON *at = cJSON_GetObjectItem(v, "data_offsets"), *dim;
    snprintf(w.name, sizeof w.name, "%s", v->string);
    snprintf(w.dtype, sizeof w.dtype, "%s", cJSON_GetStringValue(cJSON_GetObjectItem(v, "dtype")));
    w.at = data + (int64_t)cJSON_GetArrayItem(at, 0)->valuedouble;
    w.bytes = data + (int64_t)cJSON_GetArrayItem(at, 1)->valuedouble - w.at;
    cJSON_ArrayForEach(dim, cJSON_GetObjectItem(v, "shape")) {
        w.elems *= (int64_t)dim->valuedouble;
        w.row = (int64_t)dim->valuedouble;
    }
    return w;
}

/* The weights to poison; *last: the highest layer. NULL = out of memory or no such file. */
static weight *read_weights(const char *path, size_t *n, long *last) {
    uint64_t length = 0;
    FILE *f = fopen(path, "rb");
    if (!f || fread(&length, sizeof length, 1, f) != 1 || length > 1 << 24)
        give_up("cannot be read", path);
    char *text = calloc(length + 1, 1);
    if (!text || fread(text, 1, length, f) != length)
        give_up("cannot be read", path);
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    weight *all = calloc((size_t)cJSON_GetArraySize(json) + 1, sizeof *all);
    const cJSON *v;
    long expert;
    *n = 0, *last = -1;
    cJSON_ArrayForEach(v, json) {
        const long layer = layer_of(v->string, &expert);
        if (!all || !strcmp(v->string, "__metadata__"))
            continue;
        *last = layer > *last ? layer : *last;
        all[(*n)++] = weight_of(v, 8 + (int64_t)length);
    }
    cJSON_Delete(json);
    free(text);
    return all;
}

/* NaN or +Inf in a type; the number of bytes, 0 = it has none. */
static size_t bad_value(const weight *w, bool nan, uint8_t to[4]) {
    static const struct {
        const char *dtype;
        size_t size;
        uint32_t nan, inf;
    } types[] = {{"F32", 4, 0x7fc00000u, 0x7f800000u},
                 {"F16", 2, 0x7e00u, 0x7c00u},
                 {"BF16", 2, 0x7fc0u, 0x7f80u}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(w->dtype, types[i].dtype)) {
            memcpy(to, nan ? &types[i].nan : &types[i].inf, 4);
            return types[i].size;
        }
    const char *scales = strstr(w->name, "_scales"); /* exponents: 255 is NaN */
    to[0] = 255;
    return nan && scales && !strcmp(w->dtype, "U8") ? 1 : 0;
}

/* ---- a copy of a model ----------------------------------------------------------------------- */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* false = it is not there */
static bool copy_file(const char *from, const char *to, const char *name) {
    char path[4400];
    static char buffer[1 << 16];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *in = fopen(path, "rb");
    if (!in)
        return false;
    snprintf(path, sizeof path, "%s/%s", to, name);
    FILE *out = fopen(path, "wb");
    size_t n;
    while (out && (n = fread(buffer, 1, sizeof buffer, in)) > 0)
        if (fwrite(buffer, 1, n, out) != n)
            give_up("cannot be written", path);
    fclose(in);
    if (!out || fclose(out))
        give_up("cannot be written", path);
    return true;
}

/* Exchanges the element with what is in value. */
static void exchange(int fd, int64_t at, uint8_t *value, size_t size) {
    uint8_t old[4];
    if (pread(fd, old, size, at) != (ssize_t)size || pwrite(fd, value, size, at) != (ssize_t)size)
        give_up("cannot be written", "the copy of the model");
    memcpy(value, old, size);
}

/* An element that the prompt meets: in the row of its first id, which is the row of a position of
 * the prompt, too, where there are rows. */
static int64_t element_of(const weight *w) {
    const bool has_rows = w->elems > w->row && w->elems / w->row > prompt[0];
    return (has_rows ? prompt[0] * w->row : 0) + w->row / 3;
}

static void poison(const char *folder, const char *model, int fd, const weight *w, bool nan) {
    uint8_t value[4];
    char where[600];
    const size_t size = bad_value(w, nan, value);
    if (!size)
        return;
    snprintf(where, sizeof where, "%s: %s in %s", model, nan ? "NaN" : "Inf", w->name);
    const int64_t at = w->at + element_of(w) * (int64_t)size;
    exchange(fd, at, value, size);
    compare(folder, where, nan && !strstr(w->name, "experts") ? FAILS : MAY_FAIL);
    exchange(fd, at, value, size);
}

/* Two sequences, of which only the first meets the poisoned row of the embedding: it ends, with one
 * error that names it, and the other draws what it draws alone. */
static void batch(const char *folder, const char *device, const outcome *alone) {
    enum { OTHER = 8 };
    const mn_sample_params params = {.size = sizeof params, .max_new = N_NEW, .ignore_stop = 1};
    const mn_session_params p = {.size = sizeof p,
                                 .device = device,
                                 .precision = MN_PRECISION_EXACT,
                                 .n_seq = 2,
                                 .n_ctx = 64,
                                 .run_ahead = 3};
    const int32_t bad[2] = {5, OTHER};
    mn_model *m = NULL;
    mn_session *s = NULL;
    mn_error err = MN_ERROR;
    int32_t a = -1, b = -1;
    outcome o = {0};
    uint32_t n = 1, errors = 0, n_failed = 0;
    if (mn_model_open(rt, folder, &m, &err) || mn_session_create(m, &p, &s, &err) ||
        mn_seq_create(s, bad, 2, &params, &a, &err) ||
        mn_seq_create(s, prompt, N_PROMPT, &params, &b, &err))
        give_up(device, err.msg);
    while (n && errors < 3) {
        mn_token t[2];
        errors += mn_session_step(s, t, 2, &n, &err) != MN_OK;
        for (uint32_t i = 0; i < n; i++) {
            n_failed += t[i].seq == a && t[i].finish == MN_FINISH_FAILED;
            if (t[i].seq == b && t[i].id >= 0 && o.n_ids < N_NEW)
                o.ids[o.n_ids++] = t[i].id;
        }
    }
    if (errors != 1 || n_failed != 1 || !strstr(err.msg, "sequence 0"))
        complain("a batch of which one fails", device, alone, &o);
    if (o.n_ids != N_NEW || memcmp(o.ids, alone->ids, sizeof o.ids) != 0)
        complain("the other sequence of the batch", device, alone, &o);
    mn_session_free(s);
    mn_model_free(m);
}

static void test_batch(const char *folder, int fd, const weight *embedding) {
    weight w = *embedding;
    uint8_t value[4];
    outcome alone = run(folder, "reference", MN_PRECISION_EXACT);
    const size_t size = bad_value(&w, true, value);
    const int64_t at = w.at + 8 * w.row * (int64_t)size;
    exchange(fd, at, value, size);
    batch(folder, "reference", &alone);
    batch(folder, "cpu_simd", &alone);
    exchange(fd, at, value, size);
    free(alone.logits);
}

static void test_model(const char *source, const char *model, bool all) {
    char folder[] = "/tmp/minerva-poison-XXXXXX", path[600];
    size_t n;
    long last, expert;
    if (!mkdtemp(folder))
        give_up("cannot be made", folder);
    copy_file(source, folder, "config.json");
    if (!copy_file(source, folder, "model.safetensors"))
        give_up("is not there", source);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    weight *w = read_weights(path, &n, &last);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (!w || fd < 0)
        give_up("cannot be opened", path);
    compare(folder, model, RUNS);
    for (size_t i = 0; i < n; i++) {
        const long layer = layer_of(w[i].name, &expert);
        if (!strcmp(model, "llama") && strstr(w[i].name, "embed_tokens"))
            test_batch(folder, fd, &w[i]);
        if ((layer > 0 && layer < last) || (expert >= 0 && expert != 1 && !all))
            continue;
        if (all || layer <= 0)
            poison(folder, model, fd, &w[i], true);
        if (all || layer < 0 || layer == last)
            poison(folder, model, fd, &w[i], false);
    }
    compare(folder, model, RUNS); /* all is as it was */
    close(fd);
    free(w);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    const char *data = getenv("MINERVA_TEST_DATA"), *root = getenv("MINERVA_SOURCE_ROOT");
    mn_setting isa = {"plugin.cpu_simd.isa", NULL};
    mn_runtime_params params = {.size = sizeof params, .settings = &isa};
    mn_error err = MN_ERROR;
    bool all = false;
    for (int i = 1; i < argc; i++) {
        all |= !strcmp(argv[i], "--all");
        if (!strcmp(argv[i], "--isa") && i + 1 < argc)
            isa.value = argv[i + 1], params.n_settings = 1;
    }
    if (!data || !root)
        give_up("MINERVA_TEST_DATA and MINERVA_SOURCE_ROOT", "are not set");
    if (mn_runtime_create(&params, &rt, &err))
        give_up("no runtime", err.msg);
    for (int i = 2; i < argc; i++) {
        char source[4200];
        const bool demo = !strcmp(argv[i], "storyteller");
        if (argv[i][0] == '-') {
            i += !strcmp(argv[i], "--isa");
            continue;
        }
        snprintf(source, sizeof source, demo ? "%s/models/%s" : "%s/fixtures/%s",
                 demo ? root : data, argv[i]);
        test_model(source, argv[i], all);
    }
    mn_runtime_free(rt);
    printf("%u runs, %u ended with an error, %u differ\n", n_runs, n_failed_runs, n_bad);
    return n_bad != 0;
}
