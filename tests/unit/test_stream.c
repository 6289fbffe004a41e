/* test_stream.c -- text of a model that thinks: which part is the answer, through the API alone.
 * The model is the demo's configuration and a small tokenizer.json; its weights are never read. */
#include <minerva/minerva.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char tokenizer[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":5,\"b\":6,"
    "\"\xc4\x8a\":7,\"final\":8,\"analysis\":9,\"\xc3\xb0\":10,"
    "\"\xc5\x81\":11,\"\xc2\xa6\":12,\"\xc4\xbb\":13,\"\xc4\xa0to\":14,"
    "\"=\":15,\"fun\":16,\"ctions\":17,\".f\":18,"
    "\"comment\":19,\"ary\":22,\"assistant\":23,\"\xc4\xa0\":24,"
    "\"json\":25,\"fin\":26,\"al\":27,\"{\":28,\"}\":29},\"merges\":[]},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
    "{\"id\":20,\"content\":\"<think>\"},{\"id\":21,\"content\":\"</"
    "think>\"},{\"id\":30,\"content\":\"<|start|>\",\"special\":true},"
    "{\"id\":31,\"content\":\"<|channel|>\",\"special\":true},{\"id\":"
    "32,\"content\":\"<|message|>\",\"special\":true},"
    "{\"id\":33,\"content\":\"<|end|>\",\"special\":true},{\"id\":34,"
    "\"content\":\"<|constrain|>\",\"special\":true},"
    "{\"id\":35,\"content\":\"<|call|>\",\"special\":true},{\"id\":36,"
    "\"content\":\"[TOOL_CALLS]\",\"special\":true},"
    "{\"id\":37,\"content\":\"<|tool_response|>\",\"special\":true}]}";
enum { START = 30, CHANNEL, MESSAGE, END, CONSTRAIN, CALL, TOOL_CALLS, TOOL_RESPONSE };
enum {
    A = 5,
    B,
    NEWLINE,
    FINAL,
    ANALYSIS,
    TO = 14,
    IS,
    FUN,
    CTIONS,
    F,
    COMMENT,
    THINK = 20,
    END_THINK,
    ARY,
    ASSISTANT,
    SPACE,
    JSON,
    FIN,
    AL,
    OPEN,
    CLOSE
};

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

