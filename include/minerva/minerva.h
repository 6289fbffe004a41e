/* minerva.h -- run transformer language models from C. The interface of applications; plugins use
 * plugin.h alone.
 *
 *   mn_runtime_create(NULL, &rt, &err);
 *   mn_model_open(rt, "model.gguf", &model, &err);
 *   mn_session_create(model, NULL, &s, &err);
 *   mn_generate(s, "Tell me a story.", NULL, print, NULL, &err); README.md has the whole program
 *
 * Errors: functions that can fail return mn_status (plugin.h: 0 = ok, the class says what to do)
 * and fill *err, which may be NULL; initialise it with MN_ERROR. The library never exits, aborts or
 * prints, except warnings through the log. Threads: a runtime and a model are used from any thread;
 * a session from one thread at a time (mn_session_submit, abort, wake, get_load, cancel: any).
 * Lifetimes: free sessions before their model, models before their runtime. Returned strings live
 * as long as the object that they were queried from. Structs that may grow begin with `size`: set
 * it to sizeof; 0 in other fields means "the default". A size below the first release's is
 * MN_INVALID, in input and output structs; a larger size than the library's is valid. An output
 * struct's size is then what was filled. Unknown flags are MN_INVALID.
 *
 * fork: a child has none of the threads and drivers of its parent's runtimes. In the child, for
 * objects of the parent, mn_runtime_device and every function that opens, computes or converts
 * return MN_INVALID, and the functions that free runtimes, models, sessions and sequences do
 * nothing: the memory stays allocated. Functions that only read work: lists, info, tokenising, chat
 * templates, streams. The child may create a new runtime with models and sessions, unless another
 * thread of the parent was inside mn_runtime_create or dlopen during the fork; devices whose driver
 * was used before the fork (CUDA's) cannot be used then, CPUs can. The parent is not affected.
 *
 * "NULL:" states for each function the meaning of a NULL pointer (of an mn_str: a NULL ptr with
 * a len); lists of 0 may be NULL in structs. */
#ifndef MINERVA_H
#define MINERVA_H
#include <minerva/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define MN_API __attribute__((visibility("default")))
#else
#define MN_API
#endif

#define MN_ERROR                                                                                   \
    {                                                                                              \
        sizeof(mn_error), 0, 0, ~0u, 0, {                                                          \
            0                                                                                      \
        }                                                                                          \
    }
/* MN_ERROR and MN_STATUS_CLASS for languages without macros. Another language may also set an
 * mn_error to zeros and its size to sizeof. */
MN_API void mn_error_init(mn_error *err);
MN_API uint32_t mn_status_class(mn_status status); /* MN_CLASS_* */
/* The constant without MN_: "BAD_FILE"; a plugin's own code has the name of its class: "REFUSE",
 * "SMALLER", ...; other numbers "UNKNOWN". */
MN_API const char *mn_status_name(mn_status status);
MN_API const char *mn_version(void); /* "0.1.0" */
/* The command's exit code for a status: 0, 1 failure, 2 usage (MN_INVALID), 3 no usable device, 4
 * out of memory, 130 cancelled. */
MN_API int mn_exit_code(mn_status status);

/* ---- runtime: plugins, devices, configuration ------------------------------------------------ */
typedef struct mn_runtime mn_runtime;
/* a key of minerva.ini, as listed by `minerva config`: "device" */
typedef struct {
    const char *key, *value;
} mn_setting;
/* A call into a plugin that has not returned. The texts live as long as the runtime. */
typedef struct {
    const char *plugin, *path, *call; /* "cuda", its file, "supports" */
    uint64_t waited_ms, limit_ms;
    int32_t is_step, pad; /* 1: its limit is step_limit_ms, else call_limit_ms */
} mn_plugin_call;
#define MN_LIMIT_SETTING 0xffffffffu /* use the setting call_timeout or step_timeout */
#define MN_RUNTIME_JOURNAL 1u        /* opens the crash journal, for mn_plugin_crashed */
/* Opens plugins that are loaders only: models, tokenisers and chat templates work, no device is
 * listed, and mn_session_create is MN_NO_DEVICE. A plugin whose note states no kind, or states a
 * backend beside the loader, is not opened. */
#define MN_RUNTIME_NO_BACKENDS 2u
/* settings override every other source.
 *
 * A call into a plugin that lasts longer than 5 s is named by a warning in the log; a step after 5
 * s plus ten times its estimated time. `stuck` is called once for a call that lasts longer than its
 * limit. call_limit_ms: the limit of calls that prepare (entry, supports, compile, shutdown, ...).
 * step_limit_ms: the limit of calls that move or compute data (execute, wait, weights_put, ...),
 * plus a hundred times their estimated time, so that long steps are within it. 0, the default: no
 * limit. The time is checked every quarter of the shortest limit.
 *
 * stuck runs on a thread of the runtime with all signals blocked, while the call continues in
 * its thread. It may read *call until it returns, write messages, and end the process by _exit
 * (exit would run destructors of the plugin whose code runs). It must not call functions with
 * this runtime or with objects of it. After it returns, the library waits for the call without a
 * limit: the library never ends the wait and never exits. */
typedef struct {
    uint32_t size, n_settings;
    const mn_setting *settings;
    uint32_t flags; /* MN_RUNTIME_* */
    uint32_t call_limit_ms, step_limit_ms, pad;
    void (*stuck)(void *arg, const mn_plugin_call *call); /* may be NULL */
    void *arg;                                            /* of all callbacks here */
    /* messages of the library, one line without a newline; NULL = to stderr. The process has one
     * such function, not each runtime: messages go to the last runtime that was created with one,
     * until that runtime is freed. level: MN_LOG_*; any thread */
    void (*log)(void *arg, int32_t level, const char *message);
    /* while a session is created; done: share of weights imported, 0 to 1; a non-zero result
     * cancels (MN_CANCELLED). what names the work. Plugins that compile kernels, then or later,
     * report it here. Any thread of the library, one at a time; may be NULL */
    int32_t (*progress)(void *arg, float done, const char *what);
    /* Once, on a thread of the library, when a process of the group has ended or is silent; why
     * names it. Calls into the plugin may hang from then on: the program should end by _exit within
     * a second, as the other processes do. May be NULL: the device counts as lost */
    void (*rank_lost)(void *arg, const char *why);
} mn_runtime_params;
/* Reads the configuration, finds and opens plugins. A plugin that fails has a record with the
 * reason; the runtime works without it. A plugin in whose calls two processes crashed, by the crash
 * journal, is not opened until its file changes or the setting "device" names it; loaders and the
 * last CPU plugin are opened all the same. A plugin that wrote into memory which it was given as
 * const is not opened again, loaders and CPU plugins included.
 * NULL: params: no settings; out: MN_INVALID. */
MN_API mn_status mn_runtime_create(const mn_runtime_params *params, mn_runtime **out,
                                   mn_error *err);
/* NULL: rt: nothing. */
MN_API void mn_runtime_free(mn_runtime *rt);

/* Two functions for an application's own handlers of signals and exit; the library installs none.
 * Both are async-signal-safe and keep errno.
 *
 * Returns 1 and fills *out if the calling thread, else any other thread, is inside a call into a
 * plugin; waited_ms and limit_ms are 0 then. Else returns 0.
 * NULL: out: 0. */
MN_API int mn_plugin_call_now(mn_plugin_call *out);
/* Writes to the crash journal that this process crashes with signal_number (SIGSEGV, SIGBUS,
 * SIGILL, SIGFPE or SIGABRT; others are ignored) in the call that mn_plugin_call_now returns.
 * Needs a runtime with MN_RUNTIME_JOURNAL. Call it from the handler of that signal, if the
 * signal was sent by the kernel or by this process; then raise the signal again with the
 * previous action. 1: written. 0: no such call, no journal, or it cannot be written. */
MN_API int mn_plugin_crashed(int signal_number);
#define MN_CRASH_NOTED 1 /* written to the journal */
#define MN_CRASH_WROTE 2 /* the address lies in memory that plugins were given as const */
/* The same with the address of the fault (si_addr of a SIGSEGV); returns MN_CRASH_* bits. A plugin
 * that wrote into memory that it was given as const is not opened from the next runtime on.
 * NULL: address: as above. */
MN_API int mn_plugin_crashed_at(int signal_number, const void *address);

/* Lists: element i, or MN_END past the last. Strings are never NULL. */
/* origin: "default", "environment MINERVA_DEVICE", "FILE:LINE", "command line" */
typedef struct {
    const char *key, *value, *origin;
} mn_config_item;
/* NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_runtime_config(const mn_runtime *rt, uint32_t i, mn_config_item *out);
typedef struct {
    /* kind: "backend", "loader", ...; status: "ok" or why not */
    const char *path, *id, *kind, *status, *reason;
    uint32_t abi, pad;
    /* probe: the result of the probing process in a few words; "" = not probed */
    const char *version, *vendor, *probe;
} mn_plugin_item;
/* NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_runtime_plugin(const mn_runtime *rt, uint32_t i, mn_plugin_item *out);
typedef struct {
    /* name: for --device; kind: "cpu", "gpu", "npu" or "other"; reason: why it is not usable */
    const char *name, *plugin, *description, *uid, *kind, *reason;
    /* bytes; free: at the time of the call; 0 = unknown (some devices report it only while a
     * session uses them) */
    uint64_t mem_total, mem_free;
    /* retry_s: a device that was lost in this process is opened again by the first session that
     * needs it after so many seconds; 0 = now, or not lost */
    int32_t usable, retry_s;
} mn_device_item;
/* NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_runtime_device(const mn_runtime *rt, uint32_t i, mn_device_item *out);
/* The value of a setting from the source of the highest priority; "" if it is not set.
 * NULL: rt, key: "". */
