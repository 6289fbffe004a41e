/* test_calls.c -- tool calls in the text of an answer: what each family of models writes, what only
 * looks like it, the templates of models as the oracle of both, and hostile answers. All of it is
 * fed whole, byte by byte and in random pieces: the events must be the same. */
#include "text/chat/call_types.h"
#include "text/chat/calls.h"
#include "text/chat/chat.h"
#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t seed = 88172645463325252u;
static uint32_t draw(uint32_t n) { /* 0 .. n - 1; Marsaglia's xorshift */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- events as text -------------------------------------------------------------------------- */
/* Text as it is, a call as «number name|arguments». */
static void write_events(mn_events *events, mn_text *out) {
    bool in_call = false;
    assert_int_equal(mn_events_done(events), MN_OK);
    for (uint32_t i = 0; i < events->n; i++) {
        const mn_stream_event *e = &events->list[i];
        if (in_call && e->kind != MN_EVENT_ARGUMENTS)
            mn_text_puts(out, "\xc2\xbb");
        in_call = e->kind != MN_EVENT_TEXT;
        if (e->kind == MN_EVENT_CALL)
            mn_text_printf(out, "\xc2\xab%u ", e->call);
        mn_text_put(out, e->text.ptr, e->text.len);
        if (e->kind == MN_EVENT_CALL)
            mn_text_puts(out, "|");
    }
    mn_text_puts(out, in_call ? "\xc2\xbb" : "");
}

/* All events of a text whose pieces have at most `most` bytes; 0: whole. */
static const struct cJSON *tools; /* of the request */
static mn_calls_end ending;       /* how the answer ends */
static void collect(const mn_call_family *family, mn_str text, uint32_t most, mn_events *all) {
    mn_calls calls = {.family = family, .tools = tools};
    while (text.len) {
        const uint64_t want = most ? 1 + draw(most) : text.len;
        const uint64_t n = MN_MIN(text.len, want);
        mn_calls_push(&calls, (mn_str){text.ptr, n}, all);
        text.ptr += n;
        text.len -= n;
        assert_true(calls.held.len <= MN_CALL_HELD);
    }
    mn_calls_finish(&calls, ending, all);
    mn_calls_free(&calls);
}

static void expect_cut(const mn_call_family *family, const char *text, uint32_t most,
                       const char *want) {
    mn_events all = {0};
    mn_text got = {0};
    mn_text_puts(&got, "");
    collect(family, mn_str_of(text), most, &all);
    write_events(&all, &got);
    assert_string_equal(got.ptr, want);
    mn_text_free(&got);
    mn_events_free(&all);
}

static void expect(const mn_call_family *family, const char *text, const char *want) {
    assert_non_null(family);
    expect_cut(family, text, 0, want);
    expect_cut(family, text, 1, want);
    for (uint32_t i = 0; i < 8; i++)
        expect_cut(family, text, 2 + 3 * i, want);
}

/* The same of an answer that a limit cut. */
static void expect_of_cut(const mn_call_family *family, const char *text, const char *want) {
    ending = MN_CALLS_CUT;
    expect(family, text, want);
    ending = MN_CALLS_ENDED;
}

static void stays(const mn_call_family *family, const char *text) {
    expect(family, text, text);
}

static const mn_call_family *family(const char *of_template) {
    return mn_call_family_in(mn_str_of(of_template));
}

/* ---- what families write --------------------------------------------------------------------- */
#define CALL(name, args) "{\"name\": \"" name "\", \"arguments\": " args "}"

static void hermes(void **state) {
    (void)state;
    const mn_call_family *f = family("... <tool_call> ...");
    expect(f, "<tool_call>\n" CALL("f", "{\"a\": 1}") "\n</tool_call>", "«0 f|{\"a\": 1}»");
    expect(f, "Let me see.\n<tool_call>\n" CALL("f", "{}") "\n</tool_call>\n",
           "Let me see.«0 f|{}»");
    expect(f,
           "<tool_call>" CALL("f", "{}") "</tool_call>\n<tool_call>" CALL("g", "{}") "</tool_call>",
           "«0 f|{}»«1 g|{}»");
    expect(f, "<tool_call>" CALL("f", "{}") "</tool_call>\n\nDone.  ", "«0 f|{}»Done.  ");
    /* no closing mark, other keys, another order, no arguments */
    expect(f, "<tool_call>" CALL("f", "{}"), "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "{}") " and", "«0 f|{}»and");
    expect(f,
           "<tool_call>{\"id\": 1.5e3, \"name\" : \"f\",\"parameters\":{\"x\":[]},\"y\":null "
           "}</tool_call>",
           "«0 f|{\"x\":[]}»");
    expect(f, "<tool_call>{\"arguments\": {\"a\": \"}\"}, \"name\": \"f\"}</tool_call>",
           "«0 f|{\"a\": \"}\"}»");
    expect(f, "<tool_call>{\"name\": \"f\"}</tool_call>", "«0 f|{}»");
    /* arguments as a string, as clients of OpenAI have them */
    expect(f,
           "<tool_call>" CALL(
               "f", "\" {\\\"a\\\": \\\"\\u00e4\\\\n\\ud83e\\udd99\\\"}\"") "</tool_call>",
           "«0 f|{\"a\": \"\xc3\xa4\\n\xf0\x9f\xa6\x99\"}»");
    expect(f, "<tool_call>{\"arguments\": \"{}\", \"name\": \"\\u0066\"}</tool_call>", "«0 f|{}»");
    /* marks inside of arguments */
    expect(f, "<tool_call>" CALL("f", "{\"a\": \"</tool_call><tool_call>\"}") "</tool_call>",
           "«0 f|{\"a\": \"</tool_call><tool_call>\"}»");
    /* cut by the limit of tokens */
    expect_of_cut(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1", "«0 f|{\"a\": [1»");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1", "«0 f|{\"a\": [1]}»");
    expect(f, "<tool_call>" CALL("f", "{}") "</tool", "«0 f|{}»");
    expect_of_cut(f, "a<tool_call>{\"name\": \"f\", \"argum", "a");
    expect_of_cut(f, "a<tool_call>", "a");
    expect_of_cut(f, "a<tool_", "a");
    expect_of_cut(f, "a<", "a<");
    stays(f, "<tool_call>{\"name\": \"f\", \"argum");
}

static void hermes_text(void **state) {
    (void)state;
    const mn_call_family *f = family("... <tool_call> ...");
    stays(f, "");
    stays(f, " \n a  <tool> b\n\n");
    stays(f, "<tool_call>");
    stays(f, "<tool_call> no </tool_call>");
    stays(f, "<tool_call>{}</tool_call>");
    stays(f, "<tool_call>[]</tool_call>");
    stays(f, "<tool_call>{\"name\": 1}");
    stays(f, "<tool_call>{\"name\": \"\", \"arguments\": {}}");
    stays(f, "<tool_call>{\"name\": \"a\\nb\", \"arguments\": {}}");
    stays(f, "<tool_call>{\"name\": \"f\", \"name\": \"f\", \"arguments\": {}}");
    stays(f, "<tool_call>{\"arguments\": {}}</tool_call>");
    stays(f, "<tool_call>" CALL("f", "[1]"));
    expect(f, "<tool_call>" CALL("f", "null"), "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "None"), "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "\"\""), "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "\" \""), "«0 f|{}»");
    stays(f, "<tool_call>" CALL("f", "\"[]\""));
    stays(f, "<tool_call>{\"arguments\": \"{} {}\", \"name\": \"f\"}");
    expect(f, "<tool_call>" CALL("f", "\"{\\\"a\\ud800\\n\"}"), "«0 f|{}»");
    stays(f, "<tool_call>{\"name\" \"f\"}");
    expect(f,
           "<tool_call>{'name': 'f', 'arguments': {'a': 'it\\'s \"b\"', \"c\": 'd'}}</tool_call>",
           "«0 f|{\"a\": \"it's \\\"b\\\"\", \"c\": \"d\"}»");
    expect(f, "<tool_call>" CALL("f", "{a_1: {b : 1}, c: 2,}") "</tool_call>",
           "«0 f|{\"a_1\": {\"b\" : 1}, \"c\": 2}»");
    expect(f, "<tool_call>" CALL("f", "[ ]") "</tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {'a", "«0 f|{}»");
    stays(f, "{\"name\": \"f\", \"arguments\": {}}"); /* no mark */
    stays(f, "<<tool_call<tool_call ><tool_calls>");
    /* a call behind what is none */
    expect(f, "<tool_call>x<tool_call>" CALL("f", "{}"), "<tool_call>x«0 f|{}»");
    expect(f, "<tool_<tool_call>" CALL("f", "{}"), "<tool_«0 f|{}»");
    /* what goes wrong once the call was given */
    expect(f, "<tool_call>" CALL("f", "{\"a\": 01}") "</tool_call>", "«0 f|{\"a\": 0}»");
    expect(f, "<tool_call>" CALL("f", "{\"a\": \"\n\"}"), "«0 f|{\"a\": \"\\n\"}»");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}]</tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "{\"a\": 1}}") "</tool_call>\nDone.",
           "«0 f|{\"a\": 1}»Done.");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>Done.",
           "«0 f|{\"a\": 1}»Done.");
    expect(f, "<tool_call>{\"name\": \"f\"\n</tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "{\"a\": 1,}") "</tool_call>", "«0 f|{\"a\": 1}»");
    expect(f, "<tool_call>" CALL("f", "{\"a\": [True, None,], }") "</tool_call>",
           "«0 f|{\"a\": [true, null]}»");
    expect(f, "<tool_call>" CALL("f", "{\"a\": \"C:\\users\\d\"}") "</tool_call>",
           "«0 f|{\"a\": \"C:\\\\users\\\\d\"}»");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1 Sorry.",
           "«0 f|{\"a\": 1 }»Sorry.");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": ", "«0 f|{\"a\": 1}»");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": -",
           "«0 f|{\"a\": 1, \"b\": -0}»");
    /* two calls in one mark, and marks that are wrong */
    expect(f, "<tool_call>\n" CALL("f", "{}") "\n" CALL("g", "{}") "\n</tool_call>",
           "«0 f|{}»«1 g|{}»");
    expect(f, "<tool_call>" CALL("f", "{}") "<tool_call>\nDone.", "«0 f|{}»\nDone.");
    expect(f, "<tool_call>" CALL("f", "{}") "<tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "{}") "</tool_call></tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "{}") " and </tool_call>", "«0 f|{}»and");
    expect(f, "<tool_call>\n```json\n" CALL("f", "{}") "\n```\n</tool_call>", "«0 f|{}»");
    /* as OpenAI's interface has them */
    expect(f,
           "<tool_call>{\"id\": \"1\", \"type\": \"function\", \"function\": " CALL(
               "f", "{\"a\": 1}") "}</tool_call>",
           "«0 f|{\"a\": 1}»");
    expect(f, "<tool_call>{\"function\": \"f\", \"arguments\": {}}</tool_call>", "«0 f|{}»");
    expect(f, "<tool_call>" CALL("f", "\"{\"a\": 1}\"") "</tool_call>", "«0 f|{\"a\": 1}»");
    expect(f, "<tool_call>" CALL("f", "\"{\\\"a\\\": [1\"") "</tool_call>", "«0 f|{\"a\": [1]}»");
}

