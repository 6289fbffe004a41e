/* safetensors.h -- folders in Hugging Face layout, for the loaders safetensors and mlx: plugin.c
 * (the table), model.c (which files make the model), header.c (one weight file), config.c and
 * rope.c (config.json), families.c (differences between families), names.c (tensor names), ahead.c
 * (draft heads), layout.c, f8.c, nvfp4.c, affine.c, compressed.c, gptq.c and bnb.c (tensors that
 * are stored otherwise than a graph wants them), methods.c (quantization_config), hf_json.c
 * (checked access to JSON), adapter.c (adapters of PEFT). Everything that fails fills err, naming
 * file and key. */
#ifndef MN_SAFETENSORS_H
#define MN_SAFETENSORS_H
#include "../common/common.h"
#include <cjson/cJSON.h>

/* ---- hf_json.c ------------------------------------------------------------------------------ */
#define JSON_MAX 100000000u    /* bytes: what the format allows for a header; also of an index */
#define CONFIG_MAX (16u << 20) /* of config.json; the tree of it may take forty times that */
/* Parses f's bytes [offset, offset + n), at most max of them, as one JSON object; cJSON_Delete by
 * the caller. Scratch from host. */
mn_status json_parse(const mn_host *host, const mn_file *f, uint64_t offset, uint64_t n,
                     uint32_t max, cJSON **out, mn_error *err);
/* No two members have one name. Memory from host. */
mn_status json_unique(const mn_host *host, const mn_file *f, const cJSON *object, mn_error *err);
const cJSON *json_get(const cJSON *object, const char *key); /* NULL if absent or null */
typedef struct {
    char s[96];
} json_text;
json_text json_describe(const cJSON *item); /* its value, for messages */
bool json_is_int(const cJSON *item, int64_t lo, int64_t hi,
                 int64_t *out); /* false: no number, fraction, NaN or out of range */

/* ---- header.c -------------------------------------------------------------------------------- */
/* appends f's tensors under their own names */
mn_status header_read(mn_parsed *p, const mn_file *f, mn_error *err);

struct model_family; /* families.h */
/* Values of config.json that are needed after its keys were read. */
typedef struct {
    cJSON *config;
    const struct model_family *family;
    const struct name_pair *own; /* the family's names, or those of a variant */
    int64_t n_layer;
    int64_t unused_positions;  /* first rows of the table of positions, which no token uses */
    int64_t n_head, n_head_kv; /* of the first layer; 0: they differ by kind of layer */
    int64_t head_dim_v;        /* of latent attention; else 0 */
    bool tied;
    bool classifies; /* its class keeps the head that scores a text */
    bool is_module;  /* no model: a module of sentence-transformers (module.c), which is read */
} model_facts;

/* What a layer of a model is whose layers differ in more than their windows. */
typedef enum {
    LAYER_UNKNOWN,
    LAYER_ATTENDS,
    LAYER_STATE,
    LAYER_MLP,
    LAYER_EXPERTS,
} layer_kind;
struct name_pair; /* families.h */

/* ---- names.c --------------------------------------------------------------------------------- */
/* The canonical name of a checkpoint's tensor, in p's memory or static; its own if there is none.
 * ptr NULL = out of memory. */
mn_str tensor_canonical_name(mn_parsed *p, const struct name_pair *own, mn_str native);

/* ---- ahead.c --------------------------------------------------------------------------------- */
/* Names the tensors of a draft head that the checkpoint keeps apart as those of one layer more, and
 * counts it in the metadata. */
mn_status ahead_read(mn_parsed *p, const model_facts *facts, mn_error *err);

/* ---- layout.c: by native names, before they become canonical --------------------------------- */
/* Describes experts stored as one, transposed matrices, MXFP4 as released, and F8 with its scales
 * in place. */
mn_status layout_read(mn_parsed *p, const model_facts *facts, mn_error *err);
/* methods.c: a model_join that joins nothing: refuses models whose weights are quantised in a way
 * that this loader does not read. */
mn_status layout_accept(mn_parsed *p, const model_facts *facts, mn_error *err);
/* The tensor whose name is stem (of len bytes) and ending; NULL = there is none. */
mn_parsed_tensor *layout_find(const mn_parsed *p, mn_str stem, const char *ending);
bool dtype_by_safetensors_name(const char *name, mn_dtype *out);
extern const char safetensors_known_types[]; /* for messages */
/* f8.c: how scales lie over a matrix: strides in bytes; 0: shared. */
typedef struct {
    bool blocks, halves; /* halves: of gate and up, which are one tensor, each has its own */
    int64_t expert;
    int64_t row;
    int64_t col;
} f8_scales;
/* Of matrix t with its scales as stored, which become ones of floats; an error where they do not
 * fit. */
mn_status f8_scales_of(mn_parsed *p, const mn_parsed_tensor *t, const mn_parsed_tensor *stored,
                       mn_parsed_tensor *scales, f8_scales *sc, mn_error *err);
/* latent.c: kv_b_proj at `at` becomes two tensors, which are appended; the caller drops it. _f8:
 * with its scales. */
mn_status latent_split(mn_parsed *p, uint64_t at, const model_facts *facts, mn_error *err);
mn_status latent_split_f8(mn_parsed *p, uint64_t at, const mn_parsed_tensor *stored,
                          const model_facts *facts, mn_error *err);
/* f8.c: tensor `at` and its scales s described as one; of gate and up stored as one two, the second
 * appended. s stays where it is. */
mn_status f8_read(mn_parsed *p, uint64_t at, const mn_parsed_tensor *s, bool transposed,
                  mn_error *err);
