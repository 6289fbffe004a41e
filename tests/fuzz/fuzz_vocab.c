/* Input: tokenizer.ggml.* keys as parts: "=== model s" is a string, i f b are numbers and bools,
 * capitals arrays of them, one element a line; the part "text" is encoded. A key with a dot keeps
 * its name, others stand under tokenizer.ggml. */
#include "fuzz.h"
#include "use_tokenizer.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    mn_meta_entry entry[FUZZ_PARTS];
    char key[FUZZ_PARTS][96];
    void *array[FUZZ_PARTS];
    mn_meta meta;
} keys;

static mn_str next_line(mn_str *rest) {
    const char *eol = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    mn_str line = {rest->ptr, eol ? (uint64_t)(eol - rest->ptr) : rest->len};
    uint64_t used = line.len + (eol ? 1 : 0);
    *rest = (mn_str){rest->ptr + used, rest->len - used};
    return line;
}

static int64_t whole(mn_str s) {
    int64_t i = 0;
    return mn_parse_i64(s, &i) ? i : 0;
}
static double number(mn_str s) {
    double f = 0;
    return mn_parse_f64(s, &f) ? f : 0;
}

static void read_array(mn_value *v, char type, mn_str text, void **memory) {
    uint64_t n = text.len > 0;
    uint64_t k = 0;
    for (uint64_t i = 0; i < text.len; i++)
        n += text.ptr[i] == '\n';
    *memory = calloc(n + 1, sizeof(mn_str));
    FUZZ_CHECK(*memory);
    v->type = MN_VALUE_ARRAY | MN_VALUE_BOOL;
    if (type == 'S')
        v->type = MN_VALUE_ARRAY | MN_VALUE_STR;
    else if (type == 'I')
        v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
    else if (type == 'F')
        v->type = MN_VALUE_ARRAY | MN_VALUE_FLOAT;
    v->array = *memory;
    v->n = n;
    for (; k < n; k++) {
        mn_str line = next_line(&text);
        if (type == 'S')
            ((mn_str *)*memory)[k] = line;
        else if (type == 'I')
            ((int64_t *)*memory)[k] = whole(line);
        else if (type == 'F')
            ((double *)*memory)[k] = number(line);
        else
            ((uint8_t *)*memory)[k] = mn_str_is(line, "1");
    }
}

static void read_value(mn_value *v, char type, mn_str text, void **memory) {
    v->size = sizeof *v;
    if (type == 's') {
        v->type = MN_VALUE_STR;
        v->s = text;
    } else if (type == 'i') {
        v->type = MN_VALUE_INT;
        v->i = whole(text);
    } else if (type == 'f') {
        v->type = MN_VALUE_FLOAT;
        v->f = number(text);
    } else if (type == 'b') {
        v->type = MN_VALUE_BOOL;
        v->i = mn_str_is(text, "1");
    } else
        read_array(v, type, text, memory);
}

static void read_keys(keys *k, const fuzz_parts *parts) {
    memset(k, 0, sizeof *k);
    k->meta.entries = k->entry;
    for (uint32_t i = 0; i < parts->n; i++) {
        const mn_file *f = &parts->file[i];
        uint64_t n = f->name.len;
        if (n < 3 || n > 66 || f->name.ptr[n - 2] != ' ' ||
            !memchr("sifbSIFB", f->name.ptr[n - 1], 8))
            continue;
        size_t at = k->meta.n++;
        if (!memchr(f->name.ptr, '.', n))
            strcpy(k->key[at], "tokenizer.ggml.");
        strncat(k->key[at], f->name.ptr, n - 2);
        k->entry[at].key = mn_str_of(k->key[at]);
        read_value(&k->entry[at].value, f->name.ptr[n - 1], (mn_str){f->map, f->bytes},
                   &k->array[at]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    keys k;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = NULL;
    mn_log_level(MN_LOG_ERROR - 1);
    fuzz_split(data, n, "tokens S", &parts);
    read_keys(&k, &parts);
    if (fuzz_ok(mn_tokenizer_create(&k.meta, NULL, 0, &tok, &err), &err))
        fuzz_accepted = use_tokenizer(tok, fuzz_text(&parts, "text", DEFAULT_TEXT));
    mn_tokenizer_free(tok);
    for (size_t i = 0; i < FUZZ_PARTS; i++)
        free(k.array[i]);
    fuzz_free(&parts);
    return 0;
}
