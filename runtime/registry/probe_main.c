/* probe_main.c -- minerva-probe PARENT PLUGIN.so [KEY=VALUE...]: opens one plugin and tries what
 * the host will do with it, so that the host need not be the first. Started by the registry
 * (probe.c), which reads the report from MN_REPORT_FD, line by line: after a crash it shows how far
 * this came. */
#include "registry/probe_main.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKERS 2         /* enough for barriers to be tried */
#define MAX_DEVICES 1024u /* as in devices.c */

#if defined(__SANITIZE_ADDRESS__)
/* A crash is to be seen as the signal that it is. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0:detect_"
           "leaks=0";
}
#endif

/* ---- the report ------------------------------------------------------------------------------ */

static void send(const char *bytes, size_t n) {
    while (n) {
        ssize_t done = write(MN_REPORT_FD, bytes, n);
        if (done <= 0)
            _exit(1); /* nobody listens any more */
        bytes += done;
        n -= (size_t)done;
    }
}

void probe_tell(const char *key, const char *fmt, ...) {
    char value[1024];
    mn_text line = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    mn_report_put(&line, key, "%s", value);
    if (line.failed)
        _exit(1);
    send(line.ptr, line.len);
    mn_text_free(&line);
}

void probe_phase(const char *doing) {
    probe_tell("phase", "%s", doing);
}

static void phase_of(const char *doing, uint32_t index) {
    probe_tell("phase", "%s %u", doing, index);
}

static _Noreturn void finish(mn_record_status status, const char *reason) {
    probe_tell("status", "%s", mn_record_status_name(status));
    probe_tell("reason", "%s", reason);
    send(MN_REPORT_END, strlen(MN_REPORT_END));
    _exit(0); /* not through what the plugin's libraries have registered for the end */
}

/* ---- a backend ------------------------------------------------------------------------------- */

/* Which may be over next time: then the answer is not worth keeping. */
static bool passes(mn_status status) {
    uint32_t klass = MN_STATUS_CLASS(status);
    if (klass == MN_CLASS_SMALLER || klass == MN_CLASS_TRANSIENT)
        probe_tell("again", "1");
    return klass == MN_CLASS_SMALLER || klass == MN_CLASS_TRANSIENT;
}

/* A device that cannot be opened is not mentioned: the host's own attempt says why, as things are
 * then. */
static void try_open(const mn_plugin_record *rec, uint32_t i, const char *uid) {
    const mn_backend *b = rec->backend;
    mn_error why = MN_ERROR_INIT;
    mn_device *device = NULL;
    phase_of("opening device", i);
    mn_status status = b->device_open(rec->plugin->self, i, &device, &why);
    if (status != MN_OK || !device) {
        passes(status);
        return;
    }
    phase_of("running the self-test of device", i);
    status = MN_HAS(mn_backend, b, self_test) ? b->self_test(device, &why) : MN_OK;
    why.msg[sizeof why.msg - 1] = 0;
    if (status != MN_OK && !passes(status))
        probe_tell("fault", "%u\t%s\tfailed its self-test: %s", i, uid,
                   why.msg[0] ? why.msg : "the plugin gave no reason");
    phase_of("closing device", i);
    b->device_close(device);
}

static void try_device(const mn_plugin_record *rec, uint32_t i) {
    mn_error why = MN_ERROR_INIT;
    mn_device_info info = {.size = sizeof info};
    phase_of("describing device", i);
    if (rec->backend->device_info(rec->plugin->self, i, &info, &why) != MN_OK)
        return; /* the host's list says it, too */
    info.uid[sizeof info.uid - 1] = 0;
    for (char *c = info.uid; *c; c++)
        if (*c == '\t')
            *c = ' ';
    try_open(rec, i, info.uid);
}

static void try_backend(const mn_plugin_record *rec) {
    mn_error why = MN_ERROR_INIT;
    uint32_t n = 0;
    probe_phase("listing devices");
    /* as above */
    if (rec->backend->device_count(rec->plugin->self, &n, &why) != MN_OK || n > MAX_DEVICES)
        return;
    for (uint32_t i = 0; i < n; i++)
        try_device(rec, i);
}

