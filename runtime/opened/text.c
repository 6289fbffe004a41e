/* text.c -- the tokens of a text. The ids that are returned are the caller's, freed by mn_free; the
 * model is only read, from any thread. */
#include "opened/opened.h"

mn_status mn_text_need_tokenizer(const mn_model *m, mn_error *err) {
    if (m->tokenizer)
        return MN_OK;
    if (!mn_arch_find(m->arch)) /* the projector of a vision model, and the like */
        return mn_arch_unknown(m->canonical, m->arch, err);
    return mn_fail(err, MN_UNSUPPORTED, "%s: the model has no tokeniser; give token ids",
                   m->canonical->path);
}

mn_status mn_text_encode(const mn_model *m, mn_str text, const uint8_t *plain, uint32_t flags,
                         int32_t **ids, uint32_t *n, mn_error *err) {
    size_t count = 0;
    int32_t *made = NULL;
    mn_status st = mn_tokenizer_encode(m->tokenizer, text, plain, flags, &made, &count, err);
    if (!st && count > INT32_MAX)
        st = mn_fail(err, MN_BAD_INPUT, "the text has %zu tokens", count);
    st = mn_canonical_settle(m->canonical, false, st, err);
    if (st) {
        mn_free(made);
        return st;
    }
    *ids = made;
    *n = (uint32_t)count;
    return MN_OK;
}
