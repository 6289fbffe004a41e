/* tokenizer_json.c -- a tokeniser from tokenizer.json: model, added tokens, template, in the order
 * in which the parts need each other. Big objects are walked once, never searched: vocabulary and
 * merges are cut out of the text and read by json_vocab.c, only the rest becomes a tree, which
 * lives as long as the call. Normaliser and pre-tokeniser are read by json_stages.c, the decoder by
 * json_decoder.c. */
#include "text/tokenizer/tokenizer_impl.h"
#include "text/json/scan.h"
#include <cjson/cJSON.h>
#include <string.h>

/* What an added token looks like once the normaliser has seen the text it stands in. */
static mn_status normalized_text(mn_tokenizer *tok, mn_str *text, mn_error *err) {
    mn_pieces p = {0};
    mn_status st = mn_pieces_set(&p, text->ptr, (size_t)text->len, 0, err);
    if (!st)
        st = mn_stages_run(&tok->normalizer, &p, err);
    if (!st && p.n) {
        const mn_str spelled = {p.text.ptr + p.span[0].off, p.span[0].len};
        st = mn_vocab_keep(&tok->vocab, spelled, text, err);
    }
    mn_pieces_free(&p);
    return st;
}

mn_added mn_json_added(const cJSON *item) {
    return (mn_added){.special = mn_json_flag(item, "special", false),
                      .lstrip = mn_json_flag(item, "lstrip", false),
                      .rstrip = mn_json_flag(item, "rstrip", false),
                      .single_word = mn_json_flag(item, "single_word", false)};
}

/* Special tokens are always matched as written: only there is it known which text a user typed. */
static mn_status put_added(mn_tokenizer *tok, const cJSON *item, mn_error *err) {
    mn_added a = mn_json_added(item);
    mn_status st = MN_OK;
    if (!mn_json_id(mn_json_item(item, "id"), &a.id))
        return MN_OK;
    mn_vocab_token *t = &tok->vocab.token[a.id];
    a.text = t->piece;
    a.normalized = !a.special && mn_json_flag(item, "normalized", true);
    if (a.normalized)
        st = normalized_text(tok, &a.text, err);
    if (st)
        return st;
    if (!mn_str_eq(a.text, t->piece))
        t->flags |= MN_TOKEN_NORMALIZED;
    return mn_added_put(a.normalized ? &tok->normalized : &tok->raw, &a, err);
}

/* The tokens that are found in a text before and after the normaliser. */
static mn_status collect_added(mn_tokenizer *tok, const cJSON *added, mn_error *err) {
    const cJSON *item = added ? added->child : NULL;
    mn_status st = MN_OK;
    for (; item && !st; item = item->next)
        st = put_added(tok, item, err);
    if (!st)
        st = mn_added_index(&tok->raw, "tokenizer.json", err);
    if (!st)
        st = mn_added_index(&tok->normalized, "tokenizer.json", err);
    return st;
}

/* ---- model ----------------------------------------------------------------------------------- */

/* What an unknown character becomes: a token by its spelling, for Unigram by its id. */
static mn_status find_unknown(mn_tokenizer *tok, const cJSON *model, mn_error *err) {
    const char *unk = mn_json_text(model, "unk_token", NULL);
    const cJSON *id = mn_json_item(model, "unk_id");
    const bool by_id = tok->model == MN_TOKENIZER_UNIGRAM && id && !cJSON_IsNull(id);
    if (unk)
        tok->model_unk = mn_vocab_find(&tok->vocab, mn_str_of(unk));
    if (unk && tok->model_unk < 0)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.unk_token \"%s\" is not in the vocabulary", unk);
    if (by_id && (!mn_json_id(id, &tok->model_unk) || (uint32_t)tok->model_unk >= tok->vocab.n))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.unk_id: expected an id below %u or null",
                       tok->vocab.n);
    tok->unk = tok->model_unk;
    return MN_OK;
}

/* Marks of pieces inside or at the end of a word, which BPE models of 2018 have. */
static mn_status refuse_affix(const cJSON *model, const char *key, mn_error *err) {
    const char *affix = mn_json_text(model, key, "");
    if (!affix[0])
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "tokenizer.json: model.%s: found \"%s\", expected none in a model of type BPE",
                   key, affix);
}

