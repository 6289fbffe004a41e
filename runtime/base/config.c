/* config.c -- the settings: one table of keys, four sources laid over it. config_file.c reads the
 * lines of the files. */
#include "base/config.h"
#include "base/config_file.h"
#include "base/trust.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

static const mn_config_key keys[] = {
    {"device", "MINERVA_DEVICE", MN_CONFIG_STRING, "auto", 0, 0, NULL, false,
     "auto, or a list of plugin[:n]"},
    {"threads", "MINERVA_THREADS", MN_CONFIG_INT, "0", 0, 4096, NULL, false,
     "CPU threads; 0 = all that the process may use"},
    {"model", "MINERVA_MODEL", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "model that is run if none is named"},
    {"model_path", "MINERVA_MODEL_PATH", MN_CONFIG_PATHS, "", 0, 0, NULL, true,
     "folders searched for models, colon-separated"},
    {"context", "MINERVA_CONTEXT", MN_CONFIG_INT, "0", 0, 1 << 30, NULL, false,
     "tokens of a sequence at most; 0 = what the model was trained for, at most 4096"},
    {"batch", "MINERVA_BATCH", MN_CONFIG_INT, "0", 0, 1 << 20, NULL, false,
     "tokens of a step at most; 0 = 512, of an encoder at least the context"},
    {"n_cpu_moe", "MINERVA_N_CPU_MOE", MN_CONFIG_INT, "-1", -1, 1048576, NULL, false,
     "layers whose routed experts are on the CPU; -1 = as is fastest"},
    {"n_gpu_experts", "MINERVA_N_GPU_EXPERTS", MN_CONFIG_INT, "-1", -1, 1048576, NULL, false,
     "routed experts of each layer that are on the device in front of the CPU; -1 = as is fastest"},
    {"stream_experts", "MINERVA_STREAM_EXPERTS", MN_CONFIG_INT, "-1", -1, 1048576, NULL, false,
     "rows of a step from which on a card computes the CPU's experts; 0 = never; -1 = by the "
     "rates"},
    {"expert_counts", "MINERVA_EXPERT_COUNTS", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "importance matrix whose counts say which experts are used most: a device has these"},
    {"tensor_devices", "MINERVA_TENSOR_DEVICES", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "PATTERN=DEVICE, with commas: matrices whose names match are on that device"},
    {"device_memory", "MINERVA_DEVICE_MEMORY", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "bytes of each device that is no CPU at most; none: what is free"},
    {"strict", "MINERVA_STRICT", MN_CONFIG_BOOL, "false", 0, 0, NULL, false,
     "whether a device of a list that is passed over is an error, although a CPU is in the list"},
    {"ignore_unused", "MINERVA_IGNORE_UNUSED", MN_CONFIG_BOOL, "false", 0, 0, NULL, false,
     "whether a model with tensors that its architecture does not use runs without them"},
    {"precision", "MINERVA_PRECISION", MN_CONFIG_CHOICE, "auto", 0, 0, "auto|exact|a16|a8", false,
     "rounding that is allowed"},
    {"log_level", "MINERVA_LOG", MN_CONFIG_CHOICE, "warn", 0, 0, "error|warn|info|debug", false,
     "messages shown on stderr"},
    {"plugin_path", "MINERVA_PLUGIN_PATH", MN_CONFIG_PATHS, "", 0, 0, NULL, true,
     "folders searched for plugins before the usual ones"},
    {"plugin_path_only", "MINERVA_PLUGIN_PATH_ONLY", MN_CONFIG_PATHS, "", 0, 0, NULL, false,
     "folders searched for plugins instead of all others"},
    {"probe_timeout", "MINERVA_PROBE_TIMEOUT", MN_CONFIG_FLOAT, "10", 0, 3600, NULL, false,
     "seconds that all new plugins together may take in the probing process; 0 = plugins are "
     "opened without a probe"},
    {"probe_cache", "MINERVA_PROBE_CACHE", MN_CONFIG_BOOL, "true", 0, 0, NULL, false,
     "whether what probes find is remembered; false forgets what was"},
    {"call_timeout", "MINERVA_CALL_TIMEOUT", MN_CONFIG_FLOAT, "300", 0, 1e6, NULL, false,
     "seconds that the command waits for a call into a plugin which prepares something; 0 = for "
     "ever"},
    {"step_timeout", "MINERVA_STEP_TIMEOUT", MN_CONFIG_FLOAT, "600", 0, 1e6, NULL, false,
     "seconds that the command waits for a call of a step beyond 100 times its estimated time; 0 = "
     "for ever"},
    {"rank_timeout", "MINERVA_RANK_TIMEOUT", MN_CONFIG_FLOAT, "60", 1, 86400, NULL, false,
     "seconds that processes of one group wait for each other when they start"},
    {"rank_token_file", "MINERVA_RANK_TOKEN_FILE", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "file of the token that processes of one group prove to each other; none: the variable "
     "MINERVA_RANK_TOKEN, on one machine a token of the user's own"},
    {"chat_history", "MINERVA_CHAT_HISTORY", MN_CONFIG_BOOL, "true", 0, 0, NULL, false,
     "whether minerva chat keeps what is typed for later chats"},
    {"cache_dir", "MINERVA_CACHE_DIR", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "folder for what the KV cache holds, so that conversations go on after a restart; none: no "
     "files"},
    {"cache_disk", "MINERVA_CACHE_DISK", MN_CONFIG_STRING, "20GiB", 0, 0, NULL, false,
     "bytes of all files in cache_dir at most"},
    {"cache_host", "MINERVA_CACHE_HOST", MN_CONFIG_STRING, "2GiB", 0, 0, NULL, false,
     "bytes of host memory at most for states of sequences that a device has no room for; 0 = "
     "none"},
    {"plugin.cpu_simd.isa", "MINERVA_CPU_ISA", MN_CONFIG_CHOICE, "", 0, 0,
     "generic|avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx|neon|dotprod|i8mm|bf16|sve256", false,
     "best instruction set that cpu_simd may use"},
    {"plugin.cpu_simd.numa", "MINERVA_CPU_NUMA", MN_CONFIG_CHOICE, "auto", 0, 0,
     "auto|off|interleave|split", false,
     "how weights and caches lie on several memory nodes; auto = off"},
    {"plugin.cpu_simd.repack", "MINERVA_CPU_REPACK", MN_CONFIG_CHOICE, "auto", 0, 0, "auto|off",
     false, "off: weights are used as the file has them, never in a second layout"},
    {"plugin.cuda.collectives", "MINERVA_CUDA_COLLECTIVES", MN_CONFIG_CHOICE, "auto", 0, 0,
     "auto|mixed|nccl", false,
     "how a group exchanges: auto = through peer memory where it is there, else NCCL; mixed = "
     "large "
     "sums through NCCL"},
    {"plugin.cuda.graphs", "MINERVA_CUDA_GRAPHS", MN_CONFIG_CHOICE, "1", 0, 0, "0|1", false,
     "0 launches kernels one by one, for profilers"},
    {"plugin.cuda.group_small_kib", "MINERVA_CUDA_GROUP_SMALL_KIB", MN_CONFIG_INT, "256", 1, 65536,
     NULL, false, "KiB of a sum that a member of a group sends whole to all others"},
    {"plugin.cuda.groups", "MINERVA_CUDA_GROUPS", MN_CONFIG_CHOICE, "0", 0, 0, "0|1", false,
     "1 offers several cards as one device, cuda:0+cuda:1"},
    {"plugin.cuda.nccl", "MINERVA_CUDA_NCCL", MN_CONFIG_STRING, "", 0, 0, NULL, false,
     "the library libnccl.so.2 of groups; empty = where the system has it"},
    {"plugin.cuda.repeat", "MINERVA_CUDA_REPEAT", MN_CONFIG_INT, "1", 1, 9, NULL, false,
     "lists every card so many times, to test groups on one card"},
    {"plugin.opencl.buffer_kib", "MINERVA_OPENCL_BUFFER_KIB", MN_CONFIG_INT, "0", 0, INT_MAX, NULL,
     false,
     "KiB of a buffer; larger weights and caches lie in several; 0 = what the driver states"},
    {"plugin.opencl.cache", "MINERVA_OPENCL_CACHE", MN_CONFIG_CHOICE, "auto", 0, 0, "auto|0|1",
     false, "whether compiled kernels are kept; auto = not of a CPU, whose driver keeps them"},
    {"plugin.opencl.command_buffers", "MINERVA_OPENCL_COMMAND_BUFFERS", MN_CONFIG_CHOICE, "auto", 0,
     0, "auto|0|1", false,
     "whether steps that repeat are command buffers; auto = where the device is no CPU"},
    {"plugin.opencl.fill", "MINERVA_OPENCL_FILL", MN_CONFIG_INT, "1", 0, 1, NULL, false,
     "0 = scratch and weights are not zeroed, so that a tool finds what is read too early"},
    {"plugin.opencl.lanes", "MINERVA_OPENCL_LANES", MN_CONFIG_INT, "0", 0, 256, NULL, false,
     "work-items that share a row; 0 = by the kind of the device"},
    {"plugin.opencl.linear_lanes", "MINERVA_OPENCL_LINEAR_LANES", MN_CONFIG_INT, "0", 0, 64, NULL,
     false, "work-items that share an output of a product; 0 = by the kind of the device"},
    {"plugin.opencl.mad", "MINERVA_OPENCL_MAD", MN_CONFIG_CHOICE, "0", 0, 0, "-1|0|8|16", false,
     "products on matrix engines; 0 = where the driver has them, -1 = never, 8 or 16 = played by "
     "local memory, for tests"},
    {"plugin.opencl.memory_mib", "MINERVA_OPENCL_MEMORY_MIB", MN_CONFIG_INT, "0", 0, 1 << 30, NULL,
     false, "MiB of a device that may be used; 0 = seven eighths"},
    {"plugin.opencl.shapes", "MINERVA_OPENCL_SHAPES", MN_CONFIG_CHOICE, "0", 0, 0, "-1|0|1", false,
     "whether groups of products are measured; 0 = on GPUs other than NVIDIA's, -1 = never, 1 = on "
     "all devices"},
    {"plugin.opencl.step_groups", "MINERVA_OPENCL_STEP_GROUPS", MN_CONFIG_INT, "0", -1, 4096, NULL,
     false,
     "work-groups of a kernel that runs many operations of a step; 0 = one for each compute "
     "unit where groups can wait for each other, -1 = each operation is a kernel"},
    {"plugin.opencl.sub_groups", "MINERVA_OPENCL_SUB_GROUPS", MN_CONFIG_CHOICE, "0", 0, 0,
     "-1|0|8|16|32|64", false,
     "sums by sub-groups; 0 = where the driver has them, -1 = never, others = of so many items, "
     "played by local memory, for tests"},
    {"plugin.opencl.unified", "MINERVA_OPENCL_UNIFIED", MN_CONFIG_CHOICE, "auto", 0, 0, "auto|0|1",
     false, "0 = weights go through pinned memory even where the device shares the host's memory"},
};

