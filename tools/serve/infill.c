/* infill.c -- fill in the middle (infill.h): begin-of-text, files, PREFIX prefix SUFFIX suffix
 * MIDDLE. The texts themselves never become special tokens. */
#include "serve/infill.h"
#include "model_facts.h"
#include <stdlib.h>
#include <string.h>

/* ---- marks ----------------------------------------------------------------------------------- */

int32_t infill_token(const mn_model *m, const char *text) {
    int32_t *ids = NULL;
    uint32_t n = 0;
    int32_t id = -1;
    if (mn_model_tokenize(m, mn_str_of(text), MN_TEXT_PARSE_SPECIAL, &ids, &n, NULL))
        return -1;
    if (n == 1 && mn_str_is(mn_model_token_text(m, ids[0]), text))
        id = ids[0];
    mn_ids_free(ids);
    return id;
}

/* By keys of GGUF, newer and older; then by the vocabularies of Qwen, StarCoder, SantaCoder,
 * DeepSeek, CodeGemma, Granite, GLM, Code Llama. */
static const struct {
    size_t offset;
    const char *key, *older;
    const char *spelled[8];
} marks[] = {
    {offsetof(infill_marks, prefix),
     "tokenizer.ggml.fim_pre_token_id",
     "tokenizer.ggml.prefix_token_id",
     {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>",
      "<\xef\xbd\x9c"
      "fim\xe2\x96\x81"
      "begin\xef\xbd\x9c>",
      "<|code_prefix|>", "\xe2\x96\x81<PRE>", "<PRE>"}},
    {offsetof(infill_marks, suffix),
     "tokenizer.ggml.fim_suf_token_id",
     "tokenizer.ggml.suffix_token_id",
     {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>",
      "<\xef\xbd\x9c"
      "fim\xe2\x96\x81hole\xef\xbd\x9c>",
      "<|code_suffix|>", "\xe2\x96\x81<SUF>", "<SUF>"}},
    {offsetof(infill_marks, middle),
     "tokenizer.ggml.fim_mid_token_id",
     "tokenizer.ggml.middle_token_id",
     {"<|fim_middle|>", "<fim_middle>", "<fim-middle>",
      "<\xef\xbd\x9c"
      "fim\xe2\x96\x81"
      "end\xef\xbd\x9c>",
      "<|code_middle|>", "\xe2\x96\x81<MID>", "<MID>"}},
    {offsetof(infill_marks, repository),
     "tokenizer.ggml.fim_rep_token_id",
     NULL,
     {"<|repo_name|>", "<|fim_repo|>", "<fim_repo>", "<repo_name>", "<reponame>", "<REPO>"}},
    {offsetof(infill_marks, file),
     "tokenizer.ggml.fim_sep_token_id",
     NULL,
     {"<|file_sep|>", "<file_sep>", "<filename>", "<|file_separator|>"}},
};

int infill_find(const mn_model *m, infill_marks *out) {
    for (size_t i = 0; i < MN_COUNT(marks); i++) {
        int64_t id = model_int(m, marks[i].key, -1);
        if (id < 0 && marks[i].older)
            id = model_int(m, marks[i].older, -1);
        if (id > INT32_MAX || !mn_model_token_text(m, (int32_t)id).len)
            id = -1;
        for (size_t k = 0; id < 0 && k < MN_COUNT(marks[i].spelled) && marks[i].spelled[k]; k++)
            id = infill_token(m, marks[i].spelled[k]);
        memcpy((char *)out + marks[i].offset, &(int32_t){(int32_t)id}, sizeof(int32_t));
    }
    return out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

typedef struct {
    const mn_model *m;
    int32_t *ids;
    uint32_t n;
    json_error *e;
} id_list;

static int put_ids_of(id_list *l, const int32_t *ids, uint32_t n) {
    int32_t *grown = realloc(l->ids, ((size_t)l->n + n + 1) * sizeof *grown);
    if (!grown)
        return json_no_memory(l->e);
    if (n)
        memcpy(grown + l->n, ids, n * sizeof *ids);
    l->ids = grown;
    l->n += n;
    return 1;
}

/* A mark that the model has not is left out. */
static int put_mark(id_list *l, int32_t id) {
    return id < 0 || put_ids_of(l, &id, 1);
}

static int infill_put_text(id_list *l, const char *text, uint32_t flags) {
    mn_error err = MN_ERROR;
    int32_t *ids = NULL;
    uint32_t n = 0;
    if (mn_model_tokenize(l->m, mn_str_of(text), flags, &ids, &n, &err)) {
        json_fail(l->e, "prompt", "%s", err.msg);
        return 0;
    }
    const int ok = put_ids_of(l, ids, n);
    mn_ids_free(ids);
    return ok;
}

/* Files by the model's marks, else between lines of dashes. */
static int put_files(id_list *l, const infill_marks *k, const infill_parts *parts) {
    int ok = 1;
    if (parts->n_files && k->file >= 0 && k->repository >= 0)
        ok = put_mark(l, k->repository) && infill_put_text(l, "project\n", 0);
    for (uint32_t i = 0; i < parts->n_files && ok; i++) {
        const infill_file *f = &parts->files[i];
        if (k->file >= 0)
            ok = put_mark(l, k->file) && infill_put_text(l, f->name, 0) &&
                 infill_put_text(l, "\n", 0);
        else
            ok = infill_put_text(l, "\n\n--- ", 0) && infill_put_text(l, f->name, 0) &&
                 infill_put_text(l, " ---\n\n", 0);
        ok = ok && infill_put_text(l, f->text, 0);
    }
    if (ok && parts->n_files && k->file >= 0)
        ok = put_mark(l, k->file) && infill_put_text(l, "filename\n", 0);
    return ok;
}

int infill_prompt(const mn_model *m, const infill_parts *parts, int32_t **ids, uint32_t *n,
                  json_error *e) {
    infill_marks k;
    id_list l = {.m = m, .e = e};
    if (!infill_find(m, &k))
        return json_fail(e, "suffix",
                         "the model has no tokens for text between a prefix and a suffix: "
                         "expected one that was trained to fill in the middle");
    const int ok = infill_put_text(&l, "", parts->add_special ? MN_TEXT_ADD_SPECIAL : 0) &&
                   put_files(&l, &k, parts) && put_mark(&l, k.prefix) &&
                   infill_put_text(&l, parts->prefix, 0) && put_mark(&l, k.suffix) &&
                   infill_put_text(&l, parts->suffix, 0) && put_mark(&l, k.middle);
    if (!ok) {
        free(l.ids);
        return 0;
    }
    *ids = l.ids;
    *n = l.n;
    return 1;
}
