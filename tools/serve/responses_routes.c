/* responses_routes.c -- /v1/responses: the request that makes a response, the count of its tokens,
 * and the responses that are kept (responses_store.h): GET, DELETE and input_items. */
#include "serve/dialect_responses.h"
#include "serve/responses_store.h"
#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* Appends the items of a list to another one, which takes them over. */
static void move_items(cJSON *from, cJSON *to) {
    while (from && from->child)
        cJSON_AddItemToArray(to, cJSON_DetachItemFromArray(from, 0));
}

/* The items of the response that a request continues, its input and its output, as a new list; an
 * empty one without previous_response_id. NULL: the error is set, or out of memory. */
static cJSON *previous_items(const serve *s, int key, const cJSON *body, json_error *e) {
    const char *id = NULL;
    mn_text input = {0};
    mn_text output = {0};
    if (!json_read_string(body, "previous_response_id", &id, e))
        return NULL;
    if (!id)
        return cJSON_CreateArray();
    if (!s->responses || !responses_store_get(s->responses, id, key, NULL, &input, &output)) {
        e->status = 404;
        e->code = "previous_response_not_found";
        json_fail(e, "previous_response_id", "Previous response with id '%.200s' not found.", id);
        return NULL;
    }
    cJSON *list = cJSON_ParseWithLength(input.ptr, input.len);
    cJSON *more = cJSON_ParseWithLength(output.ptr, output.len);
    const int ok = list && more && !input.failed && !output.failed;
    if (ok)
        move_items(more, list);
    else
        cJSON_Delete(list);
    cJSON_Delete(more);
    mn_text_free(&input);
    mn_text_free(&output);
    return ok ? list : NULL;
}

/* All items of a request: those that it continues, then its own. */
static cJSON *all_items(const serve *s, int key, const cJSON *body, const char *name,
                        json_error *e) {
    cJSON *list = previous_items(s, key, body, e);
    cJSON *own = list ? responses_items(body, name, cJSON_GetArraySize(list), e) : NULL;
    if (own)
        move_items(own, list);
    else
        cJSON_Delete(list);
    cJSON_Delete(own);
    return own ? list : NULL;
}

/* The parts of the response that come from the request. 0: out of memory, or the error is set. */
static int read_state(answer *a, const cJSON *items, json_error *e) {
    responses_state *own = calloc(1, sizeof *own);
    char *text = cJSON_PrintUnformatted(items);
    a->own = own;
    if (own && text) {
        own->is_kept = 1;
        mn_text_puts(&own->input, text);
    }
    cJSON_free(text);
    return own && text && json_read_bool(a->in.body, "store", &own->is_kept, e);
}

/* What the response repeats of the request is known when the chat has read it: the body stays until
 * then. */
int responses_read(answer *a, json_error *e) {
    char name[64];
    snprintf(name, sizeof name, "item_%s", a->id + strlen(a->form->id_prefix));
    cJSON *body = a->in.body;
    cJSON *items = all_items(a->s, a->in.key, body, name, e);
    cJSON *chat = items && read_state(a, items, e) ? responses_chat(body, items, e) : NULL;
    cJSON_Delete(items);
    if (!chat)
        return e->failed ? 0 : json_no_memory(e);
    a->in.body = chat;
    a->body = chat;
    int ok = chat_read(a, e);
    if (!ok)
        responses_refused(a->m, e);
    responses_state *own = a->own;
    if (ok && !responses_put_asked(body, &a->sample, &own->asked))
        ok = json_no_memory(e);
    cJSON_Delete(body);
    return ok;
}

void route_responses(serve *s, http_request *r) {
    answer_serve(s, r, &responses_form);
}

/* ---- the count ------------------------------------------------------------------------------- */