MN_API const char *mn_runtime_setting(const mn_runtime *rt, const char *key);
/* NULL: rt: 0. */
MN_API uint32_t mn_runtime_threads(const mn_runtime *rt);

/* ---- names of models -------------------------------------------------------------------------
 * Wherever a function here takes the path of a model, it takes a name, too (docs/models.md): a
 * file or folder; "org/repo", "org/repo:Q4_K_M", "org/repo@revision", "hf:...", "hf.co/...", the
 * URL of a repository or of one of its files; an alias; the name of a model that the setting
 * model_path, the cache of Hugging Face, LM Studio or ollama has. Nothing is downloaded here:
 * `minerva pull` does. */
typedef struct mn_found mn_found; /* models that were found; immutable: any thread */
/* Its store has a chat template in a language that Minerva does not run: if the model's own file
 * has no template, chats need another one (mn_model_set_template). */
#define MN_FOUND_FOREIGN_TEMPLATE 1u
/* The strings live as long as the mn_found. */
typedef struct {
    uint32_t size, flags;            /* MN_FOUND_* */
    const char *name, *path, *place; /* by which it is found again; file or folder; "huggingface" */
    const char *remark;              /* what was chosen where the name left it open; "" = nothing */
    uint64_t bytes;                  /* of its files; of a path 0 */
    int64_t used;                    /* seconds since 1970 of the last access; 0 = unknown */
} mn_found_item;
/* Looks for the model that a name means. MN_OK also where it is not on this machine: then *out has
 * no item, and mn_found_missing says so. MN_BAD_INPUT: the name may mean several models, which the
 * message lists. MN_BAD_FILE: a manifest of ollama that cannot be used.
 * NULL: name: the default, as in mn_model_open; rt, out: MN_INVALID. */
MN_API mn_status mn_model_find(mn_runtime *rt, const char *name, mn_found **out, mn_error *err);
/* All models that have names on this machine, ordered by place and name.
 * NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_model_list(mn_runtime *rt, mn_found **out, mn_error *err);
/* The user's aliases: name and, as path, what each stands for. MN_BAD_INPUT, MN_IO_ERROR: the list
 * is there and cannot be read.
 * NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_model_aliases(mn_runtime *rt, mn_found **out, mn_error *err);
/* Lets alias stand for target, which need not be on this machine; target "" removes it (MN_END:
 * there is none). Names have letters, digits, '.', '_' and '-'.
 * NULL: rt, alias, target: MN_INVALID. */
MN_API mn_status mn_model_set_alias(mn_runtime *rt, const char *alias, const char *target,
                                    mn_error *err);
#define MN_REMOVE_ASK 1u /* removes nothing: bytes and errors alone */
/* Removes a model from the cache of Hugging Face: for org/repo everything; for org/repo:QUANT and
 * org/repo@REVISION those files of the model that no other snapshot uses, and with its last file
 * the repository. *bytes: bytes that become free. MN_UNSUPPORTED: the model belongs to another
 * program, is a path of the user's or lies behind a link outside of the cache; MN_IO_ERROR: it is
 * not here, or a folder cannot be read.
 * NULL: rt, name, bytes: MN_INVALID. */
MN_API mn_status mn_model_remove(mn_runtime *rt, const char *name, uint32_t flags, uint64_t *bytes,
                                 mn_error *err);
/* Element i of what was found; MN_END: there are no more.
 * NULL: f, out: MN_INVALID. */
MN_API mn_status mn_found_get(const mn_found *f, uint32_t i, mn_found_item *out);
/* Where the name was looked for and with what result, in order: lines of text.
 * NULL: f: "". */
MN_API const char *mn_found_explain(const mn_found *f);
/* Why nothing was found, and what to do: a sentence; "" = something was.
 * NULL: f: "". */
MN_API const char *mn_found_missing(const mn_found *f);
/* What the name says of a repository on a hub. */
typedef struct {
    uint32_t size, pad;
    const char *repo, *revision, *what; /* "org/repo"; "" = main; "Q4_K_M" or a file; "" */
    const char *cache, *folder; /* the cache of Hugging Face, and the repository's folder in it */
} mn_hub_name;
/* MN_END: the name is none of a repository.
 * NULL: f, out: MN_INVALID. */
MN_API mn_status mn_found_hub(const mn_found *f, mn_hub_name *out);
/* NULL: f: nothing. */
MN_API void mn_found_free(mn_found *f);
/* A file of a repository: "sub/name", and its size. */
typedef struct {
    mn_str name;
    uint64_t bytes;
} mn_hub_file;
typedef struct {
    uint32_t size, n_chosen;
    uint64_t bytes;   /* of the chosen files */
    char what[64];    /* "Q4_K_M"; "" = there is no choice */
    char remark[320]; /* "Q4_K_M of Q2_K, Q4_K_M, Q8_0"; "" = there was no choice */
} mn_hub_choice;
/* Which of n files make the model: sets chosen[n] to 1 or 0. what: as in mn_hub_name; "" = Q4_K_M,
 * else the largest that fits into memory, in bytes (0: this machine's). MN_END: they make no model,
 * or what names none of them. MN_BAD_INPUT: they may be several models; the message lists them.
 * NULL: rt, files, what, chosen, out: MN_INVALID. */
MN_API mn_status mn_hub_choose(mn_runtime *rt, const mn_hub_file *files, uint32_t n,
                               const char *what, uint64_t memory, uint8_t *chosen,
                               mn_hub_choice *out, mn_error *err);

/* ---- model ----------------------------------------------------------------------------------- */
typedef struct mn_model mn_model;
/* path: a GGUF file, a .safetensors file, a folder in Hugging Face layout, or a name; NULL = the
 * setting "model", else the demo model that is installed with the program. Maps the files and
 * checks them; weights are not read yet. MN_INVALID: path is empty.
 * NULL: path: as above; rt, out: MN_INVALID. */
MN_API mn_status mn_model_open(mn_runtime *rt, const char *path, mn_model **out, mn_error *err);
/* If another program changes a model's file while the model is open:
 *
 * Files are mapped, and weights are often used in the mapping. In this case size and time of last
 * modification are checked before the result of each step is returned, and when weights are
 * imported or converted. A change is MN_IO_ERROR that names the file: the step is discarded, and
 * every later step fails, too; free the model and open it again. A file that is replaced by rename
 * stays in use unchanged.
 *
 * Until the check, an access to a page that was removed from the file raises SIGBUS, which ends the
 * process unless a flag is set:
 *
 * MN_MODEL_READ   All files are read into memory of this process when the model is opened. Later
 *                 changes have no effect. No signal handler.
 * MN_MODEL_GUARD  While such models are open, the library has a handler for SIGBUS. At a fault
 *                 inside their mappings it maps pages of zeros in place of the rest of that
 *                 mapping, sets the mapping's flag and returns, without a jump: the interrupted
 *                 code continues. The flags are checked before a result is returned:
 *                 MN_IO_ERROR, as above. Every other SIGBUS (at another address, sent, failed
 *                 memory) is passed to the handler that was installed when the first such model
 *                 was opened, with its mask and its stack. Duties of the application: its
 *                 handlers for SIGBUS are installed before, or pass on signals that are not
 *                 theirs; threads that use a model do not block SIGBUS; alternate stacks of such
 *                 threads (sigaltstack) have sysconf(_SC_MINSIGSTKSZ) bytes, which the kernel
 *                 needs to save AVX-512 and AMX, and 16 KiB more; MINSIGSTKSZ or SIGSTKSZ are
 *                 too small. The handler is removed when the last such model is freed, unless
 *                 another one was installed over it: then the library must stay loaded.
 *
 * MN_MODEL_IGNORE_UNUSED  As the setting "ignore_unused": a model with tensors that its
 *                 architecture does not use (another kind of expert, an adapter, a norm) runs
 *                 without them, with a warning. It is another model then. Without the flag,
 *                 sessions, mn_model_explain and mn_model_convert are MN_UNSUPPORTED. */
#define MN_MODEL_READ 1u
#define MN_MODEL_GUARD 2u
#define MN_MODEL_IGNORE_UNUSED 4u
typedef struct {
    uint32_t size, flags; /* MN_MODEL_*; beside READ, GUARD has no effect */
} mn_model_params;
/* mn_model_open with parameters.
 * NULL: path: as above; params: no flags; rt, out: MN_INVALID. */
MN_API mn_status mn_model_open_with(mn_runtime *rt, const char *path, const mn_model_params *params,
                                    mn_model **out, mn_error *err);
/* NULL: m: nothing. */
MN_API void mn_model_free(mn_model *m);
typedef struct {
    uint32_t size, n_tensors;
    const char *path, *format, *arch, *name;
    uint64_t n_params, n_bytes; /* of the tensors */
    /* rows of the output matrix; positions trained; 0 = unknown */
    int64_t n_vocab, n_ctx_train;
    int32_t has_tokenizer, has_chat_template;
    /* is_encoder 1: rows see the whole text (BERT, XLM-R): the model embeds and generates
     * nothing; is_reranker 1: it scores pairs of texts (mn_session_score) */
    int32_t is_encoder, is_reranker;
    int64_t n_embd;       /* the length of an embedding, behind its layers; 0 = unknown */
    const char *known_as; /* the name that found it ("org/repo:Q4_K_M"); "" = a path was given */
    uint32_t found;       /* MN_FOUND_* */
    uint32_t draft_head;  /* 1: it has a head of its own that drafts (MN_SPECULATE_HEAD) */
} mn_model_info;
/* NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_get_info(const mn_model *m, mn_model_info *out);
/* NULL: m, key, value: MN_INVALID. */
MN_API mn_status mn_model_meta(const mn_model *m, uint32_t i, mn_str *key, mn_value *value);
/* file: base name of the file with its first byte; empty if the loader moved its codes in memory,
 * as it does with GPTQ's */