static mn_status read_bpe(mn_tokenizer *tok, const cJSON *model, mn_str merges, mn_error *err) {
    const cJSON *dropout = mn_json_item(model, "dropout");
    mn_status st = refuse_affix(model, "continuing_subword_prefix", err);
    if (!st)
        st = refuse_affix(model, "end_of_word_suffix", err);
    if (st)
        return st;
    if (cJSON_IsNumber(dropout) && dropout->valuedouble > 0)
        mn_log(MN_LOG_WARN, "tokenizer.json: model.dropout %g is for training; it is not used",
               dropout->valuedouble);
    tok->ignore_merges = mn_json_flag(model, "ignore_merges", false);
    tok->byte_fallback = mn_json_flag(model, "byte_fallback", false);
    tok->fuse_unk = mn_json_flag(model, "fuse_unk", false);
    return mn_json_merges(tok, merges, err);
}

static mn_status read_wordpiece(mn_tokenizer *tok, const cJSON *model, mn_error *err) {
    const char *continuing = mn_json_text(model, "continuing_subword_prefix", "##");
    const cJSON *most = mn_json_item(model, "max_input_chars_per_word");
    int32_t max_word = MN_MAX_WORD;
    if (most && !mn_json_id(most, &max_word))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.max_input_chars_per_word: expected a number");
    return mn_wordpiece_init(tok, mn_str_of(continuing), (uint32_t)max_word, err);
}

