/* schema_merge.c -- schemas that hold together become one: allOf, keywords beside anyOf or $ref,
 * several demands on one property. A keyword that both have is combined, or refused where no single
 * keyword says the same. New trees belong to the front end and live until the grammar is made, as
 * rules that are made later refer to them. */
#include "grammar/schema_impl.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MERGES = 4096, KEY_MAX = 1000, ITEMS = 1u << 21 };
enum { COPY_WORK = 16, LOOK_WORK = 8 }; /* units for an item of a tree that is copied, looked at */

/* ---- references ------------------------------------------------------------------------------ */
/* The fragment of a URI without its escapes (RFC 3986, 2.1); NULL: no memory. */
static const char *decoded(mn_gschema *c, const char *fragment) {
    const size_t n = strlen(fragment);
    char *out = mn_arena_strndup(&c->b->arena, fragment, n);
    if (!out)
        return (const char *)mn_gbuild_memory(c->b);
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        const bool escape = fragment[i] == '%' && isxdigit((uint8_t)fragment[i + 1]) &&
                            isxdigit((uint8_t)fragment[i + 2]);
        const char pair[3] = {fragment[i + escape], fragment[i + 2 * escape], 0};
        out[to++] = escape ? (char)strtol(pair, NULL, 16) : fragment[i];
        i += escape ? 2 : 0;
    }
    out[to] = 0;
    return out;
}

/* The part of the tree that a pointer within this document names, or NULL. */
static const cJSON *schema_merge_resolve(mn_gschema *c, const char *pointer) {
    const cJSON *at = c->root;
    while (at && *pointer == '/') {
        char key[KEY_MAX];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/' && n + 1 < sizeof key; pointer++) {
            char ch = *pointer;
            if (ch == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                ch = *++pointer == '0' ? '~' : '/';
            key[n++] = ch;
        }
        key[n] = 0;
        if (!mn_gbuild_spend(c->b, 1 + (uint64_t)cJSON_GetArraySize(at)))
            return NULL;
        int64_t index = 0;
        if (cJSON_IsArray(at) && mn_parse_i64(mn_str_of(key), &index) && index >= 0)
            at = index < INT32_MAX ? cJSON_GetArrayItem(at, (int)index) : NULL;
        else
            at = mn_gschema_item(at, key);
    }
    return *pointer ? NULL : at;
}

/* The schema of the definitions that has this name: $anchor, or an $id of the form "#name". */
static const cJSON *anchored(mn_gschema *c, const char *name) {
    static const char *const places[] = {"$defs", "definitions"};
    for (size_t i = 0; i < MN_COUNT(places); i++) {
        const cJSON *s = NULL;
        cJSON_ArrayForEach(s, mn_gschema_item(c->root, places[i])) {
            if (!mn_gbuild_spend(c->b, LOOK_WORK))
                return NULL;
            const char *anchor = cJSON_GetStringValue(mn_gschema_item(s, "$anchor"));
            const char *id = cJSON_GetStringValue(mn_gschema_item(s, "$id"));
            if ((anchor && !strcmp(anchor, name)) || (id && *id == '#' && !strcmp(id + 1, name)))
                return s;
        }
    }
    return NULL;
}

/* The text behind the name of this document. */
static const char *within(const cJSON *root, const char *ref) {
    const char *id = cJSON_GetStringValue(mn_gschema_item(root, "$id"));
    if (!id)
        id = cJSON_GetStringValue(mn_gschema_item(root, "id"));
    size_t n = id ? strlen(id) : 0;
    while (n && id[n - 1] == '#')
        n--;
    return n && !strncmp(ref, id, n) && (ref[n] == '#' || !ref[n]) ? ref + n : ref;
}

const cJSON *mn_gschema_target(mn_gschema *c, const cJSON *s, const char **pointer) {
    const char *ref = cJSON_GetStringValue(mn_gschema_item(s, "$ref"));
    const char *z = ref ? within(c->root, ref) : "?";
    if (*z && *z != '#') {
        mn_gschema_refuse(c, MN_UNSUPPORTED, "$ref",
                          "only references within the schema (#...) are supported");
        return NULL;
    }
    *pointer = decoded(c, *z ? z + 1 : z);
    if (!*pointer || !mn_gbuild_spend(c->b, LOOK_WORK))
        return NULL;
    const bool name = **pointer && **pointer != '/';
    const cJSON *found = name ? anchored(c, *pointer) : schema_merge_resolve(c, *pointer);
    if (!found && !c->b->status)
        mn_gschema_refuse(c, MN_BAD_INPUT, "$ref", "names nothing in the schema");
    return found;
}

