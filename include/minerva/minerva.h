/* minerva.h -- run transformer language models from C. The application's side; plugins use plugin.h
 * alone.
 *
 *   mn_runtime *rt; mn_model *model; mn_session *s; int32_t seq;
 *   mn_runtime_create(NULL, &rt, &err); mn_model_open(rt, NULL, &model, &err);
 *   mn_session_create(model, NULL, &s, &err); mn_generate(s, "Tell me a story.", NULL, print, NULL,
 *   &err);
 *
 * Errors: functions that can fail return mn_status (plugin.h: 0 = ok, the class says what to do)
 * and fill *err, which may be NULL; initialise it with MN_ERROR. Nothing here exits, aborts or
 * prints, but for warnings through the log. Threads: a runtime and a model are used from any
 * thread; a session from one thread at a time (mn_session_cancel: any). Lifetimes: session before
 * model before runtime. Strings that are handed out live as long as what they were asked of.
 * Structs that grow begin with `size`: set it to sizeof; zero elsewhere means "the default". A size
 * below the first release's is MN_INVALID, in what is given and in what is to be filled, which then
 * has the size that was filled; one beyond ours is fine. Flags that are not known are MN_INVALID.
 *
 * fork: a child has none of the threads and drivers of its parent's runtimes. There, of what such a
 * runtime made, mn_runtime_device and every function that opens, computes or converts is MN_INVALID,
 * and the functions that free runtimes, models, sessions and sequences do nothing: the memory stays.
 * What only reads goes on: lists, info, tokenising, chat templates, streams. The child may create a
 * runtime of its own, with models and sessions of its own, unless another thread of the parent was
 * inside mn_runtime_create or dlopen at that moment; devices whose driver was used before the fork
 * (CUDA's) are then unusable, CPUs are not. The parent notices nothing.
 *
 * "NULL:" says for each function what a pointer that is NULL means (of an mn_str: a NULL ptr with a
 * len); lists of 0 may be NULL in structs. */
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
MN_API const char *mn_version(void); /* "0.1.0" */
/* The command's exit code for a status: 0, 1 failure, 2 usage (MN_INVALID), 3 no usable device, 4
 * out of memory, 130 cancelled. */
MN_API int mn_exit_code(mn_status status);

/* ---- runtime: plugins, devices, configuration ------------------------------------------------ */
typedef struct mn_runtime mn_runtime;
/* a key of minerva.ini as `minerva config` lists it: "device" */
typedef struct {
    const char *key, *value;
} mn_setting;
/* A call into a plugin that has not come back. The texts live as long as the runtime. */
typedef struct {
    const char *plugin, *path, *call; /* "cuda", its file, "supports" */
    uint64_t waited_ms, limit_ms;
    int32_t is_step, pad; /* 1: one of those that step_limit_ms is for */
} mn_plugin_call;
#define MN_LIMIT_SETTING 0xffffffffu /* a limit is the setting's: call_timeout, step_timeout */
#define MN_RUNTIME_JOURNAL 1u        /* opens the crash journal, for mn_plugin_crashed */
/* settings win over everything.
 *
 * A call into a plugin that lasts longer than 5 s is named by a warning in the log; a step only
 * after ten times its estimated time more. One that lasts longer than its limit is handed to `stuck`,
 * once. call_limit_ms: of calls that prepare (entry, supports, compile, shutdown, ...).
 * step_limit_ms: of those that move or compute data (execute, wait, weights_put, ...), to which a
 * hundred times their estimated time is added, so that a long step is not taken for one that hangs.
 * 0, the default: no limit. Limits are met to a quarter of the shortest.
 *
 * stuck runs on a thread of the runtime's own with all signals blocked, while the call goes on in
 * its thread. It may read *call until it returns, write messages, and end the process by _exit (exit
 * would run destructors of the plugin that is at work). It calls no function that is given this
 * runtime or what was made from it. When it returns, the call is waited for as before: the library
 * itself never gives up and never exits. */
