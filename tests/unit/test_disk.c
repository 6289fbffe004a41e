/* test_disk.c -- the files of cache_dir: conversations go on after a restart with the pages that
 * the files have, and draw the same ids as without; what is damaged, foreign or gone is computed
 * again. Reading counts as taking no time (mn_disk_read_ns is wrapped), so that what is loaded does
 * not depend on how fast the machine is. */
#include "serving.h"
#include "session/disk/disk.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[256];
static double ns_per_byte;

double __wrap_mn_disk_read_ns(mn_disk *d, double bytes);
double __wrap_mn_disk_read_ns(mn_disk *d, double bytes) {
    (void)d;
    return bytes * ns_per_byte;
}

static const mn_sample_params few = {.size = sizeof few, .max_new = 8, .ignore_stop = 1};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int setup(void **state) {
    (void)state;
    ns_per_byte = 0;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/minerva-disk-XXXXXX", tmp ? tmp : "/tmp");
    return !mkdtemp(dir);
}

static int teardown(void **state) {
    (void)state;
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static mn_session *open_kept(mn_session_params p) {
    p.cache_dir = dir;
    if (!p.n_ctx)
        p.n_ctx = 512;
    return open_with(p);
}

static void serve(mn_session *s, const int32_t *ids, uint32_t n, served *got) {
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &few}, got);
    finish_all(s, got, 1);
}

static mn_session_load load_of(mn_session *s) {
    mn_session_load load = {.size = sizeof load};
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    return load;
}

static void keep(mn_session *s) {
    mn_error err = MN_ERROR;
    if (mn_session_keep(s, 60000, &err))
        fail_msg("%s", err.msg);
}

/* ---- files of the folder --------------------------------------------------------------------- */
typedef struct {
    char path[32][600];
    uint32_t n;
    uint64_t bytes;
    bool modes; /* all are 600, in folders of 700 */
} packs;
static packs found;

static int add_file(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)ftw;
    const mode_t mode = st->st_mode & 0777;
    found.modes = found.modes && mode == (kind == FTW_D ? 0700 : 0600);
    const size_t n = strlen(path);
    if (kind != FTW_F || n < 3 || strcmp(path + n - 3, ".kv"))
        return 0;
    found.bytes += (uint64_t)st->st_size;
    if (found.n < 32)
        snprintf(found.path[found.n], sizeof found.path[0], "%s", path);
    found.n++;
    return 0;
}

static const packs *find_packs(void) {
    found = (packs){.modes = true};
    assert_int_equal(nftw(dir, add_file, 8, FTW_PHYS), 0);
    return &found;
}

