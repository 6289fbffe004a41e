/* rerank.c -- scores of texts: /v1/rerank in the forms of Jina, Cohere, llama-server and Text
 * Embeddings Inference, /v1/score in that of vLLM.
 *
 * Each brings its texts as pairs to embeddings.c, whose requests, engines and refusals are the
 * same, and writes the scores as its clients read them. What the answer needs besides stands in the
 * body of the request, which is kept until it is answered. */
#include "serve/dialect.h"
#include "serve/embeddings.h"
#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* A text of a list: a string, or an object with "text". NULL: neither. */
static const char *rerank_text(const cJSON *item) {
    if (cJSON_IsObject(item))
        item = json_field(item, "text");
    return cJSON_GetStringValue(item);
}

static int rerank_add_item(struct embedding *m, const cJSON *query, const cJSON *item,
                           const char *param, const char *instruction, json_error *e) {
    const char *text = rerank_text(item);
    const char *of = rerank_text(query);
    char found[64];
    if (!of || !text)
        return json_fail(e, param, "%s: found %s, expected a string, or an object with a text",
                         param, json_found(of ? item : query, found, sizeof found));
    return embeddings_add_pair(m, of, text, instruction, param, e);
}

/* Fields that would change the scores and do not exist here. */
static int rerank_refuse(const cJSON *body, json_error *e) {
    static const char *const names[] = {"rank_fields", "max_tokens_per_doc", "max_chunks_per_doc",
                                        "truncate_prompt_tokens", "mm_processor_kwargs"};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        if (json_field(body, names[i]))
            return json_fail(e, names[i],
                             "%s: is not supported: texts are whole, and never cut to fit the "
                             "context",
                             names[i]);
    return 1;
}

/* Whether the numbers of the head are asked for, by vLLM's fields or Text Embeddings
 * Inference's. */
static int rerank_logits(const cJSON *body, int *logits, json_error *e) {
    int activates = 1;
    if (!json_read_bool(body, "raw_scores", logits, e) ||
        !json_read_bool(body, "activation", &activates, e) ||
        !json_read_bool(body, "use_activation", &activates, e))
        return 0;
    *logits |= !activates;
    return 1;
}

/* The list of texts: "documents", or "texts" of Text Embeddings Inference. */
static const cJSON *rerank_documents(const cJSON *body) {
    const cJSON *v = json_field(body, "documents");
    return v ? v : json_field(body, "texts");
}

static int rerank_pairs(struct embedding *m, const cJSON *body, json_error *e) {
    const cJSON *list = rerank_documents(body);
    const cJSON *query = json_field(body, "query");
    const char *param = json_field(body, "documents") ? "documents" : "texts";
    const char *instruction = NULL;
    int64_t n_top = 0;
    int flag = 0;
    int logits = 0;
    if (!rerank_text(query))
        return json_fail(e, "query", "query: expected a string");
    if (!cJSON_IsArray(list) || !list->child)
        return json_fail(e, "documents", "documents: expected a list of texts that is not empty");
    if (!rerank_refuse(body, e) || !json_read_int(body, "top_n", 0, INT32_MAX, &n_top, e) ||
        !json_read_bool(body, "return_documents", &flag, e) ||
        !json_read_bool(body, "return_text", &flag, e) ||
        !json_read_string(body, "instruction", &instruction, e) ||
        !rerank_logits(body, &logits, e) ||
        !embeddings_pairs(m, (unsigned)cJSON_GetArraySize(list), logits, "documents", e))
        return 0;
    for (const cJSON *item = list->child; item; item = item->next)
        if (!rerank_add_item(m, query, item, param, instruction, e))
            return 0;
    return 1;
}

/* ---- answers --------------------------------------------------------------------------------- */

typedef struct {
    float score;
    uint32_t index;
} ranked;

