/* embed_forms.c -- embeddings in the forms of Ollama (/api/embed, /api/embeddings) and llama-server
 * (/embedding, /embeddings): each brings its request into that of /v1/embeddings and writes the
 * vectors as its clients read them. */
#include "serve/dialect_ollama.h"
#include "serve/embeddings.h"
#include <string.h>

/* body[from] becomes body[to], if there is no such field. 0: out of memory. */
static int rename_field(cJSON *body, const char *from, const char *to) {
    if (json_field(body, to) || !json_field(body, from))
        return 1;
    cJSON_DeleteItemFromObjectCaseSensitive(body, to);
    return dialect_add(body, to, cJSON_DetachItemFromObjectCaseSensitive(body, from));
}

/* [[...], ...]: the vectors from `first` on. */
static void put_vectors(const embed_answer *v, mn_text *out) {
    mn_text_puts(out, "[");
    for (uint32_t i = 0; i < v->n_texts; i++) {
        mn_text_puts(out, i ? "," : "");
        embeddings_put_vector(out, v->values + (size_t)i * v->n_dim, v->n_dim, 0);
    }
    mn_text_puts(out, "]");
}

/* ---- Ollama ---------------------------------------------------------------------------------- */

static int ollama_embed_request(cJSON *body, int *cuts, json_error *e) {
    const char *model = NULL;
    int given = 0;
    double keep = 0;
    const cJSON *options = json_field(body, "options");
    *cuts = 1;
    if (options && !cJSON_IsObject(options))
        return json_fail(e, "options", "options: expected an object");
    return ollama_model(body, &model, e) && json_read_bool(body, "truncate", cuts, e) &&
           ollama_keep_alive(body, &given, &keep, e);
}

static void ollama_put_embed(const embed_answer *v, mn_text *out) {
    const double ns = (seconds() - v->since) * 1e9;
    mn_text_puts(out, "{\"model\":");
    json_stringz(out, v->model);
    mn_text_puts(out, ",\"embeddings\":");
    put_vectors(v, out);
    mn_text_printf(out, ",\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%u}\n",
                   ns > 1 ? (unsigned long long)ns : 1, v->n_ids);
}

static int ollama_embeddings_request(cJSON *body, int *cuts, json_error *e) {
    const cJSON *prompt = json_field(body, "prompt");
    if (!cJSON_IsString(prompt))
        return json_fail(e, "prompt", "prompt: expected a string");
    cJSON_DeleteItemFromObjectCaseSensitive(body, "input");
    return rename_field(body, "prompt", "input") && ollama_embed_request(body, cuts, e);
}

static void ollama_put_embedding(const embed_answer *v, mn_text *out) {
    mn_text_puts(out, "{\"embedding\":");
    embeddings_put_vector(out, v->values, v->n_dim, 0);
    mn_text_puts(out, "}\n");
}

void route_ollama_embed(serve *s, http_request *r) {
    static const embed_form form = {.request = ollama_embed_request, .put = ollama_put_embed};
    embeddings_serve(s, r, &form);
}

void route_ollama_embeddings(serve *s, http_request *r) {
    static const embed_form form = {.request = ollama_embeddings_request,
                                    .put = ollama_put_embedding};
    embeddings_serve(s, r, &form);
}

/* ---- llama-server ---------------------------------------------------------------------------- */

static int llama_embedding_request(cJSON *body, int *cuts, json_error *e) {
    int64_t norm = 2;
    (void)cuts;
    if (!json_read_int(body, "embd_normalize", -1, INT32_MAX, &norm, e))
        return 0;
    if (norm != 2)
        return json_fail(e, "embd_normalize",
                         "embd_normalize: found %lld, which is not supported: vectors are as the "
                         "model's files want them",
                         (long long)norm);
    return rename_field(body, "content", "input");
}

/* A list in a list: pooled vectors are one per text. */
static void llama_put_embedding(const embed_answer *v, mn_text *out) {
    mn_text_puts(out, "[");
    for (uint32_t i = 0; i < v->n_texts; i++) {
        mn_text_printf(out, "%s{\"index\":%u,\"embedding\":[", i ? "," : "", i);
        embeddings_put_vector(out, v->values + (size_t)i * v->n_dim, v->n_dim, 0);
        mn_text_puts(out, "]}");
    }
    mn_text_puts(out, "]\n");
}

void route_llama_embedding(serve *s, http_request *r) {
    static const embed_form form = {.request = llama_embedding_request, .put = llama_put_embedding};
    embeddings_serve(s, r, &form);
}
