/* test_calls_hostile.c -- test_calls: answers of random words, and such as never end. No text is
 * lost, and memory is bounded. */
#include "test_calls.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

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

void random_answers(void **state) {
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
void hostile(void **state) {
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