typedef struct {
    mn_str name, native;
    const char *dtype;
    int64_t dim[MN_MAX_DIM];
    uint32_t n_dim, pad;
    uint64_t bytes;
    mn_str file;
} mn_tensor_item;
/* dim[0] outermost
 * NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_tensor(const mn_model *m, uint32_t i, mn_tensor_item *out);

/* ---- adapters ---------------------------------------------------------------------------------
 * LoRA adapters (Hu et al. 2022): small matrices that change the products of a model, y += scale B
 * (A x). Files: a folder of Hugging Face's PEFT (adapter_config.json, adapter_model.safetensors),
 * or its weight file, or llama.cpp's GGUF form. Sequences choose one by name
 * (mn_sample_params.adapter); sequences of one step may have different adapters. An adapter can be
 * loaded and unloaded at any time, from any thread. */
#define MN_MAX_ADAPTER_NAME 128 /* bytes with the NUL */
#define MN_MAX_ADAPTER_FILES 64
/* Room for adapters in the model's sessions: memory on the devices, and work in each step. */
typedef struct {
    uint32_t size;
    uint32_t n_adapters; /* loaded at once; 0: as many as are loaded before the first session */
    /* the largest rank; an adapter of several files has the sum of their ranks. 0: the largest rank
     * loaded before the first session, with n_adapters at least 16 */
    uint32_t rank;
    uint32_t dtype; /* of the matrices on the devices: MN_F32 or MN_F16; 0 = F32 */
} mn_adapter_room;
/* Before the first session of the model, whose room stays; MN_INVALID after it. Without a call, and
 * without an adapter that was loaded before it, sessions have no room.
 * NULL: m, room: MN_INVALID. */
MN_API mn_status mn_model_set_adapter_room(mn_model *m, const mn_adapter_room *room, mn_error *err);
/* scale: a factor of all that the file adds, beside its own alpha; 1 as trained. */
typedef struct {
    const char *path;
    float scale;
    uint32_t pad;
} mn_adapter_source;
/* Reads n files, whose sum is one adapter, under a name. Its matrices go to a device with the
 * first sequence that uses it. MN_BAD_INPUT: the name is in use; the files are of another model, of
 * a higher rank than there is room for, or one adapter too many. MN_UNSUPPORTED: DoRA, trained
 * biases, embeddings or experts; no room. The message says which.
 * NULL: m, name, files: MN_INVALID. */
MN_API mn_status mn_model_load_adapter(mn_model *m, const char *name,
                                       const mn_adapter_source *files, uint32_t n, mn_error *err);
/* No new sequence finds it any more; sequences and requests that use it go on. MN_BAD_INPUT: no
 * adapter of this name.
 * NULL: m, name: MN_INVALID. */
MN_API mn_status mn_model_unload_adapter(mn_model *m, const char *name, mn_error *err);
typedef struct {
    uint32_t size, rank, n_files;
    uint32_t n_users; /* sequences and requests */
    char name[MN_MAX_ADAPTER_NAME];
    char path[512]; /* of its first file, cut where it is longer */
} mn_adapter_item;
/* The i-th loaded adapter; MN_END past the last. *out is filled up to its size.
 * NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_adapter(const mn_model *m, uint32_t i, mn_adapter_item *out);

/* A tensor of the file that mn_model_convert writes. */
typedef struct {
    mn_str name;
    const char *dtype, *stored; /* in the file; in the model: "" = the tensor is made here */
    int64_t dim[MN_MAX_DIM];    /* dim[0] outermost */
    uint32_t n_dim, pad;
    uint64_t bytes;
} mn_convert_item;

/* Writes the model as one GGUF file for any reader of GGUF: tensors and keys are converted to
 * GGUF's conventions; tokeniser and chat template are included. The file appears under its name
 * when it is complete; after an error or a cancel nothing is left. Uses all threads of the
 * runtime and about 16 MiB. MN_INVALID: an unknown type, or a member of types that is no
 * PATTERN=TYPE or applies to no tensor. MN_BAD_FILE: names the tensor that contains a NaN or an
 * infinity. MN_IO_ERROR: the file exists, or cannot be written. MN_CANCELLED: by progress. */
typedef struct {
    uint32_t size, flags;
    /* "q4_k_m", "f16", ...: docs/model-formats.md lists them; NULL = as stored, or the nearest
     * type of GGUF */
    const char *type;
    /* in bytes, on the calling thread; non-zero cancels. May be NULL */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    /* n_types texts "PATTERN=TYPE": a matrix whose name in the file has a match of the regular
     * expression (PCRE2) PATTERN gets that type, which is no mix; the first one that matches
     * counts. What is always f32 stays so. */
    const char *const *types;
    uint32_t n_types, pad;
    /* called with arg for each tensor in the order of the file before the first byte is written,
     * and at the end with the whole file's size and NULL. May be NULL */
    void (*item)(void *arg, const mn_convert_item *item, uint64_t total);
    /* an importance matrix of llama.cpp, in GGUF or its older form: the quantisers minimise squared
     * errors weighted by it. MN_BAD_FILE, MN_BAD_INPUT name the file and its entry. NULL = none */
    const char *imatrix;
    /* n_adapters files of adapters that become part of the matrices that they adapt; errors as of
     * mn_model_load_adapter */
    const mn_adapter_source *adapters;
    uint32_t n_adapters, pad2;
} mn_convert_params;
#define MN_CONVERT_REPLACE 1u /* an existing file is replaced */
#define MN_CONVERT_DRY_RUN 2u /* nothing is written; path is not used, but not NULL */
/* NULL: params: the defaults; m, path: MN_INVALID. */
MN_API mn_status mn_model_convert(const mn_model *m, const char *path,
                                  const mn_convert_params *params, mn_error *err);

/* ---- ranks: several processes as one machine -------------------------------------------------
 * mpirun, srun or Kubernetes start the same program several times; RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR and MASTER_PORT, or the variables of the launcher, state the rank of each process.
 * Every process opens the same model and calls mn_model_join. Rank 0 then runs as if it were alone;
 * its sessions use the devices of all ranks. The other ranks call mn_model_follow. */
/* The rank of this process and the number of ranks; rank 0 of 1 if no variables of a launcher are
 * set. MN_BAD_INPUT names variables that contradict each other or are incomplete.
 * NULL: rank, n: MN_INVALID. */
MN_API mn_status mn_rank_of_process(uint32_t *rank, uint32_t *n, mn_error *err);
/* Waits until all ranks have joined; *rank is the rank of this process. A process that is alone
 * gets 0 at once. Call it once per runtime, before any session. The setting "device" names the
 * plugin or the device of this process; LOCAL_RANK chooses among a plugin's devices. MN_TIMEOUT
 * names the ranks that are missing. MN_BAD_INPUT names what differs between ranks: token, version,
 * plugin or model. MN_NO_DEVICE: no plugin of this process forms groups over processes.
 * NULL: m, rank: MN_INVALID. */
MN_API mn_status mn_model_join(mn_model *m, uint32_t *rank, mn_error *err);
/* Ranks other than 0: computes with rank 0, and returns MN_OK when rank 0 leaves. MN_DEVICE_LOST: a
 * rank ended in another way (named). Rank 0, or without mn_model_join: MN_OK at once.
 * NULL: m: MN_INVALID. */
MN_API mn_status mn_model_follow(mn_model *m, mn_error *err);
/* Rank 0 calls it when no session is used any more: the other ranks then return from
 * mn_model_follow. mn_runtime_free does the same. Any thread.
 * NULL: m: nothing. */
MN_API void mn_model_leave(mn_model *m);

/* ---- text ------------------------------------------------------------------------------------ */
#define MN_TEXT_ADD_SPECIAL 1u   /* add the tokeniser's special tokens (BOS) */
#define MN_TEXT_PARSE_SPECIAL 2u /* special tokens written in the text become ids */
/* ids: *n of them, freed by mn_ids_free. MN_UNSUPPORTED: the model has no tokeniser. MN_BAD_INPUT:
 * not UTF-8.
 * NULL: m, text, ids, n: MN_INVALID. */
MN_API mn_status mn_model_tokenize(const mn_model *m, mn_str text, uint32_t flags, int32_t **ids,
                                   uint32_t *n, mn_error *err);
/* more: a JSON object of further keys of a message for the template ("tool_calls", "tool_call_id",
 * "name", "reasoning_content", "content" as a list of parts); its keys override role and content;
 * empty = none. */
typedef struct {
    mn_str role, content, more;
} mn_message;
/* Renders the messages and the header of the answer with the model's own chat template, and
 * tokenises the text; text of contents never becomes a special token. n_known: the first messages
 * that a sequence has already, at most n_messages: only the ids after them are returned; 0 for all.
 * NULL: m, messages, ids, n: MN_INVALID. */
MN_API mn_status mn_model_chat(const mn_model *m, const mn_message *messages, uint32_t n_messages,
                               uint32_t n_known, int32_t **ids, uint32_t *n, mn_error *err);
/* The text of mn_chat_params that has the error: mn_error.part. */
enum {
    MN_CHAT_PART_HISTORY = 1,
    MN_CHAT_PART_TOOLS = 2,
    MN_CHAT_PART_VARS = 3,
    MN_CHAT_PART_MESSAGES = 4,
    MN_CHAT_PART_TEMPLATE = 5 /* the source, the name, or an error while it is rendered */
};
/* As mn_model_chat, with all inputs of templates. The texts are JSON; an empty text counts as not
 * given. Strings in them are user data and never become special tokens. MN_INVALID names the text
 * and the place in it: "tools[1]: ...", and err->part is MN_CHAT_PART_*. MN_UNSUPPORTED with
 * n_known: the template renders the known messages differently now (some move the tools, or omit
 * earlier thinking): begin a new sequence with n_known 0. */
