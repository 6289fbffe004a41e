/* head.c -- layers behind the pooling of hidden states: a head that scores a text (cls.*). They are
 * few and small, and some poolings are made on the host, so that the host computes them, too, in
 * double.
 *
 * Read once, when a model is opened, as F32 in the arena of their head. A head that cannot be used
 * costs the scores, not the model: it is an error where they are asked for. */
#include "opened/opened.h"
#include "model/rows.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WIDTH = MN_HEAD_WIDTH };

bool mn_head_act_of(mn_str name, uint32_t *act) {
    static const char *const names[] = {"none", "tanh", "gelu", "relu", "silu"};
    for (uint32_t i = 0; i < MN_COUNT(names); i++) {
        if (!mn_str_is(name, names[i]))
            continue;
        *act = i;
        return true;
    }
    return false;
}

/* Why there are no scores; the first reason stays. */
static mn_status refuse_head(mn_model *m, const char *why) {
    if (m->score.refusal)
        return MN_OK;
    m->score.refusal = mn_strndup(why, strlen(why));
    return m->score.refusal ? MN_OK : MN_OUT_OF_MEMORY;
}

/* ---- weights --------------------------------------------------------------------------------- */
/* The tensor's values [rows, n]; a vector is one row. NULL: out of memory. */
static float *head_values(mn_head *h, const mn_tensor_info *t, uint64_t rows, int64_t n) {
    float *v = mn_arena_alloc(&h->arena, (size_t)rows * (size_t)n, sizeof *v);
    for (uint64_t i = 0; v && i < rows; i++)
        mn_row_values(t, i, v + i * (uint64_t)n);
    return v;
}

static const mn_tensor_info *head_find(const mn_canonical *c, const char *stem,
                                       const char *ending) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", stem, ending);
    const mn_model_tensor_entry *e = mn_canonical_tensor(c, name);
    return e ? &e->info : NULL;
}

/* A vector of n numbers that may be absent: *out NULL. MN_BAD_FILE: it is none. */
static mn_status head_vector(const mn_canonical *c, mn_head *h, const char *stem,
                             const char *ending, uint32_t n, const float **out, mn_error *err) {
    const mn_tensor_info *t = head_find(c, stem, ending);
    *out = NULL;
    if (!t)
        return MN_OK;
    if (t->n_dim != 1 || t->dim[0] != n || !mn_dequant_has(t->dtype.id))
        return mn_fail(err, MN_BAD_FILE, "tensor %.*s: expected %u numbers", MN_STR_ARG(t->native),
                       n);
    *out = head_values(h, t, 1, n);
    return *out ? MN_OK : mn_fail_memory(err, n * sizeof **out);
}

mn_status mn_head_layer_read(const mn_canonical *c, mn_head *h, const char *stem, uint32_t n_in,
                             mn_error *err) {
    const mn_tensor_info *t = head_find(c, stem, ".weight");
    mn_head_layer *l = &h->layer[h->n];
    char norm[48];
    if (!t)
        return MN_END;
    const int64_t rows = t->n_dim == 2 ? t->dim[0] : 1;
    if (t->n_dim > 2 || t->dim[t->n_dim - 1] != n_in || rows > MOST_WIDTH ||
        !mn_dequant_has(t->dtype.id))
        return mn_fail(err, MN_BAD_FILE, "tensor %.*s: expected a matrix with rows of %u numbers",
                       MN_STR_ARG(t->native), n_in);
    *l = (mn_head_layer){.n_in = n_in, .n_out = (uint32_t)rows};
    l->weight = head_values(h, t, (uint64_t)rows, n_in);
    if (!l->weight)
        return mn_fail_memory(err, (uint64_t)rows * n_in * sizeof *l->weight);
    mn_status st = head_vector(c, h, stem, ".bias", l->n_out, &l->bias, err);
    snprintf(norm, sizeof norm, "%s.norm", stem);
    if (!st)
        st = head_vector(c, h, norm, ".weight", l->n_out, &l->norm, err);
    if (!st)
        st = head_vector(c, h, norm, ".bias", l->n_out, &l->norm_bias, err);
    h->widest = MN_MAX(h->widest, MN_MAX(l->n_in, l->n_out));
    h->n += !st;
    return st;
}

