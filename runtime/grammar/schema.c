/* schema.c -- JSON Schema 2020-12 to expressions. Starts from the rules of any JSON (grammar.c) and
 * replaces its root. A schema that $ref names, and one nested deeply, becomes a rule that is made
 * later, so that neither recursion of schemas nor nesting costs stack here. Each keyword is
 * enforced, an annotation, or refused with its JSON pointer. Combinations (allOf, and keywords
 * beside anyOf or $ref) are merged into one schema first. Trees made so live until the end.
 *
 * What is narrower than written, which is always valid, is said in warnings. */
#include "grammar/schema_impl.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NESTED = 40, PATH = MN_GSCHEMA_PATH };

static mn_gexpr *value(mn_gschema *c, const cJSON *s);

mn_gexpr *mn_gschema_refuse(mn_gschema *c, mn_status status, const char *key, const char *why) {
    if (!c->b->status)
        c->b->status =
            mn_fail(c->b->err, status, "schema, #%s%s%s: %s", c->path, *key ? "/" : "", key, why);
    return NULL;
}

const cJSON *mn_gschema_item(const cJSON *s, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(s, key);
}

mn_gexpr *mn_gschema_text(mn_gschema *c, const char *z) {
    return mn_gx_text(c->b, z, strlen(z));
}

mn_gexpr *mn_gschema_named(mn_gschema *c, const char *name) {
    for (uint32_t i = 0; i < c->b->n_rules; i++) {
        if (!strcmp(c->b->rule[i].name, name))
            return mn_gx_ref(c->b, i);
    }
    return NULL;
}

/* value() of a part of the schema at hand. */
mn_gexpr *mn_gschema_below(mn_gschema *c, const char *key, const char *name, const cJSON *s) {
    const size_t n = strlen(c->path);
    snprintf(c->path + n, PATH - n, "/%s%s%s", key, *name ? "/" : "", name);
    mn_gexpr *x = value(c, s);
    c->path[n] = 0;
    return x;
}

/* Where a schema is in the table, or would be. */
static uint32_t *schema_slot_of(const mn_gschema *c, const cJSON *s) {
    uint64_t at = (uint64_t)(uintptr_t)s * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (;; at++) {
        uint32_t *slot = &c->slot[at & (c->n_slots - 1)];
        if (*slot == MN_GNONE || c->queue[*slot].schema == s)
            return slot;
    }
}

/* Room for one more in a table that is half empty. */
static bool schema_grow_slots(mn_gschema *c) {
    if (c->n_queue * 2u < c->n_slots)
        return true;
    const uint32_t n = c->n_slots ? 2 * c->n_slots : 64;
    uint32_t *slot = mn_alloc(n, sizeof *slot);
    if (!slot)
        return mn_gbuild_memory(c->b);
    mn_free(c->slot);
    c->slot = slot;
    c->n_slots = n;
    memset(slot, 0xff, n * sizeof *slot);
    for (uint32_t i = 0; i < c->n_queue; i++)
        *schema_slot_of(c, c->queue[i].schema) = i;
    return true;
}

/* A rule for a schema, made later. */
static mn_gexpr *later(mn_gschema *c, const cJSON *s, const char *path) {
    if (!schema_grow_slots(c))
        return NULL;
    uint32_t *slot = schema_slot_of(c, s);
    if (*slot != MN_GNONE)
        return mn_gx_ref(c->b, c->queue[*slot].rule);
    char name[PATH + 16];
    snprintf(name, sizeof name, "schema, #%s", path);
    if (!mn_grow((void **)&c->queue, &c->cap_queue, c->n_queue + 1u, sizeof *c->queue))
        return mn_gbuild_memory(c->b);
    const uint32_t rule = mn_grule_add(c->b, name, NULL);
    if (rule == MN_GNONE)
        return NULL;
    *slot = c->n_queue;
    mn_gpending *p = &c->queue[c->n_queue++];
    p->schema = s;
    p->rule = rule;
    snprintf(p->path, PATH, "%s", path);
    return mn_gx_ref(c->b, rule);
}

void mn_gschema_warn(mn_gschema *c, const char *key, const char *what) {
    if (c->b->warnings)
        mn_text_printf(c->b->warnings, "#%s%s%s: %s\n", c->path, *key ? "/" : "", key, what);
}