static void write_file(const world *w, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* template: NULL = none */
static world *world_open(const char *tokens, const char *template) {
    world *w = calloc(1, sizeof *w);
    mn_error err = MN_ERROR;
    strcpy(w->folder, "/tmp/minerva-stream-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    link_demo(w, "config.json");
    link_demo(w, "model.safetensors");
    write_file(w, "tokenizer.json", tokens);
    if (template)
        write_file(w, "chat_template.jinja", template);
    if (mn_runtime_create(NULL, &w->rt, &err) || mn_model_open(w->rt, w->folder, &w->model, &err))
        fail_msg("%s", err.msg);
    return w;
}

static void world_close(world *w) {
    mn_model_free(w->model);
    mn_runtime_free(w->rt);
    remove_file(w, "config.json");
    remove_file(w, "model.safetensors");
    remove_file(w, "tokenizer.json");
    remove_file(w, "chat_template.jinja");
    rmdir(w->folder);
    free(w);
}

static int begin(void **state) {
    return *state = world_open(tokenizer, NULL), 0;
}
static int end(void **state) {
    return world_close(*state), 0;
}

/* The i-th of n ids, or behind them the end. */
static mn_status push(mn_stream *s, const int32_t *ids, uint32_t i, uint32_t n,
                      const mn_stream_event **e, uint32_t *n_events) {
    return i < n ? mn_stream_push(s, ids[i], e, n_events, NULL)
                 : mn_stream_finish(s, e, n_events, NULL);
}

/* The answer, then "/", then the rest; "@f:" before the arguments of a call. */
static void expect_with(const world *w, uint32_t flags, const int32_t *prompt, uint32_t n_prompt,
                        const int32_t *ids, uint32_t n, const char *want) {
    char part[2][256] = {"", ""}, both[520];
    mn_stream *s = NULL;
    const mn_stream_event *e = NULL;
    uint32_t n_events = 0;
    assert_int_equal(mn_stream_create(w->model, MN_STREAM_CONTINUE | flags, &s, NULL), MN_OK);
    mn_stream_prompt(s, prompt, n_prompt);
    for (uint32_t i = 0; i <= n; i++) {
        assert_int_equal(push(s, ids, i, n, &e, &n_events), MN_OK);
        for (uint32_t k = 0; k < n_events; k++) {
            char *to = part[e[k].kind == MN_EVENT_THINKING];
            assert_true(e[k].text.len);
            strcat(to, e[k].kind == MN_EVENT_CALL ? "@" : "");
            strncat(to, e[k].text.ptr, e[k].text.len);
            strcat(to, e[k].kind == MN_EVENT_CALL ? ":" : "");
        }
    }
    snprintf(both, sizeof both, "%s/%s", part[0], part[1]);
    assert_string_equal(both, want);
    mn_stream_free(s);
}

static void expect(const world *w, const int32_t *prompt, uint32_t n_prompt, const int32_t *ids,
                   uint32_t n, const char *want) {
    expect_with(w, 0, prompt, n_prompt, ids, n, want);
    expect_with(w, MN_STREAM_TOOLS, prompt, n_prompt, ids, n, want);
}
#define IDS(...) (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)
#define HARMONY START, ASSISTANT /* how its prompts end */
#define FUNCTION TO, IS, FUN, CTIONS, F

static void parts(void **state) {
    const world *w = *state;
    expect(w, IDS(A), IDS(A, NEWLINE, B), "a\nb/");
    expect(w, IDS(A), IDS(10, 11, 12, 13), "\xf0\x9f\xa6\x99/"); /* a character of four tokens */
}

static void tags(void **state) {
    const world *w = *state;
    /* white space after tags goes */
    expect(w, IDS(A), IDS(THINK, NEWLINE, A, NEWLINE, END_THINK, NEWLINE, NEWLINE, B, NEWLINE),
           "b\n/a\n");
    /* the template opened it */
    expect(w, IDS(THINK), IDS(A, END_THINK, B), "b/a");
    /* with a line end, as DeepSeek's does */
    expect(w, IDS(THINK, NEWLINE), IDS(A, END_THINK, B), "b/a");
    /* and closed it: no thinking wanted */
    expect(w, IDS(THINK, NEWLINE, NEWLINE, END_THINK, NEWLINE), IDS(A), "a/");
    /* cut before the answer */
    expect(w, IDS(A), IDS(THINK, A, B), "/ab");
    /* an end without a beginning */
    expect(w, IDS(A), IDS(A, END_THINK, B), "ab/");
    /* twice, and again */
    expect(w, IDS(A), IDS(THINK, A, THINK, B, END_THINK, A, THINK, B), "a/abb");
    /* nothing thought */
    expect(w, IDS(A), IDS(THINK, END_THINK, NEWLINE, A), "a/");
}

static void harmony(void **state) {
    const world *w = *state;
    expect(w, IDS(HARMONY),
           IDS(CHANNEL, ANALYSIS, MESSAGE, A, END, HARMONY, CHANNEL, FINAL, MESSAGE, B), "b/a");
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, MESSAGE, A), "/a"); /* cut before the answer */
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, MESSAGE, A, END, HARMONY, CHANNEL, FIN),
           "/a");                                                     /* or in its header */
    expect(w, IDS(HARMONY), IDS(CHANNEL, FIN, AL, MESSAGE, B), "b/"); /* a name of two tokens */
    expect(w, IDS(HARMONY), IDS(CHANNEL, FINAL, SPACE, CONSTRAIN, JSON, MESSAGE, B), "b/");
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, MESSAGE, A), "a/"); /* a preamble */
    /* "finalal" is another name */
    expect(w, IDS(HARMONY), IDS(CHANNEL, FINAL, AL, MESSAGE, A), "/a");
    /* the template wrote the header */
    expect(w, IDS(HARMONY, CHANNEL, FINAL, MESSAGE), IDS(A), "a/");
}

