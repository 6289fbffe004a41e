/* text_routes.c -- /tokenize and /detokenize, with vLLM's fields: the tokeniser alone, without an
 * engine. Also the texts of tokens in logprobs. */
#include "serve/dialect.h"
#include "serve/answer.h"
#include "utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- logprobs -------------------------------------------------------------------------------- */

void put_token(const served *m, mn_text *out, int32_t id) {
    const mn_str text = mn_model_token_text(m->a.model, id);
    mn_text_json(out, text);
}

void logprob_token(const answer *a, mn_text *out, int32_t id) {
    if (a->ask.name_ids)
        mn_text_printf(out, "\"token_id:%d\"", id);
    else
        put_token(a->m, out, id);
}

void logprob_entry(const answer *a, mn_text *out, int32_t id, float logprob) {
    const mn_str text = mn_model_token_text(a->m->a.model, id);
    mn_text_puts(out, "{\"token\":");
    logprob_token(a, out, id);
    mn_text_puts(out, ",\"logprob\":");
    json_float(out, logprob, "-9999.0");
    mn_text_puts(out, ",\"bytes\":[");
    for (uint64_t i = 0; i < text.len; i++)
        mn_text_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)text.ptr[i]);
    mn_text_puts(out, "]");
}

/* ---- /tokenize ------------------------------------------------------------------------------- */

static void put_ids(mn_text *out, const int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        mn_text_printf(out, "%s%d", i ? "," : "", ids[i]);
}

/* A megabyte is tokenised in a second at worst: what no context can hold and is longer than that is
 * refused. 0: the error is set. */
static int text_route_check_length(const served *m, size_t n, json_error *e) {
    enum { ALWAYS = 1 << 20 };
    const size_t most = (size_t)m->n_ctx * m->longest_token;
    if (n <= ALWAYS || n <= most)
        return 1;
    return json_fail(e, "prompt", "prompt: found %zu bytes, expected at most %zu", n,
                     most > ALWAYS ? most : ALWAYS);
}

/* The ids of the prompt or the messages of the request, freed by mn_ids_free. */
static int read_ids_of(served *m, const cJSON *body, int32_t **ids, uint32_t *n, json_error *e) {
    mn_error err = MN_ERROR;
    const char *prompt = NULL;
    int is_llama = 0;
    int special = 1;
    if (json_field(body, "messages"))
        return chat_ids(m, body, json_field(body, "tools") != NULL, ids, n, e);
    if (!json_read_string(body, "prompt", &prompt, e) ||
        !json_read_bool(body, "add_special_tokens", &special, e))
        return 0;
    if (!prompt && (!json_read_string(body, "content", &prompt, e) ||
                    !json_read_bool(body, "add_special", &is_llama, e)))
        return 0;
    if (!prompt)
        return json_fail(e, "prompt",
                         "prompt: found none, expected a string, or content, or messages");
    if (json_field(body, "content"))
        special = is_llama;
    if (!text_route_check_length(m, strlen(prompt), e))
        return 0;
    const uint32_t flags = MN_TEXT_PARSE_SPECIAL | (special ? MN_TEXT_ADD_SPECIAL : 0);
    const mn_str text = {prompt, strlen(prompt)};
    const mn_status st = mn_model_tokenize(m->a.model, text, flags, ids, n, &err);
    return !st || serve_library_error(&err, st, "prompt", e);
}