bool mn_gschema_count(mn_gschema *c, const cJSON *s, const char *key, uint32_t otherwise,
                      uint32_t *out) {
    const cJSON *v = mn_gschema_item(s, key);
    *out = otherwise;
    if (!v)
        return true;
    if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble != floor(v->valuedouble))
        return mn_gschema_refuse(c, MN_BAD_INPUT, key,
                                 "a number of at least 0, without a fraction, expected");
    *out = v->valuedouble < INT32_MAX ? (uint32_t)v->valuedouble : INT32_MAX;
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */
static mn_str *slot_of_name(const mn_gnames *names, mn_str name) {
    uint64_t at = mn_hash(name.ptr, (size_t)name.len, 5);
    for (;; at++) {
        mn_str *slot = &names->slot[at & (names->n_slots - 1)];
        if (!slot->ptr || mn_str_eq(*slot, name))
            return slot;
    }
}

bool mn_gnames_has(const mn_gnames *names, mn_str name) {
    return names->n && slot_of_name(names, name)->ptr;
}

bool mn_gnames_add(mn_gschema *c, mn_gnames *names, mn_str name) {
    if (names->n * 2u >= names->n_slots) {
        mn_gnames more = {.n_slots = names->n_slots ? 2 * names->n_slots : 16, .n = names->n};
        more.slot = mn_arena_alloc(&c->b->arena, more.n_slots, sizeof *more.slot);
        if (!more.slot)
            return mn_gbuild_memory(c->b);
        for (uint32_t i = 0; i < names->n_slots; i++)
            if (names->slot[i].ptr)
                *slot_of_name(&more, names->slot[i]) = names->slot[i];
        *names = more;
    }
    mn_str *slot = slot_of_name(names, name);
    names->n += !slot->ptr;
    *slot = name;
    return true;
}

/* ---- combinations ---------------------------------------------------------------------------- */
/* Whether keywords other than key and annotations are there. */
static bool schema_is_alone(const cJSON *s, const char *key);

static mn_gexpr *reference(mn_gschema *c, const cJSON *s) {
    const char *at = NULL;
    const cJSON *t = mn_gschema_target(c, s, &at);
    if (!t)
        return NULL;
    if (schema_is_alone(s, "$ref"))
        return later(c, t, at);
    cJSON *all = mn_gschema_without(c, s, "$ref");
    return all && mn_gschema_merge(c, all, t) ? value(c, all) : NULL;
}

static mn_gexpr *schema_all_of(mn_gschema *c, const cJSON *s) {
    cJSON *all = mn_gschema_without(c, s, "allOf");
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, mn_gschema_item(s, "allOf")) {
        if (!all || !mn_gschema_merge(c, all, part))
            return NULL;
    }
    return all ? value(c, all) : NULL;
}

/* Adds to a schema that the first property of a list which it does not demand is not there. */
static bool forbid(mn_gschema *c, cJSON *into, const cJSON *names) {
    const cJSON *demanded = mn_gschema_item(into, "required");
    const cJSON *name = NULL;
    cJSON_ArrayForEach(name, names) {
        const cJSON *r = NULL;
        bool free = cJSON_IsString(name);
        cJSON_ArrayForEach(r, demanded) free = free && !cJSON_Compare(r, name, true);
        if (free)
            break;
    }
    if (!name)
        return mn_gschema_merge(c, into, &(cJSON){.type = cJSON_False});
    cJSON *list = cJSON_GetObjectItemCaseSensitive(into, "properties");
    if (!list)
        list = cJSON_AddObjectToObject(into, "properties");
    cJSON_DeleteItemFromObjectCaseSensitive(list, name->valuestring);
    cJSON *object = cJSON_CreateObject();
    const bool ok = mn_gschema_put(c, list, name->valuestring, cJSON_CreateFalse()) &&
                    mn_gschema_put(c, object, "type", cJSON_CreateString("object")) &&
                    mn_gschema_merge(c, into, object);
    cJSON_Delete(object);
    return ok;
}

/* The list of a schema that demands properties and nothing else, or NULL. */
static const cJSON *demands(const cJSON *s) {
    const cJSON *names = mn_gschema_item(s, "required");
    return names && schema_is_alone(s, "required") ? names : NULL;
}

/* The whole schema with one of its alternatives; of oneOf, those of the others that demand
 * properties alone do not hold. */
