/* app.c -- what the subcommands share: the rows of the common flags, opening and closing of
 * runtime, model and session, reading of text files.
 *
 * Each subcommand has one app on its stack, which owns what was opened; app_close frees it at
 * any point. Messages of the library are printed unchanged (app_fail): they name the file, what
 * was found and what was expected. Interface: app.h. Used by every cmd_* file. */
#include "app.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_CPU_MOE 1048576 /* layers, of the setting n_cpu_moe: all */
/* of app_flags.numa; auto: what the configuration says */
#define APP_NUMA_MODES "auto|off|interleave|split"
static const char *const numa_modes[] = {"auto", "off", "interleave", "split"};

#define F(field) offsetof(app_flags, field)
#define OFFLINE_ROW                                                                                \
    {                                                                                              \
        "--offline", NULL, ARG_FLAG, F(offline), 0, 0, NULL,                                       \
            "use no network: a model that is not on this machine is an error, and no download "    \
            "is\n"                                                                                 \
            "offered (also HF_HUB_OFFLINE=1)"                                                      \
    }
const arg_row app_hub_rows[APP_HUB_ROWS] = {OFFLINE_ROW};
const arg_row app_model_rows[APP_MODEL_ROWS] = {
    {"-m --model", "MODEL", ARG_FILE, F(model), 0, 0, NULL,
     "a GGUF file, a .safetensors file, a folder in Hugging Face layout, or a name:\norg/repo, "
     "org/repo:QUANT, an alias, as minerva list prints them\n(default: the demo model)"},
    OFFLINE_ROW,
    {"--ignore-unused", NULL, ARG_FLAG, F(ignore_unused), 0, 0, NULL,
     "run a model without the tensors that its architecture does not use: it is another\n"
     "model then (default: an error that names them)"},
};
const arg_row app_device_rows[APP_DEVICE_ROWS] = {
    {"--device", "DEVICES", ARG_TEXT, F(device), 1, 0, NULL,
     "auto, cpu, or a list of plugin[:n] as minerva devices names them (default: auto)"},
    {"-t --threads", "N", ARG_COUNT, F(threads), 0, 4096, NULL,
     "CPU threads; 0 = one per core that the process may use, as far as its control\ngroup's quota "
     "goes (default)"},
    {"--numa", "MODE", ARG_CHOICE, F(numa), 0, 0, APP_NUMA_MODES,
     "on a machine of several memory nodes, put weights and KV cache on all in turn, or\nsplit "
     "weights by rows and keep the threads of a node to its own; auto: off"},
    {"--list-devices", NULL, ARG_FLAG, F(list_devices), 0, 0, NULL, "the same as minerva devices"},
    {"--strict", NULL, ARG_FLAG, F(strict), 0, 0, NULL,
     "a device of a list that cannot be used is an error, also where a CPU is in the list"},
    {"-ncmoe --n-cpu-moe", "N", ARG_COUNT, F(n_cpu_moe), 0, MAX_CPU_MOE, NULL,
     "the CPU computes the routed experts of the first N layers, the other devices "
     "everything\nelse "
     "(default: as many as a device lacks memory for, where that is fastest)"},
    {"-cmoe --cpu-moe", NULL, ARG_FLAG, F(cpu_moe), 0, 0, NULL, "the same of all layers"},
    {"--n-gpu-experts", "K", ARG_COUNT, F(n_gpu_experts), 0, MAX_CPU_MOE, NULL,
     "the device in front of the CPU computes the first K routed experts of every layer, the\n"
     "CPU the others at the same time; 0: no layer is divided (default: as is fastest)"},
    {"--expert-counts", "FILE", ARG_TEXT, F(expert_counts), 1, 0, NULL,
     "importance matrix of minerva imatrix: a device that has some experts of a layer has\n"
     "those that it counts most"},
    {"-ot --override-tensor", "PATTERN=DEVICE", ARG_LIST, F(tensor_devices), 1, 0, NULL,
     "products whose matrices' names match the regular expression are on that device, as\n"
     "in -ot 'ffn_.*_exps=cpu'; may be repeated"},
    {"--device-memory", "SIZE", ARG_TEXT, F(device_memory), 1, 0, NULL,
     "memory of each device that is no CPU at most, as in 20GiB (default: what is free)"},
};
const arg_row app_session_rows[APP_SESSION_ROWS] = {
    {"-c --ctx-size", "N", ARG_COUNT, F(ctx), 0, 2147483647, NULL,
     "context: positions per sequence\n(default, and 0: what the model was trained for, at most "
     "4096)"},
    {"-b --batch-size", "N", ARG_INT, F(rows), 1, MAX_ROWS, NULL,
     "rows computed per step at most (default: 512; 2048 where one GPU "
     "has the whole model and memory to spare)"},
    {"--precision", "CLASS", ARG_CHOICE, F(precision), 0, 0, "auto|exact|a16|a8",
     "of activations; auto: the device's fastest"},
    {"-ctk --cache-type-k", "TYPE", ARG_CHOICE, F(kv_k), 0, 0, "auto|f32|f16|q8_0",
     "type of the KV cache's keys"},
    {"-ctv --cache-type-v", "TYPE", ARG_CHOICE, F(kv_v), 0, 0, "auto|f32|f16|q8_0",
     "of its values: the same as the keys'"},
    {"--rank-token-file", "FILE", ARG_FILE, F(rank_token_file), 0, 0, NULL,
     "what processes of one group (mpirun, srun) prove to each other\n(default: the setting "
     "rank_token_file)"},
};
const arg_row app_draft_rows[APP_DRAFT_ROWS] = {
    {"--draft", "MODEL", ARG_FILE, F(draft), 0, 0, NULL,
     "a smaller model with the same vocabulary guesses tokens, and the model verifies\n"
     "several at a time: the same answer in fewer steps; mtp: the model's own draft head,\n"
     "where it has one"},
    {"--draft-device", "DEVICES", ARG_TEXT, F(draft_device), 1, 0, NULL,
     "of the smaller model (default: as --device)"},
    {"--draft-max", "N", ARG_INT, F(draft_max), 1, MN_MAX_DRAFT, NULL,
     "tokens guessed at a time at most (default: as many as pay, up to 16)"},
    {"--lookup", NULL, ARG_FLAG, F(lookup), 0, 0, NULL,
     "guess what followed the same words before, in the prompt and the answer"},
};
const arg_row app_cache_rows[APP_CACHE_ROWS] = {
    {"--cache-dir", "DIR", ARG_FILE, F(cache_dir), 0, 0, NULL,
     "keep what the KV cache holds in files of this folder (mode 700): conversations go on\nafter "
     "a "
     "restart without computing their prompts again (default: no files)"},
    {"--cache-disk", "BYTES", ARG_TEXT, F(cache_disk), 1, 0, NULL,
     "all files in it at most, the least recently used go first (default: 20GiB)"},
};
const arg_row app_json_rows[APP_JSON_ROWS] = {
    {"--json", NULL, ARG_FLAG, F(json), 0, 0, NULL, "machine-readable output"},
};
const arg_row app_runtime_rows[APP_RUNTIME_ROWS] = {
    {"--no-probe-cache", NULL, ARG_FLAG, F(no_probe_cache), 0, 0, NULL,
     "probe plugins again instead of using the results of an earlier start"},
    {"-q --quiet", NULL, ARG_FLAG, F(quiet), 0, 0, NULL, "standard error holds errors only"},
    {"-v --verbose", NULL, ARG_FLAG, F(verbose), 0, 0, NULL,
     "print every decision, as MINERVA_LOG=debug does"},
};

