/* dialect.c -- what all dialects share (dialect.h): the table of their paths, errors in their own
 * form, and the way of a request through the chat. */
#include "serve/dialect.h"
#include <string.h>

static const dialect *const dialects[] = {&dialect_messages, &dialect_responses, &dialect_ollama,
                                          &dialect_llama, &dialect_cohere};

/* ---- paths and errors ------------------------------------------------------------------------ */

/* 1 if the path is one of d's. */
static int dialect_has(const dialect *d, const char *path) {
    if (d->but_for && !strncmp(path, d->but_for, strlen(d->but_for)))
        return 0;
    for (size_t i = 0; d->paths[i]; i++) {
        const size_t n = strlen(d->paths[i]);
        if (!strncmp(path, d->paths[i], n) && (!path[n] || path[n] == '/'))
            return 1;
    }
    return 0;
}

const dialect *dialect_of(const char *path) {
    for (size_t i = 0; i < MN_COUNT(dialects); i++)
        if (dialect_has(dialects[i], path))
            return dialects[i];
    return NULL;
}

void dialect_name_request(const dialect *d, http_request *r) {
    if (d->id_header)
        http_header(r, d->id_header, r->id);
}

void dialect_error(const dialect *d, http_request *r, const json_error *e) {
    mn_text out = {0};
    dialect_name_request(d, r);
    d->error(r, e, &out);
    http_answer(r, e->status, "application/json", &out);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The chat's request of a body; NULL: the error is set. */
static cJSON *translate(const dialect *d, const cJSON *body, json_error *e) {
    cJSON *chat = d->request(body, e);
    if (!chat)
        json_no_memory(e);
    return chat;
}

int dialect_read(answer *a, json_error *e) {
    const dialect *d = a->form->dialect;
    cJSON *chat = translate(d, a->in.body, e);
    if (!chat)
        return 0;
    cJSON_Delete(a->in.body);
    a->in.body = chat;
    a->body = chat;
    if (chat_read(a, e))
        return 1;
    if (d->refused)
        d->refused(a->m, e);
    return 0;
}

int dialect_count_plain(served *m, const cJSON *chat, uint32_t *n, json_error *e) {
    int32_t *ids = NULL;
    int has_tools = 0;
    ask_form form = {0};
    const int ok =
        form_calls(chat, &form, &has_tools, e) && chat_ids(m, chat, has_tools, &ids, n, e);
    mn_ids_free(ids);
    form_free(&form);
    return ok;
}

int dialect_count_chat(served *m, const dialect *d, cJSON *chat, uint32_t *n, json_error *e) {
    const int ok = chat && dialect_count_plain(m, chat, n, e);
    if (!ok && d->refused)
        d->refused(m, e);
    cJSON_Delete(chat);
    return ok;
}

int dialect_count(served *m, const dialect *d, const cJSON *body, uint32_t *n, json_error *e) {
    return dialect_count_chat(m, d, translate(d, body, e), n, e);
}
