/* json.h -- JSON files of a model as trees, and values of their objects. */
#ifndef MN_TEXT_JSON_H
#define MN_TEXT_JSON_H
#include "base/base.h"

#define MN_VOCAB_MAX (1 << 24) /* ids of tokens; beyond it the file is damaged */
#define MN_JSON_DEPTH 16       /* of "Sequence" in "Sequence" in a tokenizer.json */

struct cJSON;
/* cJSON's tree of text[0..n), n with its NUL if it has one; *end: behind the value, or where it is
 * wrong. cJSON returns NULL for every error: *no_memory then tells that an allocation failed, and
 * nothing is known about the text. All JSON trees of the runtime are made here: numbers follow
 * JSON's grammar, and of several members with one name the last counts, as in Python
 * (json_strict.h). */
struct cJSON *mn_json_tree(const char *text, size_t n, const char **end, bool *no_memory);
/* MN_BAD_FILE, with name, if it is no JSON object in UTF-8. cJSON_Delete by the caller. */
mn_status mn_json_parse(mn_str text, const char *name, struct cJSON **out, mn_error *err);
/* As above, for a text that parts were cut out of; messages give places in the whole text. The byte
 * at `here` in the text was at `there` in the whole one, and so on up to the next cut; in order. */
typedef struct {
    size_t here, there;
} mn_json_cut;
mn_status mn_json_parse_cut(mn_str text, const mn_json_cut *cuts, size_t n_cuts, const char *name,
                            struct cJSON **out, mn_error *err);
/* As above, for the file with that name; NULL if there is none. */
mn_status mn_json_file(const mn_file *files, uint32_t n_files, const char *name, struct cJSON **out,
                       mn_error *err);

/* The value of a key of an object; `otherwise` if the object has no such key, if the value has
 * another type, or if json is no object or NULL. */
const struct cJSON *mn_json_item(const struct cJSON *json, const char *key); /* NULL = nothing */
const char *mn_json_text(const struct cJSON *json, const char *key, const char *otherwise);
bool mn_json_id(const struct cJSON *v, int32_t *id); /* a number that can be a token's */
bool mn_json_flag(const struct cJSON *json, const char *key, bool otherwise);
#endif