/* ---- new schemas ----------------------------------------------------------------------------- */
static uint32_t schema_merge_size_of(const cJSON *s) {
    uint32_t n = 1;
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, s) n += schema_merge_size_of(k);
    return n;
}

/* Before a tree is copied. */
static bool spend_copy(mn_gschema *c, const cJSON *s) {
    return mn_gbuild_spend(c->b, (uint64_t)schema_merge_size_of(s) * COPY_WORK);
}

/* Before each item of one list is looked for in, or compared with, those of another. */
static bool spend_product(mn_gschema *c, const cJSON *a, const cJSON *b) {
    const uint64_t n = (uint64_t)cJSON_GetArraySize(a);
    return mn_gbuild_spend(c->b, n * (uint64_t)cJSON_GetArraySize(b));
}

bool mn_gschema_add(mn_gschema *c, cJSON *list, cJSON *x) {
    if (x && cJSON_AddItemToArray(list, x))
        return true;
    cJSON_Delete(x);
    return mn_gbuild_memory(c->b);
}

bool mn_gschema_put(mn_gschema *c, cJSON *into, const char *key, cJSON *x) {
    if (x && cJSON_AddItemToObject(into, key, x))
        return true;
    cJSON_Delete(x);
    return mn_gbuild_memory(c->b);
}

/* In the place of what has that key. */
static bool change(mn_gschema *c, cJSON *into, const char *key, cJSON *x) {
    cJSON_DeleteItemFromObjectCaseSensitive(into, key);
    return mn_gschema_put(c, into, key, x);
}

static cJSON *schema_merge_keep(mn_gschema *c, cJSON *made) {
    if (c->n_made >= MERGES || c->n_items > ITEMS) {
        mn_gschema_refuse(c, MN_UNSUPPORTED, "",
                          "too many combined schemas, or one that contains itself");
    } else if (made && mn_grow((void **)&c->made, &c->cap_made, c->n_made + 1u, sizeof *c->made)) {
        c->made[c->n_made++] = made;
        return made;
    } else {
        mn_gbuild_memory(c->b);
    }
    cJSON_Delete(made);
    return NULL;
}

cJSON *mn_gschema_without(mn_gschema *c, const cJSON *from, const char *key) {
    cJSON *copy = spend_copy(c, from) ? schema_merge_keep(c, cJSON_CreateObject()) : NULL;
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, from) {
        if (copy && strcmp(k->string, key) && strcmp(k->string, "$defs") &&
            strcmp(k->string, "definitions") &&
            !mn_gschema_put(c, copy, k->string, cJSON_Duplicate(k, true)))
            return NULL;
    }
    return copy;
}

/* {"allOf": [a, b]}, which owns both. */
static cJSON *both(mn_gschema *c, cJSON *a, cJSON *b) {
    cJSON *all = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(all, "allOf");
    mn_gschema_add(c, list, a);
    mn_gschema_add(c, list, b);
    return all;
}

cJSON *mn_gschema_all(mn_gschema *c, const cJSON *const *list, uint32_t n) {
    cJSON *all = schema_merge_keep(c, cJSON_CreateObject());
    cJSON *parts = all ? cJSON_AddArrayToObject(all, "allOf") : NULL;
    if (!parts)
        mn_gbuild_memory(c->b);
    for (uint32_t i = 0; i < n && !c->b->status && spend_copy(c, list[i]); i++)
        mn_gschema_add(c, parts, cJSON_Duplicate(list[i], true));
    return c->b->status ? NULL : all;
}

/* ---- one keyword in both --------------------------------------------------------------------- */
static cJSON *schema_merge_take(cJSON *from, const char *key) {
    return cJSON_DetachItemFromObjectCaseSensitive(from, key);
}

/* A property of both has to be what each of them says. */
static bool merge_properties(mn_gschema *c, cJSON *into, const cJSON *from) {
    const cJSON *p = NULL;
    if (!spend_product(c, into, from))
        return false;
    cJSON_ArrayForEach(p, from) {
        cJSON *old = schema_merge_take(into, p->string);
        cJSON *copy = cJSON_Duplicate(p, true);
        if (!mn_gschema_put(c, into, p->string, old ? both(c, old, copy) : copy))
            return false;
    }
    return true;
}