#define MN_CHAT_NAMED 1u /* chat_template is a name */
/* The ids end with the content of the last message, which the output continues; n_known is 0.
 * MN_UNSUPPORTED: the template does not write that content, or it is empty. */
#define MN_CHAT_CONTINUE 2u
#define MN_CHAT_NO_HEADER 4u /* the header of the answer is left out */
typedef struct {
    /* n_known: of messages; if not 0, history is known, too. flags: MN_CHAT_* */
    uint32_t size, n_messages, n_known, flags;
    const mn_message *messages;
    /* a list of messages before those: {"role", "content", and the keys of mn_message.more}; text
     * parts of a content are joined. Here and in more, arguments of calls may be an object or its
     * text, and content null: each template gets what it can render. */
    mn_str history;
    /* a list of tools: {"type": "function", "function": {"name", "description", "parameters": a
     * JSON schema}} */
    mn_str tools;
    /* an object: further variables of the template, such as "enable_thinking", "reasoning_effort",
     * "documents", "date_string" */
    mn_str vars;
    /* the source of a template to use instead of the model's own; or, with MN_CHAT_NAMED, the
     * name of another one in the model's files ("tool_use"), or of a common one: chatml, gemma,
     * llama2, llama3, mistral, phi3, zephyr. NULL: the model's own. It renders this chat only:
     * streams still expect the form of calls and thinking of the model's own (see
     * mn_model_set_template). MN_INVALID: it cannot be parsed, or no template has that name. */
    const char *chat_template;
} mn_chat_params;
/* NULL: m, params, ids, n: MN_INVALID. */
MN_API mn_status mn_model_chat_with(const mn_model *m, const mn_chat_params *params, int32_t **ids,
                                    uint32_t *n, mn_error *err);
/* Replaces the model's own chat template: for chats, and for the form of calls and thinking that
 * later streams and constraints expect. Call it before other threads use the model. chat_template:
 * its source, or with MN_CHAT_NAMED a name, as in mn_chat_params. MN_INVALID: it cannot be parsed,
 * or no template has that name; the model is unchanged.
 * NULL: m, chat_template: MN_INVALID. */
MN_API mn_status mn_model_set_template(mn_model *m, const char *chat_template, uint32_t flags,
                                       mn_error *err);
/* The source of the model's chat template: its own, or the one that replaced it. It lives until the
 * template is replaced or the model is freed. Empty: the model has none that can be used.
 * NULL: m: empty. */
MN_API mn_str mn_model_chat_template(const mn_model *m);
/* Renders a chat template. vars: a JSON object with "messages", "tools", "add_generation_prompt"
 * and all other variables of the template. source: the template, NUL-terminated; NULL = the model's
 * own (its "tool_use", if it has one and vars has tools). m: may be NULL with a source; if it has a
 * tokeniser, bos_token and eos_token are set from it unless vars has them. *text: *n bytes and a
 * NUL, freed by mn_json_free. MN_BAD_INPUT with the template's message if it raises an error
 * (raise_exception).
 * NULL: m: beside a source; source: as above; vars, text, n: MN_INVALID. */
MN_API mn_status mn_template_render(const mn_model *m, const char *source, mn_str vars, char **text,
                                    uint64_t *n, mn_error *err);
/* NULL: ids: nothing. */
MN_API void mn_ids_free(int32_t *ids);
/* 1 if id ends a generation (any of the model's end tokens).
 * NULL: m: 0. */
MN_API int mn_model_is_stop(const mn_model *m, int32_t id);

/* The bytes that one token stands for inside a text; they often are no whole UTF-8 character. For a
 * special token: its name. Empty: the vocabulary has no such id. For logprobs and vocabularies;
 * texts are made by mn_stream. The first call makes a table of all tokens.
 * NULL: m: empty. */
MN_API mn_str mn_model_token_text(const mn_model *m, int32_t id);
/* Its spelling in the vocabulary, whatever the model's format ("\xc4\xa0the", "<0x0A>").
 * NULL: m: empty. */
MN_API mn_str mn_model_token_piece(const mn_model *m, int32_t id);

/* ---- streams: ids of an output, one by one, as events ---------------------------------------- */
/* Converts ids to text, only whole UTF-8 characters; special tokens have no text. */
typedef struct mn_stream mn_stream;
#define MN_STREAM_CONTINUE 1u /* the ids follow a prompt: SentencePiece keeps the first space */
#define MN_STREAM_PLAIN 2u    /* all text is the answer: thinking and calls are not detected */
#define MN_STREAM_SPECIAL 4u  /* the text of a special token is its name; implies PLAIN */
/* The request has tools: calls that the model writes as text are detected, in the form that its
 * chat template or vocabulary says. Without it they are text of the answer. */
#define MN_STREAM_TOOLS 8u
/* At most one call: the output ends where a second call begins (mn_stream_stopped). */
#define MN_STREAM_ONE_CALL 16u
/* The output follows MN_CONSTRAINT_CALLS_ONLY: if a limit cuts it before a call is recognised, the
 * rest is not text. */
#define MN_STREAM_CALLS_ONLY 32u
/* What a piece of output is. */
enum {
    MN_EVENT_TEXT = 1, /* of the answer */
    /* not part of the answer. A model marks it with special tokens (<think>, the channels of
     * Harmony), or with the text <think> if it has no such token and its chat template contains
     * that text; the marks are never returned */
    MN_EVENT_THINKING = 2,
    MN_EVENT_CALL = 3,     /* a tool call begins; text: its whole name, "get_weather" */
    MN_EVENT_ARGUMENTS = 4 /* the next piece of its arguments */
};
/* call: the number of the call in MN_EVENT_CALL and MN_EVENT_ARGUMENTS, from 0; all events of one
 * call have the same. The arguments of one call, joined, are a JSON object: the model's text if
 * that is JSON, else that text mended and closed. They are incomplete only if the output was cut
 * inside them (mn_stream_cut). Text that begins like a call is kept back, at most 16 KiB, until it
 * is decided; if it is no call, it comes as MN_EVENT_TEXT, complete and in order. White space and
 * marks between calls and around them have no event. A call without a mark is detected only if it
 * names a tool of mn_stream_tools, also in thinking that never ends. Models that mark calls with
 * special tokens (Harmony) have these events without MN_STREAM_TOOLS, too; messages to other
 * recipients than functions are passed on as they are. The caller makes up ids of calls: 9 letters
 * and digits suit all templates. */
typedef struct {
    uint32_t kind, call; /* MN_EVENT_* */
    mn_str text;         /* not empty */
} mn_stream_event;
/* NULL: m, out: MN_INVALID. */
MN_API mn_status mn_stream_create(const mn_model *m, uint32_t flags, mn_stream **out,
                                  mn_error *err);
/* The ids in front of the output; their end may begin thinking. Call it before the first push.
 * NULL: st, ids: nothing. */
MN_API void mn_stream_prompt(mn_stream *st, const int32_t *ids, uint32_t n);
/* Strings that end the answer: the text before the first of them is returned. Text that may be the
 * beginning of one is kept back, across any number of ids, until it is decided. They are searched
 * for in MN_EVENT_TEXT only; thinking or a call between two pieces of it separates them. n strings,
 * at most 64 of 1 to 1024 bytes of UTF-8 each, copied; before the first push. MN_INVALID: other
 * strings, or after a push.
 * NULL: st, strings: MN_INVALID. */
MN_API mn_status mn_stream_stop(mn_stream *st, const mn_str *strings, uint32_t n, mn_error *err);
/* Strings of mn_stream_stop end the answer from the n-th id on; one that is complete earlier is
 * text like any other. Call it before the first push. MN_INVALID: after a push.
 * NULL: st: MN_INVALID. */
MN_API mn_status mn_stream_stop_from(mn_stream *st, uint32_t n, mn_error *err);
/* The tools of the request, as in mn_chat_params.tools, copied; before the first push. A model that
 * leaves out the marks calls them by name. Their schemas state the types of arguments that some
 * models write as tags without types (Qwen3-Coder): without a schema a value that is JSON counts as
 * JSON, everything else as a string.
 * MN_INVALID: no JSON list, or after a push.
 * NULL: st, tools: MN_INVALID. */
MN_API mn_status mn_stream_tools(mn_stream *st, mn_str tools, mn_error *err);
/* The next id of the output. events: *n of them in the order of the output, valid until the next
 * call; *n may be 0, and more than 1 where an id ends one part and begins another. With
 * MN_STREAM_PLAIN at most one.
 * NULL: st, events, n: MN_INVALID. */
MN_API mn_status mn_stream_push(mn_stream *st, int32_t id, const mn_stream_event **events,
                                uint32_t *n, mn_error *err);
/* To be called before mn_stream_finish if a limit cut the output (MN_FINISH_LENGTH): an open call
 * stays open, and the beginning of a call does not become text. NULL: st: nothing. */
MN_API void mn_stream_cut(mn_stream *st);
/* Ends the output: returns the events of the text that was kept back.
 * NULL: st, events, n: MN_INVALID. */
MN_API mn_status mn_stream_finish(mn_stream *st, const mn_stream_event **events, uint32_t *n,
                                  mn_error *err);
/* 0, or 1 + the index of the string of mn_stream_stop that was found, or -1: a second call began
 * (MN_STREAM_ONE_CALL). Further ids have no event then, and the sequence may be freed.
 * NULL: st: 0. */
MN_API int mn_stream_stopped(const mn_stream *st);
/* NULL: st: nothing. */
MN_API void mn_stream_free(mn_stream *st);

