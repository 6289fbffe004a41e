/* test_calls_templates.c -- test_calls: the templates of models as the oracle. An answer with calls
 * is rendered, and its calls must come out of it. Templates that are not in this tree are skipped
 * where MINERVA_SHARED has none. */
#include "test_calls.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

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

void templates(void **state) {
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