static bool merge_limit(cJSON *old, const cJSON *more, const char *key) {
    const double a = old->valuedouble;
    const double b = more->valuedouble;
    const bool least = !strncmp(key, "min", 3) || !strncmp(key, "exclusiveMin", 12);
    const bool most = !strncmp(key, "max", 3) || !strncmp(key, "exclusiveMax", 12);
    if ((!least && !most) || !cJSON_IsNumber(old) || !cJSON_IsNumber(more))
        return false;
    cJSON_SetNumberValue(old, least ? fmax(a, b) : fmin(a, b));
    return true;
}

/* Whether a list of types holds t: an integer is a number, too. */
static bool schema_merge_has_type(const cJSON *list, const char *t) {
    const cJSON *each = cJSON_IsArray(list) ? list->child : list;
    for (; each; each = cJSON_IsArray(list) ? each->next : NULL) {
        const char *name = cJSON_GetStringValue(each);
        if (name && (!strcmp(name, t) || (!strcmp(name, "number") && !strcmp(t, "integer"))))
            return true;
    }
    return false;
}

static bool merge_types(mn_gschema *c, cJSON *into, const cJSON *a, const cJSON *b) {
    static const char *const all[] = {"object",  "array",   "string", "number",
                                      "integer", "boolean", "null"};
    cJSON *types = cJSON_CreateArray();
    for (size_t i = 0; i < MN_COUNT(all); i++) {
        const bool implied = !strcmp(all[i], "integer") && schema_merge_has_type(types, "number");
        if (schema_merge_has_type(a, all[i]) && schema_merge_has_type(b, all[i]) && !implied)
            mn_gschema_add(c, types, cJSON_CreateString(all[i]));
    }
    return change(c, into, "type", types);
}

/* Literals that both lists hold. */
static bool merge_enum(mn_gschema *c, cJSON *into, const cJSON *a, const cJSON *b) {
    if (!spend_product(c, a, b))
        return false;
    cJSON *kept = cJSON_CreateArray();
    const cJSON *x = NULL;
    const cJSON *y = NULL;
    cJSON_ArrayForEach(x, a) {
        cJSON_ArrayForEach(y, b) {
            if (!cJSON_Compare(x, y, true))
                continue;
            mn_gschema_add(c, kept, cJSON_Duplicate(x, true));
            break;
        }
    }
    return change(c, into, "enum", kept);
}

/* Nothing satisfies it any more. */
static bool merge_false(mn_gschema *c, cJSON *into) {
    return change(c, into, "enum", cJSON_CreateArray());
}

/* Patterns become a list, which all have to match (schema_text.c). */
static bool merge_patterns(mn_gschema *c, cJSON *into, const cJSON *more) {
    cJSON *old = schema_merge_take(into, "pattern");
    cJSON *list = cJSON_IsArray(old) ? old : cJSON_CreateArray();
    const cJSON *each = cJSON_IsArray(more) ? more->child : more;
    if (list != old)
        mn_gschema_add(c, list, old);
    for (; each; each = cJSON_IsArray(more) ? each->next : NULL)
        mn_gschema_add(c, list, cJSON_Duplicate(each, true));
    return mn_gschema_put(c, into, "pattern", list);
}

/* Each alternative of the one with all alternatives of the other. */
static bool merge_choices(mn_gschema *c, cJSON *into, const cJSON *more) {
    const cJSON *ours = mn_gschema_item(into, more->string);
    const uint64_t n = (uint64_t)cJSON_GetArraySize(ours);
    if (!mn_gbuild_spend(c->b,
                         (n * schema_merge_size_of(more) + schema_merge_size_of(ours)) * COPY_WORK))
        return false;
    cJSON *old = schema_merge_take(into, more->string);
    cJSON *list = cJSON_CreateArray();
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, old) {
        cJSON *other = cJSON_CreateObject();
        mn_gschema_put(c, other, more->string, cJSON_Duplicate(more, true));
        mn_gschema_add(c, list, both(c, cJSON_Duplicate(part, true), other));
    }
    cJSON_Delete(old);
    return mn_gschema_put(c, into, more->string, list);
}

static bool schema_merge_is_one_of(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(key, list[i]))
            return true;
    }
    return false;
}

