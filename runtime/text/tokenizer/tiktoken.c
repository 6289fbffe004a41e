/* tiktoken.c -- a tokeniser from tiktoken.model, as folders of Kimi have it: a line for each token,
 * its bytes in base64, a space, its rank, which is its id. Ids behind those are special tokens:
 * tokenizer_config.json's added_tokens_decoder names some, the others are reserved. How a text is
 * cut is not in the files: it is the class's, so that other classes are refused.
 *
 * tiktoken merges the two neighbours whose union has the lowest rank, and takes a piece that is a
 * token whole. Byte-pair encoding by merges gives the same ids if every way to cut a token into two
 * tokens is a merge, in the order of the tokens. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define NAME "tiktoken.model"
#define CLASS "TikTokenTokenizer"
enum { N_RESERVED = 256, MOST_ADDED = 65536 };

/* The next line that is not empty, without its end; number counts all. false: there is none. */
static bool next_line(mn_str *left, mn_str *line, uint64_t *number) {
    while (left->len) {
        const char *end = memchr(left->ptr, '\n', (size_t)left->len);
        const uint64_t n = end ? (uint64_t)(end - left->ptr) : left->len;
        *line = (mn_str){left->ptr, n};
        left->ptr += n + (end != NULL);
        left->len -= n + (end != NULL);
        ++*number;
        if (line->len && line->ptr[line->len - 1] == '\r')
            line->len--;
        if (line->len)
            return true;
    }
    return false;
}

static uint64_t count_lines(mn_str file) {
    uint64_t n = 0;
    uint64_t number = 0;
    mn_str line;
    while (next_line(&file, &line, &number))
        n++;
    return n;
}

/* Bytes as the visible characters that pieces are written in. */
static void put_visible(mn_text *out, const char *bytes, size_t n) {
    char c[4];
    for (size_t i = 0; i < n; i++)
        mn_text_put(out, c, (size_t)mn_utf8_encode(mn_byte_char((uint8_t)bytes[i]), c));
}

/* A line's token, in bytes, and its rank. n: tokens of the file. */
static mn_status parse_line(mn_str line, uint64_t number, uint64_t n, mn_text *bytes, int64_t *rank,
                            mn_error *err) {
    const char *space = memchr(line.ptr, ' ', (size_t)line.len);
    const mn_str code = {line.ptr, space ? (uint64_t)(space - line.ptr) : 0};
    const mn_str digits = {line.ptr + code.len + 1, space ? line.len - code.len - 1 : 0};
    bytes->len = 0;
    if (!code.len || !mn_decode_base64(code, bytes) || !mn_parse_i64(digits, rank))
        return mn_fail(err, MN_BAD_FILE,
                       NAME ": line %llu: found \"%.*s\", expected a token in base64, a space, and "
                            "its rank",
                       (unsigned long long)number, (int)MN_MIN(line.len, (uint64_t)40), line.ptr);
    if (*rank < 0 || (uint64_t)*rank >= n)
        return mn_fail(err, MN_BAD_FILE, NAME ": line %llu: found rank %lld, expected 0 to %llu",
                       (unsigned long long)number, (long long)*rank, (unsigned long long)n - 1);
    return bytes->failed ? mn_fail_memory(err, line.len) : MN_OK;
}

static mn_status check_lines(mn_str file, uint64_t n, mn_error *err) {
    mn_text bytes = {0};
    mn_str line;
    uint64_t number = 0;
    int64_t rank = 0;
    mn_status st = MN_OK;
    while (!st && next_line(&file, &line, &number))
        st = parse_line(line, number, n, &bytes, &rank, err);
    mn_text_free(&bytes);
    return st;
}