/* ---- small helpers --------------------------------------------------------------------------- */
double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

const char *app_model_name(const app *a) {
    if (a->info.known_as && a->info.known_as[0])
        return a->info.known_as;
    return base_name(a->info.path ? a->info.path : "model");
}

const char *precision_name(uint32_t precision) {
    static const char *const name[] = {"auto", "exact", "a16", "a8"};
    return precision < MN_COUNT(name) ? name[precision] : "?";
}

int app_fail(app *a, mn_status status) {
    const char *why = a->err.msg[0] ? a->err.msg : "failed without a reason";
    return complain(mn_exit_code(status), "%s", plain_message(why));
}

/* 1 if a comma of the list of devices has no name before or after it. */
static int has_empty_name(const char *list) {
    const size_t n = strlen(list);
    return list[0] == ',' || (n && list[n - 1] == ',') || strstr(list, ",,");
}

void app_remark(const app *a, const char *fmt, ...) {
    va_list args;
    char text[1024];
    if (a->flags && a->flags->quiet)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    note("%s", text);
}

/* From the library while a session is created. */
static int32_t on_progress(void *arg, float done, const char *what) {
    const app *a = arg;
    progress_at(a->bar, (uint64_t)(done * 100), 100);
    progress_says(a->bar, what);
    return 0;
}

