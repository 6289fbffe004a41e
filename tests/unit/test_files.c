/* test_files.c -- which files of a folder make the model that a path names, by the patterns that
 * loaders state; and which patterns are none. */
#include "model/model.h"
#include "unit.h"

/* ---- loaders of nothing but patterns --------------------------------------------------------- */
typedef struct {
    uint32_t kind;
    const char *text;
    uint32_t flags;
} row;
typedef struct {
    const row *rows;
    uint32_t n;
} format;

static mn_status state_rows(void *self, uint32_t i, mn_file_pattern *out) {
    const format *f = self;
    if (i >= f->n)
        return MN_END;
    out->kind = f->rows[i].kind;
    out->text = mn_str_of(f->rows[i].text);
    out->flags = f->rows[i].flags;
    return MN_OK;
}
static const mn_loader loader = {.size = sizeof loader, .patterns = state_rows};

static const row gguf[] = {{MN_PATTERN_MODEL, "*.gguf", MN_PATTERN_WHOLE},
                           {MN_PATTERN_SHARD, "*-#-of-#.gguf", MN_PATTERN_WHOLE}};
static const row tensors[] = {{MN_PATTERN_MODEL, "model.safetensors", 0},
                              {MN_PATTERN_SHARD, "model*-#-of-#.safetensors", 0},
                              {MN_PATTERN_FOLDER, "config.json", 0},
                              {MN_PATTERN_COMPANION, "*.safetensors", 0}};
static const row toys[] = {{MN_PATTERN_SHARD, "*.part#of#.toy", 0},
                           {MN_PATTERN_COMPANION, "*.toybox", 0}};
enum { N_FORMATS = 3 };
static format formats[N_FORMATS] = {
    {gguf, MN_COUNT(gguf)}, {tensors, MN_COUNT(tensors)}, {toys, MN_COUNT(toys)}};
static mn_patterns patterns[N_FORMATS];
static mn_loader_ref refs[N_FORMATS];

static int setup(void **state) {
    for (uint32_t i = 0; i < N_FORMATS; i++) {
        if (mn_patterns_read(&loader, &formats[i], &patterns[i], NULL))
            return -1;
        refs[i] = (mn_loader_ref){
            .loader = &loader, .self = &formats[i], .id = {"stub", 4}, .patterns = &patterns[i]};
    }
    return unit_setup(state);
}
static int teardown(void **state) {
    for (uint32_t i = 0; i < N_FORMATS; i++)
        mn_patterns_free(&patterns[i]);
    return unit_teardown(state);
}

/* ---- sets ------------------------------------------------------------------------------------ */
/* A folder with these files, names separated by blanks. */
static const char *folder_of(const char *root, const char *names) {
    static uint32_t turn;
    static char dir[1024]; /* unit_path's buffers are used in turn */
    char name[300];
    snprintf(dir, sizeof dir, "%s/%u", root, turn++);
    assert_int_equal(mkdir(dir, 0755), 0);
    for (int n; sscanf(names, " %299s%n", name, &n) == 1; names += n)
        unit_write(unit_path(dir, name), "x", 1);
    return dir;
}

/* The set of dir/named (NULL: of dir) is the names of want, in this order; the named one has
 * '!'. */
static void expect_set(const char *root, const char *in, const char *named, const char *want) {
    const char *dir = folder_of(root, in);
    mn_file_set set = {0};
    mn_error err = MN_ERROR_INIT;
    mn_text got = {0};
    mn_status st =
        mn_file_set_open(named ? unit_path(dir, named) : dir, 0, refs, N_FORMATS, &set, &err);
    if (st)
        fail_msg("%s of \"%s\": %s", named ? named : "the folder", in, err.msg);
    for (uint32_t i = 0; i < set.n; i++)
        mn_text_printf(&got, "%s%.*s%s", i ? " " : "", MN_STR_ARG(set.files[i].name),
                       set.files[i].flags & MN_FILE_NAMED ? "!" : "");
    assert_string_equal(got.ptr, want);
    mn_text_free(&got);
    mn_file_set_close(&set);
}

