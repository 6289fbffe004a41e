/* test_probe.c -- plugins that hang, crash or lie in another process, and what is remembered of
 * it. */
#include "registry/guest.h"
#include "registry/internal.h"
#include "world.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>

static void open_probing(world *w, const char *dir, const char *timeout, const char *cache) {
    const mn_config_override over[] = {{"plugin_path_only", dir, NULL},
                                       {"probe_timeout", timeout, NULL},
                                       {"probe_cache", cache, NULL}};
    open_world_with(w, over, MN_COUNT(over));
}

static void contained(void **state) {
    const struct {
        const char *stub, *status, *reason, *kind;
    } cases[] = {
        {"aborts", "crashed",
         "crashed: SIGABRT (aborted) while running its constructors; its last words: the driver is "
         "angry",
         ""},
        {"sigill", "crashed",
         "crashed: SIGILL (illegal instruction: built for another CPU?) while running its entry",
         ""},
        {"crash_list", "crashed", "crashed: SIGSEGV while listing devices", "backend"},
        {"exits", "crashed", "crashed: exited with code 7 while running its entry", ""},
        {"claims", "failed", "its loader claims an empty file", "loader"},
        {"note_id", "failed", "its note says that its id is \"other\", its entry says \"note_id\"",
         "backend"},
        {"note_kind", "failed",
         "its note says that it is a \"loader\", its tables are those of a \"backend\"", "backend"},
        {"note_isa", "refused",
         "needs the instruction set \"warp9\", which this Minerva does not know", "backend"},
        {"note_abi", "incompatible", "built for ABI 7.3, this Minerva has", "backend"},
        {"good", "ok", "", "backend"},
        {"shouts", "ok", "", "backend"},
        {"counts_files", "ok", "", "backend"}, /* no file of ours is open in the probing process */
    };
    char host_pid[24];
    world w;
    for (size_t i = 0; i < MN_COUNT(cases); i++)
        put(*state, cases[i].stub, NULL);
    snprintf(host_pid, sizeof host_pid, "%ld", (long)getpid());
    setenv("STUB_HOST", host_pid, 1);
    /* neither is closed by exec */
    int ours = open("/dev/null", O_RDONLY), high = fcntl(ours, F_DUPFD, 200);
    open_probing(&w, *state, "60", "false");
    close(ours), close(high);
    unsetenv("STUB_HOST");
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.so", cases[i].stub);
        expect(&w, unit_path(*state, file), cases[i].status, cases[i].reason);
        const mn_plugin_record *rec = record_of(&w, unit_path(*state, file));
        assert_string_equal(rec->kind, cases[i].kind);
        assert_false(rec->probe.cached);
        assert_true(rec->probe.ok == (rec->status == MN_RECORD_OK));
        assert_true(
            rec->probe.done ==
            (rec->has_note ? strncmp(file, "note_isa", 8) && strncmp(file, "note_abi", 8) : 1));
    }
    assert_true(mn_str_is(record_of(&w, unit_path(*state, "crash_list.so"))->id, "crash_list"));
    assert_int_equal(record_of(&w, unit_path(*state, "note_abi.so"))->note_abi, MN_ABI(7, 3));
    assert_string_equal(record_of(&w, unit_path(*state, "good.so"))->vendor, "");
    close_world(&w);
}

/* They share one deadline: see also side_by_side. */
static void hanging(void **state) {
    world w;
    put(*state, "hang_constructor", NULL);
    put(*state, "hang_entry", NULL);
    open_probing(&w, *state, "2.5", "false");
    expect(&w, unit_path(*state, "hang_constructor.so"), "hung",
           "hung for 2.5 s while running its constructors");
    expect(&w, unit_path(*state, "hang_entry.so"), "hung",
           "hung for 2.5 s while running its entry");
    assert_int_equal(record_of(&w, unit_path(*state, "hang_entry.so"))->probe.ms, 2500);
    close_world(&w);
}

/* Each waits in its constructor for the other to be there: one after the other, both would hang. */
static void side_by_side(void **state) {
    char meeting[1200];
    world w;
    mkdir(unit_path(*state, "place"), 0755);
    snprintf(meeting, sizeof meeting, "2%s/place", (const char *)*state);
    put(*state, "meets", NULL);
    put(*state, "meets_too", NULL);
    setenv("STUB_MEET", meeting, 1);
    open_probing(&w, *state, "60", "false");
    unsetenv("STUB_MEET");
    expect(&w, unit_path(*state, "meets.so"), "ok", "");
    expect(&w, unit_path(*state, "meets_too.so"), "ok", "");
    close_world(&w);
}