/* The higher score first; of equal ones the first text. */
static int rerank_by_score(const void *a, const void *b) {
    const ranked *x = a;
    const ranked *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* [n_texts] by score; *n: as many as top_n wants. NULL: out of memory, and out has failed. */
static ranked *rerank_sorted(const embed_answer *v, mn_text *out, uint32_t *n) {
    ranked *list = malloc((v->n_texts + 1u) * sizeof *list);
    const cJSON *top = json_field(v->body, "top_n");
    if (!list) {
        out->failed = 1;
        return NULL;
    }
    for (uint32_t i = 0; i < v->n_texts; i++)
        list[i] = (ranked){v->values[i], i};
    qsort(list, v->n_texts, sizeof *list, rerank_by_score);
    *n = v->n_texts;
    if (top && top->valuedouble > 0 && top->valuedouble < *n)
        *n = (uint32_t)top->valuedouble;
    return list;
}

/* The same for all: a list of objects with an index, a score and, if the field `returns` of the
 * body wants it, the text as `document` writes it. */
static void rerank_put(const embed_answer *v, const char *score, const char *returns,
                       const char *before, const char *behind, mn_text *out) {
    const int texts = cJSON_IsTrue(json_field(v->body, returns));
    uint32_t n = 0;
    ranked *list = rerank_sorted(v, out, &n);
    mn_text_puts(out, "[");
    for (uint32_t i = 0; list && i < n; i++) {
        const char *text =
            rerank_text(cJSON_GetArrayItem(rerank_documents(v->body), (int)list[i].index));
        mn_text_printf(out, "%s{\"index\":%u,\"%s\":", i ? "," : "", list[i].index, score);
        json_float(out, list[i].score, "0");
        if (texts) {
            mn_text_puts(out, before);
            json_stringz(out, text ? text : "");
            mn_text_puts(out, behind);
        }
        mn_text_puts(out, "}");
    }
    mn_text_puts(out, "]");
    free(list);
}

/* Jina's form, which Cohere's clients and llama-server's read, too; with "texts" that of Text
 * Embeddings Inference, a bare list. */
static void rerank_answer(const embed_answer *v, mn_text *out) {
    if (!json_field(v->body, "documents")) {
        rerank_put(v, "score", "return_text", ",\"text\":", "", out);
        mn_text_puts(out, "\n");
        return;
    }
    mn_text_puts(out, "{\"id\":");
    json_stringz(out, v->id);
    mn_text_puts(out, ",\"model\":");
    json_stringz(out, v->model);
    mn_text_printf(out,
                   ",\"object\":\"list\",\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u},"
                   "\"results\":",
                   v->n_ids, v->n_ids);
    rerank_put(v, "relevance_score", "return_documents", ",\"document\":{\"text\":", "}", out);
    mn_text_puts(out, "}\n");
}

void route_rerank(serve *s, http_request *r) {
    static const embed_form form = {.put = rerank_answer, .pairs = rerank_pairs};
    embeddings_serve(s, r, &form);
}

/* ---- vLLM's scores --------------------------------------------------------------------------- */

/* A string, or a list of them, under one of two names. */
static const cJSON *score_side(const cJSON *body, const char *name, const char *also) {
    const cJSON *v = json_field(body, name);
    return v ? v : json_field(body, also);
}

/* One text with each of a list, or two lists of one length. */
static int score_pairs(struct embedding *m, const cJSON *body, json_error *e) {
    const cJSON *a = score_side(body, "text_1", "queries");
    const cJSON *b = score_side(body, "text_2", "documents");
    const int n_a = cJSON_IsArray(a) ? cJSON_GetArraySize(a) : 1;
    const int n_b = cJSON_IsArray(b) ? cJSON_GetArraySize(b) : 1;
    const char *instruction = NULL;
    int logits = 0;
    if (!a || !b || !n_a || !n_b)
        return json_fail(e, a && n_a ? "text_2" : "text_1",
                         "text_1, text_2: expected a string or a list of strings each");
    if (n_a != 1 && n_a != n_b)
        return json_fail(e, "text_1",
                         "text_1: found %d texts, expected one, or as many as text_2 has (%d)", n_a,
                         n_b);
    if (!rerank_refuse(body, e) || !rerank_logits(body, &logits, e) ||
        !json_read_string(body, "instruction", &instruction, e) ||
        !embeddings_pairs(m, (unsigned)n_b, logits, "text_2", e))
        return 0;
    const cJSON *query = cJSON_IsArray(a) ? a->child : a;
    const cJSON *item = cJSON_IsArray(b) ? b->child : b;
    for (int i = 0; i < n_b; i++) {
        if (!rerank_add_item(m, query, item, "text_2", instruction, e))
            return 0;
        item = item->next;
        if (n_a > 1)
            query = query->next;
    }
    return 1;
}

static void score_answer(const embed_answer *v, mn_text *out) {
    mn_text_puts(out, "{\"id\":");
    json_stringz(out, v->id);
    mn_text_printf(out, ",\"object\":\"list\",\"created\":%lld,\"model\":", (long long)v->created);
    json_stringz(out, v->model);
    mn_text_puts(out, ",\"data\":[");
    for (uint32_t i = 0; i < v->n_texts; i++) {
        mn_text_printf(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":", i ? "," : "", i);
        json_float(out, v->values[i], "0");
        mn_text_puts(out, "}");
    }
    mn_text_printf(out,
                   "],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,\"completion_tokens\":0,"
                   "\"prompt_tokens_details\":null}}\n",
                   v->n_ids, v->n_ids);
}

void route_score(serve *s, http_request *r) {
    static const embed_form form = {.put = score_answer, .pairs = score_pairs};
    embeddings_serve(s, r, &form);
}

/* ---- Cohere's errors ------------------------------------------------------------------------- */

static void cohere_error(const http_request *r, const json_error *e, mn_text *out) {
    mn_text_puts(out, "{\"id\":");
    json_stringz(out, r->id);
    mn_text_puts(out, ",\"message\":");
    json_stringz(out, e->message);
    mn_text_puts(out, "}\n");
}

const dialect dialect_cohere = {
    .paths = {"/v2/rerank"},
    .error = cohere_error,
};