static int count_input(reading *x) {
    uint32_t n = 0;
    cJSON *items = all_items(x->s, x->key, x->body, "item", &x->e);
    cJSON *chat = items ? responses_chat(x->body, items, &x->e) : NULL;
    cJSON_Delete(items);
    if (!chat)
        return x->e.failed ? 0 : json_no_memory(&x->e);
    if (!dialect_count_chat(x->m, &dialect_responses, chat, &n, &x->e))
        return 0;
    mn_text_printf(reading_out(x), "{\"object\":\"response.input_tokens\",\"input_tokens\":%u}\n",
                   n);
    return 1;
}

void route_input_tokens(serve *s, http_request *r) {
    reading_serve(s, r, count_input);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static const char path_of[] = "/v1/responses/";

static void answer_unknown(serve *s, http_request *r, const char *id) {
    json_error e = {.status = 404, .code = "response_not_found"};
    json_fail(&e, NULL, "Response with id '%.200s' not found.", id);
    serve_refuse(s, r, &e);
}

/* The ids of the first and the last item, then the list. */
static void put_item_list(const cJSON *items, mn_text *out) {
    const cJSON *first = items->child;
    const cJSON *last = first ? first->prev : NULL; /* of a list, the first one's is the last */
    const char *ids[] = {cJSON_GetStringValue(json_field(first, "id")),
                         cJSON_GetStringValue(json_field(last, "id"))};
    char *text = cJSON_PrintUnformatted(items);
    mn_text_puts(out, "{\"object\":\"list\",\"has_more\":false,\"first_id\":");
    json_stringz(out, ids[0] ? ids[0] : "");
    mn_text_puts(out, ",\"last_id\":");
    json_stringz(out, ids[1] ? ids[1] : "");
    mn_text_puts(out, ",\"data\":");
    mn_text_puts(out, text ? text : "");
    mn_text_puts(out, "}\n");
    out->failed |= !text;
    cJSON_free(text);
}

/* All items in one page, the newest first, as OpenAI has them without `order`. */
static void answer_input_items(serve *s, http_request *r, const char *id) {
    mn_text input = {0};
    mn_text out = {0};
    if (!s->responses || !responses_store_get(s->responses, id, r->key, NULL, &input, NULL)) {
        answer_unknown(s, r, id);
        return;
    }
    cJSON *items = cJSON_ParseWithLength(input.ptr, input.len);
    cJSON *turned = cJSON_CreateArray();
    while (items && turned && items->child)
        cJSON_InsertItemInArray(turned, 0, cJSON_DetachItemFromArray(items, 0));
    out.failed = !items || !turned;
    if (!out.failed)
        put_item_list(turned, &out);
    cJSON_Delete(items);
    cJSON_Delete(turned);
    mn_text_free(&input);
    serve_json(s, r, &out);
}

/* /v1/responses/ID and /v1/responses/ID/input_items. */
void route_response(serve *s, http_request *r) {
    const char *id = r->path + sizeof path_of - 1;
    const char *rest = strchr(id, '/');
    char bare[80];
    mn_text out = {0};
    snprintf(bare, sizeof bare, "%.*s", (int)(rest ? rest - id : 79), id);
    if (rest && !strcmp(rest, "/input_items")) {
        answer_input_items(s, r, bare);
        return;
    }
    if (rest || !s->responses || !responses_store_get(s->responses, id, r->key, &out, NULL, NULL)) {
        answer_unknown(s, r, id);
        return;
    }
    mn_text_puts(&out, "\n");
    serve_json(s, r, &out);
}

void route_response_delete(serve *s, http_request *r) {
    const char *id = r->path + sizeof path_of - 1;
    mn_text out = {0};
    if (!s->responses || !responses_store_drop(s->responses, id, r->key)) {
        answer_unknown(s, r, id);
        return;
    }
    mn_text_puts(&out, "{\"id\":");
    json_stringz(&out, id);
    mn_text_puts(&out, ",\"object\":\"response.deleted\",\"deleted\":true}\n");
    serve_json(s, r, &out);
}
