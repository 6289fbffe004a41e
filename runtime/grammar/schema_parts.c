/* schema_parts.c -- arrays and objects of JSON Schema. Properties come in the order of the schema,
 * then others. A name that is none of the listed ones is a string that is cut by these: names of
 * patternProperties match one pattern alone, other names match none.
 *
 * Narrower than written, which is always valid: objects with properties or patterns have no others
 * unless additionalProperties asks for them; dependent properties are demanded always. */
#include "grammar/schema_impl.h"
#include <stdio.h>
#include <string.h>

enum { COPIES = 3, MOST_ITEMS = 4096 };

static mn_gexpr *comma(mn_gschema *c) {
    mn_gexpr *part[2] = {mn_gschema_text(c, ","), mn_gschema_named(c, "ws")};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 2);
}

static mn_gexpr *enclosed(mn_gschema *c, const char *open, mn_gexpr *body, const char *close) {
    mn_gexpr *part[5] = {mn_gschema_text(c, open), mn_gschema_named(c, "ws"), body,
                         mn_gschema_named(c, "ws"), mn_gschema_text(c, close)};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 5);
}

static mn_gexpr *any_value(mn_gschema *c) {
    return mn_gschema_named(c, "value");
}

/* ---- arrays ---------------------------------------------------------------------------------- */
/* Appends one element to a chain, behind a comma unless it is the first. */
static bool add_element(mn_gschema *c, mn_gexpr *chain, mn_gexpr *x) {
    mn_gexpr *part[2] = {comma(c), x};
    if (chain && chain->n && x)
        x = mn_gx_join(c->b, MN_GX_SEQ, part, 2);
    return mn_gx_add(c->b, chain, x);
}

/* As a rule, so that many copies of it stay small. */
static mn_gexpr *as_rule(mn_gschema *c, mn_gexpr *x) {
    char name[MN_GSCHEMA_PATH + 32];
    snprintf(name, sizeof name, "schema, #%s/items", c->path);
    const uint32_t rule = x ? mn_grule_add(c->b, name, x) : MN_GNONE;
    return mn_gx_ref(c->b, rule);
}

/* Elements behind the first n, of which there may be least to most: one, then any more. */
static bool add_items(mn_gschema *c, mn_gexpr *chain, mn_gexpr *x, uint32_t least, uint32_t most) {
    if (least > COPIES || (most != MN_GNEVER && most > COPIES))
        x = as_rule(c, x);
    if (!add_element(c, chain, x))
        return false;
    mn_gexpr *more[2] = {comma(c), x};
    if (most <= 1)
        return true;
    mn_gexpr *rest = mn_gx_repeat(c->b, mn_gx_join(c->b, MN_GX_SEQ, more, 2), least ? least - 1 : 0,
                                  most == MN_GNEVER ? most : most - 1);
    return mn_gx_add(c->b, chain, rest);
}

/* The lengths of an array; every item differs where there is at most one. */
static bool lengths(mn_gschema *c, const cJSON *s, uint32_t *min, uint32_t *max) {
    if (!mn_gschema_count(c, s, "minItems", 0, min) ||
        !mn_gschema_count(c, s, "maxItems", MN_GNEVER, max))
        return false;
    if (*max != MN_GNEVER && *max > MOST_ITEMS && *min <= MOST_ITEMS) {
        mn_gschema_warn(c, "maxItems", "arrays end after 4096 items");
        *max = MOST_ITEMS;
    }
    if (!cJSON_IsTrue(mn_gschema_item(s, "uniqueItems")) || *max <= 1)
        return true;
    if (*min > 1)
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "uniqueItems", "cannot be enforced");
    return mn_gschema_refuse(c, MN_UNSUPPORTED, "uniqueItems",
                             "can be enforced with maxItems 1 alone");
}