/* ---- the process ----------------------------------------------------------------------------- */

/* Not to outlive the host, not to leave a core file, not to hold its files. */
static void settle(const char *parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(parent))
        _exit(1); /* it went before the line above */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
#ifdef SYS_close_range
    syscall(SYS_close_range, MN_REPORT_FD + 1, ~0u, 0);
#endif
    fcntl(MN_REPORT_FD, F_SETFD, FD_CLOEXEC);
}

/* The configuration of this process is that of the host but for its command line, whose part about
 * plugins is in our arguments. */
static mn_status load_config(int n, char **settings, mn_config **cfg, mn_error *err) {
    mn_config_override *over = mn_calloc((size_t)n + 1, sizeof *over);
    if (!over)
        return mn_fail_memory(err, 0);
    for (int i = 0; i < n; i++) {
        char *equals = strchr(settings[i], '=');
        if (!equals)
            continue;
        *equals = 0;
        over[i] = (mn_config_override){settings[i], equals + 1, NULL};
    }
    mn_status status = mn_config_load(over, (size_t)n, cfg, err);
    mn_free(over);
    return status;
}

static bool look(mn_plugin_file *file, const char *path) {
    struct stat st;
    if (strlen(path) >= sizeof file->real || stat(path, &st))
        return false;
    memcpy(file->real, path, strlen(path) + 1);
    mn_plugin_file_identify(file, &st);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool done = fd >= 0 && mn_plugin_note_read(fd, &file->note, NULL) == MN_OK;
    if (fd >= 0)
        close(fd);
    return done;
}

static void tell_facts(const mn_plugin_record *rec) {
    if (rec->id.len)
        probe_tell("id", "%s", rec->id.ptr);
    probe_tell("kind", "%s", rec->kind);
    probe_tell("abi", "%u", rec->abi);
    probe_tell("vendor", "%s", rec->vendor);
    probe_tell("version", "%s", rec->version);
    probe_tell("build_id", "%s", rec->build_id);
    probe_tell("entry_ms", "%u", rec->probe.entry_ms);
}

int main(int argc, char **argv) {
    static mn_plugin_file file;
    static mn_services services = {.phase = probe_phase};
    mn_plugin_record rec;
    mn_config *cfg;
    mn_error err = MN_ERROR_INIT;
    if (argc < 3 || fcntl(MN_REPORT_FD, F_GETFD) < 0) {
        fputs("minerva-probe is started by libminerva: it opens a plugin to see whether that is "
              "safe\n",
              stderr);
        return 2;
    }
    settle(argv[1]);
    probe_phase("being started");
    mn_status status = load_config(argc - 3, argv + 3, &cfg, &err);
    if (status == MN_OK)
        status = mn_pool_create(WORKERS, &services.pool, &err);
    if (status != MN_OK)
        finish(MN_RECORD_FAILED, err.msg);
    services.cfg = cfg;
    if (!mn_plugin_record_init(&rec, &services, argv[2]))
        finish(MN_RECORD_FAILED, "out of memory");
    if (!look(&file, argv[2]))
        finish(MN_RECORD_REFUSED, "changed while it was being looked at");
    rec.has_note = file.note.found;
    rec.note_abi_oldest = file.note.abi_oldest;
    if (mn_plugin_load(&rec, &file, &err) != MN_OK)
        finish(MN_RECORD_FAILED, err.msg);
    tell_facts(&rec);
    if (rec.status != MN_RECORD_OK)
        finish(rec.status, rec.reason);
    if (rec.backend)
        try_backend(&rec);
    if (rec.loader && !probe_loader(&rec, &err))
        finish(MN_RECORD_FAILED, err.msg);
    probe_phase("shutting down");
    mn_plugin_unload(&rec);
    finish(MN_RECORD_OK, "");
}