static void harmony_calls(void **state) {
    const world *w = *state;
    expect(w, IDS(HARMONY),
           IDS(CHANNEL, ANALYSIS, MESSAGE, A, END, HARMONY, CHANNEL, COMMENT, ARY, FUNCTION, SPACE,
               CONSTRAIN, JSON, MESSAGE, OPEN, CLOSE, CALL),
           "@f:{}/a");
    /* the tool before the channel */
    expect(w, IDS(HARMONY), IDS(FUNCTION, CHANNEL, COMMENT, ARY, SPACE, JSON, MESSAGE, OPEN),
           "@f:{}/");
    expect(w, IDS(HARMONY), IDS(FUNCTION, MESSAGE, B), "@f:{}/"); /* no channel, no object */
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, FUNCTION, CONSTRAIN, MESSAGE, OPEN),
           "@f:{}/"); /* on another channel */
    expect(
        w, IDS(HARMONY),
        IDS(CHANNEL, COMMENT, ARY, FUNCTION, MESSAGE, B, CALL, HARMONY, CHANNEL, FINAL, MESSAGE, A),
        "@f:{}a/");
    /* an empty message, and a header that is all of it */
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, FUNCTION, MESSAGE), "@f:{}/");
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, FUNCTION, CALL), "@f:{}/");
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, FUNCTION), "@f:{}/");
    /* another recipient than a function gets text */
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, TO, IS, FUN, MESSAGE, B, B), "@fun:bb/");
    /* what is final is no call */
    expect(w, IDS(HARMONY), IDS(CHANNEL, FINAL, FUNCTION, MESSAGE, B), "b/");
    expect(w, IDS(HARMONY), IDS(CHANNEL, COMMENT, ARY, TO, IS, MESSAGE, B), "b/"); /* to nobody */
}

/* Calls that are forced: by one constraint, where the prompt ends in front of a message's header,
 * and then inside of one. There no channel begins, however likely it is. */
static void harmony_places(void **state) {
    const world *w = *state;
    const int32_t header[] = {START, ASSISTANT};
    const int32_t inside[] = {START, ASSISTANT, CHANNEL, ANALYSIS, MESSAGE};
    static const char list[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    const mn_str tools = {list, sizeof list - 1};
    const mn_constraint_params calls = {.size = sizeof calls,
                                        .kind = MN_CONSTRAINT_CALLS,
                                        .flags = MN_CONSTRAINT_CALLS_ONLY,
                                        .source = tools};
    const mn_logit_bias likely = {.id = CHANNEL, .bias = 200};
    const mn_session_params params = {.size = sizeof params, .n_seq = 2, .n_ctx = 32};
    mn_error err = MN_ERROR;
    mn_constraint *c = NULL;
    mn_session *s = NULL;
    int32_t seq[2];
    mn_token token[2];
    uint32_t n = 0;
    assert_int_equal(mn_constraint_create(w->model, &calls, &c, &err), MN_OK);
    assert_int_equal(mn_session_create(w->model, &params, &s, &err), MN_OK);
    const mn_sample_params how = {.size = sizeof how,
                                  .max_new = 1,
                                  .penalty_last_n = -1,
                                  .bias = &likely,
                                  .n_bias = 1,
                                  .constraint = c};
    if (mn_seq_create(s, header, 2, &how, &seq[0], &err) ||
        mn_seq_create(s, inside, 5, &how, &seq[1], &err))
        fail_msg("%s", err.msg);
    for (uint32_t got = 0; got < 2; got += n)
        assert_int_equal(mn_session_step(s, token, 2, &n, &err), MN_OK);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(token[i].id == CHANNEL, token[i].seq == seq[0]);
    mn_session_free(s);
    mn_constraint_free(c);
}

/* What a header may not be: the text is lost or shown, never a crash, and the next message is right
 * again. */
static void harmony_malformed(void **state) {
    const world *w = *state;
    expect(w, IDS(HARMONY), IDS(MESSAGE, A), "a/");          /* no channel */
    expect(w, IDS(HARMONY), IDS(CHANNEL, MESSAGE, A), "a/"); /* no name */
    expect(w, IDS(HARMONY), IDS(CHANNEL, CHANNEL, ANALYSIS, MESSAGE, A), "/a");
    /* the last name holds */
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, CHANNEL, FINAL, MESSAGE, A), "a/");
    /* a mark in the text is not text */
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, MESSAGE, A, MESSAGE, B), "/ab");
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, MESSAGE, A, CHANNEL, FINAL, MESSAGE, B),
           "b/a"); /* no <|end|> between them */
    expect(w, IDS(HARMONY), IDS(CHANNEL, ANALYSIS, END, HARMONY, CHANNEL, FINAL, MESSAGE, B), "b/");
    expect(w, IDS(HARMONY), IDS(END, END, START, MESSAGE, B), "b/");
    int32_t endless[200];
    /* a header that never ends becomes text */
    for (int i = 0; i < 200; i++)
        endless[i] = i ? A : CHANNEL;
    char want[220];
    memset(want, 'a', sizeof want);
    strcpy(want + 199 - 149, "/");
    expect(w, IDS(HARMONY), endless, 200, want);
}

