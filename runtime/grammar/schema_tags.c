/* schema_tags.c -- the arguments of a call as tags, as Qwen3-Coder, MiniMax-M2 and GLM-4.5 write
 * them (call_tags.c reads them back): of the first "<parameter=key>\nvalue\n</parameter>\n" for
 * each property, in the order of the schema. Strings are bare; all else is JSON.
 *
 * A bare value does not say whether it is a string, so that a parameter may be one or have other
 * types, not both; null beside strings is the word. Strings with limits have no character that JSON
 * escapes, and no '<': what is written is then what the limits count. */
#include "grammar/schema_impl.h"
#include "text/json/schema_types.h"
#include <stdio.h>
#include <string.h>

enum { HOPS = 32, KEY = 64 };
static const struct {
    const char *before, *behind; /* the key */
    const char *end, *tag;       /* behind the value; the tag in it */
    const char *never;           /* in a key */
} forms[] = {{"<parameter=", ">\n", "\n</parameter>\n", "</parameter>", ">"},
             {"<parameter name=\"", "\">", "</parameter>\n", "</parameter>", "<>\""},
             {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</arg_value>", "<>"}};

static const cJSON *schema_tags_target_of(void *arg, const cJSON *s) {
    const char *at = NULL;
    return mn_gschema_target(arg, s, &at);
}

/* MN_SCHEMA_* of a value; 0: the schema does not say, or c->b->status. */
static uint32_t schema_tags_types_of(mn_gschema *c, const cJSON *s) {
    mn_schema_reader r = {schema_tags_target_of, c, 0};
    const uint32_t types = mn_schema_types(&r, s);
    if (r.visits > MN_SCHEMA_VISITS)
        mn_gschema_refuse(c, MN_UNSUPPORTED, "", "its types take too many references to find");
    return types;
}

/* Every keyword is one of those, which lie between blanks, or says nothing. */
static bool has_only(mn_gschema *c, const cJSON *s, const char *known) {
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, s) {
        const char *at = strstr(known, k->string);
        const bool is_known = at > known && at[-1] == ' ' && at[strlen(k->string)] == ' ';
        if (!is_known && !mn_gschema_is_note(k->string))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, k->string,
                                     "cannot be enforced for arguments in tags");
    }
    return true;
}

/* ---- bare strings ---------------------------------------------------------------------------- */
static mn_gexpr *chars(mn_gschema *c, const char *without) {
    mn_gchars set = {0};
    mn_gchars_add(&set, 0, 8);
    mn_gchars_add(&set, 11, 12);
    mn_gchars_add(&set, 14, 31);
    for (const char *at = without; *at; at++)
        mn_gchars_add(&set, (uint8_t)*at, (uint8_t)*at);
    mn_gchars_invert(&set);
    mn_gexpr *x = mn_gx_chars(c->b, &set, false);
    mn_gchars_free(&set);
    return x;
}

/* Any text in which no tag ends: a '<' is followed by anything but a '/', or ends the text. */
static mn_gexpr *any_text(mn_gschema *c) {
    mn_gexpr *open = mn_gschema_text(c, "<");
    mn_gexpr *tag[2] = {mn_gx_repeat(c->b, open, 1, MN_GNEVER), chars(c, "</")};
    mn_gexpr *way[2] = {chars(c, "<"), mn_gx_join(c->b, MN_GX_SEQ, tag, 2)};
    mn_gexpr *body = mn_gx_repeat(c->b, mn_gx_join(c->b, MN_GX_ALT, way, 2), 0, MN_GNEVER);
    mn_gexpr *all[2] = {body, mn_gx_repeat(c->b, mn_gschema_text(c, "<"), 0, MN_GNEVER)};
    return mn_gx_join(c->b, MN_GX_SEQ, all, 2);
}

