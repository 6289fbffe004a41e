/* replay.c -- drives a fuzz target without libFuzzer: replay [--every] FILE_OR_FOLDER...
 * Each seed, its prefixes, and mutations of it that are the same every time; and each that is well
 * while its k-th allocation fails, or that one and all behind it, for the first k and then ever
 * fewer (--every: for all). A seed called ok-* must be accepted by the target: else it has stopped
 * reaching what it was made for. */
#include "fuzz.h"
#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIXES = 24, MUTATIONS = 48, FILE_MAX = 1 << 22 };
#pragma weak LLVMFuzzerInitialize
#pragma weak LLVMFuzzerCustomMutator

static uint64_t state = 1, n_runs;
static uint32_t draw(uint32_t n) { /* 0 .. n - 1; Marsaglia's xorshift */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

/* One small change in place, a run of bytes repeated, or one taken out. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t cap) {
    static const uint8_t telling[] = {0,   1,   0x7f, 0x80, 0xff, '0',  '9',  '"',
                                      '{', '}', '[',  ']',  ',',  '\n', '\\', ' '};
    if (!n)
        return 0;
    size_t at = draw((uint32_t)n);
    size_t len = 1 + draw((uint32_t)MN_MIN(n - at, (size_t)32));
    switch (draw(5)) {
    case 0:
        data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        data[at] = telling[draw(sizeof telling)];
        break;
    case 2:
        memset(data + at, telling[draw(5)], MN_MIN(len, (size_t)8));
        break;
    case 3:
        if (n + len > cap)
            break;
        memmove(data + at + len, data + at, n - at);
        return n + len;
    default:
        memmove(data + at, data + at + len, n - at - len);
        return n - len;
    }
    return n;
}

static void run(const uint8_t *data, size_t n) {
    uint8_t *copy = malloc(n ? n : 1); /* of exactly this size: reads beyond it are seen */
    FUZZ_CHECK(copy);
    if (n)
        memcpy(copy, data, n);
    fuzz_accepted = false;
    fuzz_said[0] = 0;
    fuzz_refused = 0;
    fuzz_answer = 0;
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    n_runs++;
}

/* ---- without memory -------------------------------------------------------------------------- */
enum { DENSE = 48, SPARSE = 8 };
static bool every;

static void *allocate(size_t n) {
    return mn_alloc(n, 1);
}
static cJSON_Hooks ours = {allocate, mn_free};

/* cJSON's allocations are counted with ours. */
static void starve(const uint8_t *data, size_t n, uint64_t answer, bool once) {
    fuzz_only_memory = true;
    cJSON_InitHooks(&ours);
    bool failed = true;
    for (int64_t k = 1; failed; k += every || k < DENSE ? 1 : k / SPARSE) {
        (once ? mn_alloc_fail_once : mn_alloc_fail_after)(k);
        run(data, n);
        failed = mn_alloc_failed();
        if (fuzz_only_memory && !fuzz_refused && fuzz_answer != answer)
            fuzz_broken(__FILE__, __LINE__, "without memory an answer is the same, or an error");
        mn_alloc_fail_after(-1);
    }
    cJSON_InitHooks(NULL);
    fuzz_only_memory = false;
}

static void replay(const char *path, const char *name) {
    char *data = NULL;
    uint64_t n = 0;
    mn_error err = MN_ERROR_INIT;
    if (mn_read_file(path, FILE_MAX, &data, &n, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    run((const uint8_t *)data, n);
    const bool well = fuzz_accepted && !fuzz_refused;
    const uint64_t answer = fuzz_answer;
    if (!strncmp(name, "ok-", 3) && !fuzz_accepted) {
        fprintf(stderr, "%s: the target no longer accepts this seed: %s\n", path, fuzz_said);
        exit(1);
    }
    for (int once = 0; once < 2 && well; once++)
        starve((const uint8_t *)data, n, answer, once);
    for (uint64_t i = 0; i < PREFIXES && n; i++)
        run((const uint8_t *)data, (size_t)(n * i / PREFIXES));
    const size_t cap = (size_t)n + 256;
    uint8_t *work = malloc(cap);
    FUZZ_CHECK(work);
    state = mn_hash(data, n, 1) | 1;
    for (int i = 0; i < MUTATIONS; i++) {
        size_t len = (size_t)n;
        memcpy(work, data, len);
        for (uint32_t k = draw(4) + 1; k--;)
            len = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(work, len, cap, draw(1u << 30))
                                          : LLVMFuzzerMutate(work, len, cap);
        run(work, len);
    }
    free(work);
    mn_free(data);
}

int main(int argc, char **argv) {
    uint32_t n_files = 0;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--every")) {
            every = true;
            continue;
        }
        struct dirent **list = NULL;
        int n = mn_path_is_dir(argv[i]) ? scandir(argv[i], &list, NULL, alphasort) : -1;
        if (n < 0) {
            const char *slash = strrchr(argv[i], '/');
            replay(argv[i], slash ? slash + 1 : argv[i]);
            n_files++;
        }
        for (int k = 0; k < n; k++) {
            char *path = mn_path_join(argv[i], list[k]->d_name);
            if (path && list[k]->d_name[0] != '.') {
                replay(path, list[k]->d_name);
                n_files++;
            }
            mn_free(path);
            free(list[k]);
        }
        free(list);
    }
    printf("%u seeds, %llu inputs\n", n_files, (unsigned long long)n_runs);
    return n_files ? 0 : 1;
}