/* Old files do not name it: then by what it has. */
static const char *tok_json_type_of(const cJSON *model, mn_str vocab, mn_str merges) {
    const char *type = mn_json_text(model, "type", NULL);
    if (type)
        return type;
    if (merges.len)
        return "BPE";
    if (vocab.len && vocab.ptr[0] == '[')
        return "Unigram";
    if (!vocab.len)
        return "(none)";
    return mn_json_item(model, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

static mn_status find_kind(mn_tokenizer *tok, const char *type, mn_error *err) {
    if (!strcmp(type, "BPE"))
        tok->model = MN_TOKENIZER_BPE;
    else if (!strcmp(type, "Unigram"))
        tok->model = MN_TOKENIZER_UNIGRAM;
    else if (!strcmp(type, "WordPiece"))
        tok->model = MN_TOKENIZER_WORDPIECE;
    else
        return mn_fail(
            err, MN_UNSUPPORTED,
            "tokenizer.json: model: unsupported type \"%s\"; known: BPE Unigram WordPiece", type);
    return MN_OK;
}

static mn_status tok_json_read_model(mn_tokenizer *tok, const cJSON *model, mn_str vocab,
                                     mn_str merges, const cJSON *added, mn_error *err) {
    mn_status st = find_kind(tok, tok_json_type_of(model, vocab, merges), err);
    if (!st)
        st = mn_json_vocab(tok, vocab, tok->model == MN_TOKENIZER_UNIGRAM, added, err);
    if (!st)
        st = find_unknown(tok, model, err);
    if (st)
        return st;
    if (tok->model == MN_TOKENIZER_BPE)
        return read_bpe(tok, model, merges, err);
    if (tok->model == MN_TOKENIZER_WORDPIECE)
        return read_wordpiece(tok, model, err);
    tok->byte_fallback = mn_json_flag(model, "byte_fallback", false);
    tok->fuse_unk = true;
    return MN_OK;
}

/* ---- post-processor: ids before and after the text ------------------------------------------- */

#define POST "tokenizer.json: post_processor"

static mn_status put_id(mn_tokenizer *tok, mn_id_list *list, const cJSON *value, mn_error *err) {
    int32_t id = -1;
    if (!mn_json_id(value, &id) || (uint32_t)id >= tok->vocab.n)
        return mn_fail(err, MN_BAD_FILE, POST ": an id that is not in the vocabulary");
    return mn_ids_put(list, id, err);
}

/* The ids that special_tokens gives the token of this name. */
static mn_status put_special(mn_tokenizer *tok, mn_id_list *list, const cJSON *specials,
                             const char *name, mn_error *err) {
    const cJSON *entry = mn_json_item(specials, name);
    mn_status st = MN_OK;
    if (!entry)
        return mn_fail(err, MN_BAD_FILE, POST ": special_tokens has no \"%s\"", name);
    const cJSON *value = mn_json_item(entry, "ids");
    for (value = value ? value->child : NULL; value && !st; value = value->next)
        st = put_id(tok, list, value, err);
    return st;
}

/* {"single": [special tokens, the text, special tokens], "special_tokens": {...}} */
static mn_status tok_json_read_template(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    const cJSON *specials = mn_json_item(json, "special_tokens");
    const cJSON *item = mn_json_item(json, "single");
    mn_id_list *list = &tok->prefix;
    mn_status st = MN_OK;
    for (item = item ? item->child : NULL; item && !st; item = item->next) {
        const cJSON *special = mn_json_item(item, "SpecialToken");
        if (special)
            st = put_special(tok, list, specials, mn_json_text(special, "id", ""), err);
        else if (list == &tok->suffix)
            st = mn_fail(err, MN_UNSUPPORTED, POST ": a template with the text twice");
        else
            list = &tok->suffix;
    }
    return st;
}

/* The same of "pair", where an item says the type of its ids. An order that is not A, B is no
 * template here. */
static mn_status read_pair_template(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    const cJSON *specials = mn_json_item(json, "special_tokens");
    const cJSON *item = mn_json_item(json, "pair");
    mn_id_list *const lists[] = {&tok->pair.before, &tok->pair.between, &tok->pair.behind};
    size_t at = 0;
    mn_status st = MN_OK;
    for (item = item ? item->child : NULL; item && !st; item = item->next) {
        const cJSON *special = mn_json_item(item, "SpecialToken");
        const cJSON *text = mn_json_item(item, "Sequence");
        const cJSON *type = mn_json_item(special, "type_id");
        if (special)
            st = put_special(tok, lists[at], specials, mn_json_text(special, "id", ""), err);
        if (at == 1 && special && (!cJSON_IsNumber(type) || type->valuedouble == 0))
            tok->pair.n_between = tok->pair.between.n;
        if (!text)
            continue;
        if (at == 2 || strcmp(mn_json_text(text, "id", ""), at ? "B" : "A") != 0)
            return st;
        at++;
    }
    tok->pair.is_set = at == 2;
    return st;
}

/* RoBERTa's and BERT's: {"cls": [piece, id], "sep": [piece, id]} */
static mn_status read_pair(mn_tokenizer *tok, const cJSON *json, size_t seps, mn_error *err) {
    tok->pair.seps = seps;
    const cJSON *cls = mn_json_item(json, "cls");
    const cJSON *sep = mn_json_item(json, "sep");
    mn_status st = put_id(tok, &tok->prefix, cJSON_GetArrayItem(cls, 1), err);
    if (st)
        return st;
    return put_id(tok, &tok->suffix, cJSON_GetArrayItem(sep, 1), err);
}

static mn_status read_post(mn_tokenizer *tok, const cJSON *json, int depth, mn_error *err) {
    if (!json || cJSON_IsNull(json))
        return MN_OK;
    const char *type = mn_json_text(json, "type", "");
    const bool is_template = !strcmp(type, "TemplateProcessing");
    const bool is_pair = !strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing");
    const bool adds = tok->prefix.n || tok->suffix.n;
    if ((is_template || is_pair) && adds)
        return mn_fail(err, MN_UNSUPPORTED, POST ": more than one that adds tokens");
    if (is_template) {
        const mn_status st = tok_json_read_template(tok, json, err);
        return st ? st : read_pair_template(tok, json, err);
    }
    if (is_pair)
        return read_pair(tok, json, type[0] == 'R' ? 2 : 1, err);
    if (!strcmp(type, "ByteLevel"))
        return MN_OK;
    if (strcmp(type, "Sequence") != 0 || depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_UNSUPPORTED, POST ": unsupported type \"%s\"", type);
    const cJSON *item = mn_json_item(json, "processors");
    mn_status st = MN_OK;
    for (item = item ? item->child : NULL; item && !st; item = item->next)
        st = read_post(tok, item, depth + 1, err);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* <0xXX> are bytes only where model or decoder use them so; elsewhere they are ordinary pieces. */
static void mark_bytes(mn_tokenizer *tok) {
    mn_vocab_finish(&tok->vocab);
    bool bytes = tok->byte_fallback;
    for (size_t i = 0; i < tok->decoder.n; i++)
        bytes |= tok->decoder.stage[i].kind == MN_DECODE_FALLBACK;
    if (!bytes)
        return;
    for (int b = 0; b < 256; b++) {
        const int32_t id = tok->vocab.byte_id[b];
        if (id >= 0)
            tok->vocab.token[id].flags |= MN_TOKEN_BYTE;
    }
}

/* What needs all parts: bytes, cuts at words, the index of Unigram's pieces. */
static mn_status tok_json_finish(mn_tokenizer *tok, mn_error *err) {
    const bool uncut_bpe =
        tok->model == MN_TOKENIZER_BPE && !tok->splitter.n && !tok->ignore_merges;
    mark_bytes(tok);
    if (uncut_bpe)
        return mn_split_words(tok, "tokenizer.json: model", err);
    if (tok->model == MN_TOKENIZER_UNIGRAM)
        return mn_unigram_finish(tok, "tokenizer.json: model.vocab", err);
    return MN_OK;
}

static mn_status tok_json_read_json(mn_tokenizer *tok, const cJSON *json, mn_str vocab,
                                    mn_str merges, mn_error *err) {
    const cJSON *model = mn_json_item(json, "model");
    const cJSON *added = mn_json_item(json, "added_tokens");
    if (!cJSON_IsObject(model))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: \"model\" is missing");
    mn_status st = tok_json_read_model(tok, model, vocab, merges, added, err);
    if (!st)
        st = mn_json_normalizer(&tok->normalizer, mn_json_item(json, "normalizer"), err);
    if (!st)
        st = mn_json_pre_tokenizer(&tok->splitter, mn_json_item(json, "pre_tokenizer"), err);
    if (!st)
        st = collect_added(tok, added, err);
    if (!st)
        st = read_post(tok, mn_json_item(json, "post_processor"), 0, err);
    if (!st)
        st = mn_json_decoder(tok, mn_json_item(json, "decoder"), err);
    return st ? st : tok_json_finish(tok, err);
}

/* The file without its two big values, which become null, as a tree. */
static mn_status parse_rest(mn_str text, mn_str vocab, mn_str merges, const char *name,
                            cJSON **json, mn_error *err) {
    const bool merges_first = merges.len && (!vocab.len || merges.ptr < vocab.ptr);
    const mn_str cut[] = {merges_first ? merges : vocab, merges_first ? vocab : merges};
    const char *end = text.ptr + text.len;
    const char *at = text.ptr;
    mn_text rest = {0};
    mn_json_cut cuts[MN_COUNT(cut)];
    size_t n_cuts = 0;
    for (size_t i = 0; i < MN_COUNT(cut); i++) {
        if (!cut[i].len)
            continue;
        mn_text_put(&rest, at, (size_t)(cut[i].ptr - at));
        mn_text_puts(&rest, "null");
        at = cut[i].ptr + cut[i].len;
        cuts[n_cuts++] = (mn_json_cut){rest.len, (size_t)(at - text.ptr)};
    }
    mn_text_put(&rest, at, (size_t)(end - at));
    mn_status st;
    if (rest.failed)
        st = mn_fail_memory(err, text.len);
    else if (rest.len > MN_COMPANION_MAX)
        st = mn_fail(err, MN_BAD_FILE,
                     "%s: found %zu bytes beside vocabulary and merges, expected at most %u", name,
                     rest.len, MN_COMPANION_MAX);
    else
        st = mn_json_parse_cut((mn_str){rest.ptr, rest.len}, cuts, n_cuts, name, json, err);
    mn_text_free(&rest);
    return st;
}

mn_status mn_tokenizer_from_json(mn_tokenizer *tok, mn_str text, const char *name,
                                 const mn_file *files, uint32_t n_files, mn_error *err) {
    cJSON *json = NULL;
    mn_str vocab;
    mn_str merges;
    mn_status st = mn_companion_text(&text, MN_TOKENIZER_MAX, name, err);
    if (st)
        return st;
    size_t at = mn_utf8_check(text.ptr, (size_t)text.len);
    if (at < text.len)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid UTF-8 at byte %zu", name, at);
    const bool found = mn_scan_find(text, "model", "vocab", &vocab, &at) &&
                       mn_scan_find(text, "model", "merges", &merges, &at);
    if (!found && text.len > MN_COMPANION_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, at);
    if (!found) { // the parser says what is wrong
        vocab.len = 0;
        merges.len = 0;
    }
    st = parse_rest(text, vocab, merges, name, &json, err);
    if (st)
        return st;
    if (found)
        st = tok_json_read_json(tok, json, vocab, merges, err);
    else
        st = mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, at);
    cJSON_Delete(json);
    return st ? st : mn_tokenizer_stop_from_files(tok, files, n_files, err);
}
