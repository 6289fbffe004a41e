/* probe_main.c -- minerva-probe LIMIT_MS PLUGIN.so KEY [KEY=VALUE...]: opens one plugin and tries
 * what the host will do with it, so that the host need not be the first. Started by the registry
 * (probe.c), which reads a report from MN_REPORT_FD. The process that was started ends at once: the
 * two that do the work (probe_main.h) are nobody's children, so that the host may go on while they
 * watch the plugin for some seconds more, and never has one to wait for. */
#include "registry/probe_main.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
/* A crash is to be seen as the signal that it is. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0:detect_"
           "leaks=0";
}
#endif

enum { ARG_LIMIT = 1, ARG_PLUGIN, ARG_KEY, ARG_SETTINGS };

/* The file's identity and note, as the key of the cache has them. */
static mn_status probe_look(mn_plugin_file *file, const char *path) {
    struct stat st;
    if (strlen(path) >= sizeof file->real || stat(path, &st))
        return MN_IO_ERROR;
    memcpy(file->real, path, strlen(path) + 1);
    mn_plugin_file_identify(file, &st);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return MN_IO_ERROR;
    const mn_status read = mn_plugin_note_read(fd, &file->note, NULL);
    close(fd);
    return read;
}

int main(int argc, char **argv) {
    static probe_request rq; /* as large as a path */
    if (argc < ARG_SETTINGS || fcntl(MN_REPORT_FD, F_GETFD) < 0) {
        fputs("minerva-probe is started by libminerva: it opens a plugin to see whether that is "
              "safe\n",
              stderr);
        return 2;
    }
    rq.begin_ns = mn_now_ns();
    const pid_t pid = fork();
    if (pid)
        _exit(pid < 0); /* the host sees that the report ends */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    const uint64_t limit_ms = strtoull(argv[ARG_LIMIT], NULL, 10);
    rq.timeout_ns = MN_MAX(limit_ms, UINT64_C(1)) * 1000000;
    rq.path = argv[ARG_PLUGIN];
    rq.key = argv[ARG_KEY];
    rq.n_settings = argc - ARG_SETTINGS;
    rq.settings = argv + ARG_SETTINGS;
    rq.look = probe_look(&rq.file, rq.path);
    probe_watch(&rq);
}
