/* chat_messages.c -- the conversation of minerva chat: the list of messages, read from and written
 * to files.
 *
 * The chat owns copies of all texts. A message of a file keeps the text of its JSON object
 * (mn_message.more), so that the template gets, and /save writes, exactly the object of the
 * file, with numbers and order unchanged. */
#include "chat.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void messages_free(const mn_message *m) {
    free((char *)m->role.ptr);
    free((char *)m->content.ptr);
    free((char *)m->more.ptr);
}

static int chat_message_has_role(const mn_message *m, const char *role) {
    return strcmp(m->role.ptr, role) == 0;
}

/* A malloc'ed copy with a NUL behind it; ptr NULL: out of memory. */
static mn_str chat_message_copy_of(const char *bytes, size_t n) {
    char *copy = malloc(n + 1);
    if (copy && n)
        memcpy(copy, bytes, n);
    if (copy)
        copy[n] = 0;
    return (mn_str){copy, n};
}

int messages_push(chat *c, const char *role, mn_str content, char *more) {
    mn_message m = {chat_message_copy_of(role, strlen(role)),
                    chat_message_copy_of(content.ptr, content.len),
                    {more, more ? strlen(more) : 0}};
    mn_message *grown = realloc(c->messages, (c->n + 1) * sizeof *grown);
    if (grown)
        c->messages = grown;
    if (!grown || !m.role.ptr || !m.content.ptr) {
        messages_free(&m);
        return no_memory();
    }
    c->messages[c->n++] = m;
    return 0;
}

void messages_pop(chat *c) {
    messages_free(&c->messages[--c->n]);
}

uint32_t messages_before_turn(const chat *c) {
    const uint32_t n_system = messages_system(c);
    for (uint32_t i = c->n; i > n_system; i--)
        if (chat_message_has_role(&c->messages[i - 1], "user"))
            return i - 1;
    return c->n;
}

void messages_clear(chat *c, uint32_t keep) {
    while (c->n > keep)
        messages_pop(c);
    c->n_dropped = 0;
}

uint32_t messages_system(const chat *c) {
    uint32_t n = 0;
    while (n < c->n && (chat_message_has_role(&c->messages[n], "system") ||
                        chat_message_has_role(&c->messages[n], "developer")))
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
        messages_free(&c->messages[i]);
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

/* Appends a message of a file: text, n bytes, is the JSON of object. */
static int push_object(chat *c, const cJSON *object, const char *text, size_t n) {
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(object, "role");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(object, "content");
    const char *said = cJSON_IsString(content) ? content->valuestring : "";
    char *more = strndup(text, n);
    if (!more)
        return no_memory();
    return messages_push(c, cJSON_IsString(role) ? role->valuestring : "",
                         (mn_str){said, strlen(said)}, more);
}

int messages_from_json(chat *c, const char *json) {
    const char *at = skip_blanks(json);
    int code = 0;
    at = skip_blanks(at + (*at == '['));
    while (code == 0 && *at && *at != ']') {
        const char *end = NULL;
        errno = 0; /* malloc sets it; cJSON says no more than NULL */
        cJSON *object = cJSON_ParseWithOpts(at, &end, 0);
        if (!object && errno == ENOMEM)
            return no_memory();
        if (!object)
            return complain(
                EXIT_FAILED,
                "the conversation: found no JSON object at byte %zu, expected a list of "
                "messages",
                (size_t)(at - json));
        code =
            json_keep_last(object) ? push_object(c, object, at, (size_t)(end - at)) : no_memory();
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
        return no_memory();
    free(c->file);
    c->file = copy;
    return 0;
}

int messages_load(chat *c, const char *path) {
    talk_flags flags = *c->talk.flags;
    talk file = c->talk; // with the tools and the template of the chat
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

/* Writes a message as a JSON object that --history and /load read. */
static void put_message(out_file *out, const mn_message *m) {
    json_out j = out_json(out);
    cJSON *more = m->more.len ? cJSON_Parse(m->more.ptr) : NULL;
    if (cJSON_GetObjectItemCaseSensitive(more, "role")) {
        out_put(out, m->more.ptr, m->more.len);
    } else {
        json_open(&j, '{');
        json_key(&j, "role");
        json_str(&j, m->role.ptr, m->role.len);
        json_key(&j, "content");
        json_str(&j, m->content.ptr, m->content.len);
        if (more && more->child) { // the members between its braces
            out_put(out, ",", 1);
            out_put(out, m->more.ptr + 1, m->more.len - 2);
        }
        json_close(&j);
    }
    cJSON_Delete(more);
}

/* Replaces an existing file only if the conversation was loaded from it or saved to it before. */
int messages_save(chat *c, const char *path) {
    struct stat st;
    out_target target;
    const int ours = c->file && strcmp(c->file, path) == 0;
    if (!ours && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return complain(EXIT_FAILED,
                        "%s: found an existing file that is not of this conversation, expected a "
                        "new name: choose another one or delete the file",
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
