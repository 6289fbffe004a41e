/* opened.h -- what is behind the opaque types of minerva.h. */
#ifndef MN_OPENED_H
#define MN_OPENED_H
#include <minerva/minerva.h>
#include "opened/adapters.h"
#include "base/base.h"
#include "base/config.h"
#include "grammar/grammar.h"
#include "graph/graph.h"
#include "model/model.h"
#include "negotiate/negotiate.h"
#include "registry/registry.h"
#include "text/chat/calls.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer/tokenizer.h"
#include <pthread.h>
#include <stdatomic.h>

struct mn_runtime {
    struct mn_ranks *ranks;         /* of mn_model_join; NULL: this process is alone */
    const mn_device_record *ranked; /* rank 0: the device of every session */
    void (*rank_lost)(void *arg, const char *why);
    mn_config *config;
    mn_pool *pool;
    mn_registry *registry;
    void (*log)(void *arg, int32_t level, const char *message);
    int32_t (*progress)(void *arg, float done, const char *what);
    pthread_mutex_t progress_lock; /* recursive: held while progress runs, one at a time */
    _Atomic float progress_done;   /* what a session that is being created reported last */
    void (*stuck)(void *arg, const mn_plugin_call *call); /* mn_runtime_params has its contract */
    void *callback_arg;
};

/* sources.c: the loaders of a runtime; *out: mn_free by the caller. */
mn_status mn_loader_refs(const mn_runtime *rt, mn_loader_ref **out, uint32_t *n, mn_error *err);
/* Where the demo model is; *out: mn_free by the caller. */
mn_status mn_model_demo_path(char **out, mn_error *err);

/* progress.c: an mn_watcher of the runtime, which has a progress function. */
int32_t mn_runtime_progress(void *rt, float done, const char *what);

#define MN_SAMPLING_KEYS 7

/* ---- head.c: layers behind the pooling of hidden states -------------------------------------- */
#define MN_HEAD_ACT_KEY "minerva.classifier.activation"
#define MN_HEAD_POOLING_KEY "minerva.classifier.pooling"
enum { MN_HEAD_NONE, MN_HEAD_TANH, MN_HEAD_GELU, MN_HEAD_RELU, MN_HEAD_SILU };
enum { MN_HEAD_LAYERS = 4, MN_HEAD_WIDTH = 1 << 20 };
/* y = norm(act(weight x + bias)). bias, norm: NULL = none. */
typedef struct {
    const float *weight, *bias, *norm, *norm_bias; // [n_out, n_in], [n_out] each
    uint32_t n_in, n_out, act;                     /* MN_HEAD_* */
} mn_head_layer;
typedef struct {
    mn_head_layer layer[MN_HEAD_LAYERS];
    uint32_t n, widest, pooling; /* MN_POOLING_*; widest: n_in or n_out */
    double eps;                  /* of norms */
    mn_arena arena;              /* the weights' */
} mn_head;
/* false: no activation of this name. */
bool mn_head_act_of(mn_str name, uint32_t *act);
/* The layer of this stem in c, which reads n_in numbers, behind those that h has, without an
 * activation. MN_END: there is none. */
mn_status mn_head_layer_read(const mn_canonical *c, mn_head *h, const char *stem, uint32_t n_in,
                             mn_error *err);
/* The result [n_out of the last layer], in scratch [2 * widest]. */
const double *mn_head_apply(const mn_head *h, const double *x, double *scratch);
struct mn_model;
/* Reads m->score; a head that cannot be used is no error. */
mn_status mn_head_read(struct mn_model *m, mn_error *err);
/* MN_UNSUPPORTED: why the model scores nothing; labelled: the caller names a label of a head that
 * has several. */
mn_status mn_head_need(const struct mn_model *m, bool labelled, mn_error *err);
void mn_head_free(struct mn_model *m);

/* ---- dense.c: layers behind the pooling of an embedding -------------------------------------- */
enum { MN_DENSE_FIRST = 2 }; /* their numbers in names: sentence-transformers' 2_Dense */
/* Appends to m->embed.dense what the model has as tensors, or the layer of one folder. */
mn_status mn_dense_read_tensors(struct mn_model *m, mn_error *err);
mn_status mn_dense_read_folder(struct mn_model *m, const char *path, mn_error *err);