static int lost_code = EXIT_FAILED;

void app_set_lost_code(int code) {
    lost_code = code;
}

/* A plugin's call may hang, so that nothing is freed. */
static void on_rank_lost(void *arg, const char *why) {
    uint32_t rank = 0;
    uint32_t n = 0;
    (void)arg;
    mn_rank_of_process(&rank, &n, NULL);
    complain(EXIT_FAILED, "rank %u of %u: %s", rank, n, why);
    _exit(lost_code);
}

static int app_check_flags(const app_flags *flags) {
    if (flags->quiet && flags->verbose)
        return complain(EXIT_USAGE, "found -q and -v, expected one of them");
    if (flags->draft_device && !flags->draft)
        return complain(EXIT_USAGE, "found --draft-device without --draft, expected both");
    if (flags->cpu_moe && flags->n_cpu_moe.given)
        return complain(EXIT_USAGE, "found --cpu-moe and --n-cpu-moe, expected one of them");
    if ((flags->cpu_moe || flags->n_cpu_moe.given) && flags->n_gpu_experts.v)
        return complain(EXIT_USAGE, "found --cpu-moe or --n-cpu-moe and --n-gpu-experts, expected "
                                    "one of them");
    if (flags->device && has_empty_name(flags->device))
        return complain(
            EXIT_USAGE,
            "--device: found \"%s\" with an empty name, expected auto, cpu or a list of "
            "names as minerva devices prints them",
            flags->device);
    return 0;
}

enum { MOST_SETTINGS = 16 };
/* Values that are made of flags. */
typedef struct {
    char threads[24], n_cpu_moe[24], n_gpu_experts[24];
} made_values;

/* Where weights are to be; behind n settings. How many there are then. */
static uint32_t put_places(const app_flags *flags, mn_setting *out, uint32_t n, made_values *made) {
    const int64_t n_cpu_moe = flags->cpu_moe ? MAX_CPU_MOE : flags->n_cpu_moe.v;
    snprintf(made->n_cpu_moe, sizeof made->n_cpu_moe, "%" PRId64, n_cpu_moe);
    if (flags->cpu_moe || flags->n_cpu_moe.given)
        out[n++] = (mn_setting){"n_cpu_moe", made->n_cpu_moe};
    snprintf(made->n_gpu_experts, sizeof made->n_gpu_experts, "%" PRId64, flags->n_gpu_experts.v);
    if (flags->n_gpu_experts.given)
        out[n++] = (mn_setting){"n_gpu_experts", made->n_gpu_experts};
    if (*flags->tensor_devices.text)
        out[n++] = (mn_setting){"tensor_devices", flags->tensor_devices.text};
    if (flags->expert_counts)
        out[n++] = (mn_setting){"expert_counts", flags->expert_counts};
    if (flags->device_memory)
        out[n++] = (mn_setting){"device_memory", flags->device_memory};
    return n;
}

