/* tokenize_file FILE -- ids by a tokenizer.json or tokenizer.model alone, for oracles. Reads cases
 * from stdin and answers each: a case is "FLAGS BYTES\n" and the text (FLAGS as of
 * mn_tokenizer_encode; 256: the text is ids to decode; 512: special tokens are shown); an answer is
 * a line of ids, the line "BYTES", and the text that the ids decode to. A failure is the line
 * "error" and the message. */
#include "text/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS 256u
#define SHOW 512u

static mn_status parse_ids(const char *text, int32_t **ids, size_t *n) {
    *ids = mn_alloc(strlen(text) + 1, sizeof **ids);
    for (char *end; *ids && *text; text = end) {
        (*ids)[(*n)++] = (int32_t)strtol(text, &end, 10);
        if (end == text)
            break;
    }
    return *ids ? MN_OK : MN_OUT_OF_MEMORY;
}

static mn_status answer(const mn_tokenizer *tok, mn_str text, uint32_t flags, mn_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    mn_detokenizer *d = NULL;
    mn_text out = {0};
    mn_status st = flags & IDS ? parse_ids(text.ptr, &ids, &n)
                               : mn_tokenizer_encode(tok, text, NULL, flags, &ids, &n, err);
    if (!st)
        st = mn_detokenizer_create(tok, flags & SHOW ? MN_DETOKENIZE_SPECIAL : 0, &d, err);
    for (size_t i = 0; !st && i < n; i++)
        st = mn_detokenizer_push(d, ids[i], &out);
    if (!st)
        st = mn_detokenizer_finish(d, &out);
    if (!st) {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", ids[i]);
        printf("\n%zu\n", out.len);
        if (out.len)
            fwrite(out.ptr, 1, out.len, stdout);
    }
    mn_detokenizer_free(d);
    mn_text_free(&out);
    mn_free(ids);
    return st;
}

int main(int argc, char **argv) {
    char *data = NULL;
    uint64_t bytes = 0;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = NULL;
    if (argc != 2)
        return fprintf(stderr, "usage: tokenize_file FILE\n"), 2;
    mn_status st = mn_read_file(argv[1], 1u << 30, &data, &bytes, &err);
    const char *name = strstr(argv[1], ".model") ? "tokenizer.model" : "tokenizer.json";
    if (strstr(argv[1], ".tiktoken"))
        name = "tiktoken.model";
    mn_file file = {mn_str_of(name), data, bytes, 0, 0};
    if (!st)
        st = mn_tokenizer_create(NULL, &file, 1, &tok, &err);
    mn_free(data);
    unsigned flags;
    size_t n;
    while (!st && scanf("%u %zu", &flags, &n) == 2) {
        getchar();
        char *text = calloc(1, n + 1);
        if (!text || fread(text, 1, n, stdin) != n)
            return 2;
        if (answer(tok, (mn_str){text, n}, flags, &err))
            printf("error\n%s\n", err.msg);
        fflush(stdout);
        free(text);
    }
    if (st)
        fprintf(stderr, "%s\n", err.msg);
    mn_tokenizer_free(tok);
    return st != MN_OK;
}
