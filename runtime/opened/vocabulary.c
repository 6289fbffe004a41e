/* vocabulary.c -- single tokens of a model: their spelling, and the bytes that they stand for. The
 * table of bytes is made at the first call, under its own lock, and belongs to the model. */
#include "opened/opened.h"

struct mn_token_table {
    pthread_mutex_t lock;
    mn_text bytes;
    uint64_t *offset; /* [n_vocab + 1] in bytes; NULL = not made yet */
};

mn_token_table *mn_token_table_create(void) {
    mn_token_table *t = mn_calloc(1, sizeof *t);
    if (t)
        pthread_mutex_init(&t->lock, NULL);
    return t;
}

void mn_token_table_free(mn_token_table *t) {
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    mn_text_free(&t->bytes);
    mn_free(t->offset);
    mn_free(t);
}

/* Under the lock. Without memory for it the table stays empty, and the next call tries again. */
static void make_table(mn_token_table *t, const mn_tokenizer *tok) {
    uint64_t *offset = mn_alloc(mn_tokenizer_n_vocab(tok) + 1ull, sizeof *offset);
    if (offset && !mn_detokenizer_table(tok, &t->bytes, offset)) {
        t->offset = offset;
        return;
    }
    mn_free(offset);
    mn_text_free(&t->bytes);
}

bool mn_vocabulary_has(const mn_model *m, int32_t id) {
    return m && m->tokenizer && id >= 0 && (uint32_t)id < mn_tokenizer_n_vocab(m->tokenizer);
}

mn_str mn_vocabulary_text(const mn_model *m, int32_t id) {
    mn_str text = {"", 0};
    if (!mn_vocabulary_has(m, id))
        return text;
    mn_token_table *t = m->token_table;
    pthread_mutex_lock(&t->lock);
    if (!t->offset)
        make_table(t, m->tokenizer);
    if (t->offset && t->bytes.len)
        text = (mn_str){t->bytes.ptr + t->offset[id], t->offset[id + 1] - t->offset[id]};
    pthread_mutex_unlock(&t->lock);
    return text;
}
