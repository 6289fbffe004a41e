/* chat_messages.c -- the conversation of minerva chat: a list of messages that the chat owns, from
 * lines, from answers and from files. A message of a file keeps the text of its JSON object
 * (mn_message.more), so that what the template reads of it, and what is saved again, is what the
 * file said, numbers and order included. */
#include "chat.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void free_message(mn_message *m) {
    free((char *)m->role.ptr);
    free((char *)m->content.ptr);
    free((char *)m->more.ptr);
}

static mn_str copy_of(const char *bytes, size_t n) {
    char *copy = malloc(n + 1);
    if (copy && n)
        memcpy(copy, bytes, n);
    if (copy)
        copy[n] = 0;
    return (mn_str){copy, n};
}

int messages_push(chat *c, const char *role, mn_str content, char *more) {
    mn_message m = {copy_of(role, strlen(role)),
                    copy_of(content.ptr, content.len),
                    {more, more ? strlen(more) : 0}};
    mn_message *grown = realloc(c->messages, (c->n + 1) * sizeof *grown);
    if (grown)
        c->messages = grown;
    if (!grown || !m.role.ptr || !m.content.ptr) {
        free_message(&m);
        return complain(EXIT_NO_MEMORY, "out of memory");
    }
    c->messages[c->n++] = m;
    return 0;
}

void messages_pop(chat *c) {
    free_message(&c->messages[--c->n]);
}

void messages_clear(chat *c, uint32_t keep) {
    while (c->n > keep)
        messages_pop(c);
    c->n_dropped = 0;
}

static int has_role(const mn_message *m, const char *role) {
    return strcmp(m->role.ptr, role) == 0;
}

uint32_t messages_system(const chat *c) {
    uint32_t n = 0;
    while (n < c->n &&
           (has_role(&c->messages[n], "system") || has_role(&c->messages[n], "developer")))
        n++;
    return n;
}

int messages_set_system(chat *c, const char *text) {
    const uint32_t n = messages_system(c);
    if (text[0]) {
        int code = messages_push(c, "system", (mn_str){text, strlen(text)}, NULL);
        if (code)
            return code;
    }
    mn_message added = {0};
    if (text[0])
        added = c->messages[--c->n];
    for (uint32_t i = 0; i < n; i++)
        free_message(&c->messages[i]);
    const uint32_t first = text[0] ? 1 : 0;
    if (c->n > n)
        memmove(c->messages + first, c->messages + n, (c->n - n) * sizeof *c->messages);
    if (first)
        c->messages[0] = added;
    c->n = c->n - n + first;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */
static const char *skip_blanks(const char *s) {
    return s + strspn(s, " \t\r\n");
}

/* A message of a file, which keeps its own text: object is what that says. */
static int push_object(chat *c, const cJSON *object, const char *text, size_t n) {
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(object, "role");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(object, "content");
    const char *said = cJSON_IsString(content) ? content->valuestring : "";
    char *more = strndup(text, n);
    if (!more)
        return complain(EXIT_NO_MEMORY, "out of memory");
    return messages_push(c, cJSON_IsString(role) ? role->valuestring : "",
                         (mn_str){said, strlen(said)}, more);
}

int messages_from_json(chat *c, const char *json) {
    const char *at = skip_blanks(json);
    int code = 0;
    at = skip_blanks(at + (*at == '['));
    while (code == 0 && *at && *at != ']') {
        const char *end = NULL;
        cJSON *object = cJSON_ParseWithOpts(at, &end, 0);
        if (!object)
            return complain(EXIT_FAILED, "the conversation is not a list of messages at byte %zu",
                            (size_t)(at - json));
        code = push_object(c, object, at, (size_t)(end - at));
        cJSON_Delete(object);
        at = skip_blanks(end);
        if (*at == ',')
            at = skip_blanks(at + 1);
    }
    return code;
}

static int remember_file(chat *c, const char *path) {
    char *copy = strdup(path);
    if (!copy)
        return complain(EXIT_NO_MEMORY, "out of memory");
    free(c->file);
    c->file = copy;
    return 0;
}

int messages_load(chat *c, const char *path) {
    talk_flags flags = *c->talk.flags;
    talk file = c->talk; // tools and template are the chat's
    chat read = {0};
    flags.history = path;
    file.flags = &flags;
    int code = talk_read(path, &file.history);
    if (code == 0)
        code = talk_check(&c->a, &file);
    if (code == 0)
        code = messages_from_json(&read, file.history);
    if (code == 0)
        code = remember_file(c, path);
    free(file.history);
    if (code == 0) {
        messages_clear(c, 0);
        free(c->messages);
        c->messages = read.messages;
        c->n = read.n;
        return 0;
    }
    messages_clear(&read, 0);
    free(read.messages);
    return code;
}

/* A message as the object of a list that --history and /load take. */
static void put_message(out_file *out, const mn_message *m) {
    json_out j = {out, 0, 0, {0}};
    cJSON *more = m->more.len ? cJSON_Parse(m->more.ptr) : NULL;
    if (cJSON_GetObjectItemCaseSensitive(more, "role")) {
        out_put(out, m->more.ptr, m->more.len);
    } else {
        json_open(&j, '{');
        json_key(&j, "role");
        json_str(&j, m->role.ptr, m->role.len);
        json_key(&j, "content");
        json_str(&j, m->content.ptr, m->content.len);
        if (more && more->child) // what is between its braces, behind a comma
            out_put(out, ",", 1);
        if (more && more->child)
            out_put(out, m->more.ptr + 1, m->more.len - 2);
        json_close(&j);
    }
    cJSON_Delete(more);
}

/* The file that the conversation came from, or went to before, is replaced; no other one is. */
int messages_save(chat *c, const char *path) {
    struct stat st;
    out_target target;
    const int ours = c->file && strcmp(c->file, path) == 0;
    if (!ours && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return complain(EXIT_FAILED,
                        "%s: there is such a file already, and it is not this conversation's; "
                        "choose another name or delete it",
                        path);
    int code = out_open(&target, path);
    if (code)
        return code;
    for (uint32_t i = 0; i < c->n; i++) {
        out_puts(&target.out, i ? ",\n" : "[\n");
        put_message(&target.out, &c->messages[i]);
    }
    out_puts(&target.out, c->n ? "\n]\n" : "[]\n");
    code = out_commit(&target, 0);
    return code ? code : remember_file(c, path);
}
