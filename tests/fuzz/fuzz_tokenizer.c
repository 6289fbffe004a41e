/* Input: a tokeniser's files as parts, alone FUZZ_ALONE; the part "text" is encoded and decoded by what they make. */
#include "fuzz.h"
#include "text/tokenizer.h"
#include "use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = NULL;
    mn_log_level(MN_LOG_ERROR);
    fuzz_split(data, n, FUZZ_ALONE, &parts);
    if (fuzz_ok(mn_tokenizer_create(NULL, parts.file, parts.n, &tok, &err), &err))
        fuzz_accepted = use_tokenizer(tok, fuzz_text(&parts, "text", DEFAULT_TEXT));
    mn_tokenizer_free(tok);
    fuzz_free(&parts);
    return 0;
}
