/* cmd.c -- minerva plugins check FILE.so: the report as a table or as JSON. */
#include "../app.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    const char *file, *only, *model;
    int json;
    int64_t limit;
} check_flags;
static const arg_row rows[] = {
    {"FILE", "a plugin file", ARG_FILE, offsetof(check_flags, file), 0, 0, NULL, "the plugin"},
    {"--json", NULL, ARG_FLAG, offsetof(check_flags, json), 0, 0, NULL,
     "one JSON object instead of a table"},
    {"--only", "ID", ARG_TEXT, offsetof(check_flags, only), 0, 0, NULL,
     "report the rules whose id begins so: static, host.options"},
    {"--model", "PATH", ARG_FILE, offsetof(check_flags, model), 0, 0, NULL,
     "a file or folder of a loader's format, to try it on\n(not needed for gguf and safetensors)"},
    {"--limit", "SECONDS", ARG_INT, offsetof(check_flags, limit), 3, 3600, NULL,
     "what calls that hang may take in all (60); one call a\nthird of it"},
};

static const char *status_text(uint32_t status) {
    return status == CHECK_OK ? "ok" : status == CHECK_FAILED ? "FAIL" : "skipped";
}
static const char *kind_text(uint32_t kinds) {
    return kinds == CHECK_ANY         ? "backend+loader"
           : kinds == MN_KIND_BACKEND ? "backend"
           : kinds                    ? "loader"
                                      : "unknown";
}

typedef struct {
    uint32_t passed, failed, skipped;
} counts;
static counts count(const check_report *r) {
    counts n = {0};
    for (uint32_t i = 0; i < check_n_rules; i++) {
        n.passed += r->result[i].status == CHECK_OK;
        n.failed += r->result[i].status == CHECK_FAILED;
        n.skipped += r->result[i].status == CHECK_SKIPPED;
    }
    return n;
}

static void as_json(const check_report *r, const char *file, out_file *out) {
    json_out j = {out, 0, 0, {0}};
    counts n = count(r);
    char page[160];
    json_open(&j, '{');
    json_key(&j, "file"), json_z(&j, file);
    json_key(&j, "id"), json_z(&j, r->facts.id);
    json_key(&j, "kind"), json_z(&j, kind_text(r->facts.kinds));
    json_key(&j, "rules"), json_open(&j, '[');
    for (uint32_t i = 0; i < check_n_rules; i++) {
        const check_rule *rule = &check_rules[i];
        if (r->result[i].status == CHECK_WAITING)
            continue;
        check_page(rule, page, sizeof page);
        json_open(&j, '{');
        json_key(&j, "id"), json_z(&j, rule->id);
        json_key(&j, "group"), json_z(&j, rule->group);
        json_key(&j, "status"),
            json_z(&j, r->result[i].status == CHECK_FAILED ? "failed"
                                                           : status_text(r->result[i].status));
        json_key(&j, "message"), json_z(&j, r->result[i].message);
        json_key(&j, "page"), json_z(&j, page);
        json_close(&j);
    }
    json_close(&j);
    json_key(&j, "passed"), json_uint(&j, n.passed);
    json_key(&j, "failed"), json_uint(&j, n.failed);
    json_key(&j, "skipped"), json_uint(&j, n.skipped);
    json_close(&j);
    json_line(&j);
}

static void as_table(const check_report *r, const char *file, out_file *out) {
    counts n = count(r);
    char page[160];
    out_printf(out, "%s: %s, %s\n", file, r->facts.id[0] ? r->facts.id : "no id",
               kind_text(r->facts.kinds));
    for (uint32_t i = 0; i < check_n_rules; i++) {
        const check_result *res = &r->result[i];
        if (res->status == CHECK_WAITING)
            continue;
        out_printf(out, "  %-26s %-8s%s\n", check_rules[i].id, status_text(res->status),
                   res->message);
        if (res->status != CHECK_FAILED)
            continue;
        check_page(&check_rules[i], page, sizeof page);
        out_printf(out, "  %26s rule: %s\n  %26s see %s\n", "", check_rules[i].holds, "", page);
    }
    out_printf(out, "%u passed, %u failed, %u skipped\n", n.passed, n.failed, n.skipped);
}