static void lists(void **state) {
    (void)state;
    const mn_call_family *f = family("<|tool_call|>");
    expect(f, "<|tool_call|>[" CALL("f", "{}") ", " CALL("g", "{\"b\": {}}") "]<|/tool_call|>",
           "«0 f|{}»«1 g|{\"b\": {}}»");
    expect(f, "<|tool_call|>[" CALL("f", "{}") "]\n", "«0 f|{}»");
    expect(f, "<tool_call>[" CALL("f", "{}") "]</tool_call>", "«0 f|{}»");
    expect(f, "<|tool_call|>" CALL("f", "{}") "<|/tool_call|><|tool_call|>" CALL("g", "{}"),
           "«0 f|{}»«1 g|{}»");
    expect(f, "<|tool_call|>[" CALL("f", "{}") ", {\"name\": 2}]", "«0 f|{}»");
    expect(f, "<|tool_call|>[" CALL("f", "{}") ", 1]", "«0 f|{}»");
    expect(f, "<|tool_call|>[" CALL("f", "{}") " , ", "«0 f|{}»");
    stays(f, "<|tool_call|>[1, 2]");
    stays(f, "<|tool_call|>[[" CALL("f", "{}") "]]");
    stays(f, "<|tool_call|>[\"a\"]");
}

static void mistral(void **state) {
    (void)state;
    const mn_call_family *f = family("[TOOL_CALLS][");
    expect(f, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]",
           "«0 f|{\"a\": 1}»");
    expect(f, "[TOOL_CALLS] [" CALL("f", "{}") ",\n" CALL("g", "{}") "]", "«0 f|{}»«1 g|{}»");
    expect(f, "I'll look.[TOOL_CALLS]f[ARGS]{\"a\": [1, 2]}", "I'll look.«0 f|{\"a\": [1, 2]}»");
    expect(f, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g.h-1[CALL_ID]abc123xyz[ARGS] {}",
           "«0 f|{}»«1 g.h-1|{}»");
    expect(f, "[TOOL_CALLS]f{\"a\": 1}", "«0 f|{\"a\": 1}»");
    expect(f, "[TOOL_CALLS]f[[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS]f[«0 f|{}»");
    expect(f, "[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{}", "[TOOL_CALLS]f«0 g|{}»");
    expect(f, "[TOOL_CALLS]f[ARGS]{a", "«0 f|{}»");
    expect(f, "[TOOL_CALLS]f[ARGS]", "«0 f|{}»");
    expect(f, "[TOOL_CALLS]f[ARGS][TOOL_CALLS]g[ARGS]{}", "«0 f|{}»«1 g|{}»");
    expect(f, "[TOOL_CALLS]f[ARGS]null\nDone.", "«0 f|{}»Done.");
    expect(f, "[TOOL_CALLS]f[ARGS]\"{\\\"a\\\": 1}\"", "«0 f|{\"a\": 1}»");
    stays(f, "[TOOL_CALLS]f g[ARGS]{}");
    stays(f, "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}");
    stays(f, "[TOOL_CALLS][ARGS]{}");
    stays(f, "[1] [2] [TOOL]");
}

