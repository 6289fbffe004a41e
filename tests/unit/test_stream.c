/* test_stream.c -- text of a model that thinks: which part is the answer, through the API alone. The model is the demo's
 * configuration and a small tokenizer.json; its weights are never read. */
#include <minerva/minerva.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char tokenizer[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":5,\"b\":6,\"\xc4\x8a\":7,\"final\":8,\"analysis\":9,\"\xc3\xb0\":10,"
    "\"\xc5\x81\":11,\"\xc2\xa6\":12,\"\xc4\xbb\":13},\"merges\":[]},\"decoder\":{\"type\":\"ByteLevel\"},\"added_"
    "tokens\":["
    "{\"id\":20,\"content\":\"<think>\"},{\"id\":21,\"content\":\"</"
    "think>\"},{\"id\":30,\"content\":\"<|start|>\",\"special\":true},"
    "{\"id\":31,\"content\":\"<|channel|>\",\"special\":true},{\"id\":32,\"content\":\"<|message|>\",\"special\":true},"
    "{\"id\":33,\"content\":\"<|end|>\",\"special\":true}]}";

typedef struct {
    mn_runtime *rt;
    mn_model *model;
    char folder[64];
} world;

static void link_demo(const world *w, const char *name) {
    const char *root = getenv("MINERVA_SOURCE_ROOT");
    char from[4096], to[256], full[4096];
    snprintf(from, sizeof from, "%s/models/storyteller/%s", root ? root : "../..", name);
    snprintf(to, sizeof to, "%s/%s", w->folder, name);
    assert_non_null(realpath(from, full));
    assert_int_equal(symlink(full, to), 0);
}

static void remove_file(const world *w, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    unlink(path);
}

static int begin(void **state) {
    world *w = calloc(1, sizeof *w);
    mn_error err = MN_ERROR;
    char path[256];
    strcpy(w->folder, "/tmp/minerva-stream-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    link_demo(w, "config.json");
    link_demo(w, "model.safetensors");
    snprintf(path, sizeof path, "%s/tokenizer.json", w->folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(tokenizer, 1, sizeof tokenizer - 1, f);
    fclose(f);
    if (mn_runtime_create(NULL, &w->rt, &err) || mn_model_open(w->rt, w->folder, &w->model, &err))
        fail_msg("%s", err.msg);
    *state = w;
    return 0;
}

static int end(void **state) {
    world *w = *state;
    mn_model_free(w->model);
    mn_runtime_free(w->rt);
    remove_file(w, "config.json");
    remove_file(w, "model.safetensors");
    remove_file(w, "tokenizer.json");
    rmdir(w->folder);
    free(w);
    return 0;
}

/* The answer, then "/", then the rest. */
static void expect(const world *w, const int32_t *prompt, uint32_t n_prompt, const int32_t *ids, uint32_t n,
                   const char *want) {
    char part[2][128] = {"", ""}, both[260];
    mn_stream *s = NULL;
    mn_str text;
    assert_int_equal(mn_stream_create(w->model, 1, &s, NULL), MN_OK);
    mn_stream_prompt(s, prompt, n_prompt);
    for (uint32_t i = 0; i <= n; i++) {
        mn_status st = i < n ? mn_stream_push(s, ids[i], &text, NULL) : mn_stream_finish(s, &text, NULL);
        assert_int_equal(st, MN_OK);
        strncat(part[mn_stream_is_thinking(s)], text.ptr, text.len);
    }
    snprintf(both, sizeof both, "%s/%s", part[0], part[1]);
    assert_string_equal(both, want);
    mn_stream_free(s);
}
#define IDS(...) (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void parts(void **state) {
    const world *w = *state;
    expect(w, IDS(5), IDS(5, 7, 6), "a\nb/");
    expect(w, IDS(5), IDS(20, 7, 5, 7, 21, 7, 7, 6, 7), "b\n/a\n");           /* <think>, white space after the tags */
    expect(w, IDS(20), IDS(5, 21, 6), "b/a");                                 /* the template opened it */
    expect(w, IDS(30, 5), IDS(31, 9, 32, 5, 33, 30, 5, 31, 8, 32, 6), "b/a"); /* Harmony */
    expect(w, IDS(30, 5), IDS(31, 9, 32, 5), "/a");                           /* cut before the answer */
    expect(w, IDS(5), IDS(10, 11, 12, 13), "\xf0\x9f\xa6\x99/");              /* a character of four tokens */
}

/* With a model, with its template, and with neither. */
static void templates(void **state) {
    const world *w = *state;
    mn_error err = MN_ERROR;
    char *text = NULL;
    uint64_t n = 0;
    mn_str vars = {"{\"x\": [1, 2.0]}", 15};
    assert_int_equal(mn_template_render(w->model, "{{ x[1] }}|{{ x }}", vars, &text, &n, &err), MN_OK);
    assert_string_equal(text, "2.0|[1, 2.0]");
    assert_int_equal(n, strlen(text));
    mn_json_free(text);
    assert_int_equal(mn_template_render(NULL, "{{ raise_exception('no') }}", vars, &text, &n, &err), MN_BAD_INPUT);
    assert_string_equal(err.msg, "no");
    assert_int_equal(mn_template_render(w->model, NULL, vars, &text, &n, &err), MN_UNSUPPORTED);
    assert_int_equal(mn_template_render(NULL, NULL, vars, &text, &n, &err), MN_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(templates)};
    return cmocka_run_group_tests(tests, begin, end);
}