mn_gexpr *mn_gschema_array(mn_gschema *c, const cJSON *s) {
    uint32_t min = 0;
    uint32_t max = 0;
    const cJSON *items = mn_gschema_item(s, "items");
    const bool old = cJSON_IsArray(items); /* before 2020-12 */
    const char *key = old ? "items" : "prefixItems";
    const cJSON *prefix = mn_gschema_item(s, key);
    if (old)
        items = mn_gschema_item(s, "additionalItems");
    mn_gexpr *chain = mn_gx_new(c->b, MN_GX_CHAIN);
    if (!chain || !lengths(c, s, &min, &max))
        return NULL;
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, prefix) {
        char name[16];
        snprintf(name, sizeof name, "%u", chain->n);
        if (chain->n < max && !add_element(c, chain, mn_gschema_below(c, key, name, p)))
            return NULL;
    }
    const uint32_t n = chain->n;
    const bool more = n < max && !cJSON_IsFalse(items);
    if (more) {
        const char *place = old ? "additionalItems" : "items";
        mn_gexpr *x = items ? mn_gschema_below(c, place, "", items) : any_value(c);
        if (!add_items(c, chain, x, min > n ? min - n : 0, max == MN_GNEVER ? max : max - n))
            return NULL;
    }
    const bool never = min > max || (!more && min > n);
    chain->min = min > n ? n + 1 + (min > n + 1) : min;
    return never ? mn_gx_new(c->b, MN_GX_ALT) : enclosed(c, "[", chain, "]");
}

/* ---- objects --------------------------------------------------------------------------------- */
enum { MOST_PATTERNS = MN_GCUT_PARTS - 4 };

typedef struct {
    mn_gschema *c;
    const cJSON *s, *properties, *patterns, *more, *names;
    mn_gexpr *pattern[MOST_PATTERNS];
    uint32_t n_patterns;
    mn_gexpr *listed;     /* names that are properties or required */
    mn_gnames keys;       /* those, as inside JSON */
    mn_gnames demanded;   /* by required, or by a property that may be there */
    mn_gexpr *names_only; /* what names are, once one was asked for */
    uint32_t n_demanded;
} object;

static bool demand(object *o, const cJSON *list) {
    const cJSON *r = NULL;
    cJSON_ArrayForEach(r, list) {
        if (cJSON_IsString(r) && !mn_gnames_add(o->c, &o->demanded, mn_str_of(r->valuestring)))
            return false;
    }
    return true;
}

static bool find_demanded(object *o) {
    static const char *const keys[] = {"dependentRequired", "dependencies"};
    if (!demand(o, mn_gschema_item(o->s, "required")))
        return false;
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        const cJSON *of = NULL;
        cJSON_ArrayForEach(of, mn_gschema_item(o->s, keys[i])) {
            if (cJSON_IsArray(of) && !demand(o, of))
                return false;
        }
    }
    return true;
}

static bool read_patterns(object *o) {
    mn_gschema *c = o->c;
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, o->patterns) {
        uint32_t least = 0;
        uint32_t most = 0;
        if (o->n_patterns == MOST_PATTERNS)
            return mn_gschema_refuse(c, MN_UNSUPPORTED, "patternProperties", "too many patterns");
        mn_gexpr *x = mn_gschema_pattern(c, p->string, &least, &most);
        o->pattern[o->n_patterns++] = x;
        if (!x)
            return false;
    }
    return true;
}

/* Whether propertyNames allows a name. key: as inside JSON */
static bool allows_name(object *o, mn_str key) {
    mn_gcut cut = {.max = MN_GNEVER, .where = "propertyNames"};
    if (!o->names)
        return true;
    if (!o->names_only && mn_gschema_cut(o->c, o->names, &cut))
        o->names_only = mn_gx_cut(o->c->b, &cut);
    return o->names_only && mn_gx_matches(o->c->b, o->names_only, key);
}

/* What a name's value must be: its property and all patterns that match it. */
static mn_gexpr *schema_parts_value_of(object *o, const char *name, const cJSON *p, mn_str key) {
    mn_gschema *c = o->c;
    const cJSON *list[MOST_PATTERNS + 1];
    uint32_t n = 0;
    uint32_t i = 0;
    if (p)
        list[n++] = p;
    const cJSON *of = NULL;
    cJSON_ArrayForEach(of, o->patterns) {
        if (mn_gx_matches(c->b, o->pattern[i++], key))
            list[n++] = of;
    }
    if (!n && o->more)
        list[n++] = o->more;
    if (!n)
        return any_value(c);
    if (n == 1 && !p)
        return mn_gschema_below(c, "additionalProperties", "", list[0]);
    if (n == 1)
        return mn_gschema_below(c, "properties", name, p);
    cJSON *all = mn_gschema_all(c, list, n);
    return all ? mn_gschema_below(c, "properties", name, all) : NULL;
}

