/* check_main.c -- minerva-check FILE.so, which minerva plugins check becomes (plugins_check.c): the
 * file mapped read-only, and the report of check_run.c as a table or as JSON. This process opens no
 * plugin: rules run in children, and the path of the plugin `reference` is asked of a runtime in a
 * child, too. */
#include "../check_flags.h"
#include "../out.h"
#include "case.h"
#include "check.h"
#include <minerva/minerva.h>
#include <errno.h>
#include <stdlib.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *status_text(uint32_t status) {
    if (status == CHECK_PASSED)
        return "ok";
    if (status == CHECK_FAILED)
        return "FAIL";
    return "skipped";
}

static const char *kind_text(uint32_t kinds) {
    if (kinds == CHECK_ANY)
        return "backend+loader";
    if (kinds == MN_KIND_BACKEND)
        return "backend";
    if (kinds)
        return "loader";
    return "unknown";
}

typedef struct {
    uint32_t passed, failed, skipped;
} counts;
static counts report_count(const check_report *r) {
    counts n = {0};
    for (uint32_t i = 0; i < check_n_rules; i++) {
        n.passed += r->result[i].status == CHECK_PASSED;
        n.failed += r->result[i].status == CHECK_FAILED;
        n.skipped += r->result[i].status == CHECK_SKIPPED;
    }
    return n;
}

/* Whether the rule compares an operation with `reference`: numeric.NAME. */
static int is_of_op(const check_rule *rule) {
    char id[64];
    for (uint32_t op = 0; op < 256; op++) {
        const char *name = case_op_name(op);
        if (!name)
            continue;
        snprintf(id, sizeof id, "numeric.%s", name);
        if (!strcasecmp(id, rule->id))
            return 1;
    }
    return 0;
}

/* Whether rule i was tried: not skipped, and meant at all. */
static int is_tried(const check_report *r, uint32_t i) {
    return r->result[i].status == CHECK_PASSED || r->result[i].status == CHECK_FAILED;
}

/* The operations among the rules that were meant, those that ran or those that were refused. */
static uint32_t count_ops(const check_report *r, int tried) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < check_n_rules; i++)
        n += r->result[i].status != CHECK_WAITING && is_of_op(&check_rules[i]) &&
             is_tried(r, i) == tried;
    return n;
}

/* Why the report is no certificate although no rule is broken; NULL = it is one. */
static const char *nothing_tried(const check_report *r) {
    const counts n = report_count(r);
    if (!n.failed && !n.passed)
        return "every rule was skipped";
    if (!n.failed && count_ops(r, 0) && !count_ops(r, 1))
        return "no operation of the plugin ran";
    return NULL;
}

static void ops_as_json(json_out *j, const check_report *r, const char *key, int tried) {
    json_put_array(j, key);
    for (uint32_t i = 0; i < check_n_rules; i++)
        if (r->result[i].status != CHECK_WAITING && is_of_op(&check_rules[i]) &&
            is_tried(r, i) == tried)
            json_z(j, check_rules[i].name);
    json_close(j);
}

/* "operations tried: embed linear", or nothing. */
static void ops_as_line(const check_report *r, const char *what, int tried, out_file *out) {
    if (!count_ops(r, tried))
        return;
    out_printf(out, "operations %s:", what);
    for (uint32_t i = 0; i < check_n_rules; i++)
        if (r->result[i].status != CHECK_WAITING && is_of_op(&check_rules[i]) &&
            is_tried(r, i) == tried)
            out_printf(out, " %s", check_rules[i].name);
    out_printf(out, "\n");
}

/* Of ids and sentences of all rules: two reports with one digest tried the same. */
static uint64_t rules_digest(void) {
    uint64_t h = MN_FNV_BASIS;
    for (uint32_t i = 0; i < check_n_rules; i++)
        h = mn_fnv_z(mn_fnv_z(h, check_rules[i].id), check_rules[i].holds);
    return h;
}

typedef struct {
    char text[16]; /* "0.10" */
} version_text;
static version_text version_of(uint32_t abi) {
    version_text v;
    snprintf(v.text, sizeof v.text, "%u.%u", abi >> 16, abi & 0xffff);
    return v;
}

static void rule_as_json(json_out *j, const check_rule *rule, const check_result *r) {
    char page[160];
    check_page(rule, page, sizeof page);
    json_open(j, '{');
    json_put_z(j, "id", rule->id);
    json_put_z(j, "group", rule->group);
    json_put_z(j, "status", r->status == CHECK_FAILED ? "failed" : status_text(r->status));
    json_put_z(j, "message", r->message);
    json_put_z(j, "page", page);
    json_close(j);
}

static void report_as_json(const check_report *r, const char *file, out_file *out) {
    json_out j = out_json(out);
    const counts n = report_count(r);
    char digest[20];
    snprintf(digest, sizeof digest, "%016" PRIx64, rules_digest());
    json_open(&j, '{');
    json_put_z(&j, "file", file);
    json_put_z(&j, "id", r->facts.id);
    json_put_z(&j, "kind", kind_text(r->facts.kinds));
    json_put_z(&j, "abi", version_of(MN_ABI_VERSION).text);
    json_put_z(&j, "host_abi", version_of(check_host_played()).text);
    json_put_z(&j, "rules_digest", digest);
    json_put_array(&j, "rules");
    for (uint32_t i = 0; i < check_n_rules; i++)
        if (r->result[i].status != CHECK_WAITING)
            rule_as_json(&j, &check_rules[i], &r->result[i]);
    json_close(&j);
    ops_as_json(&j, r, "operations_tried", 1);
    ops_as_json(&j, r, "operations_refused", 0);
    json_put_z(&j, "nothing_tried", nothing_tried(r) ? nothing_tried(r) : "");
    json_put_uint(&j, "passed", n.passed);
    json_put_uint(&j, "failed", n.failed);
    json_put_uint(&j, "skipped", n.skipped);
    json_close(&j);
    json_line(&j);
}