typedef struct {
    uint32_t size, n_settings;
    const mn_setting *settings;
    uint32_t flags; /* MN_RUNTIME_* */
    uint32_t call_limit_ms, step_limit_ms, pad;
    void (*stuck)(void *arg, const mn_plugin_call *call); /* may be NULL */
    void *arg;
} mn_runtime_params;
/* Reads the configuration, finds and opens plugins. A plugin that fails costs a record, not the
 * runtime. One in whose calls two processes died, as the crash journal says, is set aside: it is not
 * opened until its file changes or the setting "device" names it; loaders and the last CPU never.
 * NULL: params: no settings; out: MN_INVALID. */
MN_API mn_status mn_runtime_create(const mn_runtime_params *params, mn_runtime **out,
                                   mn_error *err);
/* NULL: rt: nothing. */
MN_API void mn_runtime_free(mn_runtime *rt);

/* Two functions for handlers of signals and of exit, which the application installs if it wants to:
 * the library installs none for them. Both are async-signal-safe and keep errno.
 *
 * The call into a plugin that the calling thread is in, else one that another thread is in: 1 and
 * *out, whose waited_ms and limit_ms are 0; else 0.
 * NULL: out: 0. */
MN_API int mn_plugin_call_now(mn_plugin_call *out);
/* Notes in the crash journal that this process dies by signal_number (SIGSEGV, SIGBUS, SIGILL,
 * SIGFPE or SIGABRT; others do not count) in the call that mn_plugin_call_now tells. A runtime with
 * MN_RUNTIME_JOURNAL is alive. The caller is a handler of that signal which has seen that it comes
 * from the kernel or from this process, and raises it again with the action that was there before.
 * 1: noted. 0: no such call, no journal, or it cannot be written. */
MN_API int mn_plugin_crashed(int signal_number);

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
    /* probe: what the probing process found, in a few words; "" = not asked */
    const char *version, *vendor, *probe;
} mn_plugin_item;
/* NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_runtime_plugin(const mn_runtime *rt, uint32_t i, mn_plugin_item *out);
typedef struct {
    /* name: as --device takes it; reason: why it is not usable */
    const char *name, *plugin, *description, *uid, *reason;
    /* bytes; free: asked now; 0 = unknown (some tell only once a session uses them) */
    uint64_t mem_total, mem_free;
    /* retry_s: a device that was lost in this process is tried again by the first session that asks
     * for it after so many seconds; 0 = now, or not lost */
    int32_t usable, retry_s;
} mn_device_item;
/* NULL: rt, out: MN_INVALID. */
MN_API mn_status mn_runtime_device(const mn_runtime *rt, uint32_t i, mn_device_item *out);
/* Value of a setting after all sources; "" if it is not set.
 * NULL: rt, key: "". */
MN_API const char *mn_runtime_setting(const mn_runtime *rt, const char *key);
/* NULL: rt: 0. */
MN_API uint32_t mn_runtime_threads(const mn_runtime *rt);

/* ---- model ----------------------------------------------------------------------------------- */
typedef struct mn_model mn_model;
/* path: a GGUF file, a .safetensors file, or a folder in Hugging Face layout; NULL = the setting
 * "model", else the demo model that is installed with the program. Maps and checks; weights are not
 * read yet.
 * MN_INVALID: path is empty.
 * NULL: path: as above; rt, out: MN_INVALID. */