/* The flags as settings, up to MOST_SETTINGS; how many. */
static uint32_t put_settings(const app_flags *flags, mn_setting *out, made_values *made) {
    uint32_t n = 0;
    snprintf(made->threads, sizeof made->threads, "%" PRId64, flags->threads.v);
    if (flags->threads.given)
        out[n++] = (mn_setting){"threads", made->threads};
    if (flags->numa > 0 && (size_t)flags->numa < MN_COUNT(numa_modes))
        out[n++] = (mn_setting){"plugin.cpu_simd.numa", numa_modes[flags->numa]};
    if (flags->device)
        out[n++] = (mn_setting){"device", flags->device};
    if (flags->strict)
        out[n++] = (mn_setting){"strict", "true"};
    if (flags->ignore_unused)
        out[n++] = (mn_setting){"ignore_unused", "true"};
    if (flags->no_probe_cache)
        out[n++] = (mn_setting){"probe_cache", "false"};
    if (flags->ctx.given && flags->ctx.v == 0)
        out[n++] = (mn_setting){"context", "0"};
    if (flags->quiet || flags->verbose)
        out[n++] = (mn_setting){"log_level", flags->quiet ? "error" : "debug"};
    else if (flags->informs)
        out[n++] = (mn_setting){"log_level", "info"};
    if (flags->rank_token_file)
        out[n++] = (mn_setting){"rank_token_file", flags->rank_token_file};
    if (flags->cache_dir)
        out[n++] = (mn_setting){"cache_dir", flags->cache_dir};
    if (flags->cache_disk)
        out[n++] = (mn_setting){"cache_disk", flags->cache_disk};
    return put_places(flags, out, n, made);
}

/* runtime_flags: MN_RUNTIME_* */
static int open_runtime(app *a, const app_flags *flags, uint32_t runtime_flags) {
    made_values made;
    mn_setting settings[MOST_SETTINGS];
    mn_runtime_params params = {
        .size = sizeof params, .settings = settings, .flags = runtime_flags};
    memset(a, 0, sizeof *a);
    a->flags = flags;
    a->err = (mn_error)MN_ERROR;
    const int code = app_check_flags(flags);
    if (code)
        return code;
    params.n_settings = put_settings(flags, settings, &made);
    contain_plugins(&params);
    params.rank_lost = on_rank_lost;
    params.progress = on_progress;
    params.log = flags->log;
    params.arg = a;
    mn_status status = mn_runtime_create(&params, &a->rt, &a->err);
    return status == MN_OK ? 0 : app_fail(a, status);
}

int app_open_runtime(app *a, const app_flags *flags) {
    return open_runtime(a, flags, 0);
}

int app_open_names(app *a, const app_flags *flags) {
    return open_runtime(a, flags, MN_RUNTIME_NO_BACKENDS);
}