static void llama(void **state) {
    (void)state;
    const mn_call_family *f = family("{\"name\": function name, \"parameters\": dictionary}");
    assert_ptr_equal(f, family("<|python_tag|>"));
    expect(f, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "«0 f|{\"a\": 1}»");
    expect(f, " \n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "«0 f|{}»");
    expect(f, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "«0 f|{}»");
    expect(f, "<|python_tag|>" CALL("f", "{}") "; " CALL("g", "{}") "\n" CALL("h", "{}"),
           "«0 f|{}»«1 g|{}»«2 h|{}»");
    expect(f, CALL("f", "{}") "; no", "«0 f|{}»; no");
    stays(f, "<|python_tag|>brave_search.call(query=\"x\")");
    stays(f, "Here: {\"name\": \"f\", \"parameters\": {}}");
    stays(f, "{\"city\": \"Ghent\", \"name\": \"f\", \"parameters\": {}}");
    stays(f, "{\"name\": \"Ghent\"}");
    stays(f, "{}");
    stays(f, "{\"name\": \"Ghent\", \"id\": 3} {\"name\": \"f\", \"parameters\": {}}");
}

static void tags(void **state) {
    (void)state;
    const mn_call_family *f = family("<tool_call>\n<function=");
    expect(f,
           "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
           "«0 f|{\"a\": \"x\"}»");
    expect(
        f,
        "<tool_call><function=f><parameter=a>12</parameter><parameter=b>[1, {\"x\": null}]"
        "</parameter><parameter=c>12 m</parameter><parameter=d></parameter></function></tool_call>",
        "«0 f|{\"a\": 12, \"b\": [1, {\"x\": null}], \"c\": \"12 m\", \"d\": \"\"}»");
    expect(
        f,
        "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call><function=g></function>",
        "«0 f|{}»«1 g|{}»");
    /* lines, quotes, tags inside of a value */
    expect(f, "<tool_call><function=f><parameter=a>\n\n\"x\\\n</param>\n\n</parameter></function>",
           "«0 f|{\"a\": \"\\n\\\"x\\\\\\n</param>\\n\"}»");
    expect(f,
           "<tool_call><function=f><parameter=a>true</parameter><parameter=b>-</parameter>"
           "<parameter=c>{\"x\": 1</parameter></function>",
           "«0 f|{\"a\": true, \"b\": \"-\", \"c\": \"{\\\"x\\\": 1\"}»");
    expect_of_cut(f, "<tool_call><function=f><parameter=a>x", "«0 f|{\"a\": \"x»");
    expect(f, "<tool_call><function=f><parameter=a>x", "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call><function=f>no", "«0 f|{}»no");
    expect(f, "<tool_call><function=f><parameter=a>1</parameter>\nIt is done.",
           "«0 f|{\"a\": 1}»It is done.");
    expect(f, "<tool_call><function=f><parameter=a>1</parameter>\n</tool_call>\nDone.",
           "«0 f|{\"a\": 1}»Done.");
    expect(f,
           "<tool_call><function=f><parameter=a>1</parameter>\n<parameter=\nx\n</"
           "parameter><parameter=b>2</parameter></function></tool_call>",
           "«0 f|{\"a\": 1, \"b\": 2}»");
    expect(f, "<tool_call><function=f><parameter a>1</parameter></function></tool_call>",
           "«0 f|{}»");
    expect(f,
           "<tool_call><function=f><parameter=a>1</parameter><function=g></function></tool_call>",
           "«0 f|{\"a\": 1}»«1 g|{}»");
    expect(f, "<tool_call><function=f></function><function=g></function></tool_call>",
           "«0 f|{}»«1 g|{}»");
    expect(f, "<tool_call><function=f><parameter=a>x\n</function>\n</tool_call>",
           "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call><function=f><parameter=a>x</function>", "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call><function=f><parameter=a>x</function> y</parameter></function>",
           "«0 f|{\"a\": \"x</function> y\"}»");
    expect(f, "<tool_call><function=f>{\"a\": 1}</function></tool_call>", "«0 f|{\"a\": 1}»");
    stays(f, "<tool_call><function=>");
    stays(f, "<tool_call><function name=f>");
    stays(f, "<tool_call><functions");
    stays(f, "<function=f>");
}

/* MiniMax-M2: several calls in one mark. */
static void invokes(void **state) {
    (void)state;
    const mn_call_family *f = family("<minimax:tool_call>");
    expect(f,
           "So.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n"
           "<parameter name=\"b\">\nx\n</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
           "</minimax:tool_call>",
           "So.«0 f|{\"a\": 1, \"b\": \"\\nx\\n\"}»«1 g|{}»");
    expect(f, "<minimax:tool_call><invoke name=f><parameter name=a>x</parameter></invoke>",
           "«0 f|{\"a\": \"x\"}»");
    expect(f,
           "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</invoke>\n"
           "</minimax:tool_call>",
           "«0 f|{\"a\": \"x\"}»");
    expect_of_cut(f, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x",
                  "«0 f|{\"a\": \"x»");
    expect(f, "<minimax:tool_call>" CALL("f", "{}") "</minimax:tool_call>", "«0 f|{}»");
    stays(f, "<minimax:tool_call>\nnothing");
    stays(f, "<invoke name=\"f\">");
    assert_int_equal(mn_call_style_of(f, mn_str_of("<minimax:tool_call>")).tags,
                     MN_CALL_INVOKE_TAGS);
}

/* GLM-4.5: the name behind the mark, then keys and values. */
static void arg_tags(void **state) {
    (void)state;
    const mn_call_family *f = family("<tool_call> ... <arg_key>");
    assert_ptr_not_equal(f, family("<tool_call>"));
    expect(f,
           "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b c</arg_key>\n"
           "<arg_value>x</arg_value></tool_call>\n<tool_call>g\n</tool_call>",
           "«0 f|{\"a\": 1, \"b c\": \"x\"}»«1 g|{}»");
    expect(f, "<tool_call>f</tool_call> Done.", "«0 f|{}»Done.");
    expect(f, "<tool_call>f<arg_key>a</arg_key><arg_value>\n<b>\n</arg_value></tool_call>",
           "«0 f|{\"a\": \"\\n<b>\\n\"}»");
    /* what models leave out: the tag of a value, its end, that of the call */
    expect(f, "<tool_call>f\n<arg_key>a</arg_key>\nx</arg_value>\n</tool_call>",
           "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\n</tool_call>",
           "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>",
           "«0 f|{\"a\": \"x\"}»");
    expect(f, "<tool_call>f\n<arg_key>a</arg_key>\n", "«0 f|{\"a\": \"\"}»");
    expect_of_cut(f, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x", "«0 f|{\"a\": \"x»");
    expect(f, "<tool_call>\n" CALL("f", "{\"a\": 1}") "\n</tool_call>", "«0 f|{\"a\": 1}»");
    stays(f, "<tool_call>");
    stays(f, "<arg_key>a</arg_key>");
    stays(f, "<tool_call>f g");
    assert_true(mn_call_family_has_mark(f, mn_str_of("<arg_value>")));
    assert_int_equal(mn_call_style_of(f, mn_str_of("<tool_call><arg_key>")).tags, MN_CALL_ARG_TAGS);
}

/* JSON with other keys, or with the name as the key. */
static void other_keys(void **state) {
    (void)state;
    const mn_call_family *f = family("<|START_ACTION|>");
    expect(f,
           "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
           "{\"a\": 1}}\n]<|END_ACTION|>",
           "«0 f|{\"a\": 1}»");
    assert_string_equal(mn_call_style_of(f, mn_str_of("<|START_ACTION|>")).key, "parameters");
    f = family("<|tools_prefix|>");
    expect(f, "a <|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|> b",
           "a«0 f|{\"a\": 1}»«1 g|{}»b");
    expect(f, "<|tools_prefix|>[" CALL("f", "{}") "]<|tools_suffix|>", "«0 f|{}»");
    expect_of_cut(f, "<|tools_prefix|>[{\"f\": {\"a\": \"x", "«0 f|{\"a\": \"x»");
    assert_true(mn_call_style_of(f, mn_str_of("<|tools_prefix|>")).keyed);
    expect(family("<tool_calls>"),
           "<tool_calls>[" CALL("f", "{}") ", " CALL("g", "{}") "]</tool_calls>",
           "«0 f|{}»«1 g|{}»");
}

/* The types of the request's tools decide. */
static void typed_tags(void **state) {
    (void)state;
    static const char schemas[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
        "{\"properties\": {"
        "\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"b\": {\"type\": "
        "\"boolean\"},"
        "\"l\": {\"type\": \"array\"}, \"o\": {\"type\": [\"string\", \"null\"]},"
        "\"e\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"null\"}]}, \"x\": {}, "
        "\"q\": {\"allOf\": [{\"$ref\": \"#/$defs/t\"}]}, \"r\": {\"$ref\": \"#/$defs/r\"}}, "
        "\"$defs\": {\"t\": {\"anyOf\": [{\"type\": \"boolean\"}]}, "
        "\"r\": {\"anyOf\": [{\"$ref\": \"#/$defs/r\"}, {\"$ref\": \"#/$defs/r\"}]}}}}}, 1, "
        "{\"name\": \"g\"}]";
    static const char *const values[][3] = {
        {"s", "75001", "\"75001\""}, {"s", "{}", "\"{}\""},
        {"s", "True", "\"True\""},   {"n", "75001", "75001"},
        {"n", "many", "\"many\""},   {"n", "[1]", "\"[1]\""},
        {"b", "True", "true"},       {"b", "False", "false"},
        {"b", "true", "true"},       {"b", "Truest", "\"Truest\""},
        {"b", "Tru", "\"Tru\""},     {"b", "None", "\"None\""},
        {"l", "[1, {}]", "[1, {}]"}, {"l", "1", "\"1\""},
        {"o", "null", "null"},       {"o", "None", "null"},
        {"o", "5", "\"5\""},         {"e", "-1e3", "-1e3"},
        {"e", "None", "null"},       {"x", "5", "5"},
        {"x", "True", "\"True\""},   {"y", "5", "5"},
        {"q", "True", "true"},       {"r", "True", "\"True\""}};
    cJSON *list = NULL;
    assert_int_equal(mn_call_types_read(mn_str_of("{}"), &list, NULL), MN_INVALID);
    assert_int_equal(mn_call_types_read(mn_str_of("["), &list, NULL), MN_INVALID);
    assert_int_equal(mn_call_types_read(mn_str_of(schemas), &list, NULL), MN_OK);
    tools = list;
    for (size_t i = 0; i < MN_COUNT(values); i++) {
        char text[256];
        char want[256];
        snprintf(text, sizeof text,
                 "<tool_call><function=f><parameter=%s>\n%s\n</parameter></function></tool_call>",
                 values[i][0], values[i][1]);
        snprintf(want, sizeof want, "«0 f|{\"%s\": %s}»", values[i][0], values[i][2]);
        expect(family("<tool_call>"), text, want);
    }
    expect(family("<tool_call>"), "<tool_call><function=g><parameter=s>5</parameter></function>",
           "«0 g|{\"s\": 5}»");
    tools = NULL;
    cJSON_Delete(list);
}

/* A long value is passed on as JSON before it has ended, and may turn out to be none. */
static void long_values(void **state) {
    (void)state;
    const mn_call_family *f = family("<tool_call>");
    static const char *const ends[][2] = {{"1]\n</parameter></function>", "1]}»"},
                                          {"1]</parameter></function></tool_call>", "1]}»"},
                                          {"1]\n</param", "1]}»"},
                                          {"1\n</parameter></function>", "1]}»"},
                                          {"x]", "]}»"}};
    for (size_t i = 0; i < MN_COUNT(ends); i++) {
        mn_text text = {0};
        mn_text want = {0};
        mn_text_puts(&text, "<tool_call><function=f><parameter=a>[");
        mn_text_puts(&want, "«0 f|{\"a\": [");
        for (int k = 0; k < 3000; k++) {
            mn_text_puts(&text, "1, ");
            mn_text_puts(&want, "1, ");
        }
        mn_text_puts(&text, ends[i][0]);
        if (*ends[i][1] == ']')
            want.len -= 2; /* the last comma */
        mn_text_puts(&want, ends[i][1]);
        expect(f, text.ptr, want.ptr);
        mn_text_free(&text);
        mn_text_free(&want);
    }
    /* digits without an end are a string */
    mn_text text = {0};
    mn_events all = {0};
    mn_text_puts(&text, "<tool_call><function=f><parameter=a>");
    while (text.len < 20000)
        mn_text_puts(&text, "1");
    mn_text_puts(&text, "</parameter></function>");
    collect(f, (mn_str){text.ptr, text.len}, 9, &all);
    assert_int_equal(mn_events_done(&all), MN_OK);
    assert_int_equal(all.n, 2);
    assert_true(mn_str_ends(all.list[1].text, "11\"}"));
    mn_events_free(&all);
    mn_text_free(&text);
}

/* ---- templates as the oracle ----------------------------------------------------------------- */
/* The assistant's part of templates that are not among the shared ones, in few words. */
#define TURNS(call)                                                                                \
    "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}{% else %}A{{ m.content }}"   \
    "{% for c in m.tool_calls %}" call "{% endfor %}Z{% endif %}{% endfor %}"                      \
    "{% if add_generation_prompt %}A{% endif %}"
#define LIST(mark, call, end)                                                                      \
    TURNS("{{ '" mark "[' if loop.first else ', ' }}" call "{{ ']" end "' if loop.last }}")

static const struct {
    const char *name, *source;
    bool only_one;
} short_templates[] = {
    {"Phi-4-mini", TURNS("<|tool_call|>{{ c.function|tojson }}<|/tool_call|>"), false},
    {"Phi-4-mini list", LIST("<|tool_call|>", "{{ c.function|tojson }}", "<|/tool_call|>"), false},
    {"Granite 3", LIST("<tool_call>", "{{ c.function|tojson }}", "") "{# <|tool_call|> #}", false},
    {"Mistral Small 3.2",
     TURNS("[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ "
           "c.function.arguments|tojson }}"),
     false},
    {"Ministral 3",
     TURNS("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments|tojson }}"), false},
    {"Qwen3-Coder",
     TURNS("\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in "
           "c.function.arguments|items %}"
           "<parameter={{ k }}>\n{{ v if v is string else v|tojson }}\n</parameter>\n{% endfor %}"
           "</function>\n</tool_call>"),
     false},
    {"Seed-OSS",
     TURNS("\n<seed:tool_call>\n<function={{ c.function.name }}>\n{% for k, v in "
           "c.function.arguments|items %}<parameter={{ k }}>{{ v if v is string else v|tojson }}"
           "</parameter>\n{% endfor %}</function>\n</seed:tool_call>"),
     false},
    {"MiniMax-M2",
     TURNS("{{ '\n<minimax:tool_call>\n' if loop.first }}<invoke name=\"{{ c.function.name }}\">\n"
           "{% for k, v in c.function.arguments|items %}<parameter name=\"{{ k }}\">"
           "{{ v if v is string else v|tojson }}</parameter>\n{% endfor %}</invoke>\n"
           "{{ '</minimax:tool_call>' if loop.last }}"),
     false},
    {"GLM-4.5",
     TURNS(
         "\n<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments|items %}"
         "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v if v is string else v|tojson }}</arg_value>\n"
         "{% endfor %}</tool_call>"),
     false},
    {"Hunyuan A13B", LIST("<tool_calls>", "{{ c.function|tojson }}", "</tool_calls>"), false},
    {"Command R7B",
     LIST("<|START_ACTION|>",
          "\n    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ c.function.name "
          "}}\", "
          "\"parameters\": {{ c.function.arguments|tojson }}}",
          "<|END_ACTION|>"),
     false},
    {"Apertus",
     LIST("<|tools_prefix|>", "{\"{{ c.function.name }}\": {{ c.function.arguments|tojson }}}",
          "<|tools_suffix|>"),
     false},
    {"EXAONE 4, Ernie 4.5", TURNS("\n<tool_call>{{ c.function|tojson }}</tool_call>"), false}};

static const struct {
    const char *name;
    bool only_one;
} shared_templates[] = {{"Qwen-Qwen2.5-7B-Instruct", false},
                        {"Qwen-Qwen3-0.6B", false},
                        {"meta-llama-Llama-3.1-8B-Instruct", true},
                        {"meta-llama-Llama-3.2-3B-Instruct", true},
                        {"mistralai-Mistral-Nemo-Instruct-2407", false}};

static const char *const functions[] = {
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ghent\", \"days\": 3, \"at\": [1.5, "
    "null]}}",
    "{\"name\": \"say\", \"arguments\": {\"what\": \"a \\\"b\\\" \\\\ {[<tool_call>]} \\u00e4 "
    "\\ud83e\\udd99\\nx\"}}",
    "{\"name\": \"now\", \"arguments\": {}}",
    "{\"name\": \"deep\", \"arguments\": {\"a\": {\"b\": [{\"c\": {\"d\": true}}], \"e\": \"\"}}}"};

static void render(const mn_jinja *t, const char *messages, bool prompt, mn_text *out) {
    mn_error err = MN_ERROR_INIT;
    mn_text vars = {0};
    mn_text_printf(&vars, "{\"messages\": %s, \"add_generation_prompt\": %s}", messages,
                   prompt ? "true" : "false");
    if (mn_chat_render_json(t, (mn_str){vars.ptr, vars.len}, mn_str_of("<s>"), mn_str_of("</s>"), 0,
                            out, &err))
        fail_msg("%s", err.msg);
    mn_text_free(&vars);
}

/* The calls of a rendered answer are those that it was made of, and there is nothing else. */
static void check_answer(const char *name, const mn_call_family *f, mn_str text, uint32_t from,
                         uint32_t n) {
    mn_events all = {0};
    uint32_t at = 0;
    collect(f, text, draw(2) ? 7 : 40, &all);
    assert_int_equal(mn_events_done(&all), MN_OK);
    if (all.n != 2 * n)
        fail_msg("%s: %u events in %.*s", name, all.n, (int)text.len, text.ptr);
    for (uint32_t i = 0; i < n; i++) {
        cJSON *made = cJSON_Parse(functions[from + i]);
        const char *called = cJSON_GetStringValue(cJSON_GetObjectItem(made, "name"));
        const mn_stream_event *e = &all.list[at];
        assert_int_equal(e[0].kind, MN_EVENT_CALL);
        assert_int_equal(e[1].kind, MN_EVENT_ARGUMENTS);
        assert_int_equal(e[1].call, i);
        assert_true(mn_str_is(e[0].text, called));
        cJSON *args = cJSON_ParseWithLength(e[1].text.ptr, e[1].text.len);
        if (!cJSON_Compare(args, cJSON_GetObjectItem(made, "arguments"), true))
            fail_msg("%s: %.*s", name, (int)text.len, text.ptr);
        cJSON_Delete(args);
        cJSON_Delete(made);
        at += 2;
    }
    mn_events_free(&all);
}

/* Renders an answer with n calls, and feeds what stands between prompt and end mark. */
static void round_trip(const char *name, const mn_jinja *t, const mn_call_family *f, uint32_t from,
                       uint32_t n) {
    mn_text with = {0};
    mn_text all = {0};
    mn_text prompt = {0};
    mn_text_puts(&with, "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
                        "\"content\": \"\", \"tool_calls\": [");
    for (uint32_t i = 0; i < n; i++)
        mn_text_printf(&with,
                       "%s{\"type\": \"function\", \"id\": \"abcdefgh%u\", \"function\": %s}",
                       i ? ", " : "", i, functions[from + i]);
    mn_text_puts(&with, "]}]");
    render(t, "[{\"role\": \"user\", \"content\": \"Hi\"}]", true, &prompt);
    render(t, with.ptr, false, &all);
    size_t begin = 0;
    while (begin < prompt.len && begin < all.len && prompt.ptr[begin] == all.ptr[begin])
        begin++;
    mn_str answer = {all.ptr + begin, all.len - begin};
    static const char *const marks[] = {"<|im_end|>", "<|eot_id|>", "</s>", "Z",
                                        "<think>\n\n</think>\n\n"};
    for (size_t i = 0; i < MN_COUNT(marks); i++) {
        const char *at = memmem(answer.ptr, answer.len, marks[i], strlen(marks[i]));
        if (at == answer.ptr)
            answer = (mn_str){at + strlen(marks[i]), answer.len - strlen(marks[i])};
        else if (at)
            answer.len = (uint64_t)(at - answer.ptr);
    }
    check_answer(name, f, answer, from, n);
    mn_text_free(&with);
    mn_text_free(&all);
    mn_text_free(&prompt);
}

static void use_template(const char *name, mn_str source, bool only_one) {
    mn_jinja *t = NULL;
    mn_error err = MN_ERROR_INIT;
    const mn_call_family *f = mn_call_family_in(source);
    if (mn_jinja_parse(source, &t, &err))
        fail_msg("%s: %s", name, err.msg);
    if (!f) /* Llama 3.2's vocabulary tells */
        f = family("<|python_tag|>");
    for (uint32_t round = 0; round < 8; round++)
        for (uint32_t from = 0; from < MN_COUNT(functions); from++)
            for (uint32_t n = 1; n <= (only_one ? 1 : MN_COUNT(functions) - from); n++)
                round_trip(name, t, f, from, n);
    mn_jinja_free(t);
}

static void templates(void **state) {
    (void)state;
    const char *shared = getenv("MINERVA_SHARED");
    const char *root = getenv("MINERVA_SOURCE_ROOT");
    for (size_t i = 0; i < MN_COUNT(short_templates); i++)
        use_template(short_templates[i].name, mn_str_of(short_templates[i].source),
                     short_templates[i].only_one);
    for (size_t i = 0; i < MN_COUNT(shared_templates); i++) {
        const char *name = shared_templates[i].name;
        mn_text path = {0};
        char *text = NULL;
        uint64_t n = 0;
        if (shared)
            mn_text_printf(&path, "%s/templates/%s.jinja", shared, name);
        else
            mn_text_printf(&path, "%s/../shared/templates/%s.jinja", root ? root : ".", name);
        if (mn_read_file(path.ptr, 1 << 20, &text, &n, NULL) == MN_OK)
            use_template(name, (mn_str){text, n}, shared_templates[i].only_one);
        else
            printf("skipped: no %s\n", path.ptr);
        mn_free(text);
        mn_text_free(&path);
    }
}

/* ---- anything -------------------------------------------------------------------------------- */
static const char *const words[] = {"<tool_call>",
                                    "</tool_call>",
                                    "[TOOL_CALLS]",
                                    "[ARGS]",
                                    "<|tool_call|>",
                                    "<|/tool_call|>",
                                    "<|python_tag|>",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"name\"",
                                    "\"arguments\"",
                                    "{\"name\": \"f\", \"arguments\": ",
                                    "\"f\"",
                                    "{\"a\": 1}",
                                    "\"{\\\"a\\\": 1}\"",
                                    "<function=f>",
                                    "<parameter=a>",
                                    "\n</parameter>",
                                    "</function>",
                                    " ",
                                    "\n",
                                    "a",
                                    "\\",
                                    "\"",
                                    "\xc3\xa4",
                                    "1",
                                    ";",
                                    "f[ARGS]{}",
                                    ">>>",
                                    "<|recipient|>",
                                    "<|content|>",
                                    "f\n",
                                    "all\n",
                                    "```",
                                    "<parameter=b>",
                                    "None",
                                    "-",
                                    "<",
                                    "<minimax:tool_call>",
                                    "</minimax:tool_call>",
                                    "<invoke name=\"f\">",
                                    "<parameter name=\"a\">",
                                    "</invoke>",
                                    "</parameter>",
                                    "<tool_call>f\n",
                                    "<arg_key>",
                                    "</arg_key>",
                                    "<arg_key>a</arg_key>",
                                    "<arg_value>",
                                    "</arg_value>",
                                    "<seed:tool_call>",
                                    "</seed:tool_call>",
                                    "<tool_calls>",
                                    "</tool_calls>",
                                    "<|START_ACTION|>",
                                    "<|END_ACTION|>",
                                    "{\"tool_name\": \"f\", \"parameters\": ",
                                    "<|tools_prefix|>",
                                    "<|tools_suffix|>",
                                    "{\"f\": ",
                                    CALL("f", "{}")};
static const char *const hints[] = {"[TOOL_CALLS]",     "<|tool_call|>", "<tool_call>",
                                    "<|python_tag|>",   "<function=",    ">>>all",
                                    "<|recipient|>",    "<arg_key>",     "<minimax:tool_call>",
                                    "<seed:tool_call>", "<tool_calls>",  "<|START_ACTION|>",
                                    "<|tools_prefix|>"};
static const char known_tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                                  "\"parameters\": {\"properties\": {\"a\": "
                                  "{\"type\": \"string\"}, \"b\": {\"type\": \"integer\"}}}}}]";

/* Text of what is no call is there, once and in order: of a text without calls all of it, else
 * all text is a part of what was pushed. The arguments of every call are an object; the last one's
 * may be incomplete where a limit cut them. */
static void check_kept(mn_str text, const mn_events *all) {
    bool calls = false;
    uint64_t at = 0;
    for (uint32_t i = 0; i < all->n; i++)
        calls |= all->list[i].kind != MN_EVENT_TEXT;
    if (!calls && ending == MN_CALLS_ENDED && !memmem(text.ptr, text.len, "all\n", 4))
        if (all->text.len != text.len)
            fail_msg("%.*s", (int)text.len, text.ptr);
    for (uint32_t i = 0; i < all->n; i++) {
        const mn_stream_event *e = &all->list[i];
        for (uint64_t k = 0; e->kind == MN_EVENT_TEXT && k < e->text.len; k++) {
            while (at < text.len && text.ptr[at] != e->text.ptr[k])
                at++;
            assert_true(at < text.len);
            at++;
        }
        if (e->kind == MN_EVENT_CALL && ending == MN_CALLS_ENDED)
            assert_true(i + 1 < all->n && e[1].kind == MN_EVENT_ARGUMENTS);
        if (e->kind != MN_EVENT_ARGUMENTS || (i + 1 == all->n && ending != MN_CALLS_ENDED))
            continue;
        cJSON *args = cJSON_ParseWithLength(e->text.ptr, e->text.len);
        if (!cJSON_IsObject(args))
            fail_msg("%.*s of %.*s", (int)e->text.len, e->text.ptr, (int)text.len, text.ptr);
        cJSON_Delete(args);
    }
}

static void random_answers(void **state) {
    (void)state;
    cJSON *list = NULL;
    assert_int_equal(mn_call_types_read(mn_str_of(known_tools), &list, NULL), MN_OK);
    for (int round = 0; round < 20000; round++) {
        mn_text text = {0};
        mn_text one = {0};
        mn_text two = {0};
        mn_events whole = {0};
        mn_events cut = {0};
        const mn_call_family *f = family(hints[draw(MN_COUNT(hints))]);
        const uint32_t n = 1 + draw(24);
        for (uint32_t i = 0; i < n; i++)
            mn_text_puts(&text, words[draw(MN_COUNT(words))]);
        const mn_str all = {text.ptr, text.len};
        ending = draw(3) ? MN_CALLS_ENDED : MN_CALLS_CUT;
        tools = draw(2) ? list : NULL;
        collect(f, all, 0, &whole);
        collect(f, all, 1 + draw(9), &cut);
        write_events(&whole, &one);
        write_events(&cut, &two);
        if (one.len || two.len)
            assert_string_equal(one.ptr, two.ptr);
        check_kept(all, &whole);
        mn_text_free(&text);
        mn_text_free(&one);
        mn_text_free(&two);
        mn_events_free(&whole);
        mn_events_free(&cut);
    }
    ending = MN_CALLS_ENDED;
    tools = NULL;
    cJSON_Delete(list);
}

/* What never ends: the memory is bounded (collect), the bytes are all there, and it is over
 * soon. */
static void hostile(void **state) {
    (void)state;
    static const char *const parts[] = {"<tool_call>",
                                        "<tool_call>{",
                                        "<",
                                        " ",
                                        "<tool_call> ",
                                        "<tool_call>[[",
                                        "{\"name\":\"f\",",
                                        "[TOOL_CALLS]f[",
                                        "[TOOL_CALLS]",
                                        "<|python_tag|>;",
                                        "<tool_call>{\"a\":\"",
                                        "<tool_call>{\"a\":[[[",
                                        "<tool_call>f",
                                        "<minimax:tool_call><invoke name=",
                                        "<|tools_prefix|>[{\"f"};
    for (size_t i = 0; i < MN_COUNT(parts); i++)
        for (size_t k = 0; k < MN_COUNT(hints); k++) {
            mn_text text = {0};
            mn_events all = {0};
            while (text.len < 300000)
                mn_text_puts(&text, parts[i]);
            collect(family(hints[k]), (mn_str){text.ptr, text.len}, 64, &all);
            assert_int_equal(mn_events_done(&all), MN_OK);
            assert_int_equal(all.text.len, text.len);
            assert_memory_equal(all.text.ptr, text.ptr, text.len);
            mn_events_free(&all);
            mn_text_free(&text);
        }
    /* once it is given, a call may be as long as it likes, and as deep as the automaton */
    mn_text text = {0};
    mn_events all = {0};
    mn_text_puts(&text, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ");
    for (int i = 0; i < 300; i++)
        mn_text_puts(&text, "[");
    collect(family("<tool_call>"), (mn_str){text.ptr, text.len}, 64, &all);
    assert_int_equal(mn_events_done(&all), MN_OK);
    assert_int_equal(all.n, 2);
    cJSON *deep = cJSON_ParseWithLength(all.list[1].text.ptr, all.list[1].text.len);
    assert_true(cJSON_IsObject(deep));
    cJSON_Delete(deep);
    mn_events_free(&all);
    mn_text_free(&text);
}

static void families(void **state) {
    (void)state;
    assert_null(family(""));
    assert_null(family("{{ messages[0].content }}"));
    assert_ptr_equal(family("[TOOL_CALLS] <tool_call>"), family("[TOOL_CALLS]"));
    assert_ptr_not_equal(family("<tool_call>"), family("<|tool_call|>"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes),         cmocka_unit_test(hermes_text),
        cmocka_unit_test(lists),          cmocka_unit_test(mistral),
        cmocka_unit_test(llama),          cmocka_unit_test(tags),
        cmocka_unit_test(invokes),        cmocka_unit_test(arg_tags),
        cmocka_unit_test(other_keys),     cmocka_unit_test(templates),
        cmocka_unit_test(random_answers), cmocka_unit_test(hostile),
        cmocka_unit_test(families),       cmocka_unit_test(long_values),
        cmocka_unit_test(typed_tags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