/* The stronger source is the larger number. */
enum { FROM_DEFAULT, FROM_SYSTEM, FROM_USER, FROM_ENV, FROM_COMMAND };

typedef struct {
    char *name;
    char *value;
    char *origin;
    int from;
} setting;
struct mn_config {
    setting *settings; /* [n]: the known keys in the table's order, then plugins' own */
    size_t n;
    size_t cap;
    setting *env; /* MINERVA_* that no key names: a plugin may ask for them */
    size_t n_env;
    size_t cap_env;
};

const mn_config_key *mn_config_keys(size_t *n) {
    return *n = MN_COUNT(keys), keys;
}

static const mn_config_key *ini_key_of(const char *name) {
    for (size_t i = 0; i < MN_COUNT(keys); i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

static setting *setting_of(const mn_config *cfg, const char *name) {
    for (size_t i = 0; i < cfg->n; i++)
        if (!strcmp(cfg->settings[i].name, name))
            return &cfg->settings[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool parse_bool(const char *value, bool *out) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (!strcasecmp(value, words[i]))
            return *out = i % 2, true;
    return false;
}

/* Index of value in "a|b|c", or -1. */
static int choice_of(const char *choices, const char *value) {
    size_t len = strlen(value);
    int i = 0;
    for (const char *at = choices;; i++) {
        size_t n = strcspn(at, "|");
        if (n == len && !memcmp(at, value, n))
            return i;
        if (!at[n])
            return -1;
        at += n + 1;
    }
}

static bool value_fits(const mn_config_key *key, const char *value) {
    bool flag;
    int64_t whole;
    double number;
    if (!*value)
        return !*key->preset && (key->type == MN_CONFIG_STRING || key->type == MN_CONFIG_PATHS);
    switch (key->type) {
    case MN_CONFIG_BOOL:
        return parse_bool(value, &flag);
    case MN_CONFIG_INT:
        return mn_parse_i64(mn_str_of(value), &whole) && (double)whole >= key->lo &&
               (double)whole <= key->hi;
    case MN_CONFIG_FLOAT:
        return mn_parse_f64(mn_str_of(value), &number) && number >= key->lo && number <= key->hi;
    case MN_CONFIG_CHOICE:
        return choice_of(key->choices, value) >= 0;
    case MN_CONFIG_STRING:
    case MN_CONFIG_PATHS:
        return true;
    }
    return false;
}

static mn_status fail_value(const char *where, const char *shown, const mn_config_key *key,
                            const char *value, mn_error *err) {
    char expected[160] = "true or false";
    if (key->type == MN_CONFIG_INT)
        snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", key->lo, key->hi);
    if (key->type == MN_CONFIG_FLOAT)
        snprintf(expected, sizeof expected, "a number from %g to %g", key->lo, key->hi);
    if (key->type == MN_CONFIG_CHOICE)
        snprintf(expected, sizeof expected, "one of %s", key->choices);
    if (key->type == MN_CONFIG_STRING)
        snprintf(expected, sizeof expected, "%s", key->help);
    return mn_fail(err, MN_BAD_INPUT, "%s: %s: found \"%.100s\", expected %s", where, shown, value,
                   expected);
}

/* ---- laying one value over what is there ----------------------------------------------------- */

static bool ini_set_text(char **at, const char *text, size_t n) {
    char *copy = mn_strndup(text, n);
    if (!copy)
        return false;
    mn_free(*at);
    *at = copy;
    return true;
}

static char *ini_joined(const char *a, const char *between, const char *b) {
    mn_text t = {0};
    mn_text_puts(&t, a);
    mn_text_puts(&t, between);
    mn_text_puts(&t, b);
    if (!t.failed)
        return t.ptr;
    mn_text_free(&t);
    return NULL;
}

static bool add_setting(setting **list, size_t *n, size_t *cap, const char *name, const char *value,
                        const char *origin, int from) {
    void *ptr = *list;
    if (!mn_grow(&ptr, cap, *n + 1, sizeof **list))
        return false;
    *list = ptr;
    setting s = {mn_strndup(name, strlen(name)), mn_strndup(value, strlen(value)),
                 mn_strndup(origin, strlen(origin)), from};
    (*list)[(*n)++] = s; /* also when a copy failed: freed with the rest */
    return s.name && s.value && s.origin;
}

/* A path list adds up: what comes later is stronger and goes in front, or behind within one
 * source. */
static bool add_paths(setting *s, const char *value, const char *origin, int from) {
    bool same_source = s->from == from;
    char *paths = same_source ? ini_joined(s->value, ":", value) : ini_joined(value, ":", s->value);
    char *origins =
        same_source ? ini_joined(s->origin, ", ", origin) : ini_joined(origin, ", ", s->origin);
    bool done = paths && origins && ini_set_text(&s->value, paths, strlen(paths)) &&
                ini_set_text(&s->origin, origins, strlen(origins));
    mn_free(paths);
    mn_free(origins);
    s->from = from;
    return done;
}

/* name is known or a plugin's. where: for messages; shown: the name as the user spelled it. */
static mn_status lay(mn_config *cfg, const char *name, const char *value, const char *origin,
                     int from, const char *where, const char *shown, mn_error *err) {
    const mn_config_key *key = ini_key_of(name);
    if (key && from != FROM_DEFAULT && !value_fits(key, value))
        return fail_value(where, shown, key, value, err);
    setting *s = setting_of(cfg, name);
    bool done;
    if (!s)
        done = add_setting(&cfg->settings, &cfg->n, &cfg->cap, name, value, origin, from);
    else if (key && key->adds_up && s->from != FROM_DEFAULT && *s->value)
        done = add_paths(s, value, origin, from);
    else {
        done = ini_set_text(&s->value, value, strlen(value)) &&
               ini_set_text(&s->origin, origin, strlen(origin));
        s->from = from;
    }
    return done ? MN_OK : mn_fail_memory(err, strlen(value));
}

/* Whether the table tells this plugin's keys: then it tells all of them. n: up to and with the dot
 * behind the id. */
static bool is_listed_plugin(const char *name, size_t n) {
    for (size_t i = 0; i < MN_COUNT(keys); i++)
        if (!strncmp(keys[i].name, name, n))
            return true;
    return false;
}

/* "plugin.ID.KEY" */
static bool is_plugin_key(const char *name) {
    if (strncmp(name, "plugin.", 7) != 0)
        return false;
    const char *id = name + 7;
    const char *dot = strchr(id, '.');
    if (!dot || !mn_config_is_id(id, (size_t)(dot - id)) || !dot[1] || strchr(dot + 1, '.'))
        return false;
    return ini_key_of(name) || !is_listed_plugin(name, (size_t)(dot + 1 - name));
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct {
    mn_config *cfg;
    int from;
} file_source;

static mn_status fail_key(const mn_config_line *l, mn_error *err) {
    const char *section = l->section;
    mn_text known = {0};
    size_t n = !strncmp(section, "plugin.", 7) ? strlen(section) : 0;
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        const char *key = keys[i].name;
        if (n ? !strncmp(key, section, n) && key[n] == '.' : !strchr(key, '.'))
            mn_text_printf(&known, "%s%s", known.len ? ", " : "", n ? key + n + 1 : key);
    }
    mn_fail(err, MN_BAD_INPUT, "%s:%d: found unknown key \"%s%s%s\", expected one of %s%s", l->path,
            l->line, section, *section ? "." : "", l->name,
            known.failed || !known.len ? "the known keys" : known.ptr,
            n ? "" : ", or a key in [plugin.ID]");
    mn_text_free(&known);
    return MN_BAD_INPUT;
}

/* A line of the file. */
static mn_status lay_line(void *arg, const mn_config_line *l, mn_error *err) {
    const file_source *f = arg;
    const char *section = l->section;
    const char *name = l->name;
    char full[128];
    char where[32];
    bool of_plugin = !strncmp(section, "plugin.", 7);
    if (of_plugin)
        snprintf(full, sizeof full, "%s.%s", section, name); /* inih: both below 50 bytes */
    else
        snprintf(full, sizeof full, "%s", name);
    if (strlen(name) >= MN_CONFIG_NAME_CAP)
        return mn_fail(err, MN_BAD_INPUT, "%s:%d: found a name of %d bytes or more: %s", l->path,
                       l->line, MN_CONFIG_NAME_CAP, name);
    if (of_plugin ? !is_plugin_key(full) : !ini_key_of(full) || strchr(full, '.'))
        return fail_key(l, err);
    snprintf(where, sizeof where, ":%d", l->line);
    char *origin = ini_joined(l->path, where, "");
    if (!origin)
        return mn_fail_memory(err, strlen(l->path));
    const setting *old = setting_of(f->cfg, full);
    const mn_config_key *key = ini_key_of(full);
    mn_status status = MN_OK;
    if (old && old->from == f->from && !(key && key->adds_up))
        status = mn_fail(err, MN_BAD_INPUT, "%s: %s: found a second time, first at %s", origin,
                         full, old->origin);
    else
        status = lay(f->cfg, full, l->value, origin, f->from, origin, full, err);
    mn_free(origin);
    return status;
}

static mn_status load_file(mn_config *cfg, const char *path, int from, mn_error *err) {
    file_source f = {cfg, from};
    return mn_config_read_file(path, lay_line, &f, err);
}

/* The prefix was fixed when the library was built. Where the installation was moved away, another
 * user may have made a folder of that name: such a file is not read, and a warning says so. */
static mn_status load_system_file(mn_config *cfg, mn_error *err) {
    const char *path = MN_SYSCONF_DIR "/minerva/minerva.ini";
    mn_trust trust;
    mn_error why = MN_ERROR_INIT;
    char real[PATH_MAX];
    if (access(path, F_OK))
        return MN_OK;
    mn_trust_init(&trust);
    if (mn_trust_path(&trust, path, real, &why) == MN_OK)
        return load_file(cfg, path, FROM_SYSTEM, err);
    mn_log(MN_LOG_WARN, "the system's settings are not read: %s", why.msg);
    return MN_OK;
}

static mn_status load_user_file(mn_config *cfg, mn_error *err) {
    const char *base = secure_getenv("XDG_CONFIG_HOME");
    const char *tail = "/minerva/minerva.ini";
    if (!base || *base != '/') {
        base = secure_getenv("HOME");
        tail = "/.config/minerva/minerva.ini";
    }
    if (!base || *base != '/')
        return MN_OK;
    char *path = ini_joined(base, tail, "");
    mn_status status =
        path ? load_file(cfg, path, FROM_USER, err) : mn_fail_memory(err, strlen(base));
    mn_free(path);
    return status;
}

/* ---- environment and command line ------------------------------------------------------------ */

extern char **environ;

static mn_status load_variable(mn_config *cfg, const mn_config_key *key, const char *variable,
                               mn_error *err) {
    const char *value = secure_getenv(variable);
    char origin[96];
    if (!value || !*value)
        return MN_OK; /* empty = not set, as everywhere */
    snprintf(origin, sizeof origin, "environment %s", variable);
    return lay(cfg, key->name, value, origin, FROM_ENV, "environment", variable, err);
}

/* "MINERVA_CPU_SIMD_ISA" of "plugin.cpu_simd.isa" */
static void plain_variable(const char *name, char *out, size_t cap) {
    snprintf(out, cap, "MINERVA_%s", name + 7);
    for (char *c = out; *c; c++) {
        if (*c == '.' || *c == '-')
            *c = '_';
        else if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 32);
    }
}

static mn_status load_env(mn_config *cfg, mn_error *err) {
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        char plain[64] = "";
        if (!strncmp(keys[i].name, "plugin.", 7))
            plain_variable(keys[i].name, plain, sizeof plain);
        mn_status status = *plain ? load_variable(cfg, &keys[i], plain, err) : MN_OK;
        if (status == MN_OK)
            status = load_variable(cfg, &keys[i], keys[i].env, err);
        if (status != MN_OK)
            return status;
    }
    /* more rights than its caller: as secure_getenv, no variable counts */
    if (getauxval(AT_SECURE))
        return MN_OK;
    for (char **var = environ; var && *var; var++) {
        const char *equals = strchr(*var, '=');
        if (!equals || !equals[1] || strncmp(*var, "MINERVA_", 8) != 0)
            continue;
        char *name = mn_strndup(*var, (size_t)(equals - *var));
        char *origin = name ? ini_joined("environment", " ", name) : NULL;
        bool done = origin && add_setting(&cfg->env, &cfg->n_env, &cfg->cap_env, name, equals + 1,
                                          origin, FROM_ENV);
        mn_free(name);
        mn_free(origin);
        if (!done)
            return mn_fail_memory(err, strlen(*var));
    }
    return MN_OK;
}

static mn_status load_override(mn_config *cfg, const mn_config_override *o, mn_error *err) {
    if (!ini_key_of(o->name) && !is_plugin_key(o->name))
        return mn_fail(err, MN_BAD_INPUT,
                       "command line: found unknown setting %s, expected one that `minerva config` "
                       "lists or plugin.ID.KEY",
                       o->name);
    return lay(cfg, o->name, o->value, "command line", FROM_COMMAND, "command line",
               o->flag ? o->flag : o->name, err);
}

mn_status mn_config_load(const mn_config_override *overrides, size_t n, mn_config **out,
                         mn_error *err) {
    mn_config *cfg = mn_calloc(1, sizeof *cfg);
    if (!cfg)
        return mn_fail_memory(err, sizeof *cfg);
    mn_status status = MN_OK;
    for (size_t i = 0; i < MN_COUNT(keys) && status == MN_OK; i++)
        status = lay(cfg, keys[i].name, keys[i].preset, "default", FROM_DEFAULT, "default",
                     keys[i].name, err);
    if (status == MN_OK)
        status = load_system_file(cfg, err);
    if (status == MN_OK)
        status = load_user_file(cfg, err);
    if (status == MN_OK)
        status = load_env(cfg, err);
    for (size_t i = 0; i < n && status == MN_OK; i++)
        status = load_override(cfg, &overrides[i], err);
    if (status != MN_OK)
        return mn_config_free(cfg), status;
    *out = cfg;
    return MN_OK;
}

static void free_settings(setting *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        mn_free(list[i].name);
        mn_free(list[i].value);
        mn_free(list[i].origin);
    }
    mn_free(list);
}