/* ---- two labels that are yes and no ---------------------------------------------------------- */
/* Rows yes and no of the last layer become one: the logit of yes against no. */
static mn_status head_contrast(mn_head *h, uint32_t yes, uint32_t no, mn_error *err) {
    mn_head_layer *l = &h->layer[h->n - 1];
    float *row = mn_arena_alloc(&h->arena, l->n_in, sizeof *row);
    float *bias = mn_arena_alloc(&h->arena, 1, sizeof *bias);
    if (!row || !bias)
        return mn_fail_memory(err, l->n_in * sizeof *row);
    for (uint32_t i = 0; i < l->n_in; i++)
        row[i] = l->weight[yes * l->n_in + i] - l->weight[no * l->n_in + i];
    if (l->bias)
        *bias = l->bias[yes] - l->bias[no];
    l->weight = row;
    l->bias = bias;
    l->n_out = 1;
    return MN_OK;
}

/* Several labels, with their names where {arch}.classifier.output_labels has them; "yes" and "no",
 * in either order, are one. */
static mn_status head_labels(mn_model *m, mn_head *h, mn_error *err) {
    const void *labels = NULL;
    uint64_t n = 0;
    char key[96];
    const uint32_t n_out = h->layer[h->n - 1].n_out;
    snprintf(key, sizeof key, "%.64s.classifier.output_labels", m->arch);
    if (n_out < 2)
        return MN_OK;
    m->score.n_labels = n_out;
    if (mn_meta_array(&m->canonical->meta, key, MN_VALUE_STR, &labels, &n, NULL) || n != n_out)
        return MN_OK;
    const mn_str *label = labels;
    m->score.labels = label;
    if (n != 2)
        return MN_OK;
    if (mn_str_is(label[0], "yes") && mn_str_is(label[1], "no"))
        return head_contrast(h, 0, 1, err);
    if (mn_str_is(label[0], "no") && mn_str_is(label[1], "yes"))
        return head_contrast(h, 1, 0, err);
    return MN_OK;
}

/* A decoder that was trained to answer yes or no (Qwen3-Reranker): the rows of these two tokens in
 * the matrix that makes logits. Its name alone tells it from the model that it was made of. */
static mn_status head_of_words(mn_model *m, mn_head *h, mn_error *err) {
    const mn_tensor_info *t = head_find(m->canonical, "output", ".weight");
    int32_t ids[2] = {-1, -1};
    if (!t)
        t = head_find(m->canonical, "token_embd", ".weight");
    if (m->tokenizer) {
        ids[0] = mn_tokenizer_find(m->tokenizer, mn_str_of("yes"));
        ids[1] = mn_tokenizer_find(m->tokenizer, mn_str_of("no"));
    }
    if (!t || t->n_dim != 2 || t->dim[1] > MOST_WIDTH || !mn_dequant_has(t->dtype.id) ||
        ids[0] < 0 || ids[1] < 0 || ids[0] >= t->dim[0] || ids[1] >= t->dim[0])
        return mn_fail(err, MN_UNSUPPORTED,
                       "a reranker by its name, without tokens \"yes\" and \"no\" and their rows "
                       "of the output matrix");
    const uint32_t n = (uint32_t)t->dim[1];
    float *rows = mn_arena_alloc(&h->arena, 2 * (size_t)n, sizeof *rows);
    if (!rows)
        return mn_fail_memory(err, 2 * (uint64_t)n * sizeof *rows);
    for (uint32_t i = 0; i < 2; i++)
        mn_row_values(t, (uint64_t)ids[i], rows + i * n);
    h->layer[0] = (mn_head_layer){.n_in = n, .n_out = 2, .weight = rows};
    h->n = 1;
    h->widest = n;
    m->score.words = rows;
    return head_contrast(h, 0, 1, err);
}