struct mn_model {
    mn_runtime *rt;
    mn_canonical *canonical;
    char *arch, *name;
    char *known_as;          /* the name that found it; "" = its path was given */
    uint32_t found_flags;    /* MN_FOUND_* */
    mn_tokenizer *tokenizer; /* NULL = has none */
    mn_jinja *chat;          /* NULL = has no template */
    mn_jinja *chat_tools;    /* the one for chats with tools; NULL = the same */
    bool spells_thinking;    /* the template speaks of <think> */
    struct mn_token_table *token_table;
    /* how the model writes calls as text; NULL = not known */
    const mn_call_family *calls;
    mn_call_style call_style;  /* of calls, as its template has them */
    _Atomic bool *told;        /* that its template has no place for tools; once is enough */
    bool told_unused;          /* which tensors no graph uses, likewise; under the lock */
    mn_sample_params defaults; /* of generation_config.json or metadata */
    /* what they say, in the order of mn_sampling_keys; NAN: nothing, or nothing of use */
    double sampling[MN_SAMPLING_KEYS];
    /* embeddings as the model's files want them (pooling.c). refusal: why that is not possible;
     * NULL */
    struct {
        uint32_t pooling, norm; /* MN_POOLING_*, MN_NORM_*, not the defaults */
        bool stated;            /* a file says the pooling */
        bool from_folders;      /* dense is of folders beside the model, else of its tensors */
        mn_head dense;          /* what follows the pooling; n 0: nothing */
        char *refusal;
    } embed;
    /* scores of pairs (head.c). known: head can be used; refusal: why it cannot, although there is
     * one; NULL. prompted: a pair is a prompt of Qwen3-Reranker */
    struct {
        mn_head head;
        bool known, prompted;
        uint32_t n_labels;    /* of a head that is usable and classifies; 0: another */
        const mn_str *labels; /* their names, of the metadata; NULL: they have none */
        const float *words; /* rows "yes" and "no" of the output matrix that head is made of [2, D],
                               in its arena; NULL: the files have a head */
        char *refusal;
    } score;
    int32_t *stop; /* every id that ends a generation, each once */
    uint32_t n_stop;
    mn_adapters *adapters;           /* adapters.h */
    mn_model_graph *adapted;         /* with room in every product; built by the first adapter */
    mn_held_list *held;              /* weights that its sessions have on devices */
    pthread_mutex_t lock;            /* guards graphs, and the making of grammar_vocab */
    mn_grammar_vocab *grammar_vocab; /* made by the first constraint */
    /* built by the first session; [..][1]: for contexts that need other constants (longrope);
     * [1][..]: those that embed */
    mn_model_graph *graphs[MN_GRAPH_ENDS][2];
    struct mn_divided_graph *divided; /* those with divided experts, the newest first */
};

/* Where an output begins, by its prompt: with the answer, with what is thought, or with the header
 * of a message (Harmony). */
typedef enum { MN_PLACE_ANSWER, MN_PLACE_THINKING, MN_PLACE_HEADER, MN_PLACES } mn_place;

struct mn_constraint {
    mn_model *model;
    mn_grammar *grammar; /* NULL: any text */
    mn_text warnings;
    atomic_uint refs;
    atomic_bool exhausted; /* a text under it needed more work than it may (guides/guide.c) */
    /* The same where an output begins at another place, made when first asked for, from copies of
     * kind, flags and source (of choices: a regular expression). */
    pthread_mutex_t lock;
    mn_grammar *behind[MN_PLACES];
    uint32_t kind, flags;
    mn_text source;
};
/* The grammar of an answer to the prompt: where that leaves thinking open, and in Harmony, what
 * precedes the answer is free. Lives as long as c. Any thread. */
mn_status mn_constraint_grammar(mn_constraint *c, const int32_t *prompt, uint32_t n,
                                mn_grammar **out, mn_error *err);
