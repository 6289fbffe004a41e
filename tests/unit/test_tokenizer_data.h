/* test_tokenizer_data.h -- files for the tokeniser's tests, and just enough GGUF to read a
 * vocabulary by itself. */
#ifndef TEST_TOKENIZER_DATA_H
#define TEST_TOKENIZER_DATA_H
#include "model/meta.h"

/* NUL-terminated, mn_free; NULL = no such file. root: "MINERVA_SOURCE_ROOT" (else "../..") +
 * path. */
char *data_read(const char *path, uint64_t *bytes);
/* under MINERVA_SHARED, else beside the source tree */
char *data_shared(const char *path, uint64_t *bytes);

char *data_shared_path(const char *path); /* where that would be; free */

typedef struct {
    mn_meta meta;
    mn_arena arena;
    char *bytes;
} data_gguf;
bool data_gguf_open(data_gguf *g, const char *shared_path); /* false = no such file */
void data_gguf_close(data_gguf *g);
#endif
