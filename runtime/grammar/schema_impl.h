/* schema_impl.h -- between the files of the front end for JSON Schema: schema.c (references,
 * combinations, types), schema_text.c (strings and numbers) and schema_parts.c (arrays, objects).
 * Functions that make expressions return NULL on failure, with c->b->status set. */
#ifndef MN_GRAMMAR_SCHEMA_IMPL_H
#define MN_GRAMMAR_SCHEMA_IMPL_H
#include "grammar/schema.h"
#include <cjson/cJSON.h>

enum { MN_GSCHEMA_PATH = 400 };

typedef struct {
    const cJSON *schema;
    uint32_t rule;
    char path[MN_GSCHEMA_PATH];
} mn_gpending;
typedef struct {
    mn_gbuild *b;
    const cJSON *root;
    mn_gpending *queue; /* schemas whose rules are made later */
    uint32_t n_queue, depth;
    uint32_t form; /* of tags (schema_tags.c) */
    size_t cap_queue;
    uint32_t *slot; /* [n_slots] of queue, by hash of the schema's address; MN_GNONE = free */
    uint32_t n_slots;
    const cJSON *limited; /* the strings that mn_gschema_allows_string was asked for last */
    mn_gexpr *limited_to;
    cJSON **made; /* schemas that were combined; live until the end */
    uint32_t n_made, n_merged, n_items;
    size_t cap_made;
    char path[MN_GSCHEMA_PATH]; /* JSON pointer of the schema at hand; cut where it is too long */
} mn_gschema;

/* ---- schema.c -------------------------------------------------------------------------------- */
/* NULL, with the message "schema, #path/key: why"; key may be "". */
mn_gexpr *mn_gschema_refuse(mn_gschema *c, mn_status status, const char *key, const char *why);
bool mn_gschema_is_note(const char *key); /* an annotation, or not a keyword at all */
/* Whether keywords that take an object or a list have one; `required` may be what draft 3 made of
 * it. */
bool mn_gschema_check_shapes(mn_gschema *c, const cJSON *s);
/* A warning: what is enforced more strictly than written, or not at all because it is a note. */
void mn_gschema_warn(mn_gschema *c, const char *key, const char *what);
const cJSON *mn_gschema_item(const cJSON *s, const char *key);
mn_gexpr *mn_gschema_text(mn_gschema *c, const char *z);
mn_gexpr *mn_gschema_named(mn_gschema *c, const char *rule); /* of the rules of any JSON */
/* What a part of the schema at hand describes; key and name are its place. */
mn_gexpr *mn_gschema_below(mn_gschema *c, const char *key, const char *name, const cJSON *s);
mn_gexpr *mn_gschema_value(mn_gschema *c, const cJSON *s); /* of the schema at hand */
/* A count of a keyword; otherwise where it is missing. */
bool mn_gschema_count(mn_gschema *c, const cJSON *s, const char *key, uint32_t otherwise,
                      uint32_t *out);

/* Names, each once, by hash; in the arena of the build. */
typedef struct {
    mn_str *slot; /* [n_slots] */
    uint32_t n, n_slots;
} mn_gnames;
bool mn_gnames_has(const mn_gnames *names, mn_str name);
bool mn_gnames_add(mn_gschema *c, mn_gnames *names, mn_str name); /* not copied */

/* ---- schema_merge.c: new schemas live until the end; NULL: c->b->status says why ------------- */
/* What $ref of s names, with its JSON pointer. */
const cJSON *mn_gschema_target(mn_gschema *c, const cJSON *s, const char **pointer);
/* A copy without one keyword. */
cJSON *mn_gschema_without(mn_gschema *c, const cJSON *from, const char *key);
/* Adds x, which is taken over, to a list or an object of a new schema; x NULL: no memory. */
bool mn_gschema_add(mn_gschema *c, cJSON *list, cJSON *x);
bool mn_gschema_put(mn_gschema *c, cJSON *into, const char *key, cJSON *x);
/* Both at once. */
bool mn_gschema_merge(mn_gschema *c, cJSON *into, const cJSON *more);
/* A schema that demands all of a list. */
cJSON *mn_gschema_all(mn_gschema *c, const cJSON *const *list, uint32_t n);

/* ---- schema_text.c --------------------------------------------------------------------------- */
mn_gexpr *mn_gschema_string(mn_gschema *c, const cJSON *s);
mn_gexpr *mn_gschema_integer(mn_gschema *c, const cJSON *s);
mn_gexpr *mn_gschema_number(mn_gschema *c, const cJSON *s);
/* Adds what a schema demands of strings to a cut: patterns, format, lengths, enum, const. */
bool mn_gschema_cut(mn_gschema *c, const cJSON *s, mn_gcut *cut);
/* Whether literals are what the keywords for strings and numbers demand. */
bool mn_gschema_allows_string(mn_gschema *c, const cJSON *s, const char *string);
bool mn_gschema_allows_number(mn_gschema *c, const cJSON *s, double number);
/* A pattern as inside a JSON string, anywhere in it unless anchored. least, most: characters */
mn_gexpr *mn_gschema_pattern(mn_gschema *c, const char *pattern, uint32_t *least, uint32_t *most);

/* ---- schema_parts.c -------------------------------------------------------------------------- */
mn_gexpr *mn_gschema_array(mn_gschema *c, const cJSON *s);
mn_gexpr *mn_gschema_object(mn_gschema *c, const cJSON *s);

/* ---- schema_tags.c --------------------------------------------------------------------------- */
mn_gexpr *mn_gschema_parameters(mn_gschema *c, const cJSON *s);
#endif
