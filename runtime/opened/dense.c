/* dense.c -- layers behind the pooling of an embedding: sentence-transformers' modules Dense, each
 * in a folder of its own beside the model (2_Dense, 3_Dense), or GGUF's tensors dense_2.weight,
 * dense_3.weight.
 *
 * Read once, when a model is opened, as F32; computed by the host like a head that scores
 * (head.c). */
#include "opened/opened.h"
#include <stdio.h>
#include <string.h>

#define ACT_KEY "minerva.dense.activation"

/* The width that the next layer reads: of the hidden states, or of the layer before. 0: the model
 * does not say. */
static uint32_t dense_width(const mn_model *m) {
    const mn_head *h = &m->embed.dense;
    int64_t width = 0;
    char key[96];
    if (h->n)
        return h->layer[h->n - 1].n_out;
    snprintf(key, sizeof key, "%.64s.embedding_length", m->arch);
    mn_meta_i64(&m->canonical->meta, key, 1, MN_HEAD_WIDTH, &width, NULL);
    return (uint32_t)width;
}

/* The layer of this stem in c, behind those that are there. MN_END: there is none. */
static mn_status dense_add(mn_model *m, const mn_canonical *c, const char *stem, const char *key,
                           mn_error *err) {
    mn_head *h = &m->embed.dense;
    mn_str act = mn_str_of("none");
    const uint32_t at = h->n;
    if (at == MN_HEAD_LAYERS)
        return mn_fail(err, MN_UNSUPPORTED, "more than %d layers Dense", MN_HEAD_LAYERS);
    mn_status st = mn_head_layer_read(c, h, stem, dense_width(m), err);
    if (st)
        return st;
    st = mn_meta_str(&c->meta, key, &act, err);
    if (st && st != MN_END)
        return st;
    if (mn_head_act_of(act, &h->layer[at].act))
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, "key %s is \"%.*s\"; known: none, tanh, gelu, relu, silu",
                   key, MN_STR_ARG(act));
}

mn_status mn_dense_read_tensors(mn_model *m, mn_error *err) {
    mn_status st = MN_OK;
    char stem[24];
    char key[48];
    for (unsigned i = MN_DENSE_FIRST; !st; i++) {
        snprintf(stem, sizeof stem, "dense_%u", i);
        snprintf(key, sizeof key, "minerva.%s.activation", stem);
        st = dense_add(m, m->canonical, stem, key, err);
    }
    return st == MN_END ? MN_OK : st;
}

mn_status mn_dense_read_folder(mn_model *m, const char *path, mn_error *err) {
    mn_loader_ref *refs = NULL;
    uint32_t n = 0;
    mn_canonical *c = NULL;
    mn_status st = mn_loader_refs(m->rt, &refs, &n, err);
    if (!st)
        st = mn_canonical_open(path, m->canonical->files.flags, refs, n, &c, err);
    mn_free(refs);
    if (st)
        return st;
    st = dense_add(m, c, "linear", ACT_KEY, err);
    if (st == MN_END)
        st = mn_fail(err, MN_BAD_FILE, "tensor linear.weight is missing");
    if (st)
        mn_fail_in(err, st, "%s", path);
    mn_canonical_close(c);
    m->embed.from_folders = !st;
    return st;
}
