/* safetensors.h -- the parts of the SafeTensors loader, which reads folders in Hugging Face layout: plugin.c (the table),
 * model.c (which files make the model), header.c (one weight file), config.c and rope.c (config.json), names.c (tables),
 * json.c (checked access to JSON). Everything that fails fills err, naming file and key. */
#ifndef MN_SAFETENSORS_H
#define MN_SAFETENSORS_H
#include "../common/common.h"
#include <cjson/cJSON.h>

/* ---- json.c ---- */
/* Parses f's bytes [offset, offset + n) as one JSON object; cJSON_Delete by the caller. Scratch from host. */
mn_status json_parse(const mn_host *host, const mn_file *f, uint64_t offset, uint64_t n, cJSON **out, mn_error *err);
/* No two members have one name. Memory from host. */
mn_status json_unique(const mn_host *host, const mn_file *f, const cJSON *object, mn_error *err);
const cJSON *json_get(const cJSON *object, const char *key); /* NULL if absent or null */
typedef struct {
    char s[96];
} json_text;
json_text json_describe(const cJSON *item); /* its value, for messages */
bool json_is_int(const cJSON *item, int64_t lo, int64_t hi,
                 int64_t *out); /* false: no number, fraction, NaN or out of range */

/* ---- header.c ---- */
mn_status header_read(mn_parsed *p, const mn_file *f, mn_error *err); /* appends f's tensors under their own names */

/* ---- names.c ---- */
/* The canonical name of a checkpoint's tensor, in p's memory or static; its own if there is none. ptr NULL = out of memory. */
mn_str tensor_canonical_name(mn_parsed *p, mn_str native);
bool tensor_is_ignored(mn_str native); /* derived data that some checkpoints hold */
bool dtype_by_safetensors_name(const char *name, mn_dtype *out);

/* ---- config.c ---- */
/* Reading config.json. After a failure status is set and the functions below do nothing: check once at the end. */
typedef struct {
    mn_parsed *parsed;
    const mn_file *file;
    mn_error *err;
    const cJSON *root;
    const char *arch;   /* canonical: "llama" */
    const char *family; /* model_type: "mistral" */
    int64_t n_layer, n_head, n_head_kv, n_embd, head_dim, n_ctx;
    bool tied;
    mn_status status;
} config_reader;

mn_status config_read(mn_parsed *p, const mn_file *f, bool *tied, mn_error *err); /* appends the metadata */

/* A member of object (a section of the file named `in`, "" = top level, else "rope_parameters." and so on).
 * Absent or null: fallback, or a failure if it is NULL. */
int64_t config_int(config_reader *c, const cJSON *object, const char *in, const char *key, int64_t lo, int64_t hi,
                   const int64_t *fallback);
double config_float(config_reader *c, const cJSON *object, const char *in, const char *key, double lo, double hi,
                    const double *fallback);
bool config_bool(config_reader *c, const char *key, bool fallback);
const char *config_str(config_reader *c, const cJSON *object, const char *in, const char *key, const char *fallback);
void config_fail(config_reader *c, const char *in, const char *key, const cJSON *found, const char *expected);
/* Adds "ARCH.key", or key itself if it begins with "general." or "minerva."; native: in followed by key. */
mn_value *config_put(config_reader *c, const char *key, const char *in, const char *native); /* NULL after a failure */
void config_put_int(config_reader *c, const char *key, const char *in, const char *native, int64_t v);
void config_put_float(config_reader *c, const char *key, const char *in, const char *native, double v);
void config_put_str(config_reader *c, const char *key, const char *in, const char *native, const char *v);

/* ---- rope.c ---- */
void config_read_rope(config_reader *c);

/* ---- model.c ---- */
bool model_is_ours(const mn_file *files, uint32_t n, uint32_t stride);
mn_status model_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride, mn_parsed **out,
                     mn_error *err);

#endif