static bool add_literal(mn_gschema *c, mn_gexpr *alt, const cJSON *s, const cJSON *v) {
    const char *text = cJSON_GetStringValue(v);
    if (cJSON_IsNull(v))
        return mn_gx_add(c->b, alt, mn_gschema_text(c, "null"));
    if (!text || strstr(text, forms[c->form].tag) || !mn_gschema_allows_string(c, s, text))
        return !c->b->status;
    return mn_gx_add(c->b, alt, mn_gschema_text(c, text));
}

static mn_gexpr *schema_tags_literals(mn_gschema *c, const cJSON *s) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *one = mn_gschema_item(s, "const");
    const cJSON *v = NULL;
    if (one)
        return add_literal(c, alt, s, one) ? alt : NULL;
    cJSON_ArrayForEach(v, mn_gschema_item(s, "enum")) {
        if (!add_literal(c, alt, s, v))
            return NULL;
    }
    return alt;
}

static mn_gexpr *limited(mn_gschema *c, const cJSON *s) {
    mn_gcut cut = {.max = MN_GNEVER, .where = "a parameter"};
    mn_gregex how = {.json = true};
    if (!mn_gschema_cut(c, s, &cut))
        return NULL;
    if (cut.n == MN_GCUT_PARTS)
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "", "too many demands on one string");
    cut.part[cut.n].x =
        mn_gregex_parse(c->b, mn_str_of("[^\"\\\\<\\x00-\\x1f]*"), "characters", &how);
    cut.n += cut.part[cut.n].x != NULL;
    return c->b->status ? NULL : mn_gx_cut(c->b, &cut);
}

/* The schema without references and allOf; NULL: c->b->status. */
static const cJSON *schema_tags_flat(mn_gschema *c, const cJSON *s) {
    static const char known[] =
        " type enum const minLength maxLength pattern format anyOf oneOf $defs definitions ";
    cJSON *all = mn_gschema_all(c, &s, 1);
    for (int i = 0; i < HOPS && all && mn_gschema_item(all, "allOf"); i++) {
        cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(all, "allOf");
        const cJSON *part = NULL;
        bool ok = true;
        cJSON_ArrayForEach(part, list) ok = ok && mn_gschema_merge(c, all, part);
        cJSON_Delete(list);
        if (!ok)
            return NULL;
    }
    return all && has_only(c, all, known) ? all : NULL;
}

static mn_gexpr *text_value(mn_gschema *c, const cJSON *s) {
    static const char *const keys[] = {"minLength", "maxLength", "pattern", "format"};
    if (mn_gschema_item(s, "enum") || mn_gschema_item(s, "const"))
        return schema_tags_literals(c, s);
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        if (mn_gschema_item(s, keys[i]))
            return limited(c, s);
    }
    return any_text(c);
}

static mn_gexpr *schema_tags_type_of(mn_gschema *c, const cJSON *s);

static mn_gexpr *any_of(mn_gschema *c, const cJSON *list) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *x = NULL;
    cJSON_ArrayForEach(x, list) {
        if (!mn_gx_add(c->b, alt, schema_tags_type_of(c, x)))
            return NULL;
    }
    return alt;
}

static mn_gexpr *schema_tags_type_of(mn_gschema *c, const cJSON *s) {
    if (!cJSON_IsObject(s) && !cJSON_IsBool(s))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "", "a schema is an object, true or false");
    const uint32_t types = schema_tags_types_of(c, s);
    if (c->b->status)
        return NULL;
    if (cJSON_IsFalse(s) || (types && !(types & MN_SCHEMA_TEXT)))
        return mn_gschema_value(c, s);
    if (types & ~(uint32_t)(MN_SCHEMA_TEXT | MN_SCHEMA_NULL))
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "",
                                 "strings beside other types cannot be told apart without quotes");
    if (!types) /* anything: a text then */
        return has_only(c, s, " ") ? any_text(c) : NULL;
    const cJSON *whole = schema_tags_flat(c, s);
    if (!whole)
        return NULL;
    const cJSON *ways = mn_gschema_item(whole, "anyOf");
    if (!ways)
        ways = mn_gschema_item(whole, "oneOf");
    if (ways && !mn_gschema_item(whole, "type"))
        return any_of(c, ways);
    mn_gexpr *way[2] = {text_value(c, whole), mn_gschema_text(c, "null")};
    return mn_gx_join(c->b, MN_GX_ALT, way, types & MN_SCHEMA_NULL ? 2 : 1);
}

