/* text.c -- text of the API: the tokens of a text, what one of them stands for, and the ids that
 * end one. The ids that are returned are the caller's; the model is only read, from any thread.
 * Streams, which turn ids into text as they come, are in stream.c. */
#include "opened/opened.h"

mn_status mn_model_tokenize(const mn_model *m, mn_str text, uint32_t flags, int32_t **ids,
                            uint32_t *n, mn_error *err) {
    const uint32_t known = MN_TEXT_ADD_SPECIAL | MN_TEXT_PARSE_SPECIAL;
    uint32_t f = 0;
    if (flags & MN_TEXT_ADD_SPECIAL)
        f |= MN_TOKENIZE_ADD_SPECIAL;
    if (flags & MN_TEXT_PARSE_SPECIAL)
        f |= MN_TOKENIZE_PARSE_SPECIAL;
    const mn_arg args[] = {{"m", m}, {"ids", ids}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_text(err, __func__, "text", text);
    if (!st)
        st = mn_args_flags(err, "mn_model_tokenize: flags", flags, known);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    return st ? st : mn_text_encode(m, text, NULL, f, ids, n, err);
}

mn_status mn_model_pair(const mn_model *m, mn_str query, mn_str text, mn_str instruction,
                        int32_t **ids, uint32_t *n, uint32_t *n_first, mn_error *err) {
    const mn_arg args[] = {{"m", m}, {"ids", ids}, {"n", n}, {"n_first", n_first}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_text(err, __func__, "query", query);
    if (!st)
        st = mn_args_text(err, __func__, "text", text);
    if (!st)
        st = mn_args_text(err, __func__, "instruction", instruction);
    if (!st)
        st = mn_head_need(m, true, err);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    return st ? st : mn_pair_encode(m, query, text, instruction, ids, n, n_first, err);
}

mn_status mn_model_label(const mn_model *m, uint32_t i, mn_str *name) {
    if (!m || !name)
        return MN_INVALID;
    if (i >= m->score.n_labels)
        return MN_END;
    *name = m->score.labels ? m->score.labels[i] : (mn_str){"", 0};
    return MN_OK;
}

void mn_ids_free(int32_t *ids) {
    mn_free(ids);
}

int mn_model_is_stop(const mn_model *m, int32_t id) {
    for (uint32_t i = 0; m && i < m->n_stop; i++)
        if (m->stop[i] == id)
            return 1;
    return 0;
}

mn_str mn_model_token_text(const mn_model *m, int32_t id) {
    return mn_vocabulary_text(m, id);
}

mn_str mn_model_token_piece(const mn_model *m, int32_t id) {
    if (!mn_vocabulary_has(m, id))
        return (mn_str){"", 0};
    return mn_tokenizer_piece(m->tokenizer, id);
}
