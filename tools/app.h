/* app.h -- what the subcommands share: the common flags, opening runtime, model and session,
 * prompts, interrupts. */
#ifndef MINERVA_APP_H
#define MINERVA_APP_H
#include "args.h"
#include "out.h"
#include "sample_numbers.h"
#include "table.h"
#include <minerva/minerva.h>

#define MAX_ROWS 1048576.0

typedef struct {
    const char *model, *device;
    int strict, ignore_unused;
    arg_count n_cpu_moe;     /* layers whose experts are on the CPU */
    int cpu_moe;             /* all of them */
    arg_count n_gpu_experts; /* experts of each layer that are not */
    arg_list tensor_devices;
    const char *device_memory; /* NULL: the setting */
    const char *expert_counts; /* the same */
    arg_count threads, ctx;    /* v 0 overrides the configuration: chosen by the program */
    int64_t rows;
    int precision, kv_k, kv_v, numa; /* indices into the rows' choices */
    int offline;
    int list_devices, json, no_probe_cache, quiet, verbose;
    int informs; /* neither quiet nor verbose: the log has what a server's log should have */
    void (*log)(void *app, int32_t level, const char *message); /* NULL: to stderr */
    FILE *log_to;                                               /* of log */
    const char *draft, *draft_device;
    int64_t draft_max;
    int lookup;
    const char *rank_token_file;
    const char *cache_dir, *cache_disk; /* NULL: the settings */
    arg_texts lora;                     /* FILE[:SCALE]; the subcommand's to free */
    int lora_each, lora_type; /* bench: each file is an adapter of its own; an index: f32, f16 */
} app_flags;

/* Rows over app_flags, for a page's groups. */
extern const arg_row app_hub_rows[], app_model_rows[], app_device_rows[], app_session_rows[],
    app_json_rows[], app_draft_rows[], app_cache_rows[], app_runtime_rows[], app_lora_rows[],
    app_lora_each_rows[];
#define APP_HUB_ROWS 1   /* of commands that may download */
#define APP_MODEL_ROWS 3 /* with these */
#define APP_DEVICE_ROWS 11
#define APP_SESSION_ROWS 6
#define APP_DRAFT_ROWS 4
#define APP_LORA_ROWS 1
#define APP_LORA_EACH_ROWS 2 /* of bench */
#define APP_CACHE_ROWS 2     /* of commands whose prompts come again */
#define APP_JSON_ROWS 1
#define APP_RUNTIME_ROWS 3 /* of every subcommand that opens a runtime */

typedef struct {
    const app_flags *flags;
    mn_runtime *rt;
    mn_model *model, *draft; /* draft: of --draft, or NULL */
    mn_session *session;
    mn_model_info info;
    mn_session_info session_info;
    mn_error err;
    struct progress *bar; /* while a session is created, or NULL */
    double load_s;        /* opening the model and creating the session */
} app;

/* Each returns 0, or the exit code with the error printed. app_close frees all, at any point. */
int app_open_runtime(app *a, const app_flags *flags);
int app_open_names(app *a, const app_flags *flags); /* a runtime without devices: names of models */
int app_open_model(app *a, const app_flags *flags); /* and the runtime */
/* The same for commands that compute: where a launcher started several processes, this one joins
 * the others. Ranks other than 0 follow rank 0 here, and end with it: it does not return. */
int app_open_ranked(app *a, const app_flags *flags);
/* The exit code of a rank that another one's end ends; otherwise 1. */
void app_set_lost_code(int code);
int devices_report(app_flags *flags); /* report.c; the exit code */
/* 0: the model reads text. Else complains with this code: of the model itself where it cannot run
 * at all, else that it has no tokeniser; expected: "... , expected ...". */
int app_need_tokenizer(app *a, int code, const char *expected);
int app_open_text(app *a, const app_flags *flags); /* the same, for text: no device is opened */
/* params: n_ctx, n_seq, flags of the caller; the rest is set from the command line. Prints the
 * device and the reason for it: a warning if it is a slow one because no other can be used. */
int app_open_session(app *a, mn_session_params *params);
void app_close_model(app *a); /* with its session and draft; the runtime stays, for another one */
void app_close(app *a);
/* app_close at the end of a command, whose output is complete; code. */
int app_end(app *a, int code);
int app_fail(app *a, mn_status status); /* prints a->err; the exit code */
/* note() of out.h for what -q leaves out: which device, the seed, rates */
void app_remark(const app *a, const char *fmt, ...) MN_PRINTF(2, 3);
const char *precision_name(uint32_t precision);

double seconds(void); /* monotonic */
const char *base_name(const char *path);
/* The name that found the model, else its file's or folder's. */
const char *app_model_name(const app *a);
/* For messages: path, or "standard input" for "-". */
const char *input_name(const char *path);
/* All of a text file ("-": standard input) behind its byte order mark, malloc'ed and
 * NUL-terminated; 0, or the exit code with the error printed. More than READ_MAX bytes are such
 * an error: a device or a pipe may have no end. */
#define READ_MAX ((size_t)256 << 20)
int read_all(const char *path, char **data, size_t *n);
/* The same; a NUL byte is an error: such a file is UTF-16 or no text. */
int read_all_text(const char *path, char **data, size_t *n);
/* The token ids in a file: parse_ids. */
int read_ids(const char *path, arg_ids *out);

/* ---- windows.c ------------------------------------------------------------------------------- */
/* The ids of a text file ("-": standard input) with what the tokeniser adds; *ids is malloc'ed. 0,
 * or the exit code with the error printed. */
