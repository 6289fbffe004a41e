/* names.h -- names of models: finds the model that a name means on this machine, and the files of a
 * repository that make it. Nothing here uses a network; only the list of aliases and removals
 * write.
 *
 * A name is looked for in this order; the first place that has the model wins:
 *   path         the name is a file or folder
 *   alias        the list of the user's own: its target is looked for in place of the name
 *   model_path   the folders of the setting
 *   huggingface  the cache that Python's huggingface_hub shares (hf.c has its layout)
 *   lmstudio     LM Studio's folder of models (lmstudio.c)
 *   ollama       ollama's store (ollama.c)
 * Only the patterns of the loaders say which files belong together: choose.c knows no format. */
#ifndef MN_HUB_NAMES_H
#define MN_HUB_NAMES_H
#include <minerva/minerva.h>
#include "model/model.h"

/* ---- name.c: what a name says ---------------------------------------------------------------- */
typedef enum { MN_STORE_ANY, MN_STORE_HUB, MN_STORE_LMSTUDIO, MN_STORE_OLLAMA } mn_store;
/* Every text is set, "" = not said. */
typedef struct {
    char *plain;    /* without prefix, host, revision and what: "org/repo", "llama3.2" */
    char *repo;     /* "org/repo", if it can be one of a hub */
    char *revision; /* a branch, a tag or a commit */
    char *what;     /* behind the colon, or the path of a file: "Q4_K_M", "a/b.gguf" */
    mn_store only;  /* a prefix or a host names the place */
} mn_model_name;
/* "hf:", "hf.co/", "huggingface.co/", "https://..." and HF_ENDPOINT's host: a hub's; "ollama:",
 * "lmstudio:". MN_END: the text can be no name, but may be a path. MN_BAD_INPUT: it is a URL or has
 * a prefix, and names nothing that this knows. */
mn_status mn_name_parse(const char *text, mn_model_name *out, mn_error *err);
void mn_name_free(mn_model_name *name);
/* A path that stays below the folder that it is joined to: relative, UTF-8 without control
 * characters and '\', no part that is empty, "." or "..", at most 1024 bytes and 255 per part. */
bool mn_is_inner_path(const char *path, size_t n);
bool mn_is_commit(const char *text); /* 40 hexadecimal digits, small letters */

/* ---- choose.c: which files make the model ---------------------------------------------------- */
#define MN_HUB_MAX_FILES 100000u
#define MN_HUB_WHOLE_FOLDER UINT32_MAX
typedef struct {
    const mn_loader_ref *loaders;
    uint32_t n_loaders;
    uint64_t memory; /* bytes that a model may take here; 0 = unknown */
} mn_choose_how;
/* One of the models among files. */
typedef struct {
    uint32_t first, n, total; /* file that is opened (or MN_HUB_WHOLE_FOLDER), shards found, said */
    uint64_t bytes;
    char quant[32]; /* "Q4_K_M"; "" = its name has none */
} mn_file_group;
/* Sets chosen[i] to 1 for the files of the model that `what` ("" = the default) means; group (may
 * be NULL): it. MN_END: no model, or none of that name, or shards are missing; MN_BAD_INPUT: it may
 * be several; the message lists them. */
mn_status mn_choose_files(const mn_choose_how *how, const mn_hub_file *files, uint32_t n,
                          const char *what, uint8_t *chosen, mn_hub_choice *out,
                          mn_file_group *group, mn_error *err);
/* All complete models: those of one file or one set of shards each, and the folder itself. *out:
 * mn_free by the caller. */
mn_status mn_choose_all(const mn_choose_how *how, const mn_hub_file *files, uint32_t n,
                        mn_file_group **out, uint32_t *n_out, mn_error *err);
/* The name of a quantisation in a file's name without its ending, the last if there are several:
 * "Q4_K_M", "IQ3_XXS", "BF16". Empty: none. */
mn_str mn_quant_label(mn_str stem);

/* ---- listing.c: the files below a folder ----------------------------------------------------- */
typedef struct {
    mn_hub_file *files; /* sorted by name, "sub/name" */
    int64_t *used;      /* time of last access, seconds since 1970 */
    uint32_t n;
    size_t cap, cap_used;
} mn_listing;
/* Regular files, links to them included, in the folder and `depth` levels of folders below it,
 * which are not entered by links. Names that begin with a dot are passed over. A folder that is not
 * there or cannot be read is empty. */
mn_status mn_listing_read(const char *folder, uint32_t depth, mn_listing *out, mn_error *err);
/* The same for removals, to the last link: at every depth, names that begin with a dot, too. A
 * folder that cannot be read is an error. */
mn_status mn_listing_read_all(const char *folder, mn_listing *out, mn_error *err);
void mn_listing_free(mn_listing *list);
/* $variable, or `otherwise` ("~/..."), with "~" at its start as the home, joined with `tail` (NULL:
 * nothing). *out NULL: there is no home. */