/* Marks of calls that are one special token are shown, others are not. */
static void marks_of_calls(void **state) {
    const world *w = *state;
    expect(w, IDS(A), IDS(TOOL_CALLS, A, TOOL_RESPONSE, B), "[TOOL_CALLS]ab/");
}

/* ---- tags that are ordinary text ------------------------------------------------------------- */

/* ids 0 to 11 are one character each, the others longer pieces */
static const char *const pieces[] = {"<",      ">",      "/",  "t",     "h",   "i",
                                     "n",      "k",      "a",  "b",     "\n",  " ",
                                     "<think", "think>", "</", "nk>\n", "k>a", "ab</th"};
#define N_PIECES (sizeof pieces / sizeof *pieces)

/* The ids of text, with none of the pieces from `most` on: the longest first, so that tags are cut
 * in different places. */
static uint32_t spell(const char *text, size_t most, int32_t ids[64]) {
    uint32_t n = 0;
    while (*text) {
        size_t best = N_PIECES;
        for (size_t i = 0; i < most; i++)
            if (!strncmp(text, pieces[i], strlen(pieces[i])) &&
                (best == N_PIECES || strlen(pieces[i]) > strlen(pieces[best])))
                best = i;
        assert_true(best < N_PIECES && n < 64);
        ids[n++] = (int32_t)best;
        text += strlen(pieces[best]);
    }
    return n;
}

static void expect_spelled(const world *w, const char *prompt, const char *output,
                           const char *want) {
    int32_t before[64], ids[64];
    for (size_t most = 12; most <= N_PIECES; most++) {
        uint32_t n_before = spell(prompt, most, before), n = spell(output, most, ids);
        expect(w, before, n_before, ids, n, want);
    }
}