int app_text_ids(app *a, const char *path, int parse_special, int32_t **ids, uint32_t *n);
/* The id (BOS) that the tokeniser puts before a text, with which every window begins; -1: none. */
int32_t app_first_id(app *a);

/* ---- interrupt.c: Ctrl-C ends a generation, a second one the program ------------------------- */
/* Ctrl-C cancels the steps of s; NULL: Ctrl-C ends the program at once, with 130 */
void interrupt_watch(mn_session *s);
void interrupt_catch(void);   /* for work without a session, which polls interrupt_seen */
void interrupt_release(void); /* such work is over: Ctrl-C ends the program at once again */
int interrupt_seen(void);
void interrupt_again(void); /* forgets the last one (chat) */
/* While a line is typed: SIGINT, SIGTERM, SIGHUP, SIGWINCH and SIGCONT arrive as bytes, their
 * numbers, at the descriptor that is returned (-1: none), until signals_restore. */
int signals_to_pipe(void);
void signals_restore(void);
/* What the signal does by default; SIGTSTP: returns when the program goes on. */
void signals_pass_on(int number);

/* ---- contain.c: plugins that hang, crash or call exit ---------------------------------------- */
/* Sets the parameters of the watch of calls, and installs the signal handlers, once. */
void contain_plugins(mn_runtime_params *params);
/* A crash writes one of these and the id of its plugin to fd, too. WROTE: into memory that the
 * plugin was given as const. */
#define CONTAIN_CRASHED 'c'
#define CONTAIN_WROTE 'w'
void contain_tell(int fd);
/* The command has printed all that it prints and ends with that code, also if a plugin hangs while
 * it is shut down. */
void contain_ends(int code);
void contain_over(void); /* main returns: exit is the command's own */

/* ---- lora.c: FILE[:SCALE] of --lora and --merge ---------------------------------------------- */
/* The files with their scales; *out is malloc'ed, and its paths are. 0, or the exit code with the
 * error printed; flag: for messages. */
int lora_sources(const char *flag, const arg_texts *given, mn_adapter_source **out);
void lora_free(mn_adapter_source *sources, size_t n);
/* Those of --lora as one adapter, which sessions then have; with --lora-each as many, by
 * lora_name. The exit code. */
int lora_load(app *a, mn_session_params *params);
#define LORA_NAME 24
/* Of the i-th adapter of --lora-each; returns dst. */
const char *lora_name(size_t i, char dst[LORA_NAME]);

/* ---- hub/: models of a hub ------------------------------------------------------------------- */
/* Takes the token out of the environment, and its bytes out of the process's own copy of it: no
 * child and no plugin finds it there. Before any thread starts. */
void hub_hide_token(void);
/* Before a model is opened: offers a name that is not on this machine for download, on a terminal;
 * says what was chosen where the name left it open. given NULL: the setting "model". Errors of the
 * name itself are left to opening it. */
int hub_offer(app *a, const char *given);

/* ---- progress.c: one line on a terminal for work of more than a second ----------------------- */
typedef struct progress progress;
progress *progress_begin(const char *what); /* may return NULL, which the others accept */
void progress_at(progress *p, uint64_t done, uint64_t total);
void progress_says(progress *p, const char *text); /* behind the rest; from any thread */
void progress_end(progress *p);                    /* wipes the line */

/* ---- sampling.c ------------------------------------------------------------------------------ */
typedef struct {
    sample_numbers numbers;
    arg_seed seed;
    arg_texts stop, dry_breakers;
    const char *samplers; /* NULL: not given */
    arg_texts bias_texts;
    mn_logit_bias bias[MN_MAX_BIAS]; /* what they say, by sampling_check */
    uint32_t n_bias;
} sampling_flags;
#define SAMPLING_ROWS 26
#define SAMPLING_BIAS_ROWS 1 /* the last of them: --logit-bias, not for the server */
extern const arg_row sampling_rows[];
sampling_flags sampling_defaults(void);
/* 0, or EXIT_USAGE with the error printed: --samplers names what there is not, --logit-bias is
 * none. */
int sampling_check(sampling_flags *flags);
/* Numbers that are absent get the model's recommended value, else the
 * default of the flags' help; an unset seed is random, and printed. */
void sampling_resolve(const app *a, const sampling_flags *flags, mn_sample_params *out);
void sampling_say_seed(const app *a, const sampling_flags *flags, const mn_sample_params *p);
/* the same without printing the seed */
void sampling_values(const app *a, const sampling_flags *flags, mn_sample_params *out);
/* The flags that are given alone. */
void sampling_apply(const sampling_flags *flags, mn_sample_params *out);
void sampling_free(sampling_flags *flags); /* the lists of texts */
uint64_t sampling_seed(void);              /* a random one, short enough to type */

/* Subcommands: argv[0] is the subcommand's name; the exit code. */
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_plugins(int argc, char **argv);
/* Becomes the program minerva-check; argv[0] is "check". Returns after help and errors: the exit
 * code. */
int cmd_plugins_check(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_imatrix(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_rerank(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_alias(int argc, char **argv);
/* The body of a subcommand that lists something of the runtime: opens the runtime, prints with
 * as_json (--json) or as_table, closes it. The exit code. */
typedef void (*app_print)(const app *a, out_file *out);
int app_list(const app_flags *flags, app_print as_json, app_print as_table);

#endif