/* bytes and piece are scratch. */
static mn_status read_token(mn_tokenizer *tok, mn_str line, uint64_t number, uint64_t n,
                            mn_text *bytes, mn_text *piece, mn_error *err) {
    int64_t rank = 0;
    const mn_status st = parse_line(line, number, n, bytes, &rank, err);
    if (st)
        return st;
    piece->len = 0;
    put_visible(piece, bytes->ptr, bytes->len);
    if (piece->failed)
        return mn_fail_memory(err, line.len);
    if (tok->vocab.token[rank].piece.len)
        return mn_fail(err, MN_BAD_FILE, NAME ": line %llu: found rank %lld for the second time",
                       (unsigned long long)number, (long long)rank);
    return mn_vocab_set(&tok->vocab, (int32_t)rank, (mn_str){piece->ptr, piece->len}, 0, NAME, err);
}

static mn_status has_bytes(const mn_tokenizer *tok, mn_error *err) {
    for (int b = 0; b < 256; b++) {
        char c[4];
        const int n = mn_utf8_encode(mn_byte_char((uint8_t)b), c);
        if (mn_vocab_find(&tok->vocab, (mn_str){c, (uint64_t)n}) < 0)
            return mn_fail(err, MN_BAD_FILE, NAME ": found no token of the byte 0x%02x", b);
    }
    return MN_OK;
}

static mn_status read_ranks(mn_tokenizer *tok, mn_str file, uint64_t n, mn_error *err) {
    mn_text bytes = {0};
    mn_text piece = {0};
    mn_str line;
    uint64_t number = 0;
    mn_status st = MN_OK;
    while (!st && next_line(&file, &line, &number))
        st = read_token(tok, line, number, n, &bytes, &piece, err);
    mn_text_free(&bytes);
    mn_text_free(&piece);
    return st ? st : has_bytes(tok, err);
}

/* ---- merges ---------------------------------------------------------------------------------- */
/* Adds every way to cut the piece into two tokens, or counts it (m NULL). */
static mn_status cut_piece(const mn_vocab *v, mn_str piece, mn_merges *m, uint64_t *n,
                           mn_error *err) {
    mn_status st = MN_OK;
    for (size_t at = mn_char_length(piece.ptr, (size_t)piece.len); at < piece.len && !st;
         at += mn_char_length(piece.ptr + at, (size_t)piece.len - at)) {
        const mn_str left = {piece.ptr, at};
        const mn_str right = {piece.ptr + at, piece.len - at};
        if (mn_vocab_plain(v, left) < 0 || mn_vocab_plain(v, right) < 0)
            continue;
        ++*n;
        if (m)
            st = mn_merges_add(m, left, right, err);
    }
    return st;
}

static mn_status make_merges(mn_tokenizer *tok, uint64_t n_ranks, mn_error *err) {
    mn_merges m = {.vocab = &tok->vocab, .where = NAME};
    uint64_t n = 0;
    uint64_t again = 0;
    mn_status st = MN_OK;
    for (uint64_t i = 0; i < n_ranks && !st; i++)
        st = cut_piece(&tok->vocab, tok->vocab.token[i].piece, NULL, &n, err);
    if (!st)
        st = mn_merges_begin(&m, n, err);
    for (uint64_t i = 0; i < n_ranks && !st; i++)
        st = cut_piece(&tok->vocab, tok->vocab.token[i].piece, &m, &again, err);
    return st ? st : mn_merges_end(&m, err);
}

/* ---- special tokens -------------------------------------------------------------------------- */
/* *n: tokens of the file; then, one more than the highest id. Checks each entry. */
static mn_status count_special(const cJSON *decoder, uint64_t *n, mn_error *err) {
    const uint64_t first = *n;
    const cJSON *item = NULL;
    *n += N_RESERVED;
    cJSON_ArrayForEach(item, decoder) {
        int64_t id = -1;
        const char *content = cJSON_GetStringValue(mn_json_item(item, "content"));
        const bool known = mn_parse_i64(mn_str_of(item->string), &id) && content && *content;
        if (!known || id < (int64_t)first || id >= (int64_t)(first + MOST_ADDED))
            return mn_fail(err, MN_BAD_FILE,
                           "tokenizer_config.json: added_tokens_decoder: found \"%.80s\", expected "
                           "an id from %llu (the tokens of " NAME ") to %llu and its \"content\"",
                           item->string, (unsigned long long)first,
                           (unsigned long long)first + MOST_ADDED - 1);
        *n = MN_MAX(*n, (uint64_t)id + 1);
    }
    return MN_OK;
}

