/* Input: messages as parts, the part's name being the role; alone one user's message. "history",
 * "tools" and "vars" are JSON. "template" replaces ChatML, with which no text of a message or of
 * JSON may become a special token. */
#include "fuzz.h"
#include "text/chat/chat.h"
#include "text/pretokenizer/stages.h"
#include "text/tokenizer/tokenizer.h"
#include <cjson/cJSON.h>
#include <string.h>

static const char chatml[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim "
                             "}}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<s>", " "};
static mn_tokenizer *tok;

/* Byte-level, without merges: 256 bytes and the special tokens, one of which is a blank. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    mn_text json = {0};
    mn_error err = MN_ERROR_INIT;
    (void)argc;
    (void)argv;
    mn_text_puts(&json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        char c[4];
        int n = mn_utf8_encode(mn_byte_char((uint8_t)i), c);
        mn_text_puts(&json, i ? "," : "");
        mn_text_json(&json, (mn_str){c, (uint64_t)n});
        mn_text_printf(&json, ":%d", i);
    }
    mn_text_puts(&json, "}},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                        "\"use_regex\":true},"
                        "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[");
    for (size_t i = 0; i < MN_COUNT(special) - 1; i++)
        mn_text_printf(&json, "%s{\"id\":%zu,\"content\":\"%s\",\"special\":true}", i ? "," : "",
                       256 + i, special[i]);
    mn_text_puts(&json, "]}");
    const mn_file file = {mn_str_of("tokenizer.json"), json.ptr, json.len, 0, 0};
    FUZZ_CHECK(fuzz_ok(mn_tokenizer_create(NULL, &file, 1, &tok, &err), &err));
    mn_text_free(&json);
    return 0;
}

static uint32_t n_special(const mn_text *text, const mn_text *marks) {
    int32_t *ids = NULL;
    size_t n = 0;
    uint32_t count = 0;
    mn_error err = MN_ERROR_INIT;
    FUZZ_CHECK(fuzz_ok(mn_tokenizer_encode(tok, (mn_str){text->ptr, text->len},
                                           (const uint8_t *)marks->ptr, MN_TOKENIZE_PARSE_SPECIAL,
                                           &ids, &n, &err),
                       &err));
    for (size_t i = 0; i < n; i++)
        count += mn_tokenizer_is_special(tok, ids[i]);
    mn_free(ids);
    return count;
}

/* Of a JSON array. */
static uint32_t n_items(mn_str json) {
    cJSON *list = json.len ? cJSON_ParseWithLength(json.ptr, json.len) : NULL;
    const uint32_t n = (uint32_t)cJSON_GetArraySize(list);
    cJSON_Delete(list);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    mn_chat_message messages[FUZZ_PARTS];
    uint32_t n_messages = 0;
    mn_jinja *t = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_text out = {0};
    mn_text marks = {0};
    bool valid = true;
    fuzz_split(data, n, "user", &parts);
    for (uint32_t i = 0; i < parts.n; i++) {
        const mn_file *f = &parts.file[i];
        if (mn_str_is(f->name, "template") || mn_str_is(f->name, "history") ||
            mn_str_is(f->name, "tools") || mn_str_is(f->name, "vars"))
            continue;
        messages[n_messages++] = (mn_chat_message){f->name, {f->map, f->bytes}, {NULL, 0}};
        valid = valid && mn_utf8_check(f->map, f->bytes) == f->bytes &&
                mn_utf8_check(f->name.ptr, f->name.len) == f->name.len;
    }
    const mn_str none = {NULL, 0};
    const mn_chat chat = {
        .messages = messages,
        .n = n_messages,
        .history = fuzz_part(&parts, "history") ? fuzz_text(&parts, "history", "") : none,
        .tools = fuzz_part(&parts, "tools") ? fuzz_text(&parts, "tools", "") : none,
        .vars = fuzz_part(&parts, "vars") ? fuzz_text(&parts, "vars", "") : none,
        .bos = mn_str_of("<s>"),
        .eos = mn_str_of("<|im_end|>")};
    /* which may replace the messages */
    const bool ours = !fuzz_part(&parts, "template") && !chat.vars.len;
    const uint32_t n_all = n_messages + n_items(chat.history);
    if (fuzz_ok(mn_jinja_parse(fuzz_text(&parts, "template", chatml), &t, &err), &err)) {
        mn_status st = mn_chat_render(t, &chat, UINT32_MAX, true, 0, &out, &marks, &err);
        fuzz_accepted = fuzz_ok(st, &err);
        FUZZ_CHECK(out.len == marks.len);
        fuzz_answered(out.ptr, out.len);
        fuzz_answered(marks.ptr, marks.len);
        if (ours && !chat.history.len && !chat.tools.len)
            FUZZ_CHECK(st == MN_OK);
        if (ours && valid && !st)
            FUZZ_CHECK(n_special(&out, &marks) == 2 * n_all + 1);
        mn_text_free(&out);
        mn_text_free(&marks);
    }
    mn_jinja_free(t);
    fuzz_free(&parts);
    return 0;
}
