/* bench_tokenizer [TOKENIZER.json|.model [TEXT]] -- how long a tokeniser takes to load and how fast
 * it encodes on one core. Without a file: a made-up tokenizer.json of 20 MB. Not a test: times
 * depend on the machine. */
#include "text/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 20000000, RUNS = 7 };

/* Pieces of 1 to 12 letters, each the union of two earlier ones; escapes and non-ASCII spelled as
 * real files do. */
static void make_json(mn_text *out) {
    enum { MOST = 520000, WIDTH = 16 };
    char(*piece)[WIDTH] = calloc(MOST, WIDTH);
    uint32_t(*merge)[2] = calloc(MOST, sizeof *merge), n = 0, n_merges = 0;
    uint64_t seed = 1;
    char *seen = calloc(1u << 24, 1);
    mn_text_puts(
        out,
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{\"type\":"
        "\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (char c = 'a'; c <= 'z'; c++)
        piece[n++][0] = c;
    strcpy(piece[n++], "\xc4\xa0");
    for (size_t size = 0; size + 60 < BYTES && n < MOST;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t a = (uint32_t)(seed >> 40) % n, b = (uint32_t)(seed >> 20) % MN_MIN(n, 4000);
        size_t la = strlen(piece[a]), lb = strlen(piece[b]);
        if (la + lb > 12 || !strncmp(piece[b], "\xc4", 1))
            continue;
        memcpy(piece[n], piece[a], la);
        memcpy(piece[n] + la, piece[b], lb + 1);
        char *mark = &seen[mn_hash(piece[n], la + lb, 0) & 0xffffff];
        if (*mark)
            continue; /* perhaps there */
        *mark = 1;
        merge[n_merges][0] = a;
        merge[n_merges++][1] = b;
        size += 2 * (la + lb) + 30;
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        mn_text_printf(out, "%s\n      \"%s\": %u", i ? "," : "", piece[i], i);
    mn_text_puts(out, "},\"merges\":[");
    for (uint32_t i = 0; i < n_merges; i++)
        mn_text_printf(out, "%s\n      [\"%s\", \"%s\"]", i ? "," : "", piece[merge[i][0]],
                       piece[merge[i][1]]);
    mn_text_puts(out, "]}}");
    free(piece);
    free(merge);
    free(seen);
}

/* Of the processor, so that other programs disturb less; one thread does all the work. */
static double seconds_used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(const char *what, double *seconds, double mb) {
    qsort(seconds, RUNS, sizeof *seconds, by_value);
    printf("%s %.1f MB: median %.3f s, %.3f to %.3f s of %d, %.1f MB/s\n", what, mb,
           seconds[RUNS / 2], seconds[0], seconds[RUNS - 1], RUNS, mb / seconds[RUNS / 2]);
}

static mn_status encode(const mn_tokenizer *tok, const char *path, mn_error *err) {
    char *text = NULL;
    uint64_t bytes = 0;
    double seconds[RUNS];
    mn_status st = mn_read_file(path, 1u << 28, &text, &bytes, err);
    for (int i = 0; !st && i < RUNS; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        double begin = seconds_used();
        st = mn_tokenizer_encode(tok, (mn_str){text, bytes}, NULL, 0, &ids, &n, err);
        seconds[i] = seconds_used() - begin;
        mn_free(ids);
    }
    if (!st)
        say("encode", seconds, (double)bytes * 1e-6);
    mn_free(text);
    return st;
}

int main(int argc, char **argv) {
    mn_text made = {0};
    char *data = NULL;
    uint64_t bytes = 0;
    double seconds[RUNS];
    mn_error err = MN_ERROR_INIT;
    mn_status st = MN_OK;
    if (argc > 1)
        st = mn_read_file(argv[1], 1u << 28, &data, &bytes, &err);
    else
        make_json(&made);
    bool model = argc > 1 && strstr(argv[1], ".model");
    mn_file file = {mn_str_of(model ? "tokenizer.model" : "tokenizer.json"), data ? data : made.ptr,
                    data ? bytes : made.len};
    mn_tokenizer *tok = NULL;
    for (int i = 0; !st && i < RUNS; i++) {
        mn_tokenizer_free(tok);
        double begin = seconds_used();
        st = mn_tokenizer_create(NULL, &file, 1, &tok, &err);
        seconds[i] = seconds_used() - begin;
    }
    if (!st)
        say("load", seconds, (double)file.bytes * 1e-6);
    if (!st && argc > 2)
        st = encode(tok, argv[2], &err);
    if (st)
        fprintf(stderr, "%s\n", err.msg);
    mn_tokenizer_free(tok);
    mn_free(data);
    mn_text_free(&made);
    return st != MN_OK;
}