/* An application that lets the kernel collect its children: the verdict comes from the watcher. */
static void children_ignored(void **state) {
    world w;
    put(*state, "good", NULL);
    put(*state, "exits", NULL);
    signal(SIGCHLD, SIG_IGN);
    open_probing(&w, *state, "60", "false");
    signal(SIGCHLD, SIG_DFL);
    expect(&w, unit_path(*state, "good.so"), "ok", "");
    expect(&w, unit_path(*state, "exits.so"), "crashed",
           "crashed: exited with code 7 while running its entry");
    close_world(&w);
}

static void faults_of_devices(void **state) {
    put(*state, "fails_test", NULL);
    put(*state, "full", NULL);
    for (int start = 0; start < 2; start++) {
        world w;
        size_t n;
        open_probing(&w, *state, "60", "true");
        expect(&w, unit_path(*state, "fails_test.so"), "ok", "");
        const mn_device_record *dev = mn_registry_devices(w.reg, &n);
        assert_int_equal(n, 3);
        assert_false(dev[0].usable);
        assert_non_null(strstr(dev[0].reason, "failed its self-test: 2 + 2 = 5"));
        assert_true(!strstr(dev[0].reason, "remembered") == !start);
        assert_true(dev[1].usable); /* the other device of the same plugin */
        /* out of memory says nothing about the device, and is not remembered */
        assert_true(dev[2].usable);
        assert_true(record_of(&w, unit_path(*state, "fails_test.so"))->probe.cached ==
                    (start == 1));
        assert_false(record_of(&w, unit_path(*state, "full.so"))->probe.cached);
        close_world(&w);
    }
}

/* ---- what is remembered ---------------------------------------------------------------------- */

static void cached_is(const char *dir, const char *file, const char *timeout, bool cached) {
    world w;
    open_probing(&w, dir, timeout, "true");
    if (record_of(&w, unit_path(dir, file))->probe.cached != cached)
        fail_msg("%s: the answer is %s, expected %s", file, cached ? "new" : "remembered",
                 cached ? "remembered" : "new");
    close_world(&w);
}

static size_t n_kept(const char *dir) {
    size_t n = 0;
    DIR *d = opendir(unit_path(dir, "cache/minerva/probe"));
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void remembered(void **state) {
    const char *dir = *state;
    char good[1200];
    world w;
    snprintf(good, sizeof good, "%s", put(dir, "good", NULL));
    put(dir, "crash_list", NULL);
    put(dir, "null", NULL);
    open_probing(&w, dir, "60", "true");
    close_world(&w);
    assert_int_equal(n_kept(dir), 2);
    open_probing(&w, dir, "60", "true");
    expect(&w, unit_path(dir, "crash_list.so"), "crashed",
           "(remembered; --no-probe-cache asks again)");
    expect(&w, unit_path(dir, "good.so"), "ok", "");
    expect(&w, unit_path(dir, "null.so"), "failed", "this stub never works");
    assert_true(record_of(&w, unit_path(dir, "good.so"))->probe.cached);
    assert_ptr_equal(strstr(record_of(&w, good)->probe.text, "remembered: ok in "),
                     record_of(&w, good)->probe.text);
    /* it said why: it is asked again */
    assert_false(record_of(&w, unit_path(dir, "null.so"))->probe.cached);
    close_world(&w);
    open_probing(&w, dir, "60", "false");
    assert_false(record_of(&w, good)->probe.cached);
    close_world(&w);
    assert_int_equal(n_kept(dir), 0);
}

/* The one hang that is kept in the folder happened so many seconds earlier. */
static void make_older(const char *dir, uint32_t seconds) {
    static const char key[] = "hung_at_s\t";
    char path[1200], text[65536];
    size_t found = 0;
    DIR *d = opendir(unit_path(dir, "cache/minerva/probe"));
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", unit_path(dir, "cache/minerva/probe"), e->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        const size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = 0;
        char *at = strstr(text, key);
        if (!at)
            continue;
        char *value = at + strlen(key), *rest;
        const uint32_t then = (uint32_t)strtoul(value, &rest, 10) - seconds;
        f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%.*s%" PRIu32 "%s", (int)(value - text), text, then, rest);
        fclose(f);
        found++;
    }
    closedir(d);
    assert_int_equal(found, 1);
}