static void sets(void **state) {
    static const char many[] = "b.gguf a.gguf tokenizer.json generation_config.json notes.txt "
                               "Z.json chat_template.jinja";
    static const char checkpoint[] =
        "config.json model.safetensors extra.safetensors tokenizer.json q.gguf readme.md";
    static const char shards[] =
        "m-00002-of-00002.gguf m-00001-of-00002.gguf m-00001-of-00003.gguf n-00001-of-00002.gguf";
    /* a model by itself, without the others; what it has inside is not looked for beside it */
    expect_set(*state, many, "b.gguf", "b.gguf!");
    expect_set(*state, checkpoint, "q.gguf", "q.gguf!");
    expect_set(*state, checkpoint, "model.safetensors",
               "config.json extra.safetensors model.safetensors! tokenizer.json");
    /* shards before models, by the same text and count */
    expect_set(*state, shards, "m-00002-of-00002.gguf",
               "m-00001-of-00002.gguf m-00002-of-00002.gguf!");
    expect_set(*state,
               "a.b.part2of3.toy a.b.part1of3.toy a.b.part3of3.toy a.part1of3.toy c.toybox "
               "d.gguf tokenizer.json",
               "a.b.part1of3.toy",
               "a.b.part1of3.toy! a.b.part2of3.toy a.b.part3of3.toy c.toybox tokenizer.json");
    expect_set(*state, "x.part0of2.toy x.part1of2.toy", "x.part1of2.toy",
               "x.part0of2.toy x.part1of2.toy!"); /* from 0 */
    expect_set(*state,
               "x.part9of10.toy x.part10of10.toy x.part1of10.toy x.part2of10.toy "
               "x.part3of10.toy x.part4of10.toy x.part5of10.toy x.part6of10.toy "
               "x.part7of10.toy x.part8of10.toy",
               "x.part9of10.toy",
               "x.part10of10.toy x.part1of10.toy x.part2of10.toy x.part3of10.toy x.part4of10.toy "
               "x.part5of10.toy x.part6of10.toy x.part7of10.toy x.part8of10.toy x.part9of10.toy!");
    /* a mark of a folder, or a companion, stands for the folder; that has all of every format */
    expect_set(*state, checkpoint, "config.json",
               "config.json! extra.safetensors model.safetensors q.gguf tokenizer.json");
    expect_set(*state, checkpoint, "tokenizer.json",
               "config.json extra.safetensors model.safetensors q.gguf tokenizer.json!");
    expect_set(*state, checkpoint, NULL,
               "config.json extra.safetensors model.safetensors q.gguf tokenizer.json");
    expect_set(*state, many, NULL,
               "a.gguf b.gguf chat_template.jinja generation_config.json tokenizer.json");
    expect_set(*state, "B.gguf a.gguf .c.gguf \xc3\xa4.gguf _.gguf", NULL,
               "B.gguf _.gguf a.gguf \xc3\xa4.gguf"); /* by bytes, and nothing hidden */
    expect_set(*state, "a.gguf .c.gguf", ".c.gguf", ".c.gguf!");
    /* a name that nobody knows: loaders look inside */
    expect_set(*state, "sha256-1234 sha256-5678 other.gguf tokenizer.json", "sha256-1234",
               "sha256-1234! tokenizer.json");
}

static void expect_refusal(const char *root, const char *in, const char *named, mn_status st,
                           const char *words, const char *more) {
    const char *dir = folder_of(root, in);
    mn_file_set set = {0};
    mn_error err = MN_ERROR_INIT;
    const char *path = named ? unit_path(dir, named) : dir;
    assert_int_equal(mn_file_set_open(path, 0, refs, N_FORMATS, &set, &err), st);
    if (!strstr(err.msg, words) || !strstr(err.msg, more))
        fail_msg("found: %s", err.msg);
}