/* "name": value */
static bool schema_parts_add_member(object *o, mn_gexpr *list, const char *name, const cJSON *p) {
    mn_gschema *c = o->c;
    mn_text key = {0};
    mn_text quoted = {0};
    mn_gchars_json(&key, mn_str_of(name));
    mn_text_printf(&quoted, "\"%s\":", key.ptr ? key.ptr : "");
    if (key.failed || quoted.failed)
        mn_gbuild_memory(c->b);
    mn_gexpr *part[3] = {NULL, mn_gschema_named(c, "ws"), NULL};
    const bool demanded = mn_gnames_has(&o->demanded, mn_str_of(name));
    const bool twice = !c->b->status && !p && mn_gnames_has(&o->keys, (mn_str){key.ptr, key.len});
    bool allowed = false;
    if (!c->b->status && !twice) {
        mn_gexpr *text = mn_gx_text(c->b, key.ptr, key.len);
        if (mn_gx_add(c->b, o->listed, text))
            mn_gnames_add(c, &o->keys, text->text);
        allowed = allows_name(o, (mn_str){key.ptr, key.len});
        part[0] = mn_gx_text(c->b, quoted.ptr, quoted.len);
        part[2] = allowed ? schema_parts_value_of(o, name, p, (mn_str){key.ptr, key.len})
                          : mn_gx_new(c->b, MN_GX_ALT);
    }
    mn_text_free(&key);
    mn_text_free(&quoted);
    if (twice)
        return true;
    mn_gexpr *x = part[0] && part[2] ? mn_gx_join(c->b, MN_GX_SEQ, part, 3) : NULL;
    if (!mn_gx_add(c->b, list, x))
        return false;
    x->optional = !demanded;
    o->n_demanded += demanded;
    return true;
}

/* Names that are required and not described. */
static bool add_undescribed(object *o, mn_gexpr *list, const cJSON *names) {
    const cJSON *r = NULL;
    cJSON_ArrayForEach(r, names) {
        if (!cJSON_IsString(r))
            continue;
        if (!schema_parts_add_member(o, list, r->valuestring, NULL))
            return false;
    }
    return true;
}

/* A name that is not listed, and matches pattern `which` alone; MN_GNONE: no pattern. */
static mn_gexpr *other_name(object *o, uint32_t which) {
    char where[MN_GSCHEMA_PATH + 16];
    mn_gcut cut = {.max = MN_GNEVER, .where = where};
    snprintf(where, sizeof where, "schema, #%s", o->c->path);
    if (!o->names && !o->listed->n && !o->n_patterns)
        return mn_gschema_named(o->c, "string");
    if (o->names && !mn_gschema_cut(o->c, o->names, &cut))
        return NULL;
    if (cut.n + o->n_patterns + 1 > MN_GCUT_PARTS)
        return mn_gschema_refuse(o->c, MN_UNSUPPORTED, "propertyNames", "too many demands");
    for (uint32_t i = 0; i < o->n_patterns; i++) {
        cut.part[cut.n].x = o->pattern[i];
        cut.part[cut.n++].not = i != which;
    }
    if (o->listed->n) {
        cut.part[cut.n].x = o->listed;
        cut.part[cut.n++].not = true;
    }
    mn_gexpr *quote = mn_gschema_text(o->c, "\"");
    mn_gexpr *part[3] = {quote, mn_gx_cut(o->c->b, &cut), quote};
    return mn_gx_join(o->c->b, MN_GX_SEQ, part, 3);
}

static bool add_other(object *o, mn_gexpr *alt, mn_gexpr *name, mn_gexpr *x) {
    mn_gexpr *part[4] = {name, mn_gschema_text(o->c, ":"), mn_gschema_named(o->c, "ws"), x};
    return mn_gx_add(o->c->b, alt, mn_gx_join(o->c->b, MN_GX_SEQ, part, 4));
}

/* Properties that are not listed, of any number; NULL with status MN_OK: there are none. */
static mn_gexpr *schema_parts_others(object *o) {
    mn_gschema *c = o->c;
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const bool closed = o->more ? cJSON_IsFalse(o->more) : o->properties || o->patterns;
    const cJSON *p = NULL;
    uint32_t i = 0;
    cJSON_ArrayForEach(p, o->patterns) {
        mn_gexpr *name = other_name(o, i++);
        if (cJSON_IsFalse(p))
            continue;
        if (!add_other(o, alt, name, mn_gschema_below(c, "patternProperties", p->string, p)))
            return NULL;
    }
    if (!closed) {
        mn_gexpr *x =
            o->more ? mn_gschema_below(c, "additionalProperties", "", o->more) : any_value(c);
        if (!add_other(o, alt, other_name(o, MN_GNONE), x))
            return NULL;
    }
    return alt && alt->n ? alt : NULL;
}