static mn_gexpr *alternative(mn_gschema *c, const cJSON *s, const char *key, const cJSON *part,
                             const char *name) {
    if (schema_is_alone(s, key) && !demands(part))
        return mn_gschema_below(c, key, name, part);
    cJSON *both = mn_gschema_without(c, s, key);
    if (!both || !mn_gschema_merge(c, both, part))
        return NULL;
    const cJSON *other = NULL;
    cJSON_ArrayForEach(other, mn_gschema_item(s, key)) {
        const cJSON *names = other == part || strcmp(key, "oneOf") ? NULL : demands(other);
        if (names && !forbid(c, both, names))
            return NULL;
    }
    return mn_gschema_below(c, key, name, both);
}

/* not: of schemas that demand properties, alone or in anyOf, which are then not there. */
static mn_gexpr *negation(mn_gschema *c, const cJSON *s) {
    const cJSON *no = mn_gschema_item(s, "not");
    const cJSON *list = mn_gschema_item(no, "anyOf");
    cJSON *all = mn_gschema_without(c, s, "not");
    const cJSON *part = list && schema_is_alone(no, "anyOf") ? list->child : no;
    for (; all && part; part = part == no ? NULL : part->next) {
        if (!demands(part))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, "not",
                                     "can be enforced of required properties alone");
        if (!forbid(c, all, demands(part)))
            return NULL;
    }
    return all ? value(c, all) : NULL;
}

/* Alternatives that cannot be enforced are left out as long as another one remains. Work that is
 * used up is not theirs: nothing can be made any more. */
static mn_gexpr *schema_any_of(mn_gschema *c, const cJSON *s, const char *key) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *part = NULL;
    mn_status refused = MN_OK;
    int i = 0;
    if (!strcmp(key, "oneOf"))
        mn_gschema_warn(c, key, "treated as anyOf");
    cJSON_ArrayForEach(part, mn_gschema_item(s, key)) {
        char name[16];
        char path[PATH];
        memcpy(path, c->path, PATH);
        snprintf(name, sizeof name, "%d", i++);
        mn_gexpr *x = alternative(c, s, key, part, name);
        memcpy(c->path, path, PATH);
        if (!x && c->b->status == MN_UNSUPPORTED && !c->b->budget.over) {
            refused = c->b->status;
            c->b->status = MN_OK;
            mn_gschema_warn(c, key, c->b->err->msg);
            continue;
        }
        if (!mn_gx_add(c->b, alt, x))
            return NULL;
    }
    if (refused && alt && !alt->n)
        c->b->status = refused;
    return c->b->status ? NULL : alt;
}

/* dependencies may hold lists of names, too; dependentSchemas does not. */
static bool has_lists(const cJSON *s) {
    return mn_gschema_item(s, "dependencies") != NULL && !mn_gschema_item(s, "dependentSchemas");
}

/* Schemas that hold if a property is there, demanded always. */
static mn_gexpr *dependent(mn_gschema *c, const cJSON *s, const char *key) {
    cJSON *all = mn_gschema_without(c, s, key);
    cJSON *lists = all && has_lists(s) ? cJSON_AddObjectToObject(all, key) : NULL;
    if (has_lists(s) && !lists)
        return mn_gbuild_memory(c->b);
    const cJSON *part = NULL;
    mn_gschema_warn(c, key, "what a property demands is demanded always");
    cJSON_ArrayForEach(part, mn_gschema_item(s, key)) {
        const bool list = cJSON_IsArray(part);
        if (list && lists)
            mn_gschema_put(c, lists, part->string, cJSON_Duplicate(part, true));
        if (!list && (!all || !mn_gschema_merge(c, all, part)))
            return NULL;
    }
    return all ? value(c, all) : NULL;
}

static bool has_schemas(const cJSON *lists) {
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, lists) {
        if (!cJSON_IsArray(part))
            return true;
    }
    return false;
}

/* if, then and else: texts for which the condition holds. */
static mn_gexpr *conditional(mn_gschema *c, const cJSON *s) {
    static const char *const keys[] = {"if", "then", "else"};
    const cJSON *condition = mn_gschema_item(s, "if");
    const cJSON *then = mn_gschema_item(s, "then");
    cJSON *all = (cJSON *)(uintptr_t)s;
    for (size_t i = 0; i < MN_COUNT(keys) && all; i++)
        all = mn_gschema_without(c, all, keys[i]);
    if (condition)
        mn_gschema_warn(c, "if", "only texts for which the condition holds");
    if (!all || (condition && !mn_gschema_merge(c, all, condition)) ||
        (condition && then && !mn_gschema_merge(c, all, then)))
        return NULL;
    return value(c, all);
}