static void spelled(void **state) {
    (void)state;
    char tokens[2048] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{", *to = tokens + strlen(tokens);
    for (size_t i = 0; i < N_PIECES; i++) {
        to += sprintf(to, "%s\"", i ? "," : "");
        for (const char *c = pieces[i]; *c; c++)
            if (*c == '\n')
                to += sprintf(to, "\xc4\x8a");
            else if (*c == ' ')
                to += sprintf(to, "\xc4\xa0");
            else
                *to++ = *c;
        to += sprintf(to, "\":%zu", i);
    }
    strcpy(to, "},\"merges\":[]},\"decoder\":{\"type\":\"ByteLevel\"}}");
    world *w = world_open(tokens, "{{ messages[0].content.split('</think>')[-1] }}");
    expect_spelled(w, "a", "ab", "ab/");
    expect_spelled(w, "a", "<think>\nab\n</think>\n\nb\n", "b\n/ab\n");
    expect_spelled(w, "a", " \n<think>a</think>b", "b/a");
    expect_spelled(w, "a", "<think></think>b", "b/");
    expect_spelled(w, "a", "<think>ab", "/ab");           /* cut */
    expect_spelled(w, "a", "<think>ab</thi", "/ab</thi"); /* cut in the tag: text after all */
    expect_spelled(w, "a", "<thin", "<thin/");
    expect_spelled(w, "a", " <a", " <a/");
    expect_spelled(w, "a", "<think>a</thk></think>b", "b/a</thk>");
    /* wherever it stands, as tokens */
    expect_spelled(w, "a", "a<think>b</think>", "a/b");
    expect_spelled(w, "a", "<think>a</think>b<think>a</think>", "b/aa");
    expect_spelled(w, "a", "a</think>b", "ab/");
    expect_spelled(w, "a", "a<think>b", "a/b");
    expect_spelled(w, "<think>\n", "ab</think>\nb", "b/ab");   /* the template opened it */
    expect_spelled(w, "<think>\n\n</think>\n\n", "ab", "ab/"); /* or closed it */
    expect_spelled(w, "<think>", "", "/");
    world_close(w);
    w = world_open(tokens, "{{ messages[0].content }}"); /* a template that knows nothing of it */
    expect_spelled(w, "a", "<think>a</think>b", "<think>a</think>b/");
    world_close(w);
}

/* ---- strings that end an answer -------------------------------------------------------------- */

/* The text given by each push, with "|" between them, then what finish gives; "!" where the stream
 * says that it has met one. */
static uint32_t stop_from; /* of the next */
static void expect_stop(const world *w, uint32_t flags, const char *const *strings,
                        uint32_t n_strings, const int32_t *ids, uint32_t n, const char *want) {
    char got[256] = "";
    mn_stream *s = NULL;
    const mn_stream_event *e = NULL;
    uint32_t n_events = 0;
    mn_str list[4];
    mn_error err = MN_ERROR;
    for (uint32_t i = 0; i < n_strings; i++)
        list[i] = (mn_str){strings[i], strlen(strings[i])};
    assert_int_equal(mn_stream_create(w->model, flags, &s, NULL), MN_OK);
    assert_int_equal(mn_stream_stop(s, list, n_strings, &err), MN_OK);
    assert_int_equal(mn_stream_stop_from(s, stop_from, &err), MN_OK);
    for (uint32_t i = 0; i <= n; i++) {
        assert_int_equal(push(s, ids, i, n, &e, &n_events), MN_OK);
        for (uint32_t k = 0; k < n_events; k++)
            strncat(got, e[k].text.ptr, e[k].text.len);
        strcat(got, i < n ? "|" : "");
    }
    const int stopped = mn_stream_stopped(s);
    strcat(got, stopped ? "!" : "");
    assert_string_equal(got, want);
    assert_true(stopped >= 0 && stopped <= (int)n_strings);
    mn_stream_free(s);
}
#define STOPS(...)                                                                                 \
    (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

static void stops(void **state) {
    const world *w = *state;
    const uint32_t on = MN_STREAM_CONTINUE;
    expect_stop(w, on, STOPS("ba"), IDS(A, B, B, A, B), "a||b|||!"); /* over two ids */
    expect_stop(w, on, STOPS("ba"), IDS(A, B), "a||b");              /* begun and not ended */
    expect_stop(w, on, STOPS("aab"), IDS(A, A, A, B, A), "||a|||!"); /* begins within itself */
    expect_stop(w, on, STOPS("functions.f"), IDS(A, FUN, CTIONS, F, A), "a|||||!");
    expect_stop(w, on, STOPS("ctio", "x"), IDS(FUN, CTIONS, A), "fun|||!"); /* inside an id */
    expect_stop(w, on, STOPS("bb", "ab"), IDS(A, B, B), "|||!"); /* the first that is whole */
    expect_stop(w, on, STOPS("\xf0\x9f\xa6\x99"), IDS(A, 10, 11, 12, 13, A), "a||||||!");
    expect_stop(w, on, STOPS("b"), IDS(THINK, B, END_THINK, A, B), "|b||a||!"); /* thought: no */
    expect_stop(w, MN_STREAM_PLAIN, STOPS("b"), IDS(THINK, A, B), "<think>|a||!");
    expect_stop(w, on, NULL, 0, IDS(A, B), "a|b|");
    stop_from = 3; /* a string that is complete with the third id may have begun before */
    expect_stop(w, on, STOPS("b"), IDS(B, B, A, A, B, A), "b|b|a|a|||!");
    expect_stop(w, on, STOPS("bab"), IDS(A, B, A, B, A), "a|||||!");
    expect_stop(w, on, STOPS("ab"), IDS(A, B, B, A, B), "|ab|b|||!");
    stop_from = 0;
    mn_stream *s = NULL;
    mn_error err = MN_ERROR;
    char longer[1025];
    memset(longer, 'a', sizeof longer);
    assert_int_equal(mn_stream_create(w->model, on, &s, NULL), MN_OK);
    assert_int_equal(mn_stream_stop(s, &(mn_str){"", 0}, 1, &err), MN_INVALID);
    assert_int_equal(mn_stream_stop(s, &(mn_str){"\xff", 1}, 1, &err), MN_INVALID);
    assert_int_equal(mn_stream_stop(s, &(mn_str){longer, 1025}, 1, &err), MN_INVALID);
    assert_int_equal(mn_stream_stop(s, &(mn_str){longer, 1}, 65, &err), MN_INVALID);
    assert_int_equal(mn_stream_stop(s, &(mn_str){longer, 1024}, 1, &err), MN_OK);
    const mn_stream_event *e = NULL;
    uint32_t n = 0;
    assert_int_equal(mn_stream_push(s, A, &e, &n, NULL), MN_OK);
    assert_int_equal(mn_stream_stop(s, &(mn_str){"b", 1}, 1, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "pushed"));
    assert_int_equal(mn_stream_stop_from(s, 1, &err), MN_INVALID);
    mn_stream_free(s);
    assert_int_equal(mn_stream_create(w->model, on, &s, NULL), MN_OK);
    assert_int_equal(mn_stream_finish(s, &e, &n, NULL), MN_OK);
    assert_int_equal(mn_stream_stop(s, &(mn_str){"b", 1}, 1, &err), MN_INVALID);
    mn_stream_free(s);
}

/* ---- calls as text --------------------------------------------------------------------------- */
/* The vocabulary without Harmony: its [TOOL_CALLS] says how calls are written. */
static world *open_caller(void) {
    char tokens[sizeof tokenizer];
    memcpy(tokens, tokenizer, sizeof tokenizer);
    memcpy(strstr(tokens, "<|channel|>"), "<|changed|>", 11);
    return world_open(tokens, NULL);
}

static void calls(void **state) {
    const uint32_t on = MN_STREAM_TOOLS;
    world *w = open_caller();
    (void)state;
    expect_with(w, on, IDS(A), IDS(A, TOOL_CALLS, F, FUN, OPEN, CLOSE), "a[TOOL_CALLS].ffun{}/");
    expect_with(w, on, IDS(A), IDS(A, TOOL_CALLS, FUN, F, OPEN, CLOSE, NEWLINE, B), "a@fun.f:{}b/");
    expect_with(w, on, IDS(A), IDS(TOOL_CALLS, A, OPEN, CLOSE, TOOL_CALLS, B, OPEN, CLOSE, NEWLINE),
                "@a:{}@b:{}/");
    expect_with(w, on, IDS(A), IDS(TOOL_CALLS, A, OPEN), "@a:{}/");
    expect_with(w, on, IDS(A), IDS(A, TOOL_CALLS, B), "a[TOOL_CALLS]b/");
    /* the request has no tools, or wants no parts */
    expect_with(w, 0, IDS(A), IDS(TOOL_CALLS, A, OPEN, CLOSE), "[TOOL_CALLS]a{}/");
    expect_with(w, on | MN_STREAM_SPECIAL, IDS(A), IDS(TOOL_CALLS, A, OPEN, CLOSE),
                "[TOOL_CALLS]a{}/");
    /* thinking about calls, and between what may become one */
    expect_with(w, on, IDS(A), IDS(THINK, TOOL_CALLS, A, OPEN, CLOSE, END_THINK, B),
                "b/[TOOL_CALLS]a{}");
    expect_with(w, on, IDS(A), IDS(TOOL_CALLS, A, THINK, B, END_THINK, OPEN, CLOSE),
                "[TOOL_CALLS]a{}/b");
    /* stop strings: in text alone, and not across a call */
    expect_stop(w, on, STOPS("b", "fun"), IDS(A, TOOL_CALLS, FUN, OPEN, CLOSE), "a|||fun{|}|");
    expect_stop(w, on, STOPS("ab"), IDS(A, TOOL_CALLS, FUN, OPEN, CLOSE, B), "|||afun{|}|b|");
    expect_stop(w, on, STOPS("ab"), IDS(TOOL_CALLS, FUN, OPEN, CLOSE, A, B, A), "||fun{|}||||!");
    expect_stop(w, on, STOPS("LS]b"), IDS(TOOL_CALLS, B, NEWLINE), "||[TOOL_CAL|!");
    world_close(w);
}

/* A vocabulary of the 256 bytes, in the characters of byte-level BPE. */
static char *byte_tokens(void) {
    char *text = calloc(1, 8192);
    char *to = text + sprintf(text, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    int n_moved = 0;
    for (int i = 0; i < 256; i++) {
        const int own = (i > 32 && i < 127) || (i > 160 && i != 173);
        const int code = own ? i : 256 + n_moved++;
        to += sprintf(to, i ? ",\"" : "\"");
        if (code == '"' || code == '\\')
            to += sprintf(to, "\\%c", code);
        else if (code < 128)
            to += sprintf(to, "%c", code);
        else
            to += sprintf(to, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
        to += sprintf(to, "\":%d", i);
    }
    strcpy(to, "},\"merges\":[]},\"decoder\":{\"type\":\"ByteLevel\"}}");
    return text;
}

/* All events of a text, one byte per id: "T:", "?:" thinking, "@:" name, "(" arguments. */
static void expect_bytes(const world *w, const char *tools, const char *text, const char *want) {
    static const char marks[] = " T?@(";
    char got[512] = "";
    uint32_t last = 0;
    mn_stream *s = NULL;
    const mn_stream_event *e = NULL;
    uint32_t n = 0;
    const uint32_t flags = MN_STREAM_CONTINUE | MN_STREAM_TOOLS;
    assert_int_equal(mn_stream_create(w->model, flags, &s, NULL), MN_OK);
    if (tools)
        assert_int_equal(mn_stream_tools(s, (mn_str){tools, strlen(tools)}, NULL), MN_OK);
    for (size_t i = 0; i <= strlen(text); i++) {
        const int32_t id = (unsigned char)text[i];
        const mn_status st =
            text[i] ? mn_stream_push(s, id, &e, &n, NULL) : mn_stream_finish(s, &e, &n, NULL);
        assert_int_equal(st, MN_OK);
        for (uint32_t k = 0; k < n; k++) {
            if (e[k].kind != last)
                sprintf(got + strlen(got), "%c:", marks[e[k].kind]);
            last = e[k].kind;
            strncat(got, e[k].text.ptr, e[k].text.len);
        }
    }
    assert_string_equal(got, want);
    mn_stream_free(s);
}

/* Thinking, text and calls of one output, all of it spelled. */
static void whole_output(void **state) {
    static const char schemas[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
                                  "{\"zip\":{\"type\":\"string\"}}}}}]";
    static const char coder[] = "<tool_call><function=f><parameter=zip>\n75001\n</parameter>"
                                "</function></tool_call>";
    char *tokens = byte_tokens();
    world *w = world_open(tokens, "{{ tools }}<tool_call></think>");
    (void)state;
    expect_bytes(
        w, NULL,
        "<think>\nh\xc3\xa4?<tool_call>\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", "
        "\"arguments\": {\"a\": \"\xf0\x9f\xa6\x99\"}}\n</tool_call>",
        "?:h\xc3\xa4?<tool_call>\nT:I look.@:f(:{\"a\": \"\xf0\x9f\xa6\x99\"}");
    expect_bytes(w, NULL, coder, "@:f(:{\"zip\": 75001}");
    expect_bytes(w, schemas, coder, "@:f(:{\"zip\": \"75001\"}");
    mn_stream *s = NULL;
    mn_error err = MN_ERROR;
    assert_int_equal(mn_stream_create(w->model, MN_STREAM_TOOLS, &s, NULL), MN_OK);
    assert_int_equal(mn_stream_tools(s, (mn_str){"{}", 2}, &err), MN_INVALID);
    assert_int_equal(mn_stream_tools(s, (mn_str){"[]", 2}, &err), MN_OK);
    const mn_stream_event *e = NULL;
    uint32_t n = 0;
    assert_int_equal(mn_stream_push(s, 'a', &e, &n, NULL), MN_OK);
    assert_int_equal(mn_stream_tools(s, (mn_str){"[]", 2}, &err), MN_INVALID);
    mn_stream_free(s);
    world_close(w);
    free(tokens);
}

/* All of it, special tokens too. */
static void plain(void **state) {
    const world *w = *state;
    mn_stream *s = NULL;
    const mn_stream_event *e = NULL;
    uint32_t n = 0;
    char got[64] = "";
    const int32_t ids[] = {START, THINK, A, END_THINK};
    assert_int_equal(mn_stream_create(w->model, MN_STREAM_SPECIAL, &s, NULL), MN_OK);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(mn_stream_push(s, ids[i], &e, &n, NULL), MN_OK);
        assert_int_equal(n, 1);
        assert_int_equal(e->kind, MN_EVENT_TEXT);
        strncat(got, e->text.ptr, e->text.len);
    }
    assert_string_equal(got, "<|start|><think>a</think>");
    mn_stream_free(s);
}

/* With a model, with its template, and with neither. */
static void templates(void **state) {
    const world *w = *state;
    mn_error err = MN_ERROR;
    char *text = NULL;
    uint64_t n = 0;
    mn_str vars = {"{\"x\": [1, 2.0]}", 15};
    assert_int_equal(mn_template_render(w->model, "{{ x[1] }}|{{ x }}", vars, &text, &n, &err),
                     MN_OK);
    assert_string_equal(text, "2.0|[1, 2.0]");
    assert_int_equal(n, strlen(text));
    mn_json_free(text);
    assert_int_equal(mn_template_render(NULL, "{{ raise_exception('no') }}", vars, &text, &n, &err),
                     MN_BAD_INPUT);
    assert_string_equal(err.msg, "no");
    assert_int_equal(mn_template_render(w->model, NULL, vars, &text, &n, &err), MN_UNSUPPORTED);
    assert_int_equal(mn_template_render(NULL, NULL, vars, &text, &n, &err), MN_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts),
                                       cmocka_unit_test(tags),
                                       cmocka_unit_test(harmony),
                                       cmocka_unit_test(harmony_calls),
                                       cmocka_unit_test(harmony_malformed),
                                       cmocka_unit_test(harmony_places),
                                       cmocka_unit_test(marks_of_calls),
                                       cmocka_unit_test(stops),
                                       cmocka_unit_test(calls),
                                       cmocka_unit_test(whole_output),
                                       cmocka_unit_test(plain),
                                       cmocka_unit_test(spelled),
                                       cmocka_unit_test(templates)};
    return cmocka_run_group_tests(tests, begin, end);
}
