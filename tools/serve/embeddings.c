/* embeddings.c -- /v1/embeddings: texts or ids become ids, an engine makes vectors of them, which
 * are sent as numbers or, as OpenAI's client asks, as base64 of little-endian floats. Pairs
 * of texts (rerank.c) take the same way to their scores.
 *
 * A request has one message for all its texts. It waits in a list, with its ids, so that it can be
 * sent again when its engine dies. */
#include "serve/embeddings.h"
#include "serve/prompt_forms.h"
#include "serve/reading.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEXTS = 2048 };

/* A request that waits. */
typedef struct embedding {
    reading in;
    struct embedding *next;
    http_request *http;
    uint64_t id;
    engine_link *link;      /* NULL: none was ready */
    const embed_form *form; /* NULL: OpenAI's */
    int base64, cuts, answered;
    unsigned n_crashes; /* of engines, while it ran */
    uint32_t n_texts, n_ids, cap;
    uint32_t *lengths;
    uint32_t *firsts; /* of pairs; NULL: of texts */
    uint32_t how;     /* WIRE_EMBED_* */
    int32_t *ids;
    int64_t n_dim;
} embedding;

/* ---- life ------------------------------------------------------------------------------------ */

static void release(reading *x) {
    embedding *m = (embedding *)(void *)x;
    embedding **at = &x->s->embeddings;
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    free(m->lengths);
    free(m->firsts);
    free(m->ids);
    free(m);
}

/* The request that an engine speaks of; NULL: it has none, or it is answered. */
static embedding *embeddings_find(const serve *s, const engine_link *l, uint64_t id) {
    embedding *m = s->embeddings;
    while (m && m->id != id)
        m = m->next;
    return m && m->link == l && !m->answered ? m : NULL;
}

/* To an engine that is ready, in turn; m->link stays NULL if none is. */
static void embeddings_send(embedding *m) {
    const served *model = m->in.m;
    for (unsigned i = 0; i < model->n_links; i++) {
        engine_link *l = &model->links[(m->id + i) % model->n_links];
        if (l->state != LINK_READY)
            continue;
        const wire_embed request = {.id = m->id,
                                    .n_texts = m->n_texts,
                                    .n_dim = (uint32_t)m->n_dim,
                                    .lengths = m->lengths,
                                    .firsts = m->firsts,
                                    .how = m->how,
                                    .ids = m->ids,
                                    .n_ids = m->n_ids};
        wire_put_embed(&l->out, &request);
        m->link = l;
        if (!link_flush(l)) {
            m->answered = 1;
            http_error(m->http, 503, "server_error", NULL, NULL, "out of memory");
        }
        return;
    }
}

void embeddings_resume(serve *s) {
    for (embedding *m = s->embeddings; m; m = m->next)
        if (!m->link && !m->answered)
            embeddings_send(m);
}

void embeddings_down(serve *s, const engine_link *l, int crashed) {
    for (embedding *m = s->embeddings; m; m = m->next) {
        if (m->link != l)
            continue;
        m->link = NULL;
        m->n_crashes += (unsigned)crashed;
        if (m->n_crashes < SERVE_MAX_CRASHES || m->answered)
            continue;
        m->answered = 1;
        http_error(m->http, 500, "server_error", NULL, NULL,
                   "the engine crashed several times while it computed these vectors");
    }
}