mn_status mn_user_path(const char *variable, const char *otherwise, const char *tail, char **out,
                       mn_error *err);
/* A small text file, at most max bytes; MN_END where it is not there or cannot be read. */
mn_status mn_small_file(const char *path, uint64_t max, mn_text *out, mn_error *err);

/* ---- what was found -------------------------------------------------------------------------- */
typedef struct {
    char *name, *path, *remark;
    const char *place; /* a literal */
    uint64_t bytes;
    int64_t used;
    uint32_t flags; /* MN_FOUND_* */
} mn_found_entry;
struct mn_found {
    mn_found_entry *at;
    size_t n, cap;
    mn_text explain;
    mn_text missing;
    mn_model_name name; /* of the last alias on the way */
    char *cache, *folder;
};
/* What the places get. */
typedef struct {
    const mn_choose_how *how;
    const char *model_path; /* folders with colons between */
    const mn_model_name *name;
    const char *text; /* the name as it was given */
    struct mn_found *found;
} mn_find;
/* Adds a line to what --explain shows. */
void mn_find_says(mn_find *f, const char *place, const char *fmt, ...) MN_PRINTF(3, 4);
/* Chooses among the files of folder; where a model is complete, it is added, named `name` and its
 * quant. MN_END: none, and why was said. keep_name: the quant is not put behind the name. */
mn_status mn_find_in_folder(mn_find *f, const char *place, const char *folder, uint32_t depth,
                            const char *name, mn_error *err);
/* Adds one; strings are copied. */
mn_status mn_found_add(struct mn_found *found, const mn_found_entry *entry, mn_error *err);
/* The same for all models of a folder. */
mn_status mn_list_folder(mn_find *f, const char *place, const char *folder, uint32_t depth,
                         const char *name, mn_error *err);
/* Names of the entries of a folder, sorted. */
typedef struct {
    char **at;
    uint32_t n;
    size_t cap;
} mn_names;
/* Without names that begin with a dot. A folder that cannot be read is empty. */
mn_status mn_names_read(const char *folder, mn_names *out, mn_error *err);
/* All names. A folder that is not there is empty; one that cannot be read is an error. */
mn_status mn_names_read_all(const char *folder, mn_names *out, mn_error *err);
void mn_names_free(mn_names *names);

/* ---- places: MN_OK found and added; MN_END not there, which was said ------------------------- */
mn_status mn_hf_find(mn_find *f, mn_error *err);
mn_status mn_lmstudio_find(mn_find *f, mn_error *err);
mn_status mn_ollama_find(mn_find *f, mn_error *err);
mn_status mn_hf_list(mn_find *f, mn_error *err);
mn_status mn_lmstudio_list(mn_find *f, mn_error *err);
mn_status mn_ollama_list(mn_find *f, mn_error *err);
enum { MN_HF_DEPTH = 2 }; /* levels of folders below a snapshot that may hold a model */
/* $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. */
mn_status mn_hf_folder(char **out, mn_error *err);
/* "models--org--repo" below it. NULL: out of memory. */
char *mn_hf_repo_folder(const char *cache, const char *repo);
/* The snapshot of a revision ("": main, else the only one): its folder. MN_END: none, why says. */
mn_status mn_hf_snapshot(const char *repo_folder, const char *revision, char **out, mn_text *why,
                         mn_error *err);

/* ---- alias.c: the user's list, $XDG_CONFIG_HOME/minerva/aliases.ini -------------------------- */
typedef struct {
    char **names, **targets;
    uint32_t n;
    size_t cap_names, cap_targets;
    char *path; /* NULL: there is no home */
} mn_aliases;
/* A list that is there and cannot be read is an error. */
mn_status mn_aliases_read(mn_aliases *out, mn_error *err);
void mn_aliases_free(mn_aliases *a);
const char *mn_aliases_target(const mn_aliases *a, const char *name); /* NULL = none */
/* target NULL: removes it. MN_BAD_INPUT: no name of an alias, or a circle; MN_END: nothing to
 * remove. */
mn_status mn_aliases_set(const char *name, const char *target, mn_error *err);

/* ---- find.c ---------------------------------------------------------------------------------- */
/* MN_OK also where nothing is found: found->n is 0, and found->missing says so. MN_BAD_INPUT: it
 * may be several. *out: mn_found_free by the caller. */
mn_status mn_find_model(const mn_choose_how *how, const char *model_path, const char *text,
                        struct mn_found **out, mn_error *err);
mn_status mn_find_all(const mn_choose_how *how, const char *model_path, struct mn_found **out,
                      mn_error *err);

/* ---- remove.c -------------------------------------------------------------------------------- */
/* Of the Hugging Face cache alone. *bytes: what is (only_ask: would be) free then. */
mn_status mn_hf_remove_model(const mn_choose_how *how, const struct mn_found *found, bool only_ask,
                             uint64_t *bytes, mn_error *err);
#endif
