/* host.h -- a small host for loader tests: loads a built plugin, hands it files, checks what comes
 * back. */
#ifndef TEST_HOST_H
#define TEST_HOST_H
#include <minerva/plugin.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* the k-th allocation from now on fails, and all after it; -1 = none */
extern int64_t test_fail_after;
extern int64_t test_live; /* allocations not yet released */

typedef struct {
    const mn_plugin *plugin;
    const mn_loader *loader;
} test_plugin;
/* below the build root; fails the test if anything is wrong */
test_plugin test_load(const char *relative_path);

/* A set of files in exact-size memory, so that a byte too far is seen. */
typedef struct {
    mn_file file[16];
    uint32_t n;
} test_files;
void test_add(test_files *f, const char *name, const void *bytes, size_t n);
void test_add_text(test_files *f, const char *name, const char *text);
void test_add_path(test_files *f, const char *name, const char *root_env,
                   const char *relative_path);
void test_clear(test_files *f);
mn_file *test_file(test_files *f, const char *name);
void test_drop(test_files *f, const char *name);

/* Opens; on success asserts that everything handed out is sound (planes inside their files,
 * strides, names). */
mn_status test_open(test_plugin p, const test_files *f, mn_parsed **out, mn_error *err);
/* Opens, expects this status and both texts in the message (NULL = any), and that nothing
 * leaked. */
void test_refuse(test_plugin p, const test_files *f, mn_status status, const char *text,
                 const char *text2);
/* Opens and closes: anything but a crash or an unsound model is fine. */
void test_survive(test_plugin p, const test_files *f);
/* Fails every allocation in turn: always MN_OUT_OF_MEMORY, nothing leaks, at last it opens. */
void test_every_allocation(test_plugin p, const test_files *f);

/* fails the test if absent */
mn_value test_value(test_plugin p, mn_parsed *m, const char *key, mn_str *native);
bool test_has_key(test_plugin p, mn_parsed *m, const char *key);
bool test_tensor(test_plugin p, mn_parsed *m, const char *name, mn_tensor_info *info);
uint32_t test_n_tensors(test_plugin p, mn_parsed *m);
bool test_is(mn_str s, const char *z);
uint32_t test_random(uint64_t *state);

/* Growing bytes for building files. */
typedef struct {
    unsigned char *ptr;
    size_t len;
    size_t cap;
} bytes;
void put(bytes *b, const void *src, size_t n);
void put_int(bytes *b, uint64_t v, int n); /* little-endian, n bytes */
#endif