/* nvfp4.c: describes U8 tensor t, its scales and the scale of the whole tensor (NULL: an error) as
 * one tensor. The data stays in place. */
mn_status nvfp4_read(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *scale,
                     const mn_parsed_tensor *whole, mn_error *err);

/* ---- config.c -------------------------------------------------------------------------------- */
/* Reading config.json. After a failure status is set and the functions below do nothing: check once
 * at the end. */
typedef struct {
    mn_parsed *parsed;
    const mn_file *file;
    mn_error *err;
    cJSON *root;
    const char *arch; /* canonical: "llama" */
    const struct model_family *family;
    bool nested; /* root is the text model's section of the file */
    /* n_head: of the first layer; head_dim: of window layers head_dim_swa, where these differ */
    int64_t n_layer;
    int64_t n_head;
    int64_t n_head_kv;
    int64_t n_embd;
    int64_t head_dim;
    int64_t head_dim_swa;
    int64_t head_dim_v; /* of latent attention; else 0 */
    int64_t n_ctx;
    int64_t unused_positions;
    bool headless;           /* the class has no output matrix */
    bool classifies;         /* the class ends with a head that scores its text */
    const cJSON **layers;    /* per_layer_config by layer, each may be NULL; NULL: there is none */
    const layer_kind *kinds; /* per layer; NULL: all attend, and have what follows */
    const struct name_pair *own;
    const char *width_of_all; /* the key of the MLPs' width, if it is not the family's */
    const int64_t *no_rope;   /* per layer; NULL: all rotate */
    const int64_t *slides;    /* per layer, where the family has wide_full */
    bool tied;
    mn_status status;
} config_reader;

/* Appends the metadata. p has the checkpoint's tensors: their shapes say what config.json leaves
 * out. */
mn_status config_read(mn_parsed *p, const mn_file *f, model_facts *facts, mn_error *err);

/* A member of object (a section of the file named `in`, "" = top level, else "rope_parameters." and
 * so on). Absent or null: fallback, or a failure if it is NULL. */
int64_t config_int(config_reader *c, const cJSON *object, const char *in, const char *key,
                   int64_t lo, int64_t hi, const int64_t *fallback);
double config_float(config_reader *c, const cJSON *object, const char *in, const char *key,
                    double lo, double hi, const double *fallback);
bool config_bool(config_reader *c, const char *key, bool fallback);
const char *config_str(config_reader *c, const cJSON *object, const char *in, const char *key,
                       const char *fallback);
void config_fail(config_reader *c, const char *in, const char *key, const cJSON *found,
                 const char *expected);
/* Adds "ARCH.key", or key itself if it begins with "general." or "minerva."; native: in followed by
 * key. */
/* NULL after a failure */
mn_value *config_put(config_reader *c, const char *key, const char *in, const char *native);
void config_put_int(config_reader *c, const char *key, const char *in, const char *native,
                    int64_t v);
void config_put_float(config_reader *c, const char *key, const char *in, const char *native,
                      double v);
void config_put_bool(config_reader *c, const char *key, const char *native, bool v);
void config_put_str(config_reader *c, const char *key, const char *in, const char *native,
                    const char *v);

/* ---- config_layers.c, config_sizes.c --------------------------------------------------------- */
/* [n_layer] zeros in the model's memory; NULL after an error. */
int64_t *config_new_layers(config_reader *c);
/* No layer rotates. */
void config_put_no_rope(config_reader *c);
/* no_rope_layers, no_rope_layer_interval: sets no_rope. */
void config_read_no_rope(config_reader *c);
/* 1 for each layer that slides, by layer_types or by the family's rule. slides: [n_layer] zeros. */
void config_find_sliding(config_reader *c, int64_t *slides);
/* The window's size, and which layers slide if only some of them do. Needs no_rope. */
void config_read_window(config_reader *c);
/* The sizes that every model has. */
void config_read_sizes(config_reader *c);

/* ---- module.c -------------------------------------------------------------------------------- */
/* config.json of sentence-transformers' module Dense, which is no model's. */
bool module_is_dense(const cJSON *root);
/* Its metadata ("minerva.dense.activation") and its tensors, which keep their names. */
mn_status module_read(mn_parsed *p, const mn_file *f, cJSON *root, mn_error *err);

/* ---- adapter.c ------------------------------------------------------------------------------- */
/* PEFT's adapter_model.safetensors was named, or is in a folder that has no model. */
bool adapter_is_ours(const mn_file *files, uint32_t n, uint32_t stride);
/* As model_open: tensors NAME.lora_a and NAME.lora_b, keys general.type and those of adapters. */
mn_status adapter_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_parsed **out, mn_error *err);

/* ---- rope.c ---------------------------------------------------------------------------------- */
void config_read_rope(config_reader *c);

/* ---- model.c --------------------------------------------------------------------------------- */
/* The files of a folder in Hugging Face layout, or of an adapter; mlx has the same. */
#define MODEL_PATTERNS 7
extern const mn_file_pattern model_patterns[MODEL_PATTERNS];
/* Weights or their index are there, and the file that the user named, if any, is of such a
 * folder. */
bool model_is_ours(const mn_file *files, uint32_t n, uint32_t stride);
/* NULL = absent */
const mn_file *model_file(const mn_file *files, uint32_t n, uint32_t stride, const char *name);
/* join: makes one tensor of several before layout_read; NULL = nothing to do. */
typedef mn_status (*model_join)(mn_parsed *p, const model_facts *facts, mn_error *err);
mn_status model_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                     model_join join, mn_parsed **out, mn_error *err);

#endif