/* The number of properties: those that are demanded are enough, or others of any name come. Two of
 * these might have the same name, so one alone can be demanded. */
static mn_gexpr *counted(object *o, mn_gexpr *list) {
    mn_gschema *c = o->c;
    uint32_t min = 0;
    uint32_t max = 0;
    if (!mn_gschema_count(c, o->s, "minProperties", 0, &min) ||
        !mn_gschema_count(c, o->s, "maxProperties", MN_GNEVER, &max))
        return NULL;
    for (uint32_t i = 0; i < list->n && o->n_demanded < min; i++) {
        if (!list->child[i]->optional)
            continue;
        mn_gschema_warn(c, "minProperties", "the first properties are required");
        list->child[i]->optional = false;
        o->n_demanded++;
    }
    if (o->n_demanded >= min && (max == MN_GNEVER || (max >= list->n && !list->tail)))
        return list;
    if (list->n || (min > 1 && list->tail))
        return mn_gschema_refuse(c, MN_UNSUPPORTED,
                                 o->n_demanded < min ? "minProperties" : "maxProperties",
                                 "cannot be enforced with these properties");
    mn_gexpr *chain = mn_gx_new(c->b, MN_GX_CHAIN);
    if (!chain || min > max || (!list->tail && min))
        return mn_gx_new(c->b, MN_GX_ALT);
    if (max && list->tail && !add_items(c, chain, list->tail, min, max))
        return NULL;
    chain->min = min;
    return chain;
}

/* propertyNames without references; NULL: any name, or c->b->status. Names are strings, so of its
 * keywords those for strings alone count. */
static const cJSON *schema_parts_names_of(mn_gschema *c, const cJSON *names) {
    static const char *const known[] = {"type",      "enum",      "const", "pattern",
                                        "minLength", "maxLength", "format"};
    const cJSON *k = NULL;
    if (!names || cJSON_IsTrue(names))
        return NULL;
    cJSON *all = mn_gschema_all(c, &names, 1);
    while (all && mn_gschema_item(all, "allOf")) {
        cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(all, "allOf");
        const cJSON *part = NULL;
        bool ok = true;
        cJSON_ArrayForEach(part, list) ok = ok && mn_gschema_merge(c, all, part);
        cJSON_Delete(list);
        if (!ok)
            return NULL;
    }
    cJSON_ArrayForEach(k, all) {
        bool fine = mn_gschema_is_note(k->string);
        for (size_t i = 0; i < MN_COUNT(known); i++)
            fine |= !strcmp(known[i], k->string);
        if (!fine)
            mn_gschema_refuse(c, MN_UNSUPPORTED, "propertyNames",
                              "can be enforced with keywords for strings alone");
    }
    return all;
}

mn_gexpr *mn_gschema_object(mn_gschema *c, const cJSON *s) {
    static const char *const lists[] = {"dependentRequired", "dependencies"};
    object o = {.c = c, .s = s, .listed = mn_gx_new(c->b, MN_GX_ALT)};
    o.properties = mn_gschema_item(s, "properties");
    o.patterns = mn_gschema_item(s, "patternProperties");
    o.more = mn_gschema_item(s, "additionalProperties");
    o.names = schema_parts_names_of(c, mn_gschema_item(s, "propertyNames"));
    mn_gexpr *list = mn_gx_new(c->b, MN_GX_LIST);
    if (!list || !o.listed || c->b->status || !read_patterns(&o) || !find_demanded(&o))
        return NULL;
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, o.properties) {
        if (!schema_parts_add_member(&o, list, p->string, p))
            return NULL;
    }
    if (!add_undescribed(&o, list, mn_gschema_item(s, "required")))
        return NULL;
    for (size_t i = 0; i < MN_COUNT(lists); i++) {
        cJSON_ArrayForEach(p, mn_gschema_item(s, lists[i])) {
            if (cJSON_IsArray(p) && !add_undescribed(&o, list, p))
                return NULL;
        }
    }
    list->between = comma(c);
    list->tail = schema_parts_others(&o);
    mn_gexpr *body = c->b->status ? NULL : counted(&o, list);
    return body ? enclosed(c, "{", body, "}") : NULL;
}