void embeddings_fail(const served *model, unsigned status, const char *message) {
    for (embedding *m = model->s->embeddings; m; m = m->next) {
        if (m->in.m != model || m->answered)
            continue;
        m->answered = 1;
        m->link = NULL;
        http_error(m->http, status, "server_error", NULL, NULL, message);
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Space for n more ids. */
static int embeddings_reserve(embedding *m, uint32_t n) {
    if (n <= m->cap - m->n_ids)
        return 1;
    const uint32_t cap = 2 * (m->n_ids + n) + 64;
    int32_t *grown = realloc(m->ids, cap * sizeof *grown);
    if (!grown)
        return 0;
    m->ids = grown;
    m->cap = cap;
    return 1;
}

/* A text that is cut has no more bytes than the context may hold; whole characters. */
static void cut_text(const embedding *m, const cJSON *item) {
    const size_t most = (size_t)m->in.m->n_ctx * m->in.m->longest_token;
    char *text = cJSON_GetStringValue(item);
    if (!m->cuts || !text || strlen(text) <= most)
        return;
    size_t n = most;
    while (n && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    text[n] = 0;
}

/* Of n ids, those that fit; the last one of an encoder stays the last. */
static uint32_t cut_ids(const embedding *m, int32_t *ids, uint32_t n) {
    const uint32_t n_ctx = m->in.m->n_ctx;
    if (!m->cuts || n <= n_ctx || !n_ctx)
        return n;
    if (m->in.m->a.info.is_encoder)
        ids[n_ctx - 1] = ids[n - 1];
    return n_ctx;
}

/* The ids [n] of the next text. */
static int append_ids(embedding *m, const int32_t *ids, uint32_t n, json_error *e) {
    if (!embeddings_reserve(m, n))
        return json_no_memory(e);
    memcpy(m->ids + m->n_ids, ids, n * sizeof *ids);
    m->lengths[m->n_texts++] = n;
    m->n_ids += n;
    return 1;
}

/* One text, in any form of prompt_forms.h. 0: the error is set. */
static int add_input(embedding *m, const cJSON *item, json_error *e) {
    int32_t *ids = NULL;
    uint32_t n = 0;
    cut_text(m, item);
    if (!prompt_ids(m->in.m, item, "input", MN_TEXT_ADD_SPECIAL, &ids, &n, e))
        return 0;
    n = cut_ids(m, ids, n);
    int ok = n > 0 || json_fail(e, "input", "input: text %u is empty", m->n_texts);
    if (ok && n > m->in.m->n_ctx)
        ok = serve_too_long(m->in.m, n, "input", e);
    if (ok)
        ok = append_ids(m, ids, n, e);
    free(ids);
    return ok;
}

/* "input": one text or a list of them; a list of numbers is one text. */
static int add_inputs(embedding *m, const cJSON *body, json_error *e) {
    const cJSON *input = json_field(body, "input");
    const int is_list = prompt_is_list(input);
    const int is_one = !is_list;
    const int n = is_one ? 1 : cJSON_GetArraySize(input);
    const cJSON *item = is_one ? input : input->child;
    if (!input || (is_list && !input->child))
        return json_fail(e, "input",
                         "input: found none, expected a string, a list of strings, or "
                         "token ids");
    if (n > MAX_TEXTS)
        return json_fail(e, "input", "input: found %d texts, expected at most %d", n, MAX_TEXTS);
    m->lengths = calloc((size_t)n, sizeof *m->lengths);
    if (!m->lengths)
        return json_no_memory(e);
    for (int i = 0; i < n; i++) {
        if (!add_input(m, item, e))
            return 0;
        item = item->next;
    }
    return 1;
}

int embeddings_pairs(embedding *m, uint32_t n, int logits, const char *param, json_error *e) {
    if (n > MAX_TEXTS)
        return json_fail(e, param, "%s: found %u texts, expected at most %d", param, n, MAX_TEXTS);
    m->how = logits ? WIRE_EMBED_LOGITS : WIRE_EMBED_SCORES;
    m->n_dim = 1;
    m->lengths = calloc(n, sizeof *m->lengths);
    m->firsts = calloc(n, sizeof *m->firsts);
    return m->lengths && m->firsts ? 1 : json_no_memory(e);
}

int embeddings_add_pair(embedding *m, const char *query, const char *text, const char *instruction,
                        const char *param, json_error *e) {
    const served *model = m->in.m;
    mn_error err = MN_ERROR;
    int32_t *ids = NULL;
    uint32_t n = 0;
    uint32_t first = 0;
    const mn_status st =
        mn_model_pair(model->a.model, mn_str_of(query), mn_str_of(text),
                      mn_str_of(instruction ? instruction : ""), &ids, &n, &first, &err);
    if (st)
        return serve_library_error(&err, st, param, e);
    m->firsts[m->n_texts] = first;
    const int ok = n > model->n_ctx ? serve_too_long(model, n, param, e) : append_ids(m, ids, n, e);
    mn_ids_free(ids);
    return ok;
}

/* 0: the error is set. */
static int read_request(reading *x) {
    const served *model = x->m;
    embedding *m = (embedding *)(void *)x;
    cJSON *body = x->body;
    json_error *e = &x->e;
    const char *format = "float";
    const char *adapter = adapters_of(model, cJSON_GetStringValue(json_field(body, "model")));
    if (adapter)
        return json_fail(e, "model",
                         "model: found the adapter \"%.100s\", expected %.100s: vectors and scores "
                         "are made without adapters",
                         adapter, model->name);
    if (m->form && m->form->pairs && !model->a.info.is_reranker)
        return json_fail(e, "model",
                         "%s scores no texts: expected a reranker, a model with a head for it",
                         model->name);
    if (m->form && m->form->pairs)
        return m->form->pairs(m, body, e);
    if (m->form && m->form->request && !m->form->request(body, &m->cuts, e))
        return json_no_memory(e);
    if (!json_read_string(body, "encoding_format", &format, e) ||
        !json_read_int(body, "dimensions", 1, model->a.info.n_embd, &m->n_dim, e))
        return 0;
    m->base64 = !strcmp(format, "base64");
    if (!m->base64 && strcmp(format, "float") != 0)
        return json_fail(e, "encoding_format",
                         "encoding_format: found \"%.40s\", expected \"float\" or \"base64\"",
                         format);
    if (!model->own.embeddings && !model->a.info.is_encoder)
        return json_fail(e, NULL, "the server was started without --embeddings");
    return add_inputs(m, body, e);
}

static void start(reading *x) {
    serve *s = x->s;
    embedding *m = (embedding *)(void *)x;
    if (!serve_admit(s, x->http, 1))
        return;
    m->http = x->http;
    m->id = s->next_id++;
    m->next = s->embeddings;
    s->embeddings = m;
    embeddings_send(m);
}

void embeddings_serve(serve *s, http_request *r, const embed_form *form) {
    if (!serve_has_room(s, r, 1))
        return;
    embedding *m = calloc(1, sizeof *m);
    if (!m) {
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
        return;
    }
    m->form = form;
    m->in.counts = 1;
    m->in.read = read_request;
    m->in.begin = start;
    m->in.release = release;
    reading_start(&m->in, s, r);
}

void route_embeddings(serve *s, http_request *r) {
    embeddings_serve(s, r, NULL);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* RFC 4648, with padding. */
static void put_base64(mn_text *out, const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned second = left > 1 ? at[i + 1] : 0;
        const unsigned third = left > 2 ? at[i + 2] : 0;
        const unsigned bits = (unsigned)at[i] << 16 | second << 8 | third;
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], '=', '='};
        if (left > 1)
            four[2] = digits[bits >> 6 & 63];
        if (left > 2)
            four[3] = digits[bits & 63];
        mn_text_put(out, four, 4);
    }
}

/* In the byte order of this machine, which is little-endian wherever Minerva runs. */
void embeddings_put_vector(mn_text *out, const float *v, uint32_t n, int base64) {
    if (base64) {
        mn_text_puts(out, "\"");
        put_base64(out, v, n * sizeof *v);
        mn_text_puts(out, "\"");
        return;
    }
    mn_text_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        mn_text_puts(out, i ? "," : "");
        json_float(out, v[i], "0");
    }
    mn_text_puts(out, "]");
}

