/* report.c -- minerva devices --report: one text with what a maintainer needs when a driver fails:
 * the day, versions, plugin files with their days and the outcome of their probes, devices, and
 * what plugins log while devices are listed (of OpenCL platforms, extensions, limits, the last
 * failed compilation and its day).
 *
 * The log is gathered while the runtime opens and printed after the tables. Nothing that is the
 * user's goes in: no environment, of the settings those of plugins and devices alone, and the home
 * folder is written as ~. */
#include "app.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

/* Appends a line to the memory stream of flags->log_to; fprintf locks it, any thread may log. */
static void on_log(void *arg, int32_t level, const char *message) {
    static const char *const levels[] = {"error: ", "warning: ", "", ""};
    static const char *const wanted[] = {"setting plugin.", "setting device", "setting threads"};
    const app *a = arg;
    int keep = strncmp(message, "setting ", 8) != 0;
    for (size_t i = 0; i < MN_COUNT(wanted); i++)
        keep |= !strncmp(message, wanted[i], strlen(wanted[i]));
    if (!keep)
        return;
    const char *prefix = level >= 0 && level < (int32_t)MN_COUNT(levels) ? levels[level] : "";
    fprintf(a->flags->log_to, "  %s%s\n", prefix, message);
}

/* PRETTY_NAME of os-release, or "". */
static void read_distribution(char *to, size_t n) {
    char line[256];
    FILE *f = fopen("/etc/os-release", "r");
    to[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "PRETTY_NAME=", 12))
            continue;
        snprintf(to, n, "%s", line + 12);
        to[strcspn(to, "\n")] = 0;
    }
    if (f)
        fclose(f);
}

/* UTC, so that it does not tell where the user lives; "" where it is no date. */
static void format_time(time_t at, char to[32]) {
    struct tm utc;
    to[0] = 0;
    if (gmtime_r(&at, &utc))
        strftime(to, 32, "%Y-%m-%d %H:%M UTC", &utc);
}

static void put_machine(FILE *to) {
    char now[32];
    struct utsname u;
    char distribution[256];
    read_distribution(distribution, sizeof distribution);
    format_time(time(NULL), now);
    fprintf(to, "minerva %s, report of %s\n", mn_version(), now);
    if (!uname(&u))
        fprintf(to, "system: %s %s %s %s\n", u.sysname, u.release, u.machine, distribution);
}

static void put_plugins(const app *a, FILE *to) {
    mn_plugin_item p;
    fputs("\nplugins:\n", to);
    for (uint32_t i = 0; mn_runtime_plugin(a->rt, i, &p) == MN_OK; i++) {
        struct stat file;
        char written[32] = "";
        if (!stat(p.path, &file))
            format_time(file.st_mtime, written);
        fprintf(to, "  %s (%s) %s of %s, ABI %u.%u: %s; probe: %s%s%s\n", p.path, p.kind, p.version,
                written, p.abi >> 16, p.abi & 0xffff, p.status, p.probe, p.reason[0] ? "; " : "",
                p.reason);
    }
}

static void put_devices(const app *a, FILE *to) {
    mn_device_item d;
    fputs("\ndevices:\n", to);
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++)
        fprintf(to, "  %s: %s, uid %s, %llu MiB: %s%s%s\n", d.name, d.description, d.uid,
                (unsigned long long)(d.mem_total >> 20), d.usable ? "usable" : "not usable",
                d.reason[0] ? ": " : "", d.reason);
}

/* Whether a path goes on behind its folder with a name of the folder's own: /home/annabel behind
 * /home/anna. */
static int is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* The text with the home folder as ~. */
static void print_without_home(const char *text, out_file *out) {
    const char *home = getenv("HOME");
    size_t n = home ? strlen(home) : 0;
    while (n && home[n - 1] == '/')
        n--;
    while (n && *text) {
        const char *found = text;
        while (*found && (strncmp(found, home, n) || is_name_char(found[n])))
            found++;
        out_put(out, text, (size_t)(found - text));
        text = found;
        if (!*found)
            return;
        out_puts(out, "~");
        text += n;
    }
    out_puts(out, text);
}

int devices_report(app_flags *flags) {
    app a = {0};
    char *log = NULL;
    char *text = NULL;
    size_t n_log = 0;
    size_t n_text = 0;
    out_file out = out_stdout();
    FILE *to = open_memstream(&text, &n_text);
    flags->log_to = open_memstream(&log, &n_log);
    flags->log = on_log;
    flags->verbose = !flags->quiet;
    int code = to && flags->log_to ? 0 : no_memory();
    if (!code)
        code = app_open_runtime(&a, flags);
    if (!code) {
        put_machine(to);
        put_plugins(&a, to);
        put_devices(&a, to);
    }
    app_close(&a); /* before the log is closed, which its threads write */
    if (flags->log_to)
        fclose(flags->log_to);
    if (to)
        fclose(to);
    if (!code) {
        print_without_home(text, &out);
        out_puts(&out, "\nlog:\n");
        print_without_home(log, &out);
    }
    free(text);
    free(log);
    return out_finish(&out, code);
}