/* ---- constraints: output that follows a grammar ----------------------------------------------
 * A constraint says which texts an answer may be. It is made once and serves any number of
 * sequences and requests (mn_sample_params.constraint): an id is drawn only if the text can still
 * become complete behind it; the ids that remain keep the ratios of their probabilities. End tokens
 * are drawn only where the text is complete. Where nothing but the end can follow, one of them is
 * drawn, whatever mn_sample_params.ignore_stop says. If the prompt leaves thinking open, and in
 * Harmony, the output in front of the answer is free. An answer that ends with MN_FINISH_STOP by
 * one of the model's end tokens is complete; one that max_new or a stop string cuts short is not.
 *
 * A sequence with a constraint draws the same ids alone and in a batch, but its rows wait for the
 * host: steps of other sequences run ahead, its own do not. */
typedef struct mn_constraint mn_constraint;
#define MN_CONSTRAINT_JSON 1u /* any JSON object or array; source is not read */
/* A JSON Schema (2020-12). docs/generation.md lists the keywords; what cannot be enforced is
 * refused by name, annotations are ignored. */
#define MN_CONSTRAINT_SCHEMA 2u
/* A regular expression of the whole text, without back-references and look-around. */
#define MN_CONSTRAINT_REGEX 3u
#define MN_CONSTRAINT_GRAMMAR 4u /* GBNF, as llama.cpp documents it; begins at the rule "root" */
#define MN_CONSTRAINT_CHOICES 5u /* one of the n_choices texts */
/* Free text, and in it calls of tools in the form that the model writes them (mn_stream finds them
 * with MN_STREAM_TOOLS). source: a list of tools as mn_chat_params.tools. A call names one of these
 * tools, and its arguments are an object. The object follows the tool's "parameters" if the
 * function is "strict" or MN_CONSTRAINT_CALLS_ONLY is set. If the schema of a tool that is not
 * strict cannot be enforced, any object is accepted, with a warning. With Harmony there is one call
 * at most. MN_UNSUPPORTED: the form of calls of this model is not known. */
#define MN_CONSTRAINT_CALLS 6u
#define MN_CONSTRAINT_CALLS_ONLY 1u /* at least one call, and no other text */
#define MN_CONSTRAINT_ONE_CALL 2u   /* not more than one */
typedef struct {
    uint32_t size, kind; /* MN_CONSTRAINT_* */
    mn_str source;
    const mn_str *choices;
    uint32_t n_choices, flags; /* flags: of MN_CONSTRAINT_CALLS */
} mn_constraint_params;
/* Compiles; everything is copied. Any thread; takes up to some seconds for sources at their limits
 * (8 MiB, 200 nested groups), typically a few ms; the first constraint of a model also makes a trie
 * of the vocabulary. Free the constraint before m. MN_BAD_INPUT: the source is wrong, matches
 * nothing or is left-recursive; the message names the place by JSON pointer, line or offset.
 * MN_UNSUPPORTED: the source asks for something that cannot be enforced, or exceeds a limit; or the
 * model has no tokeniser. MN_INVALID: an unknown kind.
 * NULL: m, params, out: MN_INVALID. */
MN_API mn_status mn_constraint_create(mn_model *m, const mn_constraint_params *params,
                                      mn_constraint **out, mn_error *err);
/* Lines about what is enforced more strictly than written; "": none.
 * NULL: c: "". */
MN_API const char *mn_constraint_warnings(const mn_constraint *c);
/* Sequences and requests that use the constraint keep it until they end.
 * NULL: c: nothing. */
MN_API void mn_constraint_free(mn_constraint *c);

/* ---- session: sequences that share a device, its weights and its KV cache -------------------- */
typedef struct mn_session mn_session;
/* Speculative decoding: a sequence's next ids are guessed (drafts), and one step verifies up to
 * MN_MAX_DRAFT of them, a row each. Each row draws an id as without drafts. The first draft that
 * differs from the drawn id makes the rows behind it void. So drafts change no id, greedy or
 * sampled (in class exact; docs/generation.md): they only change the number of steps. The session
 * chooses the number of drafts for each sequence, by how many drafts held and by the measured cost
 * of steps; it makes none where drafts do not pay. Where the device cannot verify drafts (SAMPLE
 * before contract 3) the session runs without; mn_session_info.speculation says so.
 *
 * A function of the caller that guesses: it writes to `to` up to k ids that may follow ids[0, n),
 * and returns their number. The thread that steps calls it before a step. */
#define MN_MAX_DRAFT 16
typedef uint32_t (*mn_draft_fn)(void *arg, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k);
#define MN_SPECULATE_LOOKUP 1u /* what followed the last occurrence of the last ids */
#define MN_SPECULATE_ALWAYS 2u /* n_draft drafts also where they do not pay: to measure */
/* The draft model runs first; `guess` then finds its ids in `to` and may replace them. To measure
 * drafts that are right as often as the caller wants. */
#define MN_SPECULATE_REHEARSE 4u
/* The model's own draft head (mn_model_info.draft_head), in place of a draft model; MN_UNSUPPORTED:
 * it has none. */
#define MN_SPECULATE_HEAD 8u
typedef struct {
    /* MN_PRECISION_*; AUTO = the device's fastest for the weights' type */
    uint32_t size, precision;
    const char *device; /* "auto", "cpu", "cuda:0,cpu", ...; NULL = the setting "device" */
    /* positions per sequence; 0 = what the model was trained for, at most 4096 */
    uint32_t n_ctx;
    uint32_t n_seq; /* sequences at once; 0 = 1 */
    /* rows per step at most, and at least n_seq; 0 = the setting "batch", else 512; 2,048 where one
     * GPU has the whole model, is fast and has memory to spare (docs/negotiation.md); 64 with
     * MN_SESSION_NO_SAMPLING */
    uint32_t n_batch;
    uint32_t k_dtype, v_dtype; /* of cached keys, values: MN_F32, F16, Q8_0; 0 = by class */
    /* steps enqueued before the results of the first are read; 0 = chosen by the device (1 if
     * execute is synchronous). While requests run (mn_session_submit): at most one, or 5 ms */
    uint32_t run_ahead;
    uint32_t flags, pad; /* MN_SESSION_* */
    /* bytes of the KV cache; sequences take its pages as they grow. n_ctx is then a limit per
     * sequence, n_seq a limit of sequences at once. At least n_batch positions must fit, else
     * MN_OUT_OF_MEMORY states the bytes that they need. 0 = room for n_seq * n_ctx positions; if
     * memory suffices for n_ctx positions only, the free memory of the device less a reserve */
    uint64_t kv_bytes;
    uint32_t speculate; /* MN_SPECULATE_*; of several sources the first that has drafts gives them:
                           `guess`, the lookup, the draft model or head */
    uint32_t n_draft;   /* ids per draft at most; 0 = MN_MAX_DRAFT */
    /* a smaller model with the same vocabulary, opened in the same runtime; freed after the
     * session. It has sequences of its own, which the thread that steps runs. MN_BAD_INPUT names
     * the first token that differs */
    mn_model *draft;
    const char *draft_device; /* as device; NULL = as the session's */
    mn_draft_fn guess;        /* NULL = none */
    void *guess_arg;
    /* A folder for what the KV cache holds: full pages of prompts and answers are written there
     * while other work goes on, and come back when a prompt begins with their tokens and reading
     * them takes less time than computing them: later in this session, in another process or after
     * a restart. Results are the same as without. The folder is made if it is missing (mode 700),
     * belongs to the user alone, and may be shared by several processes and models. NULL = the
     * setting "cache_dir"; "" = none. MN_IO_ERROR: it cannot be used. With devices whose pages
     * cannot be moved (groups), MN_SESSION_NO_CACHE and sessions that draw no ids it is not used,
     * the first with a warning */
    const char *cache_dir;
    /* bytes of all files in it, the least recently used go first; 0 = the setting "cache_disk" */
    uint64_t cache_disk;
    /* Where weights are, of devices that lack memory (docs/negotiation.md). n_cpu_moe: the CPU of
     * the devices computes the routed experts of so many layers, from the first on, and no others;
     * 0 = the setting "n_cpu_moe", else as is fastest; MN_CPU_MOE_ALL,
     * MN_CPU_MOE_NONE. n_gpu_experts: of every layer with experts, so many of them, from the first
     * on, are on the device in front of the CPU, which computes the others at the same time;
     * 0 = the setting "n_gpu_experts", else as is fastest; MN_GPU_EXPERTS_NONE: layers are not
     * divided. MN_BAD_INPUT: both are given */
    uint32_t n_cpu_moe, n_gpu_experts;
    /* "PATTERN=DEVICE,...": a product whose matrices' names match the regular expression is on that
     * device, "cpu" or a name of mn_runtime_device. NULL = the setting "tensor_devices"; "" = none.
     * MN_INVALID: no regular expression. MN_BAD_INPUT: it matches nothing, or one of a product's
     * matrices alone */
    const char *tensor_devices;
    /* bytes that the session may use of each device that is no CPU; 0 = the setting
     * "device_memory", else what is free */
    uint64_t device_memory;
    /* the adapter of sequences and texts that name none; NULL = none. MN_BAD_INPUT: none of this
     * name is loaded. It is used as long as the session lives, also after it was unloaded */
    const char *adapter;
} mn_session_params;
#define MN_CPU_MOE_ALL 0xfffffffeu
#define MN_CPU_MOE_NONE 0xffffffffu
#define MN_GPU_EXPERTS_NONE 0xffffffffu
#define MN_SESSION_NO_SAMPLING 1u /* for mn_session_logits */
/* For mn_session_embed, which needs it: the graph ends with hidden states, no output matrix is
 * imported, and no sequence can be created. n_seq: texts per step; 0 = 64 of an encoder, else 4.
 * n_ctx: tokens per text; 0 as above. n_batch: rows per step; 0 = 512, of an encoder, which reads
 * a text in one step, at least n_ctx. Other sessions of an encoder (mn_model_info.is_encoder) are
 * MN_UNSUPPORTED. */