/* OpenAI's form. */
static void put_openai(const embedding *m, const wire_vector *v, mn_text *out) {
    mn_text_puts(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < v->n_texts; i++) {
        mn_text_printf(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "",
                       i);
        embeddings_put_vector(out, v->values + (size_t)i * v->n_dim, v->n_dim, m->base64);
        mn_text_puts(out, "}");
    }
    mn_text_puts(out, "],\"model\":");
    json_stringz(out, m->in.m->name);
    mn_text_printf(out, ",\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}\n", m->n_ids,
                   m->n_ids);
}

int embeddings_vector(serve *s, const engine_link *l, const wire_vector *v) {
    embedding *m = embeddings_find(s, l, v->id);
    mn_text out = {0};
    if (!m)
        return 0;
    m->answered = 1;
    if (v->n_texts != m->n_texts || !v->n_dim) {
        http_error(m->http, 500, "server_error", NULL, NULL, "the engine sent other vectors");
        return 1;
    }
    if (m->form) {
        const char *asked = cJSON_GetStringValue(json_field(m->in.body, "model"));
        const embed_answer of = {.model = asked ? asked : m->in.m->name,
                                 .n_texts = v->n_texts,
                                 .n_dim = v->n_dim,
                                 .n_ids = m->n_ids,
                                 .values = v->values,
                                 .body = m->in.body,
                                 .id = m->http->id,
                                 .created = (int64_t)time(NULL),
                                 .since = m->http->since};
        m->form->put(&of, &out);
    } else {
        put_openai(m, v, &out);
    }
    m->in.m->metrics.prompt_tokens += m->n_ids;
    m->http->n_prompt = m->n_ids;
    serve_json(s, m->http, &out);
    return 1;
}

int embeddings_refused(serve *s, const engine_link *l, const wire_refused *m) {
    embedding *found = embeddings_find(s, l, m->id);
    char message[512];
    if (!found)
        return 0;
    found->answered = 1;
    const unsigned status =
        m->status == MN_BAD_INPUT || m->status == MN_INVALID || m->status == MN_UNSUPPORTED ? 400
                                                                                            : 500;
    snprintf(message, sizeof message, "%.*s", (int)(m->message.len < 500 ? m->message.len : 500),
             m->message.ptr);
    http_error(found->http, status, status == 400 ? "invalid_request_error" : "server_error",
               status == 400 ? "input" : NULL, NULL, message);
    return 1;
}
