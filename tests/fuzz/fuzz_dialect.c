/* fuzz_dialect.c -- requests of dialects become requests of the chat. Input: a letter that chooses
 * the dialect (m: Anthropic Messages, r: OpenAI Responses, p: the same with the request's own items
 * as those of an earlier response), a number and a line end, then the body. The number: so many
 * allocations of cJSON succeed, 0: all. The translation leaves the body as it was, has messages
 * with roles or an error, and nothing is left of it. */
#include "fuzz.h"
#include "serve/dialect_messages.h"
#include "serve/dialect_responses.h"
#include <stdlib.h>
#include <string.h>

static uint32_t n_left;  /* allocations until one fails; 0: none does */
static bool has_starved; /* one has failed */
static int64_t n_living;

static void *counted_malloc(size_t n) {
    if (n_left && !--n_left)
        has_starved = true;
    void *p = has_starved ? NULL : malloc(n);
    n_living += p != NULL;
    return p;
}

static void counted_free(void *p) {
    n_living -= p != NULL;
    free(p);
}

static void feed_again(void) {
    n_left = 0;
    has_starved = false;
}

static cJSON *continued(const cJSON *body, json_error *e) {
    cJSON *items = responses_items(body, "item", 0, e);
    cJSON *more = items ? responses_items(body, "item", cJSON_GetArraySize(items), e) : NULL;
    while (more && more->child)
        cJSON_AddItemToArray(items, cJSON_DetachItemFromArray(more, 0));
    cJSON *chat = more ? responses_chat(body, items, e) : NULL;
    cJSON_Delete(items);
    cJSON_Delete(more);
    return chat;
}

static const struct {
    char letter;
    cJSON *(*request)(const cJSON *body, json_error *e);
} dialects[] = {{'m', messages_request}, {'r', responses_request}, {'p', continued}};

/* What the chat relies on. */
static void check_chat(const cJSON *chat) {
    const cJSON *m = NULL;
    const cJSON *messages = json_field(chat, "messages");
    char *text = cJSON_PrintUnformatted(chat);
    cJSON *again = text ? cJSON_Parse(text) : NULL;
    FUZZ_CHECK(cJSON_IsArray(messages) && messages->child);
    cJSON_ArrayForEach(m, messages) {
        FUZZ_CHECK(cJSON_IsString(json_field(m, "role")) && cJSON_HasObjectItem(m, "content"));
    }
    FUZZ_CHECK(cJSON_IsObject(again));
    if (text)
        fuzz_answered(text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(again);
    fuzz_accepted = true;
}

/* The members that answers repeat are the rest of an object. */
static void check_asked(const cJSON *body) {
    static const mn_sample_params sample = {.size = sizeof sample, .temp = 0.5f, .top_p = 1};
    mn_text out = {0};
    mn_text_puts(&out, "{\"a\":1");
    const bool ok = responses_put_asked(body, &sample, &out);
    mn_text_puts(&out, "}");
    fuzz_well(out.failed ? MN_OUT_OF_MEMORY : MN_OK);
    cJSON *json = ok && !out.failed ? cJSON_ParseWithLength(out.ptr, out.len) : NULL;
    FUZZ_CHECK(cJSON_IsObject(json));
    cJSON_Delete(json);
    mn_text_free(&out);
}

static void translate_with(size_t which, const cJSON *body, uint32_t starve) {
    json_error e = {0};
    char *before = cJSON_PrintUnformatted(body);
    n_left = starve;
    cJSON *chat = dialects[which].request(body, &e);
    const bool starved = has_starved;
    feed_again();
    char *after = cJSON_PrintUnformatted(body);
    FUZZ_CHECK(before && after && !strcmp(before, after));
    FUZZ_CHECK(chat || starved || (e.failed && e.message[0]));
    if (!chat && !e.failed)
        fuzz_well(MN_OUT_OF_MEMORY);
    if (chat && !starved)
        check_chat(chat);
    cJSON_free(before);
    cJSON_free(after);
    cJSON_Delete(chat);
    if (dialects[which].letter == 'r' && !starved)
        check_asked(body);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    fuzz_quiet();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    cJSON_Hooks hooks = {counted_malloc, counted_free};
    const uint8_t *end = n ? memchr(data, '\n', n) : NULL;
    char number[12] = {0};
    size_t which = 0;
    json_error e = {0};
    if (!end || end == data || (size_t)(end - data) > sizeof number)
        return 0;
    while (which < MN_COUNT(dialects) && (uint8_t)dialects[which].letter != data[0])
        which++;
    if (which == MN_COUNT(dialects))
        return 0;
    memcpy(number, data + 1, (size_t)(end - data) - 1);
    const size_t n_body = n - (size_t)(end - data) - 1;
    char *text = calloc(1, n_body + 1); /* exactly its size, so that a read beyond it is seen */
    if (!text)
        return 0;
    memcpy(text, end + 1, n_body);
    feed_again();
    n_living = 0;
    cJSON_InitHooks(&hooks);
    cJSON *body = json_parse(text, n_body, &e);
    if (!body && e.status == 503)
        fuzz_well(MN_OUT_OF_MEMORY);
    if (body)
        translate_with(which, body, (uint32_t)strtoul(number, NULL, 10));
    cJSON_Delete(body);
    FUZZ_CHECK(!n_living);
    cJSON_InitHooks(NULL);
    free(text);
    return 0;
}