#define MN_SESSION_EMBED 2u
#define MN_SESSION_NO_CACHE 4u /* requests share no pages of equal prompts */
/* For mn_session_input_sums, which needs it: the graph is cut in front of each product, so that
 * what it reads can be read by the host. No sequence can be created. n_batch: rows per step; 0 =
 * 128. Needs additional memory of about the size of the inputs of all products for so many rows. */
#define MN_SESSION_INPUT_SUMS 8u
/* Negotiates a device, imports the weights, allocates the cache. MN_NO_DEVICE lists all devices
 * and why each cannot be used; MN_OUT_OF_MEMORY lists the needed amounts; MN_INVALID names
 * a precision or a KV type that does not exist.
 * NULL: params: the defaults; m, out: MN_INVALID. */
MN_API mn_status mn_session_create(mn_model *m, const mn_session_params *params, mn_session **out,
                                   mn_error *err);
/* The decision of mn_session_create with these parameters, as one JSON object: every plugin file
 * and device with its steps and outcome, the placement, or the error if no device can run the model
 * (the status is MN_OK then, too). Queries and measures devices, imports no weights.
 * docs/negotiation.md lists the fields. *json is freed by mn_json_free.
 * NULL: params: the defaults; m, json: MN_INVALID. */
MN_API mn_status mn_model_explain(mn_model *m, const mn_session_params *params, char **json,
                                  mn_error *err);
/* The model's graph of operations as one JSON object: symbols, KV groups, tensors with types and
 * shapes, nodes in order with their operands and attributes by name. docs/command.md names the
 * fields. *json is freed by mn_json_free.
 * NULL: m, json: MN_INVALID. */
MN_API mn_status mn_model_graph_json(mn_model *m, char **json, mn_error *err);
/* NULL: json: nothing. */
MN_API void mn_json_free(char *json);
/* NULL: s: nothing. */
MN_API void mn_session_free(mn_session *s);
typedef struct {
    uint32_t size, precision;
    const char *device, *description, *why; /* why: one sentence on the choice */
    /* n_batch: as chosen with the device; after a loss the next one may have another */
    uint32_t n_ctx, n_seq, n_batch, threads;
    uint64_t weight_bytes, kv_bytes, scratch_bytes; /* weights that sessions share count once */
    /* 1: a device that is slow (the oracle), because no other can be used */
    int32_t fallback, pad;
    /* what drafts come from: "", "lookup", "a draft model on cpu"; "off: " and the reason if drafts
     * were asked for and cannot be verified */
    const char *speculation;
} mn_session_info;
/* NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_get_info(const mn_session *s, mn_session_info *out);

/* Added to the logit of id before all else; -INFINITY: never drawn. MN_INVALID: NaN, +infinity. */
typedef struct {
    int32_t id;
    float bias;
} mn_logit_bias;
#define MN_MAX_BIAS 320
#define MN_MAX_DRY_BREAKERS 64
typedef struct {
    uint32_t size, max_new; /* maximum of generated ids; 0 = until the context is full */
    uint64_t seed;
    float temp;    /* <= 0: the arg max */
    int32_t top_k; /* 0 = off; see docs/ops.md, SAMPLE, for the order of filters */
    float top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    int32_t penalty_last_n; /* the newest tokens that penalties count; < 0: all tokens */
    int32_t ignore_stop;    /* 1: end tokens do not end the sequence */
    uint32_t n_stop;        /* further stop ids, at most MN_MAX_STOP with the model's own */
    const int32_t *stop;
    uint32_t min_new; /* stop ids are not drawn before so many ids are generated */
    uint32_t n_bias;  /* at most MN_MAX_BIAS, each id once */
    const mn_logit_bias *bias;
    uint32_t flags, pad; /* MN_SAMPLE_* */
    /* the texts that the answer may be; NULL: any text. Held until the sequence is freed or
     * extended, or the request has ended. Where nothing but the end can follow, the constraint
     * overrides min_new. MN_INVALID: the constraint of another model. MN_UNSUPPORTED: the model has
     * no end token, and stop names none; the vocabulary cannot spell such a text */
    mn_constraint *constraint;
    /* Further samplers, off where 0; formulas: docs/ops.md, SAMPLE. MN_UNSUPPORTED: no device of
     * the session's list has a plugin with contract 4 of SAMPLE. */
    /* the order, by names with ';' between; a sampler that is not named does not run. NULL: as in
     * penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature */
    const char *samplers;
    /* DRY. base 0: 1.75; allowed_length 0: 2; last_n: the newest tokens that are searched, <= 0:
     * all */
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_last_n;
    /* texts at which matches end: every token that contains such a text; if no token does, the last
     * token of its spelling. NULL: "\n", ":", "\"", "*" */
    const char *const *dry_breakers;
    uint32_t n_dry_breakers; /* at most MN_MAX_DRY_BREAKERS */
    float top_n_sigma;
    float typical_p;                         /* 1: off */
    float xtc_probability, xtc_threshold;    /* threshold 0: 0.1; above 0.5: off */
    float dynatemp_range, dynatemp_exponent; /* exponent 0: 1 */
    int32_t mirostat;                        /* 2: mirostat 2.0, instead of other filters */
    float mirostat_tau, mirostat_eta;        /* 0: 5 and 0.1 */
    /* of mn_model_load_adapter; NULL = the session's, "" = none. A sequence keeps the adapter that
     * it was created with: extended with another one it is MN_INVALID. Drafts of a draft model are
     * made without. MN_BAD_INPUT: none of this name is loaded */
    const char *adapter;
} mn_sample_params; /* MN_INVALID: NaN and infinity, probabilities outside 0 to 1, numbers below 0
                       other than temp, penalties and last_n. MN_BAD_INPUT: an unknown sampler */
/* The prompt is computed and nothing is drawn; max_new is not read. The sequence ends without an
 * id, so that mn_session_step does not return the sequence. */
#define MN_SAMPLE_PREFILL_ONLY 1u

/* The model's recommended sampling parameters (generation_config.json, general.sampling.*), else
 * temp 0.7, top_p 0.95, top_k off; all others 0; a repetition penalty counts all tokens
 * (penalty_last_n -1) unless the model states a number. *out is filled up to its size.
 * NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_sample_defaults(const mn_model *m, mn_sample_params *out);

/* Creates a sequence with a prompt of n >= 1 ids. MN_BAD_INPUT: an id outside the vocabulary, or
 * the prompt is longer than the context (names both numbers). MN_OUT_OF_MEMORY: all n_seq sequences
 * are in use, or the cache is full. params NULL: greedy.
 * NULL: params: greedy; s, ids, seq: MN_INVALID. */
MN_API mn_status mn_seq_create(mn_session *s, const int32_t *ids, uint32_t n,
                               const mn_sample_params *params, int32_t *seq, mn_error *err);
/* Appends ids to a finished sequence, which runs again; its cache is kept.
 * NULL: params: greedy; s, ids: MN_INVALID. */
MN_API mn_status mn_seq_extend(mn_session *s, int32_t seq, const int32_t *ids, uint32_t n,
                               const mn_sample_params *params, mn_error *err);
/* A copy of a finished sequence up to its last stored token, sharing its full cache pages.
 * NULL: s, out: MN_INVALID. */
MN_API mn_status mn_seq_fork(mn_session *s, int32_t seq, int32_t *out, mn_error *err);
/* The same with the first n_keep ids only; more than the sequence has is MN_INVALID. Extend the
 * copy before it runs. With all ids, the last is computed again if it was not stored.
 * NULL: s, out: MN_INVALID. */
MN_API mn_status mn_seq_fork_at(mn_session *s, int32_t seq, uint32_t n_keep, int32_t *out,
                                mn_error *err);
/* Drops all but the first n_keep >= 1 ids of a finished sequence; more than it has is MN_INVALID.
 * NULL: s: MN_INVALID. */
MN_API mn_status mn_seq_truncate(mn_session *s, int32_t seq, uint32_t n_keep, mn_error *err);
/* NULL: s: nothing. */
MN_API void mn_seq_free(mn_session *s, int32_t seq);
/* NULL: s: 0. */
MN_API uint32_t mn_seq_length(const mn_session *s, int32_t seq); /* prompt and generated ids */

#define MN_FINISH_NONE 0
#define MN_FINISH_STOP 1    /* id is a stop token */
#define MN_FINISH_LENGTH 2  /* max_new reached, or the context is full */
#define MN_FINISH_FAILED 3  /* NaN or no finite logit; id is -1 */
#define MN_FINISH_PROMPT 4  /* of requests: MN_SAMPLE_PREFILL_ONLY, the prompt is computed */
#define MN_FINISH_ABORTED 5 /* of requests: mn_session_abort */
typedef struct {
    int32_t seq, id, finish, pad;
} mn_token;
/* Runs until at least one id is generated, and returns all new ids, at most cap (>= n_seq). *n = 0:
 * no sequence is running. Where drafts held, one sequence has several ids, in order; the next call
 * returns ids for which out has no room. MN_CANCELLED after mn_session_cancel. Sequences of any
 * state are batched into one step.
 *
 * MN_BAD_FILE: a logit of a sequence is NaN, or none is finite; err names file, sequence and
 * position. NaN and infinity of a damaged weight propagate through all operations to here and never
 * become text. Only sequences with such logits have ended: out and *n are filled as usual, with
 * finish MN_FINISH_FAILED for them; the next call continues the others.
 *
 * NULL: s, out, n: MN_INVALID. */
MN_API mn_status mn_session_step(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n,
                                 mn_error *err);
/* Makes the current or next mn_session_step return MN_CANCELLED. Any thread, also a signal
 * handler.
 * NULL: s: nothing. */
MN_API void mn_session_cancel(mn_session *s);