static void say_reference(int to) {
    mn_runtime *rt = NULL;
    mn_plugin_item p;
    mn_error err = MN_ERROR;
    mn_status st = mn_runtime_create(NULL, &rt, &err);
    for (uint32_t i = 0; !st && mn_runtime_plugin(rt, i, &p) == MN_OK; i++)
        if (!strcmp(p.id, "reference") && !strcmp(p.status, "ok")) {
            st = write(to, p.path, strlen(p.path)) < 0;
            break;
        }
    _exit(st != 0);
}

/* The path of the plugin that numbers are held against. A runtime opens plugins, perhaps the very
 * one that is to be opened for the first time here: it lives in another process. */
static char *find_reference(void) {
    char path[4096];
    size_t n = 0;
    ssize_t got;
    int ends[2];
    if (pipe(ends))
        return NULL;
    pid_t pid = fork();
    if (pid == 0)
        say_reference(ends[1]);
    close(ends[1]);
    while (pid > 0 && n < sizeof path - 1 &&
           (got = read(ends[0], path + n, sizeof path - 1 - n)) > 0)
        n += (size_t)got;
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    path[n] = 0;
    return n ? strdup(path) : NULL;
}

static int check_file(const check_flags *f, const void *bytes, uint64_t n) {
    char *path = realpath(f->file, NULL); // dlopen looks elsewhere for a bare name
    char *reference = find_reference();
    check plugin = {.path = path,
                    .bytes = bytes,
                    .n_bytes = n,
                    .reference = reference,
                    .model = f->model,
                    .patience = (uint32_t)f->limit};
    check_report *r = path ? check_run(&plugin, f->only) : NULL;
    out_file out = out_stdout();
    free(path), free(reference);
    if (!r)
        return complain(EXIT_NO_MEMORY, "%s: found no memory or process to check it in", f->file);
    if (f->json)
        as_json(r, f->file, &out);
    else
        as_table(r, f->file, &out);
    int code = count(r).failed ? EXIT_FAILED : 0;
    check_report_free(r);
    return out_finish(&out, code);
}

static int map_and_check(const check_flags *f) {
    struct stat st;
    if (!f->file)
        return complain(EXIT_USAGE,
                        "found no file, expected a plugin, as in minerva plugins check vendor.so");
    int fd = open(f->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code;
    if (fd < 0 || fstat(fd, &st)) {
        code = complain(EXIT_USAGE, "%s: %s", f->file, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        code = complain(EXIT_USAGE, "%s: found %s, expected a plugin file", f->file,
                        S_ISDIR(st.st_mode) ? "a folder" : "a special file");
    } else {
        void *bytes =
            st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
        code = bytes == MAP_FAILED ? complain(EXIT_USAGE, "%s: %s", f->file, strerror(errno))
                                   : check_file(f, bytes, (uint64_t)st.st_size);
        if (bytes && bytes != MAP_FAILED)
            munmap(bytes, (size_t)st.st_size);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

/* What the flags name must be there: rules that are skipped for it, or none that is tried, would look
 * like a plugin that keeps them all. */
static int judge_flags(const check_flags *f) {
    if (f->model && access(f->model, R_OK))
        return complain(EXIT_USAGE,
                        "--model %s: %s; expected a file or folder of the loader's format",
                        f->model, strerror(errno));
    if (f->only && !check_selects(f->only))
        return complain(EXIT_USAGE,
                        "--only %s: found no rule whose id begins so, expected a group or an id of "
                        "docs/plugin-howto.md, as in --only static or --only host.options",
                        f->only);
    return ARGS_OK;
}

int cmd_plugins_check(int argc, char **argv) {
    check_flags f = {.limit = 60};
    const arg_group groups[] = {{"Check", rows, COUNT(rows), &f}};
    const arg_page page = {
        "plugins check", "FILE.so [--json] [--only ID] [--model PATH] [--limit SECONDS]",
        "Tries every rule of docs/plugin-howto.md on a plugin. Exit code 0 only if none is broken.",
        groups, COUNT(groups)};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = judge_flags(&f);
    return code == ARGS_OK ? map_and_check(&f) : code;
}