static void report_as_table(const check_report *r, const char *file, out_file *out) {
    counts n = report_count(r);
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
    ops_as_line(r, "tried", 1, out);
    ops_as_line(r, "refused", 0, out);
    if (nothing_tried(r))
        out_printf(out, "nothing was tried: %s, so that this is no certificate\n",
                   nothing_tried(r));
    if (check_host_played() != MN_ABI_VERSION)
        out_printf(out, "the host was one of ABI %s\n", version_of(check_host_played()).text);
    out_printf(out, "ABI %s, %u rules with the digest %016" PRIx64 "\n",
               version_of(MN_ABI_VERSION).text, check_n_rules, rules_digest());
    out_printf(out, "%u passed, %u failed, %u skipped\n", n.passed, n.failed, n.skipped);
}

/* Writes the path of the plugin `reference` to a pipe, and ends the process. */
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

/* All that comes through a pipe, NUL-terminated. */
static size_t read_pipe(int from, char *dst, size_t room) {
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n < room - 1) {
        got = read(from, dst + n, room - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    dst[n] = 0;
    return n;
}

/* The path of the plugin `reference`; NULL = not installed, the caller frees. A runtime opens
 * plugins, perhaps the one that rules must open for the first time: it is created in another
 * process. */
static char *find_reference(void) {
    char path[4096];
    int ends[2];
    if (pipe(ends))
        return NULL;
    const pid_t pid = fork();
    if (pid == 0)
        say_reference(ends[1]);
    close(ends[1]);
    const size_t n = read_pipe(ends[0], path, sizeof path);
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    if (n)
        return strdup(path);
    return NULL;
}

static int check_file(const check_flags *f, const void *bytes, uint64_t n) {
    char *path = realpath(f->file, NULL); // dlopen searches library folders for a name without '/'
    char *reference = find_reference();
    check plugin = {
        .path = path,
        .bytes = bytes,
        .n_bytes = n,
        .reference = reference,
        .model = f->model,
        .patience = (uint32_t)f->limit,
    };
    check_report *r = NULL;
    if (path)
        r = check_run(&plugin, f->only);
    out_file out = out_stdout();
    free(path);
    free(reference);
    if (!r)
        return complain(EXIT_NO_MEMORY, "%s: no memory or process to check it in", f->file);
    if (f->json)
        report_as_json(r, f->file, &out);
    else
        report_as_table(r, f->file, &out);
    int code = report_count(r).failed || nothing_tried(r) ? EXIT_FAILED : 0;
    check_report_free(r);
    return out_finish(&out, code);
}

/* fd: the plugin, opened. */
static int map_and_check(const check_flags *f, int fd) {
    struct stat st;
    void *bytes = NULL;
    if (fd < 0 || fstat(fd, &st))
        return complain(EXIT_USAGE, "%s: %s", f->file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return complain(EXIT_USAGE, "%s: found %s, expected a plugin file", f->file,
                        S_ISDIR(st.st_mode) ? "a folder" : "a special file");
    const size_t n = (size_t)st.st_size;
    if (n)
        bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return complain(EXIT_USAGE, "%s: %s", f->file, strerror(errno));
    const int code = check_file(f, bytes, n);
    if (n)
        munmap(bytes, n);
    return code;
}

static int open_and_check(const check_flags *f) {
    if (!f->file)
        return complain(EXIT_USAGE,
                        "found no file, expected a plugin, as in minerva plugins check vendor.so");
    const int fd = open(f->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int code = map_and_check(f, fd);
    if (fd >= 0)
        close(fd);
    return code;
}

/* A model that is not there would skip rules, and an unknown id would try none: the report would
 * look as if the plugin kept all rules. */
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

/* --abi: a version of this major. */
static int judge_abi(const char *text) {
    unsigned major = 0;
    unsigned minor = 0;
    char more = 0;
    if (!text)
        return ARGS_OK;
    if (sscanf(text, "%5u.%5u%c", &major, &minor, &more) != 2 || minor > 0xffff ||
        major != MN_ABI_VERSION >> 16)
        return complain(EXIT_USAGE,
                        "--abi %s: found no version of this major, expected one as %s: of another "
                        "major a host is refused in any case (host.major)",
                        text, version_of(MN_ABI_VERSION).text);
    check_host_play(MN_ABI(major, minor));
    return ARGS_OK;
}

int main(int argc, char **argv) {
    out_begin_program();
    check_flags f;
    int code = check_flags_parse(argc, argv, &f);
    if (code == ARGS_OK)
        code = judge_flags(&f);
    if (code == ARGS_OK)
        code = judge_abi(f.abi);
    if (code == ARGS_OK)
        return open_and_check(&f);
    return code;
}
