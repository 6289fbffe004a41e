/* json_strict.c -- JSON that users, clients and makers of models write (json_strict.h). cJSON reads
 * numbers by strtod and keeps all members of an object, of which it finds the first: its callers
 * check the text and mend the tree with these. Used by runtime/text/json and by the tools. */
#include "json_strict.h"
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t count_digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
int json_is_number(const char *s, size_t n) {
    size_t at = n && s[0] == '-';
    const size_t whole = count_digits(s + at, n - at);
    if (!whole || (whole > 1 && s[at] == '0'))
        return 0;
    at += whole;
    if (at < n && s[at] == '.') {
        const size_t part = count_digits(s + at + 1, n - at - 1);
        if (!part)
            return 0;
        at += 1 + part;
    }
    if (at < n && (s[at] == 'e' || s[at] == 'E')) {
        at++;
        at += at < n && (s[at] == '+' || s[at] == '-');
        const size_t exponent = count_digits(s + at, n - at);
        if (!exponent)
            return 0;
        at += exponent;
    }
    return at == n;
}

static int begins_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.';
}

size_t json_bad_number(const char *text, size_t n, size_t *length) {
    int in_string = 0;
    *length = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string)
            i += text[i] == '\\';
        else if (begins_number(text[i])) {
            size_t end = i;
            while (end < n && text[end] && strchr("+-.0123456789eE", text[end]))
                end++;
            if (!json_is_number(text + i, end - i)) {
                *length = end - i;
                return i;
            }
            i = end - 1;
        }
    }
    return n;
}

/* ---- members --------------------------------------------------------------------------------- */

typedef struct {
    cJSON *item;
    size_t place; /* in its object */
} member;

static int json_strict_by_name(const void *a, const void *b) {
    const member *x = a;
    const member *y = b;
    const int order = strcmp(x->item->string, y->item->string);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* The last of n members of one name takes the place of the first; the others go. */
static void json_strict_keep_one(cJSON *object, const member *same, size_t n) {
    if (n < 2)
        return;
    cJSON *last = cJSON_DetachItemViaPointer(object, same[n - 1].item);
    for (size_t i = 1; i + 1 < n; i++)
        cJSON_Delete(cJSON_DetachItemViaPointer(object, same[i].item));
    cJSON_ReplaceItemViaPointer(object, same[0].item, last);
}

/* One object, by sorting: a hostile one has a million members. 0: out of memory. */
static int keep_last_of(cJSON *object) {
    const size_t n = (size_t)cJSON_GetArraySize(object);
    if (n < 2)
        return 1;
    member *list = malloc(n * sizeof *list);
    if (!list)
        return 0;
    size_t i = 0;
    for (cJSON *item = object->child; item; item = item->next, i++)
        list[i] = (member){item, i};
    qsort(list, n, sizeof *list, json_strict_by_name);
    for (size_t from = 0, to = 0; from < n; from = to) {
        while (to < n && !strcmp(list[from].item->string, list[to].item->string))
            to++;
        json_strict_keep_one(object, list + from, to - from);
    }
    free(list);
    return 1;
}

/* As deep as cJSON reads: CJSON_NESTING_LIMIT. */
int json_keep_last(cJSON *tree) {
    if (cJSON_IsObject(tree) && !keep_last_of(tree))
        return 0;
    for (cJSON *item = tree ? tree->child : NULL; item; item = item->next)
        if (!json_keep_last(item))
            return 0;
    return 1;
}