/* ---- schemas --------------------------------------------------------------------------------- */
static bool fits_type(const cJSON *v, const char *t) {
    if (!strcmp(t, "integer"))
        return cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
    return (!strcmp(t, "string") && cJSON_IsString(v)) ||
           (!strcmp(t, "number") && cJSON_IsNumber(v)) ||
           (!strcmp(t, "boolean") && cJSON_IsBool(v)) || (!strcmp(t, "null") && cJSON_IsNull(v)) ||
           (!strcmp(t, "array") && cJSON_IsArray(v)) || (!strcmp(t, "object") && cJSON_IsObject(v));
}

static bool schema_fits(const cJSON *v, const cJSON *type) {
    const cJSON *t = NULL;
    if (!type || (cJSON_IsString(type) && fits_type(v, type->valuestring)))
        return true;
    cJSON_ArrayForEach(t, type) {
        if (cJSON_IsString(t) && fits_type(v, t->valuestring))
            return true;
    }
    return false;
}

/* Whether a literal is what the other keywords demand; arrays and objects are not looked into. */
static bool satisfies(mn_gschema *c, const cJSON *s, const cJSON *v) {
    static const char *const keys[] = {"properties",    "required",     "items",
                                       "prefixItems",   "minItems",     "maxItems",
                                       "propertyNames", "uniqueItems",  "patternProperties",
                                       "minProperties", "maxProperties"};
    const bool compound = cJSON_IsArray(v) || cJSON_IsObject(v);
    for (size_t i = 0; i < MN_COUNT(keys) && compound; i++) {
        if (mn_gschema_item(s, keys[i]))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, keys[i],
                                     "cannot be enforced beside such an enum or const");
    }
    if (!schema_fits(v, mn_gschema_item(s, "type")))
        return false;
    if (cJSON_IsNumber(v))
        return mn_gschema_allows_number(c, s, v->valuedouble);
    return !cJSON_IsString(v) || mn_gschema_allows_string(c, s, v->valuestring);
}

static bool schema_add_literal(mn_gschema *c, mn_gexpr *alt, const cJSON *v, const cJSON *s) {
    if (!satisfies(c, s, v))
        return !c->b->status;
    char *z = cJSON_PrintUnformatted(v);
    mn_gexpr *x = z ? mn_gschema_text(c, z) : mn_gbuild_memory(c->b);
    cJSON_free(z);
    return mn_gx_add(c->b, alt, x);
}

static mn_gexpr *schema_literals(mn_gschema *c, const cJSON *s) {
    const cJSON *list = mn_gschema_item(s, "enum");
    const cJSON *one = mn_gschema_item(s, "const");
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *v = NULL;
    if (list && !cJSON_IsArray(list))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "enum", "a list expected");
    if (one && !list)
        return schema_add_literal(c, alt, one, s) ? alt : NULL;
    cJSON_ArrayForEach(v, list) {
        if ((!one || cJSON_Compare(one, v, true)) && !schema_add_literal(c, alt, v, s))
            return NULL;
    }
    return alt;
}

static mn_gexpr *of_type(mn_gschema *c, const cJSON *s, const char *type) {
    if (!strcmp(type, "object"))
        return mn_gschema_object(c, s);
    if (!strcmp(type, "array"))
        return mn_gschema_array(c, s);
    if (!strcmp(type, "string"))
        return mn_gschema_string(c, s);
    if (!strcmp(type, "integer"))
        return mn_gschema_integer(c, s);
    if (!strcmp(type, "number"))
        return mn_gschema_number(c, s);
    if (!strcmp(type, "null"))
        return mn_gschema_text(c, "null");
    if (strcmp(type, "boolean"))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "type", "no such type");
    mn_gexpr *part[2] = {mn_gschema_text(c, "true"), mn_gschema_text(c, "false")};
    return mn_gx_join(c->b, MN_GX_ALT, part, 2);
}

