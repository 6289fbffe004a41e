/* fuzz_calls.c -- tool calls in the text of an answer. Input: a digit that chooses the family of
 * models (a letter: beside it the request's tools are known), a byte that chooses how the text is
 * cut (from 128 on a limit ends it), a line end, and the text. However it is cut, the events are
 * the same; text is part of the input, in order, and all of it if there is no call; arguments are a
 * JSON object, of which a limit may leave the beginning. */
#include "fuzz.h"
#include "text/chat/call_types.h"
#include "text/chat/calls.h"
#include <cjson/cJSON.h>
#include <string.h>

static const char *const marks[] = {"[TOOL_CALLS]",   "<|tool_call|>", "<tool_call>",
                                    "<|python_tag|>", "<function=",    ">>>all",
                                    "<|recipient|>"};

/* '0' and 'a' are the first; 'b' is the tool_call's of Hermes, as it was. */
static const char *mark_of(uint8_t c) {
    uint8_t first = 0;
    if (c == 'b')
        return marks[2];
    if (c >= 'a')
        first = 'a';
    else if (c >= '0')
        first = '0';
    return marks[(uint8_t)(c - first) % MN_COUNT(marks)];
}

static const char schemas[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": "
    "\"string\"},"
    "\"b\": {\"type\": [\"boolean\", \"null\"]}, \"c\": {\"type\": \"array\"}}}}}]";
static cJSON *tools;
static mn_calls_end how;

/* cut: 0 = whole, else pieces of 1 to cut bytes. false: out of memory */
static bool collect(const mn_call_family *family, mn_str text, uint32_t cut, mn_events *all) {
    mn_calls calls = {.family = family, .tools = tools};
    uint32_t k = cut;
    while (text.len) {
        k = k * 1103515245u + 12345u;
        const uint64_t want = cut ? 1 + (k >> 16) % cut : text.len;
        const uint64_t n = MN_MIN(want, text.len);
        mn_calls_push(&calls, (mn_str){text.ptr, n}, all);
        FUZZ_CHECK(calls.held.len <= MN_CALL_HELD);
        text.ptr += n;
        text.len -= n;
    }
    mn_calls_finish(&calls, how, all);
    mn_calls_free(&calls);
    return fuzz_well(mn_events_done(all));
}

static bool same(const mn_events *a, const mn_events *b) {
    bool equal = a->n == b->n;
    for (uint32_t i = 0; i < a->n && equal; i++) {
        const mn_stream_event *x = &a->list[i];
        const mn_stream_event *y = &b->list[i];
        equal = x->kind == y->kind && x->call == y->call && mn_str_eq(x->text, y->text);
    }
    return equal;
}

/* Text as far as it is found in the input, from *at on. */
static void check_text(mn_str input, mn_str text, uint64_t *at) {
    for (uint64_t i = 0; i < text.len; i++) {
        const char *from = input.ptr + *at;
        const char *found = memchr(from, text.ptr[i], (size_t)(input.len - *at));
        FUZZ_CHECK(found);
        if (!found)
            return;
        *at += (uint64_t)(found - from) + 1;
    }
}

static void check_arguments(mn_str args, bool whole) {
    mn_json_run run = {0};
    FUZZ_CHECK(args.ptr[0] == '{');
    for (uint64_t i = 0; i < args.len; i++)
        FUZZ_CHECK(mn_json_run_push(&run, args.ptr[i]) != MN_JSON_BAD);
    FUZZ_CHECK(!whole || mn_json_run_whole(&run));
}

static void check(mn_str input, const mn_events *all) {
    uint64_t at = 0;
    uint32_t n_calls = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const mn_stream_event *e = &all->list[i];
        FUZZ_CHECK(e->text.len);
        if (e->kind == MN_EVENT_TEXT)
            check_text(input, e->text, &at);
        if (e->kind == MN_EVENT_CALL)
            FUZZ_CHECK(e->call == n_calls++ && e->text.len <= MN_CALL_NAME);
        if (e->kind == MN_EVENT_ARGUMENTS) {
            FUZZ_CHECK(i && n_calls && e->call == n_calls - 1);
            FUZZ_CHECK(all->list[i - 1].kind == MN_EVENT_CALL);
            check_arguments(e->text, how == MN_CALLS_ENDED || i + 1 < all->n);
        }
    }
    if (!n_calls && how == MN_CALLS_ENDED && !memmem(input.ptr, input.len, "all\n", 4))
        FUZZ_CHECK(all->text.len == input.len);
    fuzz_accepted |= n_calls > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 3)
        return 0;
    mn_events whole = {0};
    mn_events cut = {0};
    const mn_call_family *family = mn_call_family_in(mn_str_of(mark_of(data[0])));
    const mn_str text = {(const char *)data + 3, n - 3};
    mn_error err = MN_ERROR_INIT;
    how = data[1] >= 128 ? MN_CALLS_CUT : MN_CALLS_ENDED;
    if (data[0] >= 'a' && !fuzz_ok(mn_call_types_read(mn_str_of(schemas), &tools, &err), &err))
        return 0;
    const bool all = collect(family, text, 0, &whole);
    if (all) {
        check(text, &whole);
        fuzz_answered(whole.text.ptr, whole.text.len);
    }
    if (collect(family, text, 1 + data[1] % 16, &cut) && all)
        FUZZ_CHECK(same(&whole, &cut));
    mn_events_free(&whole);
    mn_events_free(&cut);
    cJSON_Delete(tools);
    tools = NULL;
    return 0;
}