/* Beside the one that hangs nothing else is asked: seconds are little time on a busy machine. */
static void remembered_hang(void **state) {
    const char *dir = *state;
    world w;
    put(dir, "hang_entry", NULL);
    cached_is(dir, "hang_entry.so", "2.5", false);
    open_probing(&w, dir, "2.5", "true");
    expect(&w, unit_path(dir, "hang_entry.so"), "hung",
           "hung for 2.5 s while running its entry (remembered; --no-probe-cache asks again)");
    assert_true(record_of(&w, unit_path(dir, "hang_entry.so"))->probe.cached);
    close_world(&w);
    cached_is(dir, "hang_entry.so", "2.2", true);
    cached_is(dir, "hang_entry.so", "3", false); /* somebody is willing to wait longer */
    cached_is(dir, "hang_entry.so", "3", true);
    make_older(dir, 3601);
    cached_is(dir, "hang_entry.so", "3", false); /* the machine was busy, perhaps */
    cached_is(dir, "hang_entry.so", "3", true);
}

static void forgotten(void **state) {
    const char *dir = *state;
    char good[1200];
    const struct timespec times[2] = {{1, 0}, {1, 5}};
    snprintf(good, sizeof good, "%s", put(dir, "good", NULL));
    cached_is(dir, "good.so", "60", false);
    cached_is(dir, "good.so", "60", true);
    assert_int_equal(utimensat(AT_FDCWD, good, times, 0), 0);
    cached_is(dir, "good.so", "60", false);
    cached_is(dir, "good.so", "60", true);
    unlink(good);
    put(dir, "good", NULL); /* another file */
    cached_is(dir, "good.so", "60", false);
    setenv("SOME_VISIBLE_DEVICES", "1", 1);
    cached_is(dir, "good.so", "60", false);
    unsetenv("SOME_VISIBLE_DEVICES");
    cached_is(dir, "good.so", "60", false);
    setenv("MINERVA_CPU_ISA", "generic", 1);
    cached_is(dir, "good.so", "60", false);
    unsetenv("MINERVA_CPU_ISA");
    cached_is(dir, "good.so", "60", false);
    cached_is(dir, "good.so", "60", true);
}

static void cache_file(const char *dir, char path[1300]);
/* A first verdict is good while its watch may still come to an end: then it is asked again. */
static void watch_abandoned(void **state) {
    static const char key[] = "\nwatch\t";
    const char *dir = *state;
    char path[1300] = "";
    char *data;
    uint64_t n;
    put(dir, "good", NULL);
    cached_is(dir, "good.so", "60", false);
    cache_file(dir, path);
    assert_int_equal(mn_read_file(path, 1 << 20, &data, &n, NULL), MN_OK);
    char *until = strstr(data, key);
    assert_non_null(until);
    until += strlen(key);
    assert_true(strtod(until, NULL) > (double)mn_now_ns() / 1e6); /* it goes on */
    cached_is(dir, "good.so", "60", true);
    until[strspn(until, "0123456789")] = 0;
    memset(until, '0', strlen(until));
    until[strlen(until) - 1] = '1'; /* over long ago */
    until[strlen(until)] = '\n';
    unit_write(path, data, (size_t)n);
    cached_is(dir, "good.so", "60", false);
    mn_free(data);
}

static void cache_file(const char *dir, char path[1300]) {
    DIR *d = opendir(unit_path(dir, "cache/minerva/probe"));
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(path, 1300, "%s/cache/minerva/probe/%.200s", dir, e->d_name);
    closedir(d);
}