MN_API mn_status mn_model_open(mn_runtime *rt, const char *path, mn_model **out, mn_error *err);
/* What happens when another program changes a model's file while it is in use.
 *
 * Files are mapped, and weights are often used right there. While that is so, size and time of last
 * modification are looked at before each step's result is given out, and when weights are imported
 * or converted. A change is MN_IO_ERROR that names the file: the step is discarded, and so it
 * stays; free the model and open it again. A file that another one takes the place of (rename) goes
 * on being used as it was.
 *
 * Before that is noticed, touching a page that is gone raises SIGBUS, which ends the process,
 * unless a flag says otherwise:
 *
 * MN_MODEL_READ   The files are read into memory of this process, all of them, at once. Nothing
 *                 that happens to them afterwards matters. No signal handler.
 * MN_MODEL_GUARD  While such models are open there is a handler for SIGBUS. On a fault inside their
 *                 maps it puts pages of zeros under the rest of that map, sets the map's flag and
 *                 returns: it never jumps, so the code that was interrupted ends as always. Flags
 *                 are asked before a result is given out: MN_IO_ERROR, as above. Every other SIGBUS
 *                 (elsewhere, sent, failed memory) goes to the handler that was installed when the
 *                 first such model was opened, with its mask and on its stack's terms.
 *                 What the application keeps to: handlers for SIGBUS are installed before, or hand
 *                 on what is not theirs; threads that use a model do not block SIGBUS; alternate
 *                 stacks of such threads (sigaltstack) have sysconf(_SC_MINSIGSTKSZ) bytes, which
 *                 is what the kernel saves with AVX-512 and AMX, and 16 KiB of room; not
 *                 MINSIGSTKSZ or SIGSTKSZ. When the last such model is freed, the handler goes,
 *                 unless another one was put on top of it: then the library must stay loaded. */
#define MN_MODEL_READ 1u
#define MN_MODEL_GUARD 2u
typedef struct {
    uint32_t size, flags; /* MN_MODEL_*; READ wins */
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
} mn_model_info;
/* NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_get_info(const mn_model *m, mn_model_info *out);
/* NULL: m, key, value: MN_INVALID. */
MN_API mn_status mn_model_meta(const mn_model *m, uint32_t i, mn_str *key, mn_value *value);
/* file: base name of the one that it begins in */
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

/* Writes the model as one GGUF file, which any reader of GGUF takes: what formats store otherwise
 * is turned into GGUF's conventions, and the tokeniser and the chat template go along. The file
 * appears under its name when it is whole; whatever ends this earlier leaves nothing there. All
 * threads of the runtime; about 16 MiB. MN_INVALID: an unknown type. MN_BAD_FILE: names the tensor
 * that holds a NaN or an infinity. MN_IO_ERROR: the file is there already, or cannot be written.
 * MN_CANCELLED: progress said so. */
typedef struct {
    uint32_t size, flags;
    /* "q4_k_m", "f16", ...: docs/model-formats.md lists them; NULL = as stored, or the nearest that
     * GGUF has */
    const char *type;
    /* bytes, on the calling thread; non-zero stops. May be NULL */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
} mn_convert_params;
#define MN_CONVERT_REPLACE 1u /* a file that is there is replaced */
/* NULL: params: the defaults; m, path: MN_INVALID. */
MN_API mn_status mn_model_convert(const mn_model *m, const char *path,
                                  const mn_convert_params *params, mn_error *err);

/* ---- text ------------------------------------------------------------------------------------ */
#define MN_TEXT_ADD_SPECIAL 1u   /* add what the tokeniser adds (BOS) */
#define MN_TEXT_PARSE_SPECIAL 2u /* special tokens written in the text become ids */
/* ids: *n of them, freed by mn_ids_free. MN_UNSUPPORTED: the model has no tokeniser. MN_BAD_INPUT:
 * not UTF-8.
 * NULL: m, text, ids, n: MN_INVALID. */
MN_API mn_status mn_model_tokenize(const mn_model *m, mn_str text, uint32_t flags, int32_t **ids,
                                   uint32_t *n, mn_error *err);
/* more: a JSON object of what else the template reads of a message ("tool_calls", "tool_call_id",
 * "name", "reasoning_content", "content" as a list of parts); it wins over role and content; empty
 * = nothing else. */
