/* test_output.c -- the file of a conversion outlives a crash of the machine: its bytes are synced
 * before it has its name, its folder after. The calls are counted in the order they are made. */
#include "convert/output.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>

static char calls[16]; /* f: fsync of a file, d: of a folder, n: a name is given */
static char failing;   /* the call that fails with EIO */

static void record(char what) {
    const size_t n = strlen(calls);
    assert_true(n + 1 < sizeof calls);
    calls[n] = what;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    const char what = S_ISDIR(st.st_mode) ? 'd' : 'f';
    record(what);
    errno = EIO;
    return what == failing ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
    record('n');
    return __real_rename(from, to);
}

int __real_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    record('n');
    return __real_linkat(from_fd, from, to_fd, to, flags);
}

/* Writes the file; fail: the call that fails. */
static mn_status write_file(const char *path, bool force, char fail, mn_error *err) {
    mn_output out;
    memset(calls, 0, sizeof calls);
    failing = fail;
    mn_status st = mn_output_open(path, 3, force, &out, err);
    if (st)
        return st;
    st = mn_output_put(&out, "abc", 3, err);
    return mn_output_close(&out, st, err);
}

static void test_order(void **state) {
    const char *path = unit_path(*state, "m.gguf");
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(write_file(path, false, 0, &err), MN_OK);
    assert_string_equal(calls, "fnd");
    assert_int_equal(write_file(path, true, 0, &err), MN_OK);
    assert_int_equal(calls[0], 'f'); /* the replaced one may be linked before it is renamed */
    assert_int_equal(strchr(calls, 'd') - calls, strlen(calls) - 1);
}

/* In the folder of the process: its name is ".". */
static void test_bare_name(void **state) {
    char *before = getcwd(NULL, 0);
    mn_error err = MN_ERROR_INIT;
    assert_non_null(before);
    assert_int_equal(chdir(*state), 0);
    const mn_status st = write_file("bare.gguf", false, 0, &err);
    const mn_status failed = write_file("bare.gguf", true, 'd', &err);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(st, MN_OK);
    assert_int_equal(failed, MN_IO_ERROR);
    assert_non_null(strstr(err.msg, ".: cannot sync the folder: Input/output error"));
}

static void test_failures(void **state) {
    const char *path = unit_path(*state, "failed.gguf");
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(write_file(path, false, 'f', &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "failed.gguf"));
    assert_string_equal(calls, "f");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(write_file(path, false, 'd', &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, *state));
    assert_non_null(strstr(err.msg, "cannot sync the folder"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(test_bare_name, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(test_failures, unit_setup, unit_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
