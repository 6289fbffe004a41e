/* Input: a tokeniser's files as parts, alone FUZZ_ALONE; the part "text" is encoded and decoded by
 * what they make, and some are written as GGUF. The chat template is looked for as well. */
#include "fuzz.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"
#include "use_tokenizer.h"

/* tokens: writing tries several forms, which takes its time */
enum { EXPORT_ALWAYS = 32, EXPORT_MAX = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = NULL;
    mn_text source = {0};
    mn_log_level(MN_LOG_ERROR - 1);
    fuzz_split(data, n, FUZZ_ALONE, &parts);
    if (fuzz_ok(mn_tokenizer_create(NULL, parts.file, parts.n, &tok, &err), &err))
        fuzz_accepted = use_tokenizer(tok, fuzz_text(&parts, "text", DEFAULT_TEXT));
    if (tok && mn_tokenizer_n_vocab(tok) <= (n % 4 ? EXPORT_ALWAYS : EXPORT_MAX))
        use_export(tok, &parts);
    fuzz_ok(mn_chat_template_find(NULL, parts.file, parts.n, n % 2 ? "default" : "tool_use",
                                  &source, &err),
            &err);
    fuzz_answered(source.ptr, source.len);
    mn_text_free(&source);
    mn_tokenizer_free(tok);
    fuzz_free(&parts);
    return 0;
}