typedef struct {
    mn_str role, content, more;
} mn_message;
/* The model's own chat template over the messages and the header of the answer, tokenised; text
 * inside content can never become a special token. n_known: how many of the messages a sequence
 * holds already (then only what is new is given), at most n_messages; 0 for all.
 * NULL: m, messages, ids, n: MN_INVALID. */
MN_API mn_status mn_model_chat(const mn_model *m, const mn_message *messages, uint32_t n_messages,
                               uint32_t n_known, int32_t **ids, uint32_t *n, mn_error *err);
/* Which of the texts of mn_chat_params an error is about: mn_error.part. */
enum {
    MN_CHAT_PART_HISTORY = 1,
    MN_CHAT_PART_TOOLS = 2,
    MN_CHAT_PART_VARS = 3,
    MN_CHAT_PART_MESSAGES = 4,
    MN_CHAT_PART_TEMPLATE = 5 /* the source or the name, or what it makes of the rest */
};
/* The same with all that templates know. The texts are JSON, an empty one is not given; strings in
 * them are user data and never become special tokens. MN_INVALID names the text and the place in
 * it: "tools[1]: ...", and err->part is MN_CHAT_PART_*. MN_UNSUPPORTED with n_known: the template writes those messages differently
 * now (some move the tools, or drop old thoughts): begin a new sequence with n_known 0. */
#define MN_CHAT_NAMED 1u /* chat_template is a name */
typedef struct {
    /* n_known: of messages; history is then known too. flags: MN_CHAT_* */
    uint32_t size, n_messages, n_known, flags;
    const mn_message *messages;
    /* a list of messages before those: {"role", "content", and what mn_message calls more} */
    mn_str history;
    /* a list of tools: {"type": "function", "function": {"name", "description", "parameters": a
     * JSON schema}} */
    mn_str tools;
    /* an object: further variables of the template, as "enable_thinking", "reasoning_effort",
     * "documents", "date_string" */
    mn_str vars;
    /* the source of a template instead of the model's own; or, with MN_CHAT_NAMED, the name of
     * another one in the model's files ("tool_use"), else of one that many models share: chatml,
     * gemma, llama2, llama3, mistral, phi3, zephyr. NULL: the model's own. MN_INVALID: it cannot be
     * parsed, or nothing has that name. */
    const char *chat_template;
} mn_chat_params;
/* NULL: m, params, ids, n: MN_INVALID. */
MN_API mn_status mn_model_chat_with(const mn_model *m, const mn_chat_params *params, int32_t **ids,
                                    uint32_t *n, mn_error *err);
/* The text that a chat template makes of its variables: a JSON object with "messages", "tools",
 * "add_generation_prompt" and whatever else it asks for. source: the template, NUL-terminated; NULL
 * = the model's own (its "tool_use", if it has that and there are tools). m: may be NULL beside a
 * source; where it has a tokeniser, bos_token and eos_token are its own unless vars names them.
 * *text: *n bytes and a NUL, freed by mn_json_free. MN_BAD_INPUT with the template's own words
 * where it refuses (raise_exception).
 * NULL: m: beside a source; source: as above; vars, text, n: MN_INVALID. */
MN_API mn_status mn_template_render(const mn_model *m, const char *source, mn_str vars, char **text,
                                    uint64_t *n, mn_error *err);
/* NULL: ids: nothing. */
MN_API void mn_ids_free(int32_t *ids);
/* 1 if id ends a generation (any of the model's end tokens).
 * NULL: m: 0. */
MN_API int mn_model_is_stop(const mn_model *m, int32_t id);

/* Ids to text as they come; never half a UTF-8 character; special tokens are not shown. */
typedef struct mn_stream mn_stream;
#define MN_STREAM_CONTINUE 1u /* the ids follow a prompt: SentencePiece keeps the first space */
#define MN_STREAM_PLAIN 2u    /* all text as it is: nothing is taken for thinking or a call */
#define MN_STREAM_SPECIAL 4u  /* and special tokens are shown by their names */
/* NULL: m, out: MN_INVALID. */
MN_API mn_status mn_stream_create(const mn_model *m, uint32_t flags, mn_stream **out,
                                  mn_error *err);
