/* pair.c -- the tokens of a query with a text, for models that score pairs: a pair of the
 * tokeniser, or a prompt that asks for yes or no. The ids are the caller's; the model is only
 * read, from any thread. */
#include "opened/opened.h"
#include <string.h>

/* The prompt that Qwen3-Reranker was trained with (Qwen3 Embedding, 2025), with marks for what
 * differs. */
static const char pair_prompt[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char pair_instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";

typedef struct {
    mn_text text, plain; /* plain: for each byte of text 1 where it is the user's */
} pair_text;

static void pair_put(pair_text *p, mn_str s, bool user) {
    const char mark = user;
    mn_text_put(&p->text, s.ptr, s.len);
    for (uint64_t i = 0; i < s.len; i++)
        mn_text_put(&p->plain, &mark, 1);
}

/* The prompt with its marks replaced. */
static void pair_fill(pair_text *p, const char *prompt, const mn_str values[3]) {
    static const char *const marks[] = {"{instruction}", "{query}", "{document}"};
    while (*prompt) {
        size_t n = strcspn(prompt, "{");
        pair_put(p, (mn_str){prompt, n}, false);
        prompt += n;
        size_t i = 0;
        while (i < MN_COUNT(marks) && strncmp(prompt, marks[i], strlen(marks[i])) != 0)
            i++;
        n = i < MN_COUNT(marks) ? strlen(marks[i]) : *prompt != 0;
        if (i < MN_COUNT(marks))
            pair_put(p, values[i], true);
        else
            pair_put(p, (mn_str){prompt, n}, false);
        prompt += n;
    }
}

void mn_pair_prompt(mn_text *out) {
    const mn_str values[] = {mn_str_of(pair_instruction), mn_str_of("{query}"),
                             mn_str_of("{document}")};
    pair_text p = {0};
    pair_fill(&p, pair_prompt, values);
    mn_text_put(out, p.text.ptr, p.text.len);
    out->failed = out->failed || p.text.failed;
    mn_text_free(&p.text);
    mn_text_free(&p.plain);
}

/* Whether the prompt of a file is the usual one, in which the instruction may be another. */
static bool pair_is_usual(mn_str own) {
    mn_text usual = {0};
    mn_pair_prompt(&usual);
    const bool same = !usual.failed && mn_str_eq((mn_str){usual.ptr, usual.len}, own);
    mn_text_free(&usual);
    return same;
}

static mn_status pair_by_prompt(const mn_model *m, const mn_str values[3], int32_t **ids,
                                uint32_t *n, mn_error *err) {
    pair_text p = {0};
    mn_str own = {NULL, 0};
    char *copy = NULL;
    mn_status st = MN_OK;
    /* GGUF's key for the prompts of rerankers */
    if (!mn_meta_str(&m->canonical->meta, MN_PAIR_PROMPT_KEY, &own, NULL) && !pair_is_usual(own)) {
        copy = mn_strndup(own.ptr, own.len);
        st = copy ? MN_OK : mn_fail_memory(err, own.len);
    }
    if (!st)
        pair_fill(&p, copy ? copy : pair_prompt, values);
    if (!st && (p.text.failed || p.plain.failed))
        st = mn_fail_memory(err, p.text.len);
    if (!st)
        st = mn_text_encode(m, (mn_str){p.text.ptr, p.text.len}, (const uint8_t *)p.plain.ptr,
                            MN_TOKENIZE_PARSE_SPECIAL | MN_TOKENIZE_ADD_SPECIAL, ids, n, err);
    mn_text_free(&p.text);
    mn_text_free(&p.plain);
    mn_free(copy);
    return st;
}

mn_status mn_pair_encode(const mn_model *m, mn_str query, mn_str text, mn_str instruction,
                         int32_t **ids, uint32_t *n, uint32_t *n_first, mn_error *err) {
    const mn_str values[] = {instruction.len ? instruction : mn_str_of(pair_instruction), query,
                             text};
    size_t count = 0;
    size_t first = 0;
    int32_t *made = NULL;
    if (m->score.prompted) {
        const mn_status st = pair_by_prompt(m, values, ids, n, err);
        *n_first = st ? 0 : *n;
        return st;
    }
    if (instruction.len)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: an instruction, which %s has no place for: expected none",
                       m->canonical->path, m->arch);
    mn_status st = mn_tokenizer_encode_pair(m->tokenizer, query, text, &made, &count, &first, err);
    if (!st && count > INT32_MAX)
        st = mn_fail(err, MN_BAD_INPUT, "the two texts have %zu tokens", count);
    st = mn_canonical_settle(m->canonical, false, st, err);
    if (st) {
        mn_free(made);
        return st == MN_UNSUPPORTED ? mn_fail_in(err, st, "%s", m->canonical->path) : st;
    }
    *ids = made;
    *n = (uint32_t)count;
    *n_first = (uint32_t)first;
    return MN_OK;
}