static char *read_whole(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

static void write_whole(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* ---- restart --------------------------------------------------------------------------------- */
/* 64 conversations, one after the other in a cache that has room for a few; then another session
 * continues them all: at least nine tenths of their prompts come from files, with equal answers. */
static void test_restart(void **state) {
    (void)state;
    enum { TALKS = 64, FIRST = 140, NEXT = 20, COMPARED = 16 };
    static served first[TALKS], got, want;
    static int32_t ids[TALKS][FIRST + 8 + NEXT];
    const mn_session_params p = {.n_seq = 2, .n_ctx = 512};
    mn_session *s = open_kept(p);
    for (uint32_t i = 0; i < TALKS; i++) {
        words(100 + i, FIRST, ids[i]);
        serve(s, ids[i], FIRST, &first[i]);
        memcpy(ids[i] + FIRST, first[i].ids, 8 * sizeof(int32_t));
        words(500 + i, NEXT, ids[i] + FIRST + 8);
    }
    keep(s);
    mn_session_free(s);
    assert_true(find_packs()->n > 0 && find_packs()->modes);
    s = open_kept(p);
    for (uint32_t i = 0; i < TALKS; i++) {
        serve(s, ids[i], FIRST + 8 + NEXT, &got);
        assert_int_equal(got.last.n_cached, 128); /* whole pages of 64 */
        if (i % COMPARED)
            continue;
        lone((mn_request_params){.ids = ids[i], .n_ids = FIRST + 8 + NEXT, .sample = &few}, &want);
        same_ids(&got, &want);
    }
    const mn_session_load load = load_of(s);
    const uint64_t pages = TALKS * (uint64_t)((FIRST + 8) / 64 * 64); /* that could be shared */
    assert_true(load.disk_hits * 10 >= pages * 9);
    assert_int_equal(load.cache_hits, load.disk_hits);
    assert_int_equal(load.disk_damaged, 0);
    mn_session_free(s);
}

/* Logits are the same bit for bit as those behind the same pages in memory: logprobs of answers
 * are. (A prompt that is computed in other pieces has other last bits, with or without files.) */
static void test_equal_logprobs(void **state) {
    (void)state;
    int32_t ids[400];
    static served got, want;
    const uint32_t n = words(7, 400, ids);
    mn_request_params p = {
        .ids = ids, .n_ids = n, .sample = &few, .flags = MN_SUBMIT_LOGPROBS, .n_top = 3};
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    for (int turn = 0; turn < 2; turn++) {
        submit(s, p, &want);
        finish_all(s, &want, 1);
    }
    mn_session_free(s);
    s = open_kept((mn_session_params){.n_seq = 1});
    submit(s, p, &got);
    finish_all(s, &got, 1);
    assert_int_equal(want.last.n_cached, 384);
    assert_int_equal(got.last.n_cached, 384);
    same_ids(&got, &want);
    assert_memory_equal(got.logprob, want.logprob, want.n * sizeof *want.logprob);
    mn_session_free(s);
}

/* Sequences of mn_seq_create, too, and one that is cut and goes on with other words. */
static void test_sequences(void **state) {
    (void)state;
    int32_t ids[300];
    mn_error err = MN_ERROR;
    mn_token out[16], again[16];
    const uint32_t n = words(8, 300, ids);
    for (int turn = 0; turn < 2; turn++) {
        int32_t seq = -1;
        uint32_t n_all = 0;
        uint32_t n_new = 0;
        mn_session *s = open_kept((mn_session_params){.n_seq = 1});
        assert_int_equal(mn_seq_create(s, ids, n, &few, &seq, &err), MN_OK);
        do {
            assert_int_equal(mn_session_step(s, out + n_all, 16 - n_all, &n_new, &err), MN_OK);
            n_all += n_new;
        } while (n_new);
        assert_int_equal(n_all, 8);
        if (turn)
            assert_memory_equal(out, again, sizeof *out * n_all);
        memcpy(again, out, sizeof *out * n_all);
        assert_int_equal(load_of(s).disk_hits, 0); /* no request: nothing is published */
        mn_session_stats stats = {.size = sizeof stats};
        mn_session_get_stats(s, &stats);
        assert_int_equal(stats.n_prompt, turn ? n - 256 : n);
        assert_int_equal(mn_seq_truncate(s, seq, 100, &err), MN_OK);
        assert_int_equal(mn_seq_extend(s, seq, ids + 50, 60, &few, &err), MN_OK);
        do
            assert_int_equal(mn_session_step(s, out, 16, &n_new, &err), MN_OK);
        while (n_new);
        keep(s);
        mn_session_free(s);
    }
    /* what was kept of the cut sequence is that of its own tokens */
    static served got, want;
    memmove(ids + 100, ids + 50, 60 * sizeof *ids);
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    serve(s, ids, 160, &got);
    assert_int_equal(got.last.n_cached, 128);
    lone((mn_request_params){.ids = ids, .n_ids = 160, .sample = &few}, &want);
    same_ids(&got, &want);
    mn_session_free(s);
}

/* Reading that takes longer than computing is left alone. */
static void test_worth(void **state) {
    (void)state;
    int32_t ids[300];
    static served got;
    const uint32_t n = words(9, 300, ids);
    for (int turn = 0; turn < 3; turn++) {
        mn_session *s = open_kept((mn_session_params){.n_seq = 1});
        ns_per_byte = turn == 1 ? 1e9 : 0;
        serve(s, ids, n, &got);
        assert_int_equal(got.last.n_cached, turn == 2 ? 256 : 0);
        mn_session_free(s);
    }
}

/* Others go on while one loads, salts are kept apart, and so are other KV types, contexts not. */
static void test_identity(void **state) {
    (void)state;
    int32_t ids[200];
    static served got;
    const uint32_t n = words(10, 200, ids);
    static const struct {
        uint32_t k_dtype, n_ctx, cached;
        uint64_t salt;
    } rows[] = {{0, 512, 0, 0},      {0, 1024, 192, 0},     {0, 512, 0, 5},      {0, 512, 192, 5},
                {MN_F16, 512, 0, 0}, {MN_F16, 512, 192, 0}, {MN_Q8_0, 512, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mn_session *s = open_kept((mn_session_params){.n_seq = 2,
                                                      .n_ctx = rows[i].n_ctx,
                                                      .k_dtype = rows[i].k_dtype,
                                                      .v_dtype = rows[i].k_dtype});
        submit(
            s,
            (mn_request_params){.ids = ids, .n_ids = n, .sample = &few, .cache_salt = rows[i].salt},
            &got);
        finish_all(s, &got, 1);
        assert_int_equal(got.last.n_cached, rows[i].cached);
        mn_session_free(s);
    }
}

/* ---- what is not believed -------------------------------------------------------------------- */
/* One conversation in one pack; its path. */
static const char *one_pack(int32_t *ids, uint32_t n, served *want) {
    static char path[600];
    words(11, n, ids);
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    serve(s, ids, n, want);
    mn_session_free(s);
    assert_int_equal(find_packs()->n, 1);
    snprintf(path, sizeof path, "%s", found.path[0]);
    return path;
}

/* The same prompt again: the answer is the same, whatever the files say. */
static uint32_t cached_again(const int32_t *ids, uint32_t n, const served *want) {
    static served got;
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    serve(s, ids, n, &got);
    same_ids(&got, want);
    mn_session_free(s);
    return got.last.n_cached;
}

/* There is one pack, with these bytes. */
static void only_pack(const char *path, const char *data, size_t n) {
    find_packs();
    for (uint32_t i = 0; i < found.n && i < 32; i++)
        remove(found.path[i]);
    write_whole(path, data, n);
}

static void test_damaged(void **state) {
    (void)state;
    int32_t ids[150];
    static served want;
    size_t n;
    const char *path = one_pack(ids, 150, &want);
    char *data = read_whole(path, &n);
    assert_int_equal(cached_again(ids, 150, &want), 128);
    const size_t places[] = {0, 8, 17, 40, 63, 64, 5000, n / 2, n - 97, n - 40, n - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *bad = malloc(n);
        assert_non_null(bad);
        memcpy(bad, data, n);
        bad[places[i]] ^= (char)(1 << i % 8);
        only_pack(path, bad, n);
        free(bad);
        assert_true(cached_again(ids, 150, &want) <= 64); /* a block in front of the damage is */
    }
    const size_t sizes[] = {0, 1, 63, 64, 1000, n - 48, n - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        only_pack(path, data, sizes[i]);
        assert_int_equal(cached_again(ids, 150, &want), 0);
    }
    assert_int_equal(cached_again(ids, 150, &want), 128);
    free(data);
}

/* Files of others, links, folders and remains of killed writers. */
static void test_foreign(void **state) {
    (void)state;
    int32_t ids[150];
    static served want;
    char other[700], target[700];
    size_t n;
    const char *path = one_pack(ids, 150, &want);
    char *data = read_whole(path, &n);
    const int folder = (int)(strrchr(path, '/') - path);
    /* a pack of another identity, under a name that fits */
    data[16] ^= 1;
    snprintf(other, sizeof other, "%.*s/%032x.kv", folder, path, 5);
    write_whole(other, data, n);
    snprintf(target, sizeof target, "%s/elsewhere", dir);
    write_whole(target, data, n);
    snprintf(other, sizeof other, "%.*s/%032x.kv", folder, path, 6);
    assert_int_equal(symlink(target, other), 0);
    snprintf(other, sizeof other, "%.*s/%032x.kv", folder, path, 7);
    assert_int_equal(mkdir(other, 0700), 0);
    snprintf(other, sizeof other, "%.*s/%032x.kv", folder, path, 8);
    assert_int_equal(mkfifo(other, 0600), 0);
    snprintf(other, sizeof other, "%.*s/%016x.tmp", folder, path, 9);
    write_whole(other, "half", 4);
    assert_int_equal(cached_again(ids, 150, &want), 128);
    assert_int_equal(access(other, F_OK), -1);
    /* a folder that others may read is refused, in words */
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    mn_session_params p = {.size = sizeof p, .device = device, .n_ctx = 512, .cache_dir = dir};
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(mn_session_create(model, &p, &s, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "mode 755"));
    assert_int_equal(chmod(dir, 0700), 0);
    /* a key that is damaged is another key */
    snprintf(other, sizeof other, "%s/key", dir);
    write_whole(other, "short", 5);
    assert_int_equal(cached_again(ids, 150, &want), 0);
    assert_int_equal(cached_again(ids, 150, &want), 128);
    free(data);
}

/* ---- limits ---------------------------------------------------------------------------------- */
static void test_bounded(void **state) {
    (void)state;
    int32_t ids[450];
    static served got;
    const uint64_t most = 8u << 20;
    mn_session *s = open_kept((mn_session_params){.n_seq = 1, .cache_disk = most});
    for (uint32_t i = 0; i < 24; i++) {
        words(30 + i, 450, ids);
        serve(s, ids, 450, &got);
        keep(s);
        assert_true(find_packs()->bytes <= most);
    }
    mn_session_free(s);
    s = open_kept((mn_session_params){.n_seq = 1, .cache_disk = most});
    serve(s, ids, 450, &got);
    assert_int_equal(got.last.n_cached, 448); /* the last one is there, the first is not */
    words(30, 450, ids);
    serve(s, ids, 450, &got);
    assert_int_equal(got.last.n_cached, 0);
    mn_session_free(s);
    mn_error err = MN_ERROR;
    mn_session_params p = {
        .size = sizeof p, .device = device, .cache_dir = dir, .cache_disk = 4096};
    assert_int_equal(mn_session_create(model, &p, &s, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "cache_disk: found 4096 bytes"));
}

/* Where nothing can be written (here: files of more than 100 KiB) requests are served all the same,
 * and nothing half-written stays. */
static void test_full(void **state) {
    (void)state;
    int32_t ids[300];
    static served got, want;
    struct rlimit was;
    const uint32_t n = words(12, 300, ids);
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &few}, &want);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    const struct rlimit low = {100 << 10, was.rlim_max};
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    serve(s, ids, n, &got);
    keep(s);
    mn_session_free(s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    same_ids(&got, &want);
    assert_int_equal(find_packs()->n, 0);
    assert_int_equal(cached_again(ids, n, &want), 0);
    assert_int_equal(cached_again(ids, n, &want), 256);
}

/* A process that is killed while it writes leaves files that are whole or not believed. */
static void test_killed(void **state) {
    (void)state;
    enum { KILLS = 5 };
    int32_t ids[400];
    static served got, want;
    for (int k = 0; k < KILLS; k++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        const pid_t pid = fork();
        if (!pid) { /* a program of its own: a runtime does not outlive fork */
            char number[16];
            snprintf(number, sizeof number, "%d", ready[1]);
            execl("/proc/self/exe", "test_disk", "--write", dir, number, (char *)NULL);
            _exit(1);
        }
        close(ready[1]);
        char c = 0;
        /* after so many conversations, in the middle of the next */
        for (int i = 0; i <= k; i++)
            assert_int_equal(read(ready[0], &c, 1), 1);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(ready[0]);
        mn_session *s = open_kept((mn_session_params){.n_seq = 1});
        for (uint32_t i = 0; i < 2; i++) {
            words(60 + i, 400, ids);
            serve(s, ids, 400, &got);
            lone((mn_request_params){.ids = ids, .n_ids = 400, .sample = &few}, &want);
            same_ids(&got, &want);
        }
        assert_int_equal(load_of(s).disk_damaged, 0);
        mn_session_free(s);
    }
}

/* The program that is killed: writes conversations, a byte to fd after each. */
static int write_talks(const char *folder, int fd) {
    int32_t ids[400];
    static served got;
    snprintf(dir, sizeof dir, "%s", folder);
    mn_session *s = open_kept((mn_session_params){.n_seq = 1});
    for (uint32_t i = 0;; i++) {
        words(60 + i % 100, 400, ids);
        serve(s, ids, 400, &got);
        if (write(fd, "x", 1) != 1)
            return 1;
    }
}

/* Two sessions share a folder: what one writes the other finds. */
static void test_two(void **state) {
    (void)state;
    int32_t ids[300];
    static served got, want;
    mn_session *a = open_kept((mn_session_params){.n_seq = 1});
    mn_session *b = open_kept((mn_session_params){.n_seq = 1});
    for (uint32_t i = 0; i < 4; i++) {
        words(80 + i, 300, ids);
        serve(a, ids, 300, &want);
        keep(a);
        serve(b, ids, 100, &got); /* its thread looks at the folder */
        keep(b);
        serve(b, ids, 300, &got);
        assert_int_equal(got.last.n_cached, 256);
        same_ids(&got, &want);
    }
    mn_session_free(a);
    mn_session_free(b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_equal_logprobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sequences, setup, teardown),
        cmocka_unit_test_setup_teardown(test_worth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two, setup, teardown),
    };
    const bool writes = argc > 3 && !strcmp(argv[1], "--write");
    if (open_model(writes ? 1 : argc, argv))
        return 1;
    if (writes)
        return write_talks(argv[2], atoi(argv[3]));
    return close_model(cmocka_run_group_tests(tests, NULL, NULL));
}