/* folder/ is folder, so that both have one name; malloc'ed. */
static char *without_slashes(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

/* The files are mapped and guarded: one that is cut while it is in use is an error, not SIGBUS. */
static int open_model(app *a, const app_flags *flags) {
    const mn_model_params params = {sizeof params, MN_MODEL_GUARD};
    char *path = flags->model ? without_slashes(flags->model) : NULL;
    if (flags->model && !path)
        return no_memory();
    const int code = hub_offer(a, path);
    if (code) {
        free(path);
        return code;
    }
    const double begin = seconds();
    mn_status status = mn_model_open_with(a->rt, path, &params, &a->model, &a->err);
    free(path);
    if (status != MN_OK)
        return app_fail(a, status);
    a->info.size = sizeof a->info;
    mn_model_get_info(a->model, &a->info);
    a->load_s = seconds() - begin;
    return 0;
}

int app_open_model(app *a, const app_flags *flags) {
    const int code = a->rt ? 0 : app_open_runtime(a, flags);
    return code ? code : open_model(a, flags);
}

/* A rank that follows: its work is rank 0's, and so are the answers. */
static void app_follow(app *a) {
    const mn_status status = mn_model_follow(a->model, &a->err);
    const int code = app_end(a, status == MN_OK ? 0 : app_fail(a, status));
    contain_over();
    exit(code);
}

int app_open_ranked(app *a, const app_flags *flags) {
    uint32_t rank = 0;
    const int code = app_open_model(a, flags);
    if (code)
        return code;
    const mn_status status = mn_model_join(a->model, &rank, &a->err);
    if (status != MN_OK)
        return app_fail(a, status);
    if (rank)
        app_follow(a);
    return 0;
}

int app_open_text(app *a, const app_flags *flags) {
    const int code = open_runtime(a, flags, MN_RUNTIME_NO_BACKENDS);
    return code ? code : open_model(a, flags);
}

int app_need_tokenizer(app *a, int code, const char *expected) {
    char *graph = NULL;
    if (a->info.has_tokenizer)
        return 0;
    const mn_status status = mn_model_graph_json(a->model, &graph, &a->err);
    mn_json_free(graph);
    if (status != MN_OK)
        return app_fail(a, status);
    return complain(code, "%s has no tokeniser%s", a->info.path, expected);
}

/* The types of -ctk and -ctv. MN_DTYPE_NONE (auto): chosen by the precision class. */
static void set_kv_types(const app_flags *flags, mn_session_params *params) {
    static const uint32_t types[] = {MN_DTYPE_NONE, MN_F32, MN_F16, MN_Q8_0};
    params->k_dtype = types[flags->kv_k];
    params->v_dtype = types[flags->kv_v];
}

/* The device of the session and the reason for it; to a person, also what model runs there. */
static void print_device(const app *a) {
    const mn_session_info *s = &a->session_info;
    const char *device = s->device ? s->device : "?", *why = s->why ? s->why : "";
    char model[300] = "";
    if (isatty(STDERR_FILENO))
        snprintf(model, sizeof model, "%.200s on ", app_model_name(a));
    if (s->fallback)
        note("warning: %s%s: %s", model, device, why);
    else
        app_remark(a, "%s%s: %s", model, device, why);
}

static int is_word(const char *given, const char *word) {
    return given && !strcmp(given, word);
}

/* The sources of drafts. */
static int set_drafts(app *a, mn_session_params *params) {
    const app_flags *f = a->flags;
    if (f->lookup)
        params->speculate |= MN_SPECULATE_LOOKUP;
    if (!params->n_draft)
        params->n_draft = (uint32_t)f->draft_max;
    if (is_word(f->draft, "mtp"))
        params->speculate |= MN_SPECULATE_HEAD;
    params->draft_device = f->draft_device;
    if (!f->draft || is_word(f->draft, "mtp") || is_word(f->draft, "none"))
        return 0;
    mn_status status = MN_OK;
    if (!a->draft)
        status = mn_model_open(a->rt, f->draft, &a->draft, &a->err);
    params->draft = a->draft;
    return status == MN_OK ? 0 : app_fail(a, status);
}

int app_open_session(app *a, mn_session_params *params) {
    const app_flags *f = a->flags;
    double begin = seconds();
    params->size = sizeof *params;
    params->device = f->device;
    if (params->precision == MN_PRECISION_AUTO)
        params->precision = (uint32_t)f->precision;
    if (f->ctx.v)
        params->n_ctx = (uint32_t)f->ctx.v;
    if (f->rows)
        params->n_batch = (uint32_t)f->rows;
    set_kv_types(f, params);
    int code = set_drafts(a, params);
    if (!code)
        code = lora_load(a, params);
    if (code)
        return code;
    a->bar = f->quiet ? NULL : progress_begin("loading the model");
    mn_status status = mn_session_create(a->model, params, &a->session, &a->err);
    progress_end(a->bar);
    a->bar = NULL;
    if (status != MN_OK)
        return app_fail(a, status);
    a->load_s += seconds() - begin;
    a->session_info.size = sizeof a->session_info;
    mn_session_get_info(a->session, &a->session_info);
    print_device(a);
    interrupt_watch(a->session);
    return 0;
}

void app_close_model(app *a) {
    interrupt_watch(NULL);
    if (a->session)
        mn_session_free(a->session);
    if (a->draft)
        mn_model_free(a->draft);
    if (a->model)
        mn_model_free(a->model);
    a->session = NULL;
    a->draft = NULL;
    a->model = NULL;
}

void app_close(app *a) {
    app_close_model(a);
    if (a->rt)
        mn_runtime_free(a->rt);
    memset(a, 0, sizeof *a);
}

int app_end(app *a, int code) {
    fflush(stdout);
    contain_ends(code);
    app_close(a);
    return code;
}

const char *input_name(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* Prints the error e (errno) of reading path; the exit code. */
static int fail_read(const char *path, int e) {
    const char *name = input_name(path);
    const int code = e == ENOMEM ? EXIT_NO_MEMORY : EXIT_FAILED;
    if (e == EFBIG)
        return complain(code, "%s: found more than %zu MiB, expected at most that", name,
                        READ_MAX >> 20);
    return complain(code, "cannot read %s: %s", name, strerror(e));
}

/* Appends the rest of f to the *n bytes of *data, which is reallocated with space for a NUL behind
 * them. 0, or errno; EFBIG: more than READ_MAX bytes. *data is the caller's in every case. */
static int app_read_stream(FILE *f, char **data, size_t *n) {
    struct stat st;
    size_t cap = 0, got = 1;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > (off_t)READ_MAX)
        return EFBIG;
    while (got) {
        if (cap - *n < 65536) {
            cap = cap ? cap * 2 : 131072;
            char *grown = realloc(*data, cap);
            if (!grown)
                return ENOMEM;
            *data = grown;
        }
        errno = 0;
        got = fread(*data + *n, 1, cap - *n - 1, f);
        *n += got;
        if (*n > READ_MAX)
            return EFBIG;
    }
    if (!ferror(f))
        return 0;
    return errno ? errno : EIO;
}

int read_all(const char *path, char **data, size_t *n) {
    const int is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    *data = NULL;
    *n = 0;
    int e = f ? app_read_stream(f, data, n) : errno;
    if (f && !is_stdin)
        fclose(f);
    if (e) {
        free(*data);
        *data = NULL;
        return fail_read(path, e);
    }
    if (*n >= 3 && memcmp(*data, "\xEF\xBB\xBF", 3) == 0) {
        *n -= 3;
        memmove(*data, *data + 3, *n);
    }
    (*data)[*n] = 0;
    return 0;
}

int read_all_text(const char *path, char **data, size_t *n) {
    int code = read_all(path, data, n);
    const char *nul = code ? NULL : memchr(*data, 0, *n);
    if (!nul)
        return code;
    code = complain(EXIT_FAILED, "%s: byte %zu is NUL, expected text", input_name(path),
                    (size_t)(nul - *data) + 1);
    free(*data);
    *data = NULL;
    *n = 0;
    return code;
}

int read_ids(const char *path, arg_ids *out) {
    char *data;
    size_t n;
    int code = read_all(path, &data, &n);
    if (code == 0)
        code = parse_ids(data, n, path, out);
    free(data);
    return code;
}

int app_list(const app_flags *flags, app_print as_json, app_print as_table) {
    app a = {0};
    out_file out = out_stdout();
    const app_print print = flags->json ? as_json : as_table;
    int code = app_open_runtime(&a, flags);
    if (code == 0) {
        print(&a, &out);
        code = out_finish(&out, 0);
    }
    return app_end(&a, code);
}