/* answer.c: what an output that follows the prompt has to spell before its answer: a mark as in the
 * vocabulary for grammars, and what stands behind it; MN_PLACE_ANSWER: nothing. */
mn_place mn_answer_mark(const mn_model *m, const int32_t *prompt, uint32_t n, mn_text *mark,
                        mn_text *lead);
/* The text of the last ids of a prompt, appended; false: it cannot be had. */
bool mn_prompt_end(const mn_tokenizer *tok, const int32_t *ids, uint32_t n, mn_text *end);
/* constraint.c: of params that are checked. The caller is its first holder. */
mn_status mn_constraint_compile(mn_model *m, const mn_constraint_params *p, mn_constraint **out,
                                mn_error *err);
void mn_constraint_release(mn_constraint *c); /* one holder less; the last one frees it */
/* One holder more. */
static inline mn_constraint *mn_constraint_hold(mn_constraint *c) {
    atomic_fetch_add(&c->refs, 1);
    return c;
}

/* ---- args.c: checks of arguments; __func__ is the function that the caller called ------------ */
typedef struct {
    const char *name;
    const void *value;
} mn_arg;
/* MN_INVALID "FUNCTION: NAME is NULL" for the first argument that is. args end with one without a
 * name. */
mn_status mn_args_need(mn_error *err, const char *function, const mn_arg *args);
/* MN_INVALID: rt, which is not NULL, was made before a fork whose child this process is. */
mn_status mn_args_same_process(mn_error *err, const char *function, const mn_runtime *rt);
/* MN_INVALID: bytes at no address. */
mn_status mn_args_text(mn_error *err, const char *function, const char *name, mn_str text);
/* MN_INVALID: an unknown bit is set, which would be ignored. */
mn_status mn_args_flags(mn_error *err, const char *name, uint32_t given, uint32_t known);
/* The structs of minerva.h that begin with their size. */
typedef enum {
    MN_SIZED_RUNTIME_PARAMS,
    MN_SIZED_MODEL_PARAMS,
    MN_SIZED_MODEL_INFO,
    MN_SIZED_CONVERT_PARAMS,
    MN_SIZED_CHAT_PARAMS,
    MN_SIZED_SESSION_PARAMS,
    MN_SIZED_SESSION_INFO,
    MN_SIZED_SAMPLE_PARAMS,
    MN_SIZED_SESSION_STATS,
    MN_SIZED_EMBED_PARAMS,
    MN_SIZED_REQUEST_PARAMS,
    MN_SIZED_REQUEST_EVENTS,
    MN_SIZED_CONSTRAINT_PARAMS,
    MN_SIZED_SESSION_LOAD,
    MN_SIZED_FOUND_ITEM,
    MN_SIZED_HUB_NAME,
    MN_SIZED_HUB_CHOICE,
    MN_SIZED_ADAPTER_ROOM,
    MN_SIZED_ADAPTER_ITEM,
    MN_SIZED_COUNT
} mn_sized;
/* own: a struct of that kind with its defaults; the fields that given (may be NULL) has replace
 * them. MN_INVALID names the struct if its size is below the size in the first release: the caller
 * forgot to set it, and its fields would be ignored. */
mn_status mn_args_take(mn_sized which, void *own, const void *given, mn_error *err);
/* Fills what the caller has room for, and sets its size. MN_INVALID: NULL, or a size as above. */
mn_status mn_args_give(mn_sized which, void *out, const void *own);

/* forms.c: reads from the source of a chat template how the model writes thinking and calls, and
 * adds it to what is known; the second reads it from the vocabulary, if no template says it. */
void mn_model_take_forms(mn_model *m, mn_str source);
void mn_model_default_forms(mn_model *m);
/* graphs.c: the graph with room for an adapter in every product, which no session has; built at the
 * first call, lives as long as the model. */
mn_status mn_model_graph_adapted(mn_model *m, const mn_model_graph **out, mn_error *err);
/* graphs.c: the graph, built at the first call; lives as long as the model. */
mn_status mn_model_graph_of(mn_model *m, const mn_model_graph **out, mn_error *err);
/* The same for sequences of n_ctx positions: another one where the model keeps constants apart for
 * long contexts. end: MN_GRAPH_*. */