enum { ANNOTATION, ANY_TYPE, OF_TYPE, REFUSED, UNKNOWN };
static int schema_kind_of(const char *key) {
    static const char *const list[] = {
        " title description default examples example $schema $id id $comment deprecated readOnly "
        "writeOnly $defs definitions contentEncoding contentMediaType contentSchema $anchor "
        "$vocabulary nullable discriminator externalDocs xml ",
        " type enum const anyOf oneOf allOf $ref if then else dependentSchemas not ",
        " properties required additionalProperties items additionalItems prefixItems minItems "
        "maxItems minLength maxLength pattern format minimum maximum exclusiveMinimum "
        "exclusiveMaximum multipleOf patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependencies uniqueItems ",
        " contains minContains maxContains unevaluatedProperties unevaluatedItems $dynamicRef "
        "$recursiveRef $dynamicAnchor extends disallow divisibleBy ",
    };
    char word[64];
    if (snprintf(word, sizeof word, " %s ", key) >= (int)sizeof word)
        return UNKNOWN;
    for (int i = 0; i < 4; i++) {
        if (strstr(list[i], word))
            return i;
    }
    return UNKNOWN;
}

bool mn_gschema_is_note(const char *key) {
    const int kind = schema_kind_of(key);
    return kind == ANNOTATION || kind == UNKNOWN;
}

static bool schema_is_alone(const cJSON *s, const char *key) {
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, s) {
        if (strcmp(k->string, key) && !mn_gschema_is_note(k->string))
            return false;
    }
    return true;
}

/* A keyword that says nothing here. */
static bool is_idle(const cJSON *k) {
    if (!strncmp(k->string, "unevaluated", 11))
        return cJSON_IsTrue(k) || (cJSON_IsObject(k) && !k->child);
    return false;
}

bool mn_gschema_check_shapes(mn_gschema *c, const cJSON *s) {
    static const char *const lists[] = {"required", "enum", "anyOf", "oneOf", "allOf"};
    static const char *const maps[] = {"properties",        "patternProperties", "dependentSchemas",
                                       "dependentRequired", "dependencies",      "$defs",
                                       "definitions"};
    for (size_t i = 0; i < MN_COUNT(maps); i++) {
        const cJSON *map = mn_gschema_item(s, maps[i]);
        if (map && !cJSON_IsObject(map))
            return mn_gschema_refuse(c, MN_BAD_INPUT, maps[i], "an object is expected");
    }
    for (size_t i = 0; i < MN_COUNT(lists); i++) {
        const cJSON *list = mn_gschema_item(s, lists[i]);
        const bool is_draft_3 = !i && cJSON_IsBool(list);
        if (list && !cJSON_IsArray(list) && !is_draft_3)
            return mn_gschema_refuse(c, MN_BAD_INPUT, lists[i], "a list is expected");
    }
    const cJSON *names = NULL;
    cJSON_ArrayForEach(names, mn_gschema_item(s, "dependentRequired")) {
        if (!cJSON_IsArray(names))
            return mn_gschema_refuse(c, MN_BAD_INPUT, "dependentRequired", "lists are expected");
    }
    return true;
}

/* Every keyword is known; typed: there is one that concerns a type. */
static bool check_keywords(mn_gschema *c, const cJSON *s, bool *typed) {
    const cJSON *k = NULL;
    *typed = false;
    if (!mn_gschema_check_shapes(c, s))
        return false;
    if (cJSON_IsBool(mn_gschema_item(s, "required")))
        mn_gschema_warn(c, "required", "true or false, as in draft 3: ignored");
    cJSON_ArrayForEach(k, s) {
        const int kind = schema_kind_of(k->string);
        if (kind == REFUSED && !is_idle(k))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, k->string,
                                     "this keyword cannot be enforced");
        if (kind == UNKNOWN)
            mn_gschema_warn(c, k->string, "not a keyword of JSON Schema: ignored");
        *typed |= kind == OF_TYPE;
    }
    return true;
}

static mn_gexpr *of_types(mn_gschema *c, const cJSON *s, bool typed) {
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    const cJSON *type = mn_gschema_item(s, "type");
    if (cJSON_IsString(type))
        return of_type(c, s, type->valuestring);
    if (!type && !typed)
        return mn_gschema_named(c, "value");
    if (type && !cJSON_IsArray(type))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "type", "a name or a list of names expected");
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    for (size_t i = 0; !type && i < MN_COUNT(all); i++) {
        if (!mn_gx_add(c->b, alt, of_type(c, s, all[i])))
            return NULL;
    }
    const cJSON *t = NULL;
    cJSON_ArrayForEach(t, type) {
        const char *name = cJSON_IsString(t) ? t->valuestring : "";
        if (!mn_gx_add(c->b, alt, of_type(c, s, name)))
            return NULL;
    }
    return alt;
}