/* With the place of the schema in messages. */
static mn_gexpr *schema_tags_value_of(mn_gschema *c, const char *key, const cJSON *s) {
    const size_t n = strlen(c->path);
    snprintf(c->path + n, MN_GSCHEMA_PATH - n, "/properties/%s", key);
    mn_gexpr *x = schema_tags_type_of(c, s);
    c->path[n] = 0;
    return x;
}

/* ---- parameters ------------------------------------------------------------------------------ */
static mn_gexpr *parameter(mn_gschema *c, mn_gexpr *key, mn_gexpr *value) {
    mn_gexpr *open[3] = {mn_gschema_text(c, forms[c->form].before), key,
                         mn_gschema_text(c, forms[c->form].behind)};
    mn_gexpr *part[3] = {mn_gx_join(c->b, MN_GX_SEQ, open, 3), value,
                         mn_gschema_text(c, forms[c->form].end)};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 3);
}

static bool is_plain_key(const char *key, const char *never) {
    const size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)key[i] < ' ' || strchr(never, key[i]))
            return false;
    return n && n <= KEY;
}

static bool is_required(const cJSON *s, const char *key) {
    const cJSON *name = NULL;
    cJSON_ArrayForEach(name, mn_gschema_item(s, "required")) {
        if (cJSON_IsString(name) && !strcmp(name->valuestring, key))
            return true;
    }
    return false;
}

/* Keywords that mean something here; all names that are required are those of properties. */
static bool schema_tags_check(mn_gschema *c, const cJSON *s, const cJSON *properties) {
    static const char known[] = " type properties required additionalProperties $defs definitions ";
    const cJSON *k = NULL;
    if (!cJSON_IsObject(s) && !cJSON_IsBool(s))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "", "a schema is an object, true or false");
    if (properties && !cJSON_IsObject(properties))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "properties", "an object is expected");
    if (!has_only(c, s, known))
        return false;
    cJSON_ArrayForEach(k, mn_gschema_item(s, "required")) {
        if (!cJSON_IsString(k) || !cJSON_GetObjectItemCaseSensitive(properties, k->valuestring))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, "required",
                                     "a name without a description in properties");
    }
    return true;
}

mn_gexpr *mn_gschema_parameters(mn_gschema *c, const cJSON *s) {
    const cJSON *properties = mn_gschema_item(s, "properties");
    mn_gexpr *all = mn_gx_new(c->b, MN_GX_SEQ);
    const cJSON *p = NULL;
    if (!all || !schema_tags_check(c, s, properties))
        return NULL;
    if (!properties && !cJSON_IsFalse(mn_gschema_item(s, "additionalProperties"))) {
        mn_gexpr *letter = mn_gx_bytes(c->b, 'a', 'z');
        mn_gexpr *key = mn_gx_repeat(c->b, letter, 1, KEY / 2);
        return mn_gx_repeat(c->b, parameter(c, key, any_text(c)), 0, MN_GNEVER);
    }
    cJSON_ArrayForEach(p, properties) {
        if (!is_plain_key(p->string, forms[c->form].never))
            return mn_gschema_refuse(c, MN_UNSUPPORTED, "properties",
                                     "a name that cannot stand in a tag");
        mn_gexpr *x =
            parameter(c, mn_gschema_text(c, p->string), schema_tags_value_of(c, p->string, p));
        const uint32_t least = is_required(s, p->string);
        if (!mn_gx_add(c->b, all, mn_gx_repeat(c->b, x, least, 1)))
            return NULL;
    }
    return all;
}