/* llama-server's with_pieces: ids with their texts, or their bytes where they are no UTF-8. */
static void put_tokens(served *m, int with_pieces, const int32_t *ids, uint32_t n, mn_text *out) {
    if (!with_pieces) {
        put_ids(out, ids, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const mn_str text = mn_model_token_text(m->a.model, ids[i]);
        mn_text_printf(out, "%s{\"id\":%d,\"piece\":", i ? "," : "", ids[i]);
        if (mn_utf8_check(text.ptr, text.len) == text.len) {
            mn_text_json(out, text);
        } else {
            for (uint64_t k = 0; k < text.len; k++)
                mn_text_printf(out, "%c%u", k ? ',' : '[', (unsigned)(unsigned char)text.ptr[k]);
            mn_text_puts(out, "]");
        }
        mn_text_puts(out, "}");
    }
}

/* The answer, with vLLM's fields; from "content" llama-server's. 0: the error is set. */
static int text_route_tokenize(reading *x) {
    served *m = x->m;
    mn_text *out = reading_out(x);
    int32_t *ids = NULL;
    uint32_t n = 0;
    int with_texts = 0;
    int with_pieces = 0;
    if (!json_read_bool(x->body, "return_token_strs", &with_texts, &x->e) ||
        !json_read_bool(x->body, "with_pieces", &with_pieces, &x->e) ||
        !read_ids_of(m, x->body, &ids, &n, &x->e))
        return 0;
    mn_text_printf(out, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", n, m->n_ctx);
    put_tokens(m, with_pieces, ids, n, out);
    mn_text_puts(out, "]");
    if (with_texts) {
        mn_text_puts(out, ",\"token_strs\":[");
        for (uint32_t i = 0; i < n; i++) {
            mn_text_puts(out, i ? "," : "");
            put_token(m, out, ids[i]);
        }
        mn_text_puts(out, "]");
    }
    mn_text_puts(out, "}\n");
    mn_ids_free(ids);
    return 1;
}

void route_tokenize(serve *s, http_request *r) {
    reading_serve(s, r, text_route_tokenize);
}

/* ---- /detokenize ----------------------------------------------------------------------------- */

/* Appends the text of one id, or (id -1) what is kept back. The stream fails for want of memory
 * alone. */
static void text_route_push(mn_stream *stream, int32_t id, mn_text *out) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    const mn_status st = id < 0 ? mn_stream_finish(stream, &events, &n, NULL)
                                : mn_stream_push(stream, id, &events, &n, NULL);
    out->failed |= st != MN_OK;
    for (uint32_t i = 0; !st && i < n; i++)
        mn_text_json_inner(out, events[i].text.ptr, events[i].text.len);
}

/* The text of the ids, special tokens by their names. 0: the error is set. */
static int text_route_text(const served *m, const cJSON *list, mn_stream *stream, mn_text *text,
                           json_error *e) {
    const double n_vocab = (double)m->a.info.n_vocab;
    const cJSON *item = NULL;
    if (!cJSON_IsArray(list))
        return json_fail(e, "tokens", "tokens: expected a list of token ids");
    cJSON_ArrayForEach(item, list) {
        const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(x >= 0 && x < n_vocab) || x != floor(x))
            return json_fail(e, "tokens", "tokens: expected token ids below %.0f", n_vocab);
        text_route_push(stream, (int32_t)x, text);
    }
    text_route_push(stream, -1, text);
    return 1;
}

/* The answer has the text by vLLM's name and by llama-server's. */
static int put_texts(const served *m, const cJSON *list, mn_stream *stream, mn_text *out,
                     json_error *e) {
    mn_text text = {0};
    const int ok = text_route_text(m, list, stream, &text, e);
    mn_text_puts(out, "{\"prompt\":\"");
    mn_text_add(out, &text);
    mn_text_puts(out, "\",\"content\":\"");
    mn_text_add(out, &text);
    mn_text_puts(out, "\"}\n");
    mn_text_free(&text);
    return ok;
}

static int text_route_detokenize(reading *x) {
    mn_stream *stream = NULL;
    mn_error err = MN_ERROR;
    mn_text *out = reading_out(x);
    const mn_status st = mn_stream_create(x->m->a.model, MN_STREAM_SPECIAL, &stream, &err);
    if (st)
        return serve_library_error(&err, st, "tokens", &x->e);
    const int ok = put_texts(x->m, json_field(x->body, "tokens"), stream, out, &x->e);
    mn_stream_free(stream);
    return ok;
}

void route_detokenize(serve *s, http_request *r) {
    reading_serve(s, r, text_route_detokenize);
}

/* llama-server's: how many tokens the prompt of a chat has. 0: the error is set. */
static int text_route_chat_tokens(reading *x) {
    uint32_t n = 0;
    if (!dialect_count_plain(x->m, x->body, &n, &x->e))
        return 0;
    mn_text_printf(reading_out(x), "{\"input_tokens\":%u}\n", n);
    return 1;
}

void route_chat_tokens(serve *s, http_request *r) {
    reading_serve(s, r, text_route_chat_tokens);
}