/* text: until the next call; may be empty
 * NULL: st, text: MN_INVALID. */
MN_API mn_status mn_stream_push(mn_stream *st, int32_t id, mn_str *text, mn_error *err);
/* A model that thinks first says so in tokens of its own (<think>, the channels of Harmony), or
 * spells <think> where it has none and its chat template has that word; neither is ever shown. 1:
 * what was pushed last is not of the answer. prompt: the ids that the output follows, whose end may
 * open such a part; before the first push.
 * NULL: st: 0. */
MN_API int mn_stream_is_thinking(const mn_stream *st);
/* NULL: st, ids: nothing. */
MN_API void mn_stream_prompt(mn_stream *st, const int32_t *ids, uint32_t n);
/* The tool that what was pushed last is addressed to, where tokens of their own say so (Harmony):
 * "functions.get_weather", and the text is its arguments; else empty. Other models write calls into
 * the answer's text.
 * NULL: st: empty. */
MN_API mn_str mn_stream_tool(const mn_stream *st);
/* Strings that end the answer: it is given up to the first of them, and what may be the beginning
 * of one is held back until that is known, across any number of ids. They count in the answer
 * only, not in what is thought. n strings, at most 64 of 1 to 1024 bytes of UTF-8 each, copied;
 * before the first push. MN_INVALID: others, and after a push.
 * NULL: st, strings: MN_INVALID. */
MN_API mn_status mn_stream_stop(mn_stream *st, const mn_str *strings, uint32_t n, mn_error *err);
/* 1 once one was met: further ids give no text, and whoever draws them may end the sequence.
 * NULL: st: 0. */
MN_API int mn_stream_stopped(const mn_stream *st);
/* what was held back
 * NULL: st, text: MN_INVALID. */
MN_API mn_status mn_stream_finish(mn_stream *st, mn_str *text, mn_error *err);
/* NULL: st: nothing. */
MN_API void mn_stream_free(mn_stream *st);

/* ---- session: sequences that share a device, its weights and its KV cache -------------------- */
typedef struct mn_session mn_session;
typedef struct {
    /* MN_PRECISION_*; AUTO = the device's fastest for the weights' type */
    uint32_t size, precision;
    const char *device; /* "auto", "cpu", "cuda:0,cpu", ...; NULL = the setting "device" */
    /* positions per sequence; 0 = what the model was trained for, at most 4096 */
    uint32_t n_ctx;
    uint32_t n_seq;            /* sequences at once; 0 = 1 */
    uint32_t n_batch;          /* rows per step at most; 0 = 512 */
    uint32_t k_dtype, v_dtype; /* of cached keys and values: MN_F32, MN_F16; 0 = by the class */
    /* steps enqueued before the first is read; 0 = by the device (1 where execute is
     * synchronous) */
    uint32_t run_ahead;
    uint32_t flags;
} mn_session_params;
#define MN_SESSION_NO_SAMPLING 1u /* for mn_session_logits */
/* Negotiates a device, imports the weights, allocates the cache. MN_NO_DEVICE lists the devices
 * there are and why each cannot; MN_OUT_OF_MEMORY says how much is needed for what; MN_INVALID names
 * a precision or a KV type that does not exist.
 * NULL: params: the defaults; m, out: MN_INVALID. */
MN_API mn_status mn_session_create(mn_model *m, const mn_session_params *params, mn_session **out,
                                   mn_error *err);