/* ---- requests: sequences that a server runs ---------------------------------------------------
 * Any thread submits and aborts requests; one thread calls mn_session_next in a loop and passes the
 * events on. Requests beyond n_seq, or beyond the pages of the KV cache, wait in order of priority
 * and arrival. When running sequences need more pages than there are, the youngest one of the
 * lowest priority is preempted: its pages are freed, and it is computed again from its tokens when
 * there is room. A preempted request draws the same ids, and its events show no gap. Requests with
 * equal beginnings share the pages of these tokens, unless MN_SESSION_NO_CACHE; pages are kept
 * after a request ends until the room is needed, least recently used first.
 *
 * A session either has requests or running sequences of mn_seq_create: mn_session_step,
 * mn_session_logits and mn_generate are MN_INVALID while requests are in it, and mn_session_next
 * is while a sequence of mn_seq_create runs. */
#define MN_PRIORITY_NORMAL 0u
#define MN_PRIORITY_LOW 1u /* waits for, and gives way to, all others */
#define MN_MAX_TOP_LOGPROBS 20
#define MN_MAX_CHOICES 128
typedef struct {
    uint32_t size, flags;           /* MN_SUBMIT_* */
    const mn_sample_params *sample; /* NULL: greedy */
    const int32_t *ids;             /* the prompt, then the n_drawn ids that were drawn before */
    uint32_t n_ids;
    /* how many of the last ids were drawn in an earlier life of this request: max_new, min_new and
     * the generator continue behind them, so that the same ids follow as without the interruption.
     * Needs n_choices <= 1 */
    uint32_t n_drawn;
    uint32_t n_choices; /* answers to one prompt; choice i has the seed sample.seed + i. 0 = 1 */
    /* with MN_SUBMIT_LOGPROBS: how many of the most likely ids; at most MN_MAX_TOP_LOGPROBS */
    uint32_t n_top;
    uint32_t priority, pad; /* MN_PRIORITY_* */
    /* requests with different numbers share no pages: cached prompts of one user cannot be timed
     * by another */
    uint64_t cache_salt;
    void *user; /* in every event */
} mn_request_params;
#define MN_SUBMIT_LOGPROBS 1u        /* of each drawn id */
#define MN_SUBMIT_PROMPT_LOGPROBS 2u /* of each id of the prompt; no cached pages are used */
#define MN_SUBMIT_NO_CACHE 4u        /* shares no pages */
#define MN_SUBMIT_PROGRESS 8u        /* MN_REQUEST_PROGRESS while the prompt is computed */
/* Queues a request; everything is copied. The events of id follow from mn_session_next, at once.
 * Any thread. MN_BAD_INPUT: an id outside the vocabulary; the prompt is longer than the context, or
 * it and max_new do not fit in the KV cache (names both numbers; max_new 0 = as many as fit). If no
 * device can do what flags or sample ask for, the request ends with MN_FINISH_FAILED, and message
 * names the device.
 * NULL: s, params, id: MN_INVALID. */
MN_API mn_status mn_session_submit(mn_session *s, const mn_request_params *params, uint64_t *id,
                                   mn_error *err);
/* Ends all choices of a request; each choice that runs or waits gets its MN_REQUEST_FINISH. An
 * unknown id does nothing. Any thread.
 * NULL: s: nothing. */
MN_API void mn_session_abort(mn_session *s, uint64_t id);

#define MN_REQUEST_PROMPT 1u /* of choice 0, before its first token: the prompt is computed */
#define MN_REQUEST_TOKEN 2u  /* an id was drawn */
/* The last event of a choice. Their order: PROGRESS... [PROMPT] TOKEN... FINISH. */
#define MN_REQUEST_FINISH 3u
/* Of choice 0, with MN_SUBMIT_PROGRESS, if the prompt needs several steps: after a step, n_computed
 * has grown. */
#define MN_REQUEST_PROGRESS 4u
typedef struct {
    uint64_t request; /* of mn_session_submit */
    void *user;
    uint32_t kind, choice; /* MN_REQUEST_* */
    /* TOKEN: the id; if finish is not 0, it is the last id, and with MN_FINISH_STOP no part of the
     * text. FINISH: -1, and MN_FINISH_*. PROMPT: -1, 0 */
    int32_t id, finish;
    uint32_t n_prompt; /* ids of the prompt, without the n_drawn ids */
    uint32_t n_cached; /* ids of n_prompt and n_drawn whose pages were shared, not computed */
    uint32_t n_drawn;  /* ids drawn so far, with this one and the request's n_drawn */
    /* with MN_SUBMIT_LOGPROBS, TOKEN: natural logarithms of probabilities at temperature 1, after
     * penalties and bias: of id, and of the n_top most likely ids, best first */
    uint32_t n_top;
    const int32_t *top_ids;
    const float *top_logprobs;
    float logprob; /* NaN: none was asked for */
    uint32_t pad;
    /* PROMPT with MN_SUBMIT_PROMPT_LOGPROBS: [n_ids] and [n_ids][n_top], of the logits as they are;
     * the first is NaN (ids -1): nothing precedes it. Else NULL */
    const float *prompt_logprobs, *prompt_top_logprobs;
    const int32_t *prompt_top_ids;
    /* FINISH: submit to the first row; from there to the first id; submit to the first id; the
     * first id to the last. PROMPT: the first of these. 0: did not happen */
    uint64_t queued_ns, prefill_ns, first_ns, decode_ns;
    uint32_t n_preempted; /* FINISH: how often */
    mn_status status;     /* FINISH with MN_FINISH_FAILED: why; else 0 */
    const char *message;  /* the same in words; else NULL */
    /* FINISH: drafts that were verified, drafts that held, steps that drew ids */
    uint64_t n_drafted, n_accepted, n_steps;
    uint64_t n_forced; /* FINISH: ids that a constraint left no choice about, without own steps */
    uint32_t n_computed, pad3; /* PROGRESS: ids of the prompt that are computed or were cached */
} mn_request_event;
/* Filled by mn_session_next. Event i lies i * stride bytes behind events; the library owns the
 * array and what it points to: valid until the next call. */
typedef struct {
    uint32_t size, stride, n, pad;
    const mn_request_event *events;
} mn_request_events;
/* Runs steps until there is at least one event, or timeout_ms have passed; sleeps while there is
 * nothing to do. A step that has begun is not interrupted: it may take longer than the timeout.
 * Wakes up for mn_session_submit, mn_session_abort, mn_session_wake and mn_session_cancel.
 *
 * Errors: a device was lost and no other can continue; the model's files have changed; out of
 * memory. *out may have events all the same; requests remain, and the next call tries again. A NaN
 * in the logits (MN_BAD_FILE elsewhere) ends its request alone: MN_FINISH_FAILED.
 * NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_next(mn_session *s, uint32_t timeout_ms, mn_request_events *out,
                                 mn_error *err);
/* Makes the current or next mn_session_next return, with whatever events there are. Any thread,
 * not a signal handler.
 * NULL: s: nothing. */
MN_API void mn_session_wake(mn_session *s);

/* The state of a session with requests, for admission, /health and /metrics. Counts are since the
 * session was created. */
typedef struct {
    uint32_t size, n_running, n_waiting, n_prefilling; /* choices; prefilling are running, too */
    /* of the KV group with the least room; used: by sequences; cached: for later requests only */
    uint64_t pages_total, pages_used, pages_cached, page_tokens;
    uint64_t cache_queries, cache_hits; /* tokens looked for, and found */
    uint64_t n_preempted;
    uint64_t n_finished[6]; /* choices, by MN_FINISH_* */
    uint64_t n_prompt, n_drawn, n_steps;
    uint64_t usual_step_ns; /* time of a step that only draws; 0 = none so far */
    uint64_t queued_tokens; /* of prompts that wait or are not computed yet */
    /* since mn_session_next was called, returned, or completed a step; UINT64_MAX: never called */
    uint64_t beat_ms;
    uint64_t n_drafted, n_accepted, n_verifying; /* as in mn_session_stats */
    uint64_t n_forced;                           /* likewise */
    /* processor time for constraints, of the thread that steps: all steps; the longest step */
    uint64_t forms_ns, forms_most_ns;
    /* of cache_dir: tokens whose pages came from files (cache_hits has them, too); bytes read and
     * written; files that were damaged or of something else */
    uint64_t disk_hits, disk_read, disk_written, disk_damaged;
    /* states of sequences (models whose layers remember one) in host memory, as the device has no
     * room for them: now; how many went there, and how many came back */
    uint64_t states_host, states_out, states_back;
} mn_session_load;
/* Any thread; does not wait for a step.
 * NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_get_load(const mn_session *s, mn_session_load *out);
/* Waits until the full pages of all sequences and requests are in files of cache_dir, at most
 * timeout_ms (MN_TIMEOUT: some are not). mn_session_free does the same for 10 s at most. Without a
 * cache_dir there is nothing to wait for. Thread as mn_session_step. MN_INVALID: a sequence or
 * request runs.
 * NULL: s: MN_INVALID. */
MN_API mn_status mn_session_keep(mn_session *s, uint32_t timeout_ms, mn_error *err);

/* Logits of every position of a text: rows is called with consecutive blocks [n_rows, n_vocab] of
 * f32, first = position of the block's first row; a status other than MN_OK ends it. No sequence is
 * left. The logits are the model's, NaN and infinity included. */
typedef mn_status (*mn_logits_fn)(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                                  const float *rows);
/* NULL: arg: passed on; s, ids, rows: MN_INVALID. */
MN_API mn_status mn_session_logits(mn_session *s, const int32_t *ids, uint32_t n, mn_logits_fn rows,
                                   void *arg, mn_error *err);

/* ---- importance matrices: how large the inputs of each matrix are ---------------------------- */
/* Runs the text alone and adds the squares of what each product with a weight of the model reads to
 * the sums of that weight: a sum per column, of each expert in turn. Needs MN_SESSION_INPUT_SUMS;
 * thread as mn_session_step. n: at most n_ctx. MN_BAD_FILE: a sum is not finite; it names the
 * weight. MN_UNSUPPORTED: layers share keys and values, so that the graph cannot be cut. After an
 * error the sums are of no use.
 * NULL: s, ids: MN_INVALID. */