static mn_status put_special(mn_tokenizer *tok, int32_t id, mn_added a, mn_error *err) {
    const uint32_t flags = MN_TOKEN_ADDED | MN_TOKEN_OUTSIDE | (a.special ? MN_TOKEN_SPECIAL : 0);
    const mn_status st = mn_vocab_set(&tok->vocab, id, a.text, flags,
                                      "tokenizer_config.json: added_tokens_decoder", err);
    a.id = id;
    a.text = tok->vocab.token[id].piece;
    return st ? st : mn_added_put(&tok->raw, &a, err);
}

static mn_status put_specials(mn_tokenizer *tok, uint64_t first, const cJSON *decoder,
                              mn_error *err) {
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(item, decoder) {
        const mn_added a = {.text = mn_str_of(mn_json_item(item, "content")->valuestring),
                            .special = mn_json_flag(item, "special", false)};
        int64_t id = 0;
        mn_parse_i64(mn_str_of(item->string), &id);
        if (!st)
            st = put_special(tok, (int32_t)id, a, err);
    }
    for (uint64_t id = first; id < tok->vocab.n && !st; id++) {
        char text[48];
        snprintf(text, sizeof text, "<|reserved_token_%llu|>", (unsigned long long)id);
        if (!tok->vocab.token[id].piece.len)
            st = put_special(tok, (int32_t)id, (mn_added){.text = mn_str_of(text), .special = true},
                             err);
    }
    return st ? st : mn_added_index(&tok->raw, NAME, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */
static mn_status build(mn_tokenizer *tok, mn_str file, const cJSON *config, mn_error *err) {
    const char *class = cJSON_GetStringValue(mn_json_item(config, "tokenizer_class"));
    const cJSON *decoder = mn_json_item(config, "added_tokens_decoder");
    const uint64_t n = count_lines(file);
    uint64_t n_all = n;
    if (class && strcmp(class, CLASS) != 0)
        return mn_fail(err, MN_UNSUPPORTED,
                       "tokenizer_config.json: tokenizer_class: found \"%.80s\" beside " NAME
                       ", expected \"" CLASS "\", whose way to cut texts is known",
                       class);
    if (n < 256 || n > MN_VOCAB_MAX - MOST_ADDED)
        return mn_fail(err, MN_BAD_FILE, NAME ": found %llu tokens, expected 256 to %d",
                       (unsigned long long)n, MN_VOCAB_MAX - MOST_ADDED);
    tok->model = MN_TOKENIZER_BPE;
    tok->byte_level = true;
    tok->ignore_merges = true;
    mn_status st = check_lines(file, n, err);
    if (!st)
        st = count_special(decoder, &n_all, err);
    if (!st)
        st = mn_vocab_init(&tok->vocab, n_all, NAME, err);
    if (!st)
        st = read_ranks(tok, file, n, err);
    if (!st)
        st = put_specials(tok, n, decoder, err);
    if (!st)
        st = make_merges(tok, n, err);
    if (!st)
        st = mn_pre_add(&tok->splitter, mn_pre_find(mn_str_of("kimi-k2")), NAME, err);
    if (!st && !mn_stages_add(&tok->splitter, MN_STAGE_BYTES))
        st = mn_fail_memory(err, sizeof(mn_stage));
    if (!st)
        st = mn_decode_add(&tok->decoder, MN_DECODE_BYTES, mn_str_of(""), NULL, err);
    if (!st)
        mn_vocab_finish(&tok->vocab);
    return st;
}

mn_status mn_tokenizer_from_tiktoken(mn_tokenizer *tok, mn_str file, const mn_file *files,
                                     uint32_t n_files, mn_error *err) {
    cJSON *config = NULL;
    mn_status st = mn_json_file(files, n_files, "tokenizer_config.json", &config, err);
    if (!st)
        st = build(tok, file, config, err);
    cJSON_Delete(config);
    return st ? st : mn_tokenizer_stop_from_files(tok, files, n_files, err);
}