void mn_config_free(mn_config *cfg) {
    if (!cfg)
        return;
    free_settings(cfg->settings, cfg->n);
    free_settings(cfg->env, cfg->n_env);
    mn_free(cfg);
}

/* ---- asking ---------------------------------------------------------------------------------- */

const char *mn_config_get_str(const mn_config *cfg, const char *name) {
    const setting *s = setting_of(cfg, name);
    return s ? s->value : "";
}

int64_t mn_config_get_int(const mn_config *cfg, const char *name) {
    int64_t value = 0;
    mn_parse_i64(mn_str_of(mn_config_get_str(cfg, name)), &value);
    return value;
}

double mn_config_get_float(const mn_config *cfg, const char *name) {
    double value = 0;
    mn_parse_f64(mn_str_of(mn_config_get_str(cfg, name)), &value);
    return value;
}

bool mn_config_get_bool(const mn_config *cfg, const char *name) {
    bool value = false;
    parse_bool(mn_config_get_str(cfg, name), &value);
    return value;
}

bool mn_config_is_set(const mn_config *cfg, const char *name) {
    const setting *s = setting_of(cfg, name);
    return s && s->from != FROM_DEFAULT;
}

int32_t mn_config_log_level(const mn_config *cfg) { /* the choices stand in the order of MN_LOG_* */
    return choice_of(ini_key_of("log_level")->choices, mn_config_get_str(cfg, "log_level"));
}

