/* test_calls.c -- tool calls in the text of an answer: what each family of models writes, and what
 * only looks like it. All of it is fed whole, byte by byte and in random pieces: the events must be
 * the same. test_calls_templates.c has the templates of models, test_calls_hostile.c answers that
 * nobody wrote. */
#include "test_calls.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static uint64_t seed = 88172645463325252u;
uint32_t draw(uint32_t n) { /* Marsaglia's xorshift */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- events as text -------------------------------------------------------------------------- */
void write_events(mn_events *events, mn_text *out) {
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

const cJSON *tools;
mn_calls_end ending;
void collect(const mn_call_family *family, mn_str text, uint32_t most, mn_events *all) {
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

const mn_call_family *family(const char *of_template) {
    return mn_call_family_in(mn_str_of(of_template));
}

/* ---- what families write --------------------------------------------------------------------- */

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