MN_API mn_status mn_session_input_sums(mn_session *s, const int32_t *ids, uint32_t n,
                                       mn_error *err);
#define MN_IMATRIX_REPLACE 1u /* a file that is there is replaced */
#define MN_IMATRIX_OLD 2u     /* the form that llama.cpp had before GGUF */
#define MN_IMATRIX_OUTPUT 4u  /* with the output matrix, and others that are in no layer */
/* The sums so far as an importance matrix of llama.cpp, which mn_model_convert, too, weighs errors
 * by. dataset: what the texts are called in the file. The file appears when it is complete.
 * MN_INVALID: there are no sums. MN_IO_ERROR names the path.
 * NULL: dataset: ""; s, path: MN_INVALID. */
MN_API mn_status mn_session_write_imatrix(mn_session *s, const char *path, const char *dataset,
                                          uint32_t flags, mn_error *err);

/* ---- embeddings: one vector per text --------------------------------------------------------- */
/* How the hidden states of a text, one per token, behind the last norm, become its vector. */
#define MN_POOLING_DEFAULT                                                                         \
    0u                     /* as the model's files say; else MEAN for an encoder, LAST for others */
#define MN_POOLING_MEAN 1u /* of all tokens, special ones included */
#define MN_POOLING_CLS 2u  /* of the first token */
#define MN_POOLING_LAST 3u /* of the last token */
#define MN_NORM_DEFAULT 0u /* as the model's files say; else L2 */
#define MN_NORM_L2 1u      /* the vector is divided by its Euclidean length; of 0: stays 0 */
#define MN_NORM_NONE 2u
typedef struct {
    uint32_t size, pooling, norm; /* MN_POOLING_*, MN_NORM_* */
    /* numbers per vector: the first n_dim, cut before the norm (Matryoshka models); 0 = all, at
     * most mn_model_info.n_embd */
    uint32_t n_dim;
} mn_embed_params;
/* The tokens of one text: of mn_model_tokenize with MN_TEXT_ADD_SPECIAL, since encoders are trained
 * with their first and last token. */
typedef struct {
    const int32_t *ids;
    uint32_t n;
    uint32_t n_first; /* of a pair: ids before the second text; mn_session_embed does not read it */
} mn_embed_text;
/* Embeds n_texts texts in as many steps as they need, several texts per step, and waits for them.
 * Needs MN_SESSION_EMBED; thread as mn_session_step. out: [n_texts, n_dim] f32, in the order of the
 * texts; cap: how many floats it has room for. A vector does not depend on other texts, except for
 * rounding in the class. On an error out may be written in part.
 *
 * MN_BAD_INPUT names the text (mn_error.part: its index + 1) that is empty, has an id outside the
 * vocabulary, or is longer than n_ctx, or for an encoder than n_batch (both numbers); nothing is
 * computed then. Texts are never cut. MN_BAD_FILE: a hidden state has NaN or infinity. MN_CANCELLED
 * after mn_session_cancel. MN_UNSUPPORTED: the model's files ask for a pooling or for layers behind
 * it that Minerva does not have, and params name no pooling. MN_INVALID: a session without
 * MN_SESSION_EMBED, cap below n_texts * n_dim, n_dim above n_embd, an unknown pooling or norm.
 * NULL: params: the defaults; s, texts, out: MN_INVALID. */
MN_API mn_status mn_session_embed(mn_session *s, const mn_embed_text *texts, uint32_t n_texts,
                                  const mn_embed_params *params, float *out, uint64_t cap,
                                  mn_error *err);
/* The meaning of MN_POOLING_DEFAULT and MN_NORM_DEFAULT for this model. MN_UNSUPPORTED as for
 * mn_session_embed.
 * NULL: pooling, norm: not asked for; m: MN_INVALID. */
MN_API mn_status mn_model_embed_defaults(const mn_model *m, uint32_t *pooling, uint32_t *norm,
                                         mn_error *err);

/* ---- scores: how well a text answers a query ------------------------------------------------- */
/* The tokens of a query and a text as a reranker was trained on them: a pair of its tokeniser
 * (BERT, XLM-R), or its prompt (Qwen3-Reranker). What looks like a special token in either text
 * stays text. instruction: what the query is for, in the words of the prompt's language; empty: the
 * default of the model; only prompts have one. ids: *n of them, freed by mn_ids_free; *n_first: for
 * mn_embed_text.
 *
 * MN_UNSUPPORTED: the model has no head (mn_model_info.is_reranker: it has one with one label),
 * no tokeniser, or no form for pairs; or an instruction for a model without one. MN_BAD_INPUT: not
 * UTF-8.
 * NULL: m, query, text, instruction, ids, n, n_first: MN_INVALID. */
MN_API mn_status mn_model_pair(const mn_model *m, mn_str query, mn_str text, mn_str instruction,
                               int32_t **ids, uint32_t *n, uint32_t *n_first, mn_error *err);
#define MN_SCORE_LOGIT 1u /* the head's number itself; else its sigmoid, from 0 to 1 */
/* Of a head with several labels (one that classifies) the number of label i; without MN_SCORE_LOGIT
 * its probability among them, their softmax. */
#define MN_SCORE_LABEL(i) (((uint32_t)(i) + 1u) << 8)
/* The name of label i of a head with several; empty where the files have none. It is the model's.
 * MN_END: there are no more; the head of a reranker has none.
 * NULL: m, name: MN_INVALID. */
MN_API mn_status mn_model_label(const mn_model *m, uint32_t i, mn_str *name);
/* Scores n_pairs pairs as mn_session_embed embeds texts: needs MN_SESSION_EMBED, same thread, same
 * errors. out: [n_pairs] f32, in the order of the pairs; cap: how many floats it has room for.
 * flags: MN_SCORE_*. A model whose head has two labels "yes" and "no" scores by the difference of
 * their logits, whose sigmoid is the probability of yes.
 *
 * MN_UNSUPPORTED: the model is no reranker; its head has several labels, and flags name none.
 * MN_INVALID: a label that the head does not have.
 * NULL: s, pairs, out: MN_INVALID. */
MN_API mn_status mn_session_score(mn_session *s, const mn_embed_text *pairs, uint32_t n_pairs,
                                  uint32_t flags, float *out, uint64_t cap, mn_error *err);

/* Times in s, and counts, since the session was created. */
typedef struct {
    uint32_t size, pad;
    double load_s; /* mn_session_create: weights imported, cache allocated */
    uint64_t n_prompt, n_drawn, n_steps;
    /* prompt_s: time of steps with prompt rows; decode_s: of steps without */
    double prompt_s, decode_s;
    /* time to build and enqueue steps; on a synchronous device it includes their computation */
    double host_s;
    /* rows that were computed again after a device was lost; no count above includes them */
    uint64_t n_restored;
    /* time to choose another device, plus the time of steps with such rows */
    double restore_s;
    /* drafts that were verified, drafts that held, steps that verified some; draft_s: time to make
     * drafts, which no time above includes */
    uint64_t n_drafted, n_accepted, n_verifying;
    double draft_s;
    uint64_t n_forced; /* ids that constraints left no choice about; they took no step each */
} mn_session_stats;
/* NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_get_stats(const mn_session *s, mn_session_stats *out);

/* The time of each unit of a step: the units that its devices execute, in order, measured by
 * mn.profile/1 of their plugins (plugin.h). The library owns the structs: valid during the call. */
typedef struct {
    const char *device; /* the name for --device */
    const char *op;     /* of the node that names the unit: "LINEAR" */
    char name[40];      /* by the plugin: "NORM+LINEAR+GLU" */
    /* node: index in the graph (mn_model_graph_json); n_nodes: nodes that the unit fuses; layer -1:
     * before or after the layers */
    uint32_t node, n_nodes;
    int32_t layer;
    uint32_t pad;
    uint64_t time_ns;     /* from the end of the unit before to the end of this one */
    uint64_t bytes, flop; /* computed: read and written; 2 per multiply-add. 0 = unknown */
} mn_step_unit;
typedef struct {
    uint32_t size, unit_stride; /* unit i lies i * unit_stride bytes behind units */
    uint32_t n_units, n_rows;
    uint32_t n_prompt, n_outputs; /* rows of prompts, and rows with logits */
    /* the whole step, measured by the host: units, the time between them, and transfers */
    uint64_t time_ns;
    const mn_step_unit *units;
} mn_step_profile;
/* Called on the thread that steps; it must not call functions of the session. */
typedef void (*mn_profile_fn)(void *arg, const mn_step_profile *step);
/* From now on each new step runs unit by unit, and fn is called when it is complete; the results of
 * the step are the same. Steps do not run ahead, and a device may execute units one after another
 * that it overlaps otherwise: do not measure rates with it. MN_UNSUPPORTED names the device whose
 * plugin has no mn.profile/1; so does a step, if such a device replaces a lost one.
 * NULL: fn: no more profiles; arg: passed on; s: MN_INVALID. */
MN_API mn_status mn_session_profile(mn_session *s, mn_profile_fn fn, void *arg, mn_error *err);

/* One answer, in one call: the prompt as a user turn if the model has a chat template, else as
 * plain text. print is called with pieces of the answer's text; if it returns non-zero, the answer
 * ends there and mn_generate returns MN_CANCELLED. params NULL: the model's defaults with at most
 * 512 ids.
 * NULL: params: as above; arg: passed on; s, prompt, print: MN_INVALID. */
MN_API mn_status mn_generate(mn_session *s, const char *prompt, const mn_sample_params *params,
                             int (*print)(void *arg, const char *text, uint64_t n), void *arg,
                             mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