/* The variable that sets this plugin's key, if it is the strongest source; else NULL. */
static const setting *env_of(const mn_config *cfg, const char *name, const setting *s) {
    if (strncmp(name, "plugin.", 7) != 0 || (s && s->from >= FROM_ENV))
        return NULL;
    char plain[280];
    plain_variable(name, plain, sizeof plain);
    for (size_t i = 0; i < cfg->n_env; i++)
        if (!strcmp(cfg->env[i].name, plain))
            return &cfg->env[i];
    return NULL;
}

const char *mn_config_option(const mn_config *cfg, const char *plugin_id, const char *key) {
    char name[256];
    int n = snprintf(name, sizeof name, "plugin.%s.%s", plugin_id, key);
    if (n < 0 || (size_t)n >= sizeof name)
        return NULL;
    const setting *s = setting_of(cfg, name);
    const setting *env = env_of(cfg, name, s);
    if (env)
        return env->value;
    return s && s->from != FROM_DEFAULT ? s->value : NULL;
}

bool mn_config_at(const mn_config *cfg, size_t i, const char **name, const char **value,
                  const char **origin) {
    if (i >= cfg->n)
        return false;
    const setting *s = &cfg->settings[i];
    const setting *env = env_of(cfg, s->name, s);
    *name = s->name;
    *value = env ? env->value : s->value;
    *origin = env ? env->origin : s->origin;
    return true;
}

