/* forced.c -- text that a constraint leaves no choice about, as the tokens that the tokeniser makes
 * of it. Several tokens may begin such a text (n, na, name); which of them comes says nothing, and
 * models are used to the tokeniser's. guide.c decides where a text is forced. */
#include "session/guides/guides.h"
#include <string.h>

/* From token `at` of n on those that spell the text from its beginning, up to cap; how many. */
static uint32_t take_tokens(const mn_model *m, const int32_t *made, size_t n, mn_str text,
                            int32_t *ids, uint32_t cap) {
    uint64_t done = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < n && count < cap; i++) {
        const mn_str piece = mn_vocabulary_text(m, made[i]);
        if (!piece.len || piece.len > text.len - done)
            break;
        if (memcmp(piece.ptr, text.ptr + done, (size_t)piece.len))
            break;
        ids[count++] = made[i];
        done += piece.len;
    }
    return count;
}

/* The first token behind so many bytes, where one begins there; else n. */
static size_t token_behind(const mn_model *m, const int32_t *made, size_t n, uint64_t bytes) {
    uint64_t done = 0;
    for (size_t i = 0; i < n && done <= bytes; i++) {
        if (done == bytes)
            return i;
        done += mn_vocabulary_text(m, made[i]).len;
    }
    return n;
}

/* The text as it is spelled behind `before`; tokenisers may put a space in front of both. */
static uint32_t spell_behind(const mn_model *m, mn_str before, mn_str text, int32_t *ids,
                             uint32_t cap) {
    mn_text all = {0};
    int32_t *made = NULL;
    size_t n = 0;
    uint32_t count = 0;
    uint64_t total = 0;
    mn_text_put(&all, before.ptr, (size_t)before.len);
    mn_text_put(&all, text.ptr, (size_t)text.len);
    const mn_str joined = {all.ptr, all.len};
    if (!all.failed && !mn_tokenizer_encode(m->tokenizer, joined, NULL, 0, &made, &n, NULL)) {
        for (size_t i = 0; i < n; i++)
            total += mn_vocabulary_text(m, made[i]).len;
        const uint64_t in_front = total > all.len ? total - all.len : 0;
        const size_t at = token_behind(m, made, n, in_front + before.len);
        count = take_tokens(m, made + at, n - at, text, ids, cap);
    }
    mn_free(made);
    mn_text_free(&all);
    return count;
}

uint32_t mn_forced_spell(const mn_model *m, int32_t last, mn_str text, int32_t *ids, uint32_t cap) {
    const mn_str line_end = {"\n", 1};
    uint32_t n = 0;
    text.len = mn_utf8_complete(text.ptr, (size_t)text.len);
    if (!text.len)
        return 0;
    if (last >= 0 && !mn_tokenizer_is_special(m->tokenizer, last))
        n = spell_behind(m, mn_vocabulary_text(m, last), text, ids, cap);
    return n ? n : spell_behind(m, line_end, text, ids, cap);
}