/* ---- what the files say ---------------------------------------------------------------------- */
/* The activation behind the first of two layers, and how a text is pooled. */
static mn_status head_facts(const mn_model *m, mn_head *h, uint32_t *first, mn_error *err) {
    static const char *const poolings[] = {"cls", "mean", "last"};
    static const uint32_t ids[] = {MN_POOLING_CLS, MN_POOLING_MEAN, MN_POOLING_LAST};
    const bool encoder = mn_hparams_is_encoder(m->canonical);
    const mn_meta *meta = &m->canonical->meta;
    mn_str act = mn_str_of(strcmp(m->arch, "modern-bert") ? "tanh" : "gelu");
    mn_str pooling = mn_str_of(encoder ? "cls" : "last");
    mn_status st = mn_meta_str(meta, MN_HEAD_ACT_KEY, &act, err);
    if (!st || st == MN_END)
        st = mn_meta_str(meta, MN_HEAD_POOLING_KEY, &pooling, err);
    if (st && st != MN_END)
        return st;
    h->pooling = MN_COUNT(ids);
    for (uint32_t i = 0; i < MN_COUNT(ids); i++)
        if (mn_str_is(pooling, poolings[i]))
            h->pooling = i;
    if (!mn_head_act_of(act, first) || h->pooling == MN_COUNT(ids))
        return mn_fail(err, MN_UNSUPPORTED,
                       "a head with the activation \"%.*s\" and the pooling \"%.*s\"; known: none, "
                       "tanh, gelu, relu, silu; cls, mean, last",
                       MN_STR_ARG(act), MN_STR_ARG(pooling));
    h->pooling = ids[h->pooling];
    return MN_OK;
}

/* Whether the name says so, in any case of letters. */
static bool says_reranker(const char *name) {
    static const char word[] = "reranker";
    for (; *name; name++) {
        size_t n = 0;
        while (word[n] && tolower((unsigned char)name[n]) == word[n])
            n++;
        if (!word[n])
            return true;
    }
    return false;
}

static mn_status read_head(mn_model *m, mn_head *h, mn_error *err) {
    int64_t width = 0;
    uint32_t act = MN_HEAD_NONE;
    char key[96];
    snprintf(key, sizeof key, "%.64s.embedding_length", m->arch);
    mn_status st = mn_meta_i64(&m->canonical->meta, key, 1, MOST_WIDTH, &width, err);
    if (st)
        return st;
    h->eps = 1e-5;
    snprintf(key, sizeof key, "%.64s.attention.layer_norm_epsilon", m->arch);
    mn_meta_f64(&m->canonical->meta, key, &h->eps, NULL);
    st = head_facts(m, h, &act, err);
    if (st)
        return st;
    st = mn_head_layer_read(m->canonical, h, "cls", (uint32_t)width, err);
    if (!st) {
        width = h->layer[0].n_out;
        h->layer[0].act = act;
    }
    if (!st || st == MN_END)
        st = mn_head_layer_read(m->canonical, h, "cls.output", (uint32_t)width, err);
    if (st)
        return st;
    st = head_labels(m, h, err);
    if (!st && h->layer[h->n - 1].n_out == 1)
        m->score.n_labels = 0;
    return st;
}

mn_status mn_head_read(mn_model *m, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_head *h = &m->score.head;
    const bool scores = head_find(m->canonical, "cls.output", ".weight") != NULL;
    mn_status st;
    if (!scores && (strcmp(m->arch, "qwen3") || !says_reranker(m->name)))
        return MN_OK;
    m->score.prompted = !strcmp(m->arch, "qwen3");
    if (scores) {
        st = read_head(m, h, &why);
    } else {
        h->pooling = MN_POOLING_LAST;
        st = head_of_words(m, h, &why);
    }
    m->score.known = !st && !m->score.n_labels;
    if (st)
        m->score.n_labels = 0;
    if (st == MN_OUT_OF_MEMORY)
        return mn_fail_memory(err, 0);
    if (st && refuse_head(m, why.msg))
        return mn_fail_memory(err, 256);
    return MN_OK;
}