/* How mn_session_create with these parameters (NULL: the defaults) would decide, as one JSON
 * object: every plugin file and device with its steps and outcome, the placement, the error if
 * nothing can run the model (then the status is still MN_OK). Asks and measures devices, imports no
 * weights. docs/negotiation.md names the fields. *json is freed by mn_json_free.
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
    uint32_t n_ctx, n_seq, n_batch, threads;
    uint64_t weight_bytes, kv_bytes, scratch_bytes;
    /* 1: not what a user would expect (the oracle, for want of better) */
    int32_t fallback, pad;
} mn_session_info;
/* NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_get_info(const mn_session *s, mn_session_info *out);

typedef struct {
    uint32_t size, max_new; /* ids to draw at most; 0 = until the context is full */
    uint64_t seed;
    float temp;    /* <= 0: the arg max */
    int32_t top_k; /* 0 = off; see docs/ops.md, SAMPLE, for the order of filters */
    float top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    int32_t penalty_last_n; /* how far back the penalties look; < 0: over all tokens */
    int32_t ignore_stop;    /* 1: end tokens do not end it */
    uint32_t n_stop;        /* further stop ids, at most MN_MAX_STOP with the model's own */
    const int32_t *stop;
} mn_sample_params; /* MN_INVALID: NaN and infinity, top_p and min_p outside 0 to 1, top_k and
                       repeat_penalty below 0 */

/* How the model's makers say it should be sampled (generation_config.json, general.sampling.*),
 * else temp 0.7, top_p 0.95, top_k off; everything else 0; a repetition penalty counts over all
 * tokens (penalty_last_n -1) unless they say otherwise. *out is filled up to its size.
 * NULL: m, out: MN_INVALID. */
MN_API mn_status mn_model_sample_defaults(const mn_model *m, mn_sample_params *out);

/* Begins a sequence with a prompt of n >= 1 ids. MN_BAD_INPUT: an id outside the vocabulary, or the
 * prompt does not fit (names both numbers). MN_OUT_OF_MEMORY: all n_seq sequences are in use, or
 * the cache is full. params NULL: greedy.
 * NULL: params: greedy; s, ids, seq: MN_INVALID. */
MN_API mn_status mn_seq_create(mn_session *s, const int32_t *ids, uint32_t n,
                               const mn_sample_params *params, int32_t *seq, mn_error *err);
/* Appends ids to a finished sequence and lets it go on; its cache is kept.
 * NULL: params: greedy; s, ids: MN_INVALID. */
MN_API mn_status mn_seq_extend(mn_session *s, int32_t seq, const int32_t *ids, uint32_t n,
                               const mn_sample_params *params, mn_error *err);
/* A copy of a finished sequence up to its last stored token, sharing its full cache pages.
 * NULL: s, out: MN_INVALID. */
MN_API mn_status mn_seq_fork(mn_session *s, int32_t seq, int32_t *out, mn_error *err);
/* NULL: s: nothing. */
MN_API void mn_seq_free(mn_session *s, int32_t seq);
/* NULL: s: 0. */
MN_API uint32_t mn_seq_length(const mn_session *s, int32_t seq); /* prompt and drawn ids so far */

#define MN_FINISH_NONE 0
#define MN_FINISH_STOP 1   /* id is a stop token */
#define MN_FINISH_LENGTH 2 /* max_new reached, or the context is full */
#define MN_FINISH_FAILED 3 /* the model gave no number to draw by; id is -1 */
typedef struct {
    int32_t seq, id, finish, pad;
} mn_token;
/* Runs until at least one id is drawn and gives out all that were, at most cap (>= n_seq). *n = 0:
 * no sequence is running. MN_CANCELLED after mn_session_cancel. Sequences of any state are batched
 * into one step.
 *
 * MN_BAD_FILE: the model computed NaN for a logit of a sequence, or no finite one; err names file,
 * sequence and position. NaN and infinity of a damaged weight go through all operations to here and
 * are never text. Only those sequences have ended: out and *n are filled as in a step without an
 * error, theirs have finish MN_FINISH_FAILED; called again, it goes on with the others.
 *
 * NULL: s, out, n: MN_INVALID. */
MN_API mn_status mn_session_step(mn_session *s, mn_token *out, uint32_t cap, uint32_t *n,
                                 mn_error *err);
