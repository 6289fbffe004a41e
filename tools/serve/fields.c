/* fields.c -- reads requests by the table of fields (fields.def). The rows of the four simple kinds
 * know where their values go; a refused field has the values that ask for nothing, so that clients
 * may send all fields of their own server with their defaults. */
#include "serve/fields.h"
#include "app.h"
#include "serve/ask.h"
#include <string.h>

enum { BOTH = FIELDS_CHAT | FIELDS_TEXT, CHAT = FIELDS_CHAT, TEXT = FIELDS_TEXT };
typedef enum { OF_NUMBER, OF_INTEGER, OF_FLAG } row_kind;

typedef struct {
    const char *name;
    int at;
    row_kind kind;
    size_t offset; /* in ask: of a double, an int64_t or an int */
    double least, most;
} value_row;

static const value_row values[] = {
#define NUMBER(name, of, at, member, least, most, doc)                                             \
    {name, at, OF_NUMBER, offsetof(ask, member), least, most},
#define INTEGER(name, of, at, member, least, most, doc)                                            \
    {name, at, OF_INTEGER, offsetof(ask, member), least, most},
#define FLAG(name, of, at, member, doc) {name, at, OF_FLAG, offsetof(ask, member), 0, 1},
#include "serve/fields.def"
};

typedef struct {
    const char *name;
    int at;
    const char *allowed; /* JSON values with '|' between */
    const char *why;
} refused_row;

static const refused_row refused[] = {
#define REFUSED(name, of, at, allowed, doc) {name, at, allowed, doc},
#include "serve/fields.def"
};

/* One field by its row. 0: the error is set. */
static int fields_read_value(const cJSON *body, const value_row *row, ask *out, json_error *e) {
    void *to = (char *)out + row->offset;
    if (row->kind == OF_FLAG)
        return json_read_bool(body, row->name, to, e);
    if (row->kind == OF_NUMBER)
        return json_read_number(body, row->name, row->least, row->most, to, e);
    return json_read_int(body, row->name, (int64_t)row->least, (int64_t)row->most, to, e);
}

/* 1 if v is one of the values with '|' between. */
static int is_allowed(const cJSON *v, const char *allowed) {
    int found = 0;
    for (const char *at = allowed; *at && !found; at += strspn(at, "|")) {
        const size_t n = strcspn(at, "|");
        cJSON *value = cJSON_ParseWithLength(at, n);
        found = value && cJSON_Compare(v, value, 1);
        cJSON_Delete(value);
        at += n;
    }
    return found;
}

static int check_refused(const cJSON *body, const refused_row *row, json_error *e) {
    const cJSON *v = json_field(body, row->name);
    char found[80];
    if (!v || is_allowed(v, row->allowed))
        return 1;
    return json_fail(e, row->name, "%s: found %s, which is not supported: %s", row->name,
                     json_found(v, found, sizeof found), row->why);
}

int fields_read(const cJSON *body, fields_at at, ask *out, json_error *e) {
    for (size_t i = 0; i < MN_COUNT(values); i++)
        if (values[i].at & (int)at && !fields_read_value(body, &values[i], out, e))
            return 0;
    for (size_t i = 0; i < MN_COUNT(refused); i++)
        if (refused[i].at & (int)at && !check_refused(body, &refused[i], e))
            return 0;
    return 1;
}