static void refusals(void **state) {
    mn_file_set set = {0};
    mn_error err = MN_ERROR_INIT;
    expect_refusal(*state, "m-00001-of-00003.gguf m-00003-of-00003.gguf", "m-00003-of-00003.gguf",
                   MN_BAD_FILE, "m-00002-of-00003.gguf is missing", "shard 2 of the 00003");
    expect_refusal(*state, "x.part10of10.toy x.part1of10.toy", "x.part10of10.toy", MN_BAD_FILE,
                   "x.part2of10.toy is missing", "");
    expect_refusal(*state, "x.part1of99999999999999999999.toy", "x.part1of99999999999999999999.toy",
                   MN_BAD_FILE, "x.part2of99999999999999999999.toy is missing", "");
    expect_refusal(*state, "tokenizer.json a.txt c.toybox", NULL, MN_BAD_FILE,
                   "the folder holds no model; expected a file of *.gguf, *-#-of-#.gguf, "
                   "model.safetensors",
                   "*.part#of#.toy, or a folder with one of these or of config.json");
    expect_refusal(*state, "", NULL, MN_BAD_FILE, "holds no model", "*.gguf");
    expect_refusal(*state, "", "a.gguf", MN_IO_ERROR, "no such file or folder", "");
    assert_int_equal(mn_file_set_open(*state, 0, NULL, 0, &set, &err), MN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "no loader plugin can be used"));
}

/* ---- patterns -------------------------------------------------------------------------------- */
static void matches(void **state) {
    static const struct {
        const char *pattern, *name, *star, *first, *last; /* star NULL: no match */
    } cases[] = {
        {"*-#-of-#.gguf", "a-1-of-2-00001-of-00003.gguf", "a-1-of-2", "00001", "00003"},
        {"*-#-of-#.gguf", "-1-of-1.gguf", "", "1", "1"},
        {"*-#-of-#.gguf", "a-1-of-.gguf", NULL, "", ""},
        {"*-#-of-#.gguf", "a-1-of-2.gguf2", NULL, "", ""},
        {"*#.bin", "a12.bin", "a", "12", ""},
        {"*#.bin", "12.bin", "", "12", ""},
        {"*.gguf", ".gguf", "", "", ""},
        {"*.gguf", "a.GGUF", NULL, "", ""},
        {"a*", "a", "", "", ""},
        {"config.json", "config.json", "", "", ""},
        {"config.json", "config_json", NULL, "", ""},
        {"*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", NULL, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        char text[64];
        mn_name_hit hit;
        snprintf(text, sizeof text, "%s", cases[i].pattern);
        const mn_name_pattern p = {MN_PATTERN_MODEL, 0, text};
        assert_int_equal(mn_name_match(&p, cases[i].name, &hit), cases[i].star != NULL);
        if (!cases[i].star)
            continue;
        assert_true(mn_str_is(hit.star[0], cases[i].star));
        assert_true(mn_str_is(hit.number[0], cases[i].first));
        assert_true(mn_str_is(hit.number[1], cases[i].last));
    }
}

static void bad_patterns(void **state) {
    static const struct {
        row row;
        const char *words;
    } cases[] = {
        {{MN_PATTERN_MODEL, "", 0}, "1 to 255 bytes"},
        {{MN_PATTERN_MODEL, "*", 0}, "every file"},
        {{MN_PATTERN_MODEL, "*.#", 0}, "every file"},
        {{MN_PATTERN_MODEL, "a/*.b", 0}, "base name"},
        {{MN_PATTERN_MODEL, "a\n", 0}, "base name"},
        {{MN_PATTERN_MODEL, "a\xff", 0}, "UTF-8"},
        {{MN_PATTERN_MODEL, "*a*b*c", 0}, "more than two"},
        {{MN_PATTERN_MODEL, "a##", 0}, "before a digit"},
        {{MN_PATTERN_MODEL, "a#1", 0}, "before a digit"},
        {{MN_PATTERN_SHARD, "a#", 0}, "not two '#'"},
        {{0, "a", 0}, "no kind"},
        {{MN_PATTERN_COMPANION, "a", 0}, "MODEL, SHARD or FOLDER"},
        {{77, "a", 0}, "MODEL, SHARD or FOLDER"}, /* of a later version: harmless, and no model */
    };
    row endless[MN_MAX_PATTERN + 1];
    mn_patterns p;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        format f = {&cases[i].row, 1};
        assert_int_equal(mn_patterns_read(&loader, &f, &p, &err), MN_BAD_INPUT);
        if (!strstr(err.msg, cases[i].words))
            fail_msg("%zu: found: %s", i, err.msg);
    }
    for (size_t i = 0; i < MN_COUNT(endless); i++)
        endless[i] = (row){MN_PATTERN_MODEL, "a", 0};
    format f = {endless, MN_MAX_PATTERN};
    assert_int_equal(mn_patterns_read(&loader, &f, &p, &err), MN_OK);
    mn_patterns_free(&p);
    f.n++;
    assert_int_equal(mn_patterns_read(&loader, &f, &p, &err), MN_BAD_INPUT);
    f.n = 0;
    assert_int_equal(mn_patterns_read(&loader, &f, &p, &err), MN_BAD_INPUT);
}

