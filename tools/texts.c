/* texts.c -- texts of minerva embed and minerva rerank: from lines of a file to blocks for the
 * library. The jobs, and the texts in them, belong to the callers (embed.c, rerank.c). */
#include "texts.h"
#include <string.h>

int texts_of_file(const char *file, char **data, texts_add add, void *job) {
    size_t bytes = 0;
    int code = read_all_text(file, data, &bytes);
    for (size_t at = 0; at < bytes && code == 0;) {
        const char *line = *data + at;
        const char *end = memchr(line, '\n', bytes - at);
        const size_t n = end ? (size_t)(end - line) : bytes - at;
        const size_t cr = n && line[n - 1] == '\r';
        code = add(job, line, n - cr);
        at += n + 1;
    }
    return code;
}

uint32_t texts_most_tokens(const app *a, const char **flag) {
    const mn_session_info *s = &a->session_info;
    const int one_step = a->info.is_encoder && s->n_batch < s->n_ctx;
    *flag = one_step ? "-b: an encoder reads a text in one step" : "-c";
    return one_step ? s->n_batch : s->n_ctx;
}

int texts_in_blocks(const char *what, uint32_t n, texts_block block, void *job) {
    progress *bar = progress_begin(what);
    int code = 0;
    for (uint32_t first = 0; first < n && code == 0; first += TEXTS_BLOCK) {
        const uint32_t left = n - first;
        code = block(job, first, left < TEXTS_BLOCK ? left : TEXTS_BLOCK);
        progress_at(bar, first, n);
    }
    progress_end(bar);
    return code;
}