/* Makes the current or next mn_session_step return MN_CANCELLED. Any thread, also a signal
 * handler.
 * NULL: s: nothing. */
MN_API void mn_session_cancel(mn_session *s);

/* Logits of every position of a text: rows is called with consecutive blocks [n_rows, n_vocab] of
 * f32, first = position of the block's first row; a status other than MN_OK ends it. Leaves no
 * sequence behind. The logits are as the model gives them, NaN and infinity, too. */
typedef mn_status (*mn_logits_fn)(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                                  const float *rows);
/* NULL: arg: as it is; s, ids, rows: MN_INVALID. */
MN_API mn_status mn_session_logits(mn_session *s, const int32_t *ids, uint32_t n, mn_logits_fn rows,
                                   void *arg, mn_error *err);

/* Seconds since the session was created, and counts, for honest timings. */
typedef struct {
    uint32_t size, pad;
    double load_s; /* mn_session_create: weights imported, cache allocated */
    uint64_t n_prompt, n_drawn, n_steps;
    /* time in steps that held prompt rows; in steps of drawn tokens only */
    double prompt_s, decode_s;
    /* time spent building and enqueuing steps; on a synchronous device that includes their work */
    double host_s;
    /* rows run again after a device was lost; in none of the counts above */
    uint64_t n_restored;
    /* what losing it cost: choosing another, and the steps that hold such rows */
    double restore_s;
} mn_session_stats;
/* NULL: s, out: MN_INVALID. */
MN_API mn_status mn_session_get_stats(const mn_session *s, mn_session_stats *out);

/* Where the time of a step goes: the units that its devices execute, in order, by mn.profile/1 of
 * their plugins (plugin.h). The library fills and owns all of it: valid during the call. */
typedef struct {
    const char *device; /* as --device takes it */
    const char *op;     /* of the node that names the unit: "LINEAR" */
    char name[40];      /* the plugin's word for it: "NORM+LINEAR+GLU" */
    /* of the graph (mn_model_graph_json); n_nodes: how many it fuses; layer -1: before or behind
     * them */
    uint32_t node, n_nodes;
    int32_t layer;
    uint32_t pad;
    uint64_t time_ns;     /* from the end of the unit before to its own end */
    uint64_t bytes, flop; /* by arithmetic: read and written; 2 per multiply-add. 0 = unknown */
} mn_step_unit;
typedef struct {
    uint32_t size, unit_stride; /* unit i lies i * unit_stride bytes behind units */
    uint32_t n_units, n_rows;
    uint32_t n_prompt, n_outputs; /* of the rows those of prompts, and those that give logits */
    /* the whole step as the host sees it: units, what lies between them, and transfers */
    uint64_t time_ns;
    const mn_step_unit *units;
} mn_step_profile;
/* On the thread that steps; calls nothing of the session. */
typedef void (*mn_profile_fn)(void *arg, const mn_step_profile *step);
/* From now on each step that is begun runs unit by unit and is told to fn when it is done; its
 * results are those of any other step. Nothing runs ahead, and a device may keep units apart that it
 * overlaps otherwise: rates are measured without. MN_UNSUPPORTED names the device whose plugin has no
 * mn.profile/1; so does a step after a device was lost and such a one took its place.
 * NULL: fn: no more profiles; arg: as it is; s: MN_INVALID. */
MN_API mn_status mn_session_profile(mn_session *s, mn_profile_fn fn, void *arg, mn_error *err);

/* One answer, in one call: the prompt as a user turn if the model has a chat template, else as
 * plain text. print gets pieces of the answer's text; non-zero stops. params NULL: the model's own
 * defaults with at most 512 ids.
 * NULL: params: as above; arg: as it is; s, prompt, print: MN_INVALID. */
MN_API mn_status mn_generate(mn_session *s, const char *prompt, const mn_sample_params *params,
                             int (*print)(void *arg, const char *text, uint64_t n), void *arg,
                             mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