static mn_gexpr *schema(mn_gschema *c, const cJSON *s) {
    bool typed = false;
    if (cJSON_IsTrue(s))
        return mn_gschema_named(c, "value");
    if (cJSON_IsFalse(s))
        return mn_gx_new(c->b, MN_GX_ALT);
    if (!cJSON_IsObject(s))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "", "a schema is an object, true or false");
    if (!check_keywords(c, s, &typed))
        return NULL;
    if (mn_gschema_item(s, "$ref"))
        return reference(c, s);
    if (mn_gschema_item(s, "if") || mn_gschema_item(s, "then") || mn_gschema_item(s, "else"))
        return conditional(c, s);
    if (mn_gschema_item(s, "not"))
        return negation(c, s);
    if (mn_gschema_item(s, "dependentSchemas"))
        return dependent(c, s, "dependentSchemas");
    if (has_schemas(mn_gschema_item(s, "dependencies")))
        return dependent(c, s, "dependencies");
    if (mn_gschema_item(s, "allOf"))
        return schema_all_of(c, s);
    if (mn_gschema_item(s, "anyOf"))
        return schema_any_of(c, s, "anyOf");
    if (mn_gschema_item(s, "oneOf"))
        return schema_any_of(c, s, "oneOf");
    if (mn_gschema_item(s, "enum") || mn_gschema_item(s, "const"))
        return schema_literals(c, s);
    return of_types(c, s, typed);
}

static mn_gexpr *value(mn_gschema *c, const cJSON *s) {
    if (c->b->status)
        return NULL;
    if (c->depth > NESTED)
        return later(c, s, c->path);
    c->depth++;
    mn_gexpr *x = schema(c, s);
    c->depth--;
    return x;
}

mn_gexpr *mn_gschema_value(mn_gschema *c, const cJSON *s) {
    return value(c, s);
}

/* All rules that were put off, and those that these put off. */
static mn_gexpr *schema_compile(mn_gschema *c, bool tags) {
    mn_gexpr *all = tags ? mn_gschema_parameters(c, c->root) : later(c, c->root, "");
    for (uint32_t i = 0; i < c->n_queue && !c->b->status; i++) {
        const mn_gpending p = c->queue[i];
        memcpy(c->path, p.path, PATH);
        c->b->place = c->b->rule[p.rule].name;
        mn_gexpr *x = value(c, p.schema);
        c->b->rule[p.rule].expr = x;
    }
    return c->b->status ? NULL : all;
}

/* The schema as a tree: an object, or true or false, which is any JSON or none. */
static mn_status read_root(mn_str source, cJSON **root, mn_error *err) {
    const bool any = mn_str_is(source, "true");
    if (any || mn_str_is(source, "false")) {
        *root = cJSON_CreateBool(any);
        return *root ? MN_OK : mn_fail_memory(err, sizeof **root);
    }
    const mn_status st = mn_json_parse(source, "schema", root, err);
    if (st == MN_BAD_FILE && err)
        err->status = MN_BAD_INPUT; // a text of the caller, no file
    return st == MN_BAD_FILE ? MN_BAD_INPUT : st;
}

static mn_gexpr *schema_parse(mn_gbuild *b, mn_str source, bool tags, uint32_t form) {
    mn_gschema c = {.b = b, .form = form};
    cJSON *root = NULL;
    b->status = read_root(source, &root, b->err);
    if (b->status)
        return NULL;
    c.root = root;
    mn_gexpr *x = schema_compile(&c, tags);
    for (uint32_t i = 0; i < c.n_made; i++)
        cJSON_Delete(c.made[i]);
    mn_free(c.made);
    mn_free(c.queue);
    mn_free(c.slot);
    cJSON_Delete(root);
    return x;
}

mn_gexpr *mn_gschema_parse(mn_gbuild *b, mn_str source) {
    return schema_parse(b, source, false, 0);
}

mn_gexpr *mn_gschema_parse_tags(mn_gbuild *b, mn_str source, uint32_t form) {
    return schema_parse(b, source, true, form);
}