/* Which labels there are, and that one of them has to be named. */
static mn_status several_labels(const mn_model *m, mn_error *err) {
    enum { MOST_SHOWN = 8 };
    mn_text list = {0};
    const uint32_t n = MN_MIN(m->score.n_labels, MOST_SHOWN);
    for (uint32_t i = 0; m->score.labels && i < n; i++)
        mn_text_printf(&list, "%s%.*s", i ? ", " : ": ", MN_STR_ARG(m->score.labels[i]));
    const mn_status st = mn_fail(err, MN_UNSUPPORTED,
                                 "%s: its head has %u labels%s%s, expected one of them to score by "
                                 "(--label)",
                                 m->canonical->path, m->score.n_labels, list.ptr ? list.ptr : "",
                                 list.ptr && m->score.n_labels > MOST_SHOWN ? ", ..." : "");
    mn_text_free(&list);
    return st;
}

mn_status mn_head_need(const mn_model *m, bool labelled, mn_error *err) {
    if (m->score.known || (labelled && m->score.n_labels))
        return MN_OK;
    if (m->score.n_labels)
        return several_labels(m, err);
    if (m->score.refusal)
        return mn_fail(err, MN_UNSUPPORTED, "%s: %s", m->canonical->path, m->score.refusal);
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s: the model (%s) has no head that scores a text: expected a reranker (the "
                   "tensor cls.output.weight of GGUF, a class ...ForSequenceClassification, or "
                   "Qwen3-Reranker)",
                   m->canonical->path, m->arch);
}

void mn_head_free(mn_model *m) {
    mn_arena_free(&m->score.head.arena);
    mn_free(m->score.refusal);
}

/* ---- computing ------------------------------------------------------------------------------- */
static double head_act(uint32_t act, double x) {
    switch (act) {
    case MN_HEAD_TANH:
        return tanh(x);
    case MN_HEAD_GELU:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case MN_HEAD_RELU:
        return x > 0 ? x : 0;
    case MN_HEAD_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

/* Layer normalisation of x [n] in place. */
static void head_norm(const mn_head_layer *l, double eps, double *x) {
    double mean = 0;
    double var = 0;
    for (uint32_t i = 0; i < l->n_out; i++)
        mean += x[i] / l->n_out;
    for (uint32_t i = 0; i < l->n_out; i++)
        var += (x[i] - mean) * (x[i] - mean) / l->n_out;
    for (uint32_t i = 0; i < l->n_out; i++) {
        x[i] = (x[i] - mean) / sqrt(var + eps) * (double)l->norm[i];
        if (l->norm_bias)
            x[i] += (double)l->norm_bias[i];
    }
}

/* Sums of eight interleaved parts, so that the compiler can use vectors. */
static double head_dot(const float *w, const double *x, uint32_t n) {
    double sum[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++)
            sum[k] += (double)w[i + k] * x[i + k];
    for (; i < n; i++)
        sum[0] += (double)w[i] * x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

const double *mn_head_apply(const mn_head *h, const double *x, double *scratch) {
    for (uint32_t k = 0; k < h->n; k++) {
        const mn_head_layer *l = &h->layer[k];
        double *y = scratch + (k % 2) * (size_t)h->widest; // [n_out]
        for (uint32_t i = 0; i < l->n_out; i++) {
            y[i] = head_dot(l->weight + (size_t)i * l->n_in, x, l->n_in);
            if (l->bias)
                y[i] += (double)l->bias[i];
            y[i] = head_act(l->act, y[i]);
        }
        if (l->norm)
            head_norm(l, h->eps, y);
        x = y;
    }
    return x;
}