/* ---- variables that nobody knows ------------------------------------------------------------- */

static bool is_known_variable(const char *name) {
    char plain[280];
    if (!strcmp(name, "MINERVA_RANK_TOKEN")) /* no key: keys are listed with their values */
        return true;
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        *plain = 0;
        if (!strncmp(keys[i].name, "plugin.", 7))
            plain_variable(keys[i].name, plain, sizeof plain);
        if (!strcmp(keys[i].env, name) || !strcmp(plain, name))
            return true;
    }
    return false;
}

const char *mn_config_variable(const mn_config *cfg, size_t i) {
    for (size_t k = 0; k < cfg->n_env; k++)
        if (!is_known_variable(cfg->env[k].name) && !i--)
            return cfg->env[k].name;
    return NULL;
}

/* Edits from a to b: characters added, dropped or replaced. Names beyond 63 bytes are far. */
static size_t ini_distance(const char *a, const char *b) {
    enum { CAP = 64 };
    size_t row[CAP];
    size_t n = strlen(b);
    if (n >= CAP)
        return CAP;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replaced = corner + (*a != b[j - 1]);
            corner = row[j];
            row[j] = MN_MIN(MN_MIN(row[j], row[j - 1]) + 1, replaced);
        }
    }
    return row[n];
}

const char *mn_config_nearest(const char *name) {
    const char *best = NULL;
    const size_t prefix = strlen("MINERVA_");
    const size_t n = strlen(name);
    /* a third of it: beyond that it is another word */
    size_t least = 1 + (n > prefix ? n - prefix : 0) / 3;
    for (size_t i = 0; i < MN_COUNT(keys); i++) {
        const size_t d = ini_distance(name, keys[i].env);
        if (d < least) {
            least = d;
            best = keys[i].env;
        }
    }
    return best;
}