/* What runtime/text and runtime/opened read is what is mapped. */
static void companions(void **state) {
    mn_str text;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    assert_int_equal(mn_companion(NULL, 0, "tokenizer.json", 1, &text, &err), MN_OK);
    assert_int_equal(mn_companion(NULL, 0, "vocab.bin", 1, &text, &err), MN_INVALID);
}

/* ---- what a handler sees of a loader --------------------------------------------------------- */
static char seen[128];

/* Adds the call that is in flight; a loader's functions do it. */
static void see(void) {
    const mn_callee *callee = NULL;
    const char *what = "none";
    mn_call_now(&callee, &what, NULL);
    const size_t n = strlen(seen);
    snprintf(seen + n, sizeof seen - n, "%s:%s ", callee ? callee->id : "?", what);
}
static mn_status seen_guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_guess *out) {
    (void)self, (void)files, (void)n, (void)stride;
    out->confidence = 100;
    see();
    return MN_OK;
}
static mn_status seen_open(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                           mn_parsed **out, mn_error *err) {
    (void)self, (void)files, (void)n, (void)stride, (void)err;
    *out = (mn_parsed *)seen;
    see();
    return MN_OK;
}
static mn_status seen_meta(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *value) {
    (void)p, (void)i, (void)key, (void)native, (void)value;
    see();
    return MN_END;
}
static mn_status seen_tensor(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    (void)p, (void)i, (void)out;
    see();
    return MN_END;
}
static void seen_close(mn_parsed *p) {
    (void)p;
    see();
}

static void calls(void **state) {
    static const mn_callee callee = {.id = "toy", .path = "toy.so"};
    const mn_loader all = {.size = sizeof all,
                           .patterns = state_rows,
                           .guess = seen_guess,
                           .open = seen_open,
                           .meta_at = seen_meta,
                           .tensor_at = seen_tensor,
                           .close = seen_close};
    const mn_loader_ref ref = {.loader = &all,
                               .self = &formats[0],
                               .id = {"toy", 3},
                               .patterns = &patterns[0],
                               .callee = &callee};
    const char *path = unit_path(*state, "calls.gguf");
    mn_canonical *m = NULL;
    mn_error err = MN_ERROR_INIT;
    unit_write(path, "x", 1);
    mn_status st = mn_canonical_open(path, 0, &ref, 1, &m, &err);
    if (!st)
        mn_canonical_close(m);
    assert_string_equal(seen, "toy:guess toy:open toy:meta_at toy:tensor_at toy:close ");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sets),       cmocka_unit_test(refusals),
                                       cmocka_unit_test(matches),    cmocka_unit_test(bad_patterns),
                                       cmocka_unit_test(companions), cmocka_unit_test(calls)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