/* One keyword of a schema into a merged one. */
static bool merge_key(mn_gschema *c, cJSON *into, const cJSON *k) {
    static const char *const schemas[] = {"items", "additionalProperties", "propertyNames",
                                          "additionalItems"};
    const char *key = k->string;
    cJSON *old = cJSON_GetObjectItemCaseSensitive(into, key);
    if (!old)
        return mn_gschema_put(c, into, key, cJSON_Duplicate(k, true));
    if (mn_gschema_is_note(key))
        return true;
    if (!spend_product(c, old, k)) /* keys of objects are looked for one by one */
        return false;
    if (cJSON_Compare(old, k, true))
        return true;
    if (!strcmp(key, "type"))
        return merge_types(c, into, old, k);
    if (!strcmp(key, "properties") || !strcmp(key, "patternProperties"))
        return merge_properties(c, old, k);
    if (!strcmp(key, "enum"))
        return merge_enum(c, into, old, k);
    if (!strcmp(key, "const"))
        return merge_false(c, into);
    if (!strcmp(key, "pattern"))
        return merge_patterns(c, into, k);
    if (!strcmp(key, "anyOf") || !strcmp(key, "oneOf"))
        return merge_choices(c, into, k);
    if (!strcmp(key, "required") || !strcmp(key, "allOf")) {
        const cJSON *each = NULL;
        cJSON_ArrayForEach(each, k) mn_gschema_add(c, old, cJSON_Duplicate(each, true));
        return !c->b->status;
    }
    if (schema_merge_is_one_of(key, schemas, MN_COUNT(schemas)) && !cJSON_IsArray(old) &&
        !cJSON_IsArray(k))
        return mn_gschema_put(c, into, key,
                              both(c, schema_merge_take(into, key), cJSON_Duplicate(k, true)));
    return merge_limit(old, k, key) ||
           mn_gschema_refuse(c, MN_UNSUPPORTED, key,
                             "stands in several schemas that are combined here");
}

/* What `closed` says of other properties holds for those that it does not list and the other one
 * does: it becomes part of them in `into`. */
static bool schema_merge_spread(mn_gschema *c, cJSON *into, const cJSON *closed,
                                const cJSON *other) {
    const cJSON *more = mn_gschema_item(closed, "additionalProperties");
    const cJSON *listed = mn_gschema_item(closed, "properties");
    const cJSON *p = NULL;
    if (!more || cJSON_IsTrue(more))
        return true;
    /* Which names of the other one its patterns match is not known here. */
    const bool patterns = mn_gschema_item(closed, "patternProperties") != NULL;
    if ((patterns && mn_gschema_item(other, "properties")) ||
        mn_gschema_item(other, "patternProperties"))
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "patternProperties",
                                 "stands in schemas that are combined here");
    cJSON *to = cJSON_GetObjectItemCaseSensitive(into, "properties");
    if (!spend_product(c, listed, mn_gschema_item(other, "properties")))
        return false;
    cJSON *add = cJSON_CreateObject();
    cJSON_ArrayForEach(p, mn_gschema_item(other, "properties")) {
        if (!mn_gschema_item(listed, p->string))
            mn_gschema_put(c, add, p->string, cJSON_Duplicate(more, true));
    }
    if (!add)
        return mn_gbuild_memory(c->b);
    if (add->child && !to)
        return mn_gschema_put(c, into, "properties", add);
    const bool ok = merge_properties(c, to, add);
    cJSON_Delete(add);
    return ok;
}

bool mn_gschema_merge(mn_gschema *c, cJSON *into, const cJSON *more) {
    const char *pointer = NULL;
    if (cJSON_IsTrue(more))
        return true;
    if (cJSON_IsFalse(more))
        return merge_false(c, into);
    if (!cJSON_IsObject(more))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "", "no schema, combined with others");
    if (!mn_gschema_check_shapes(c, more))
        return false;
    c->n_items += schema_merge_size_of(into) + schema_merge_size_of(more);
    if (!spend_copy(c, into) || !spend_copy(c, more))
        return false;
    if (c->n_merged++ > MERGES || c->n_items > ITEMS)
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "",
                                 "too many combined schemas, or one that contains itself");
    if (mn_gschema_item(more, "$ref")) {
        const cJSON *t = mn_gschema_target(c, more, &pointer);
        if (!t || !mn_gschema_merge(c, into, t))
            return false;
    }
    cJSON *before = cJSON_Duplicate(into, true);
    bool ok = before && schema_merge_spread(c, into, before, more) &&
              schema_merge_spread(c, into, more, before);
    cJSON_Delete(before);
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, more) {
        const bool skip = !strcmp(k->string, "$ref") || !strcmp(k->string, "$defs") ||
                          !strcmp(k->string, "definitions");
        ok = ok && (skip || merge_key(c, into, k));
    }
    if (!ok && !c->b->status)
        mn_gbuild_memory(c->b);
    return !c->b->status;
}