static void garbage(void **state) {
    const char *dir = *state;
    char path[1300] = "", *data;
    uint64_t n;
    put(dir, "good", NULL);
    cached_is(dir, "good.so", "60", false);
    cache_file(dir, path);
    assert_int_equal(mn_read_file(path, 1 << 20, &data, &n, NULL), MN_OK);
    for (uint64_t cut = 0; cut < n; cut += 1 + n / 23) {
        unit_write(path, data, (size_t)cut);
        cached_is(dir, "good.so", "60", false);
        cached_is(dir, "good.so", "60", true);
    }
    unit_write(path, "", 0);
    cached_is(dir, "good.so", "60", false);
    memset(data, 0, (size_t)n);
    unit_write(path, data, (size_t)n);
    cached_is(dir, "good.so", "60", false);
    unlink(path);
    mkdir(path, 0700); /* cannot be read nor replaced */
    cached_is(dir, "good.so", "60", false);
    cached_is(dir, "good.so", "60", false);
    rmdir(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    cached_is(dir, "good.so", "60", false);
    mn_free(data);
    setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1);
    cached_is(dir, "good.so", "60", false);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void no_program(void **state) {
    const char *good = put(*state, "good", NULL);
    mn_config *cfg;
    mn_trust trust;
    mn_probe_candidate *c = mn_calloc(1, sizeof *c);
    mn_trust_init(&trust);
    assert_int_equal(mn_config_load(NULL, 0, &cfg, NULL), MN_OK);
    assert_int_equal(mn_plugin_file_check(&trust, good, &c->file, NULL), MN_OK);
    assert_int_equal(mn_probe_all(cfg, &trust, "/nowhere/minerva-probe", c, 1, NULL), MN_OK);
    assert_true(mn_report_complete(&c->report));
    assert_true(mn_str_is(mn_report_get(&c->report, "status"), "failed"));
    assert_true(mn_str_is(mn_report_get(&c->report, "reason"),
                          "cannot be probed: /nowhere/minerva-probe: No such file or directory"));
    assert_int_equal(n_kept(*state), 0);
    mn_text_free(&c->report);
    mn_free(c);
    mn_config_free(cfg);
}

/* A program that others may have written is not started: the folder tells it, as with plugins. */
static void unsafe_program(void **state) {
    static const char script[] = "#!/bin/sh\ntouch \"${0%/*}/../ran\"\n";
    const char *good = put(*state, "good", NULL);
    char program[1200];
    mn_config *cfg;
    mn_trust trust;
    mn_probe_candidate *c = mn_calloc(1, sizeof *c);
    mkdir(unit_path(*state, "libexec"), 0755);
    snprintf(program, sizeof program, "%s", unit_path(*state, "libexec/minerva-probe"));
    unit_write(program, script, sizeof script - 1);
    chmod(program, 0755);
    chmod(unit_path(*state, "libexec"), 0777);
    mn_trust_init(&trust);
    assert_int_equal(mn_config_load(NULL, 0, &cfg, NULL), MN_OK);
    assert_int_equal(mn_plugin_file_check(&trust, good, &c->file, NULL), MN_OK);
    assert_int_equal(mn_probe_all(cfg, &trust, program, c, 1, NULL), MN_OK);
    assert_true(mn_str_is(mn_report_get(&c->report, "status"), "failed"));
    const mn_str why = mn_report_get(&c->report, "reason");
    assert_non_null(strstr(why.ptr, "cannot be probed: "));
    assert_non_null(strstr(why.ptr, "unsafe folder"));
    assert_false(mn_path_exists(unit_path(*state, "ran")));
    mn_text_free(&c->report);
    mn_free(c);
    mn_config_free(cfg);
}

static void not_asked(void **state) {
    world w;
    put(*state, "good", NULL);
    open_probing(&w, *state, "0", "true");
    expect(&w, unit_path(*state, "good.so"), "ok", "");
    assert_false(record_of(&w, unit_path(*state, "good.so"))->probe.done);
    assert_string_equal(record_of(&w, unit_path(*state, "good.so"))->probe.text, "");
    close_world(&w);
    assert_int_equal(n_kept(*state), 0);
}

/* What a guest changes is seen and, where that can be, set back. */
static void guests(void **state) {
    static mn_guest_state was, is;
    static mn_guest_visit visit;
    mn_guest_changes c;
    struct rlimit limit;
    (void)state;
    const int fd = open("/dev/null", O_RDONLY);
    mn_guest_look(&was);
    mn_guest_begin(&visit);
    close(fd);
    signal(SIGUSR1, SIG_IGN);
    umask(0);
    fesetround(FE_UPWARD);
    assert_int_equal(chdir("/"), 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur--;
    setrlimit(RLIMIT_NOFILE, &limit);
    mn_guest_look(&is);
    mn_guest_compare(&was, &is, &c);
    assert_non_null(strstr(c.harm, " is closed, SIGUSR1 has another handler"));
    assert_non_null(strstr(c.odd, "the working directory is /, the umask is 000, floating-point"));
    assert_non_null(strstr(c.odd, "RLIMIT_NOFILE is "));
    mn_guest_end(&visit);
    signal(SIGUSR1, SIG_DFL);
    assert_int_equal(open("/dev/null", O_RDONLY), fd);
    mn_guest_look(&is);
    mn_guest_compare(&was, &is, &c);
    close(fd);
    assert_string_equal(c.harm, "");
    assert_string_equal(c.odd, "");
    assert_false(mn_guest_has_children());
    assert_true(mn_guest_threads() >= 1);
}

/* A folder that somebody else removes meanwhile is no change of the guest's. */
static void removed_folder(void **state) {
    static mn_guest_state was, is;
    mn_guest_changes c;
    char folder[] = "/tmp/minerva-guest-XXXXXX";
    (void)state;
    const int back = open(".", O_RDONLY | O_DIRECTORY);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    mn_guest_look(&was);
    assert_int_equal(rmdir(folder), 0);
    mn_guest_look(&is);
    mn_guest_compare(&was, &is, &c);
    assert_int_equal(fchdir(back), 0);
    close(back);
    assert_string_equal(was.folder, folder);
    assert_string_equal(is.folder, "");
    assert_string_equal(c.odd, "");
}

static void reports(void **state) {
    (void)state;
    mn_text t = {0};
    mn_report_put(&t, "phase", "a\nb%c", 1);
    assert_true(mn_str_is(mn_report_get(&t, "phase"), "a b\\x01"));
    assert_false(mn_report_complete(&t));
    mn_report_put(&t, "phase", "second");
    mn_report_put(&t, "fault", "0\tuid:a\tbroken");
    mn_report_put(&t, "fault", "1\t\tdusty");
    mn_report_put(&t, "ms", "99999999999999");
    mn_text_puts(&t, "phase\tcut sho");
    assert_true(mn_str_is(mn_report_get(&t, "phase"), "second"));
    assert_int_equal(mn_report_get(&t, "phas").len, 0);
    assert_int_equal(mn_report_number(&t, "ms"), UINT32_MAX);
    assert_int_equal(mn_report_number(&t, "phase"), 0);
    assert_true(mn_str_is(mn_report_fault(&t, 5, "uid:a"), "broken")); /* it is another index now */
    assert_int_equal(mn_report_fault(&t, 0, "uid:b").len, 0);
    assert_true(mn_str_is(mn_report_fault(&t, 1, "uid:b"), "dusty"));
    assert_int_equal(mn_report_fault(&t, 2, "").len, 0);
    mn_text_puts(&t, "\nend\n");
    assert_true(mn_report_complete(&t));
    mn_text_free(&t);
    assert_int_equal(mn_report_get(&t, "phase").len, 0);
    assert_false(mn_report_complete(&t));
}

static void quarantined(void **state) {
    world w;
    size_t n;
    put(*state, "gpu", NULL);
    open_probing(&w, *state, "60", "true");
    const mn_device_record *dev = mn_registry_devices(w.reg, &n);
    mn_device *d;
    assert_true(dev[0].usable);
    assert_null(mn_registry_device_opened(w.reg, &dev[0]));
    assert_int_equal(mn_registry_device_open(w.reg, &dev[0], &d, NULL), MN_OK);
    assert_ptr_equal(mn_registry_device_opened(w.reg, &dev[0]), d);
    mn_registry_quarantine(w.reg, &dev[0], "fell off the bus");
    mn_registry_quarantine(w.reg, &dev[0], "again");
    assert_false(dev[0].usable);
    assert_string_equal(dev[0].reason, "lost: fell off the bus");
    assert_int_equal(mn_registry_device_open(w.reg, &dev[0], &d, NULL), MN_NO_DEVICE);
    close_world(&w);
}

static int setup(void **state) {
    int failed = unit_setup(state);
    if (!failed)
        setenv("XDG_CACHE_HOME", unit_path(*state, "cache"), 1);
    return failed;
}

int main(void) {
    static const char *const names[] = {"MINERVA_PLUGIN_PATH", "MINERVA_PLUGIN_PATH_ONLY",
                                        "MINERVA_PROBE_CACHE", "MINERVA_PROBE_TIMEOUT",
                                        "MINERVA_CPU_ISA"};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        unsetenv(names[i]);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    umask(022);
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, unit_teardown)
    const struct CMUnitTest tests[] = {TEST(contained),
                                       TEST(hanging),
                                       TEST(side_by_side),
                                       TEST(children_ignored),
                                       TEST(faults_of_devices),
                                       TEST(remembered),
                                       TEST(remembered_hang),
                                       TEST(forgotten),
                                       TEST(garbage),
                                       TEST(no_program),
                                       TEST(unsafe_program),
                                       TEST(not_asked),
                                       TEST(quarantined),
                                       TEST(watch_abandoned),
                                       cmocka_unit_test(guests),
                                       cmocka_unit_test(removed_folder),
                                       cmocka_unit_test(reports)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