mn_status mn_model_graph_for(mn_model *m, uint32_t n_ctx, uint32_t end, const mn_model_graph **out,
                             mn_error *err);
/* The same with divided experts; a draft head's are whole. */
mn_status mn_model_graph_divided(mn_model *m, uint32_t n_ctx, uint32_t end, mn_division division,
                                 const mn_model_graph **out, mn_error *err);
void mn_model_graphs_free(mn_model *m);
/* vocabulary.c: the bytes of all tokens, made when first asked for. NULL: out of memory. */
typedef struct mn_token_table mn_token_table;
mn_token_table *mn_token_table_create(void);
void mn_token_table_free(mn_token_table *t); /* NULL is fine */
/* As mn_model_token_text, for callers within the library. */
mn_str mn_vocabulary_text(const mn_model *m, int32_t id);
bool mn_vocabulary_has(const mn_model *m, int32_t id); /* m: may be NULL */

/* Precedes the name of a control token in the vocabulary for grammars: no text has this byte. */
#define MN_CONTROL_BYTE "\xff"
/* call_grammar.c: the grammar of MN_CONSTRAINT_CALLS, for outputs that begin at this place.
 * *out is NULL where any text may be written: the form of calls is not known, and none is forced.
 * MN_UNSUPPORTED: a call is forced in a form that is not known. */
mn_status mn_call_grammar(const mn_model *m, mn_str tools, uint32_t flags, mn_place place,
                          mn_grammar **out, mn_text *warnings, mn_error *err);
/* text.c: MN_UNSUPPORTED without a tokeniser. */
mn_status mn_text_need_tokenizer(const mn_model *m, mn_error *err);
/* Tokens of text; plain (may be NULL): one byte per byte, 1 = never part of a special token. flags:
 * MN_TOKENIZE_*. *ids is the caller's. */
mn_status mn_text_encode(const mn_model *m, mn_str text, const uint8_t *plain, uint32_t flags,
                         int32_t **ids, uint32_t *n, mn_error *err);
/* pair.c: as mn_model_pair, whose arguments are checked. */
mn_status mn_pair_encode(const mn_model *m, mn_str query, mn_str text, mn_str instruction,
                         int32_t **ids, uint32_t *n, uint32_t *n_first, mn_error *err);
/* The prompt of Qwen3-Reranker with its usual instruction, and "{query}" and "{document}" for the
 * texts: as files of GGUF have it. */
#define MN_PAIR_PROMPT_KEY "tokenizer.chat_template.rerank"
void mn_pair_prompt(mn_text *out);
#define MN_SESSION_HEAD 0x80000000u /* of mn_session_params.flags: of the model's draft head */
/* request.c: what a session with these parameters asks of the devices. Shared by sessions and
 * explanations. NULL params: the defaults. r->devices points into params or the configuration. */
mn_status mn_request_make(const mn_model *m, const mn_model_graph *g,
                          const mn_session_params *params, mn_request *r, mn_error *err);
/* pooling.c: what the files say of embeddings. Our key of GGUF: false where they say: no norm. */
#define MN_EMBED_NORM_KEY "minerva.embedding.normalise"
mn_status mn_pooling_read(mn_model *m, mn_error *err);
/* What the files want of embeddings; MN_UNSUPPORTED: they want what is not known. */
mn_status mn_pooling_defaults(const mn_model *m, uint32_t *pooling, uint32_t *norm, mn_error *err);
struct cJSON;
/* generation.c: a file of JSON beside the model, parsed; *out NULL = absent. */
mn_status mn_model_companion(const mn_model *m, const char *name, struct cJSON **out,
                             mn_error *err);
/* generation_config.json's key, GGUF's, and what is accepted under them. */
typedef struct {
    const char *json, *key;
    double lo, hi;
    bool whole, above_zero;
} mn_sampling_key;
extern const mn_sampling_key mn_sampling_keys[MN_SAMPLING_KEYS];
/* Defaults of sampling and the stop ids of m, from its tokeniser, metadata and companion files. */
mn_status mn_generation_read(mn_model *m, mn_error *err);
#endif
