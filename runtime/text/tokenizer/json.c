/* json.c -- a tokeniser from tokenizer.json: vocabulary, merges, added tokens, template,
 * decoder. Big objects are walked once, never searched. */
#include "text/tokenizer/tokenizer_impl.h"
#include "text/json/scan.h"
#include <cjson/cJSON.h>
#include <string.h>

/* What an added token looks like once the normaliser has seen the text it stands in. */
static mn_status normalized_text(mn_tokenizer *tok, mn_str *text, mn_error *err) {
    mn_pieces p = {0};
    mn_status st = mn_pieces_set(&p, text->ptr, (size_t)text->len, 0, err);
    if (!st)
        st = mn_steps_run(&tok->normalizer, &p, err);
    if (!st && p.n) {
        char *copy = mn_arena_strndup(&tok->vocab.arena, p.text.ptr + p.span[0].off, p.span[0].len);
        *text = (mn_str){copy, p.span[0].len};
        if (!copy)
            st = mn_fail_memory(err, p.text.len);
    }
    mn_pieces_free(&p);
    return st;
}

/* Special tokens are always matched as written: only there is it known which text a user typed. */
static mn_status collect_added(mn_tokenizer *tok, const cJSON *added, mn_error *err) {
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(item, added) {
        mn_added a = {.special = mn_json_flag(item, "special", false),
                      .lstrip = mn_json_flag(item, "lstrip", false),
                      .rstrip = mn_json_flag(item, "rstrip", false),
                      .single_word = mn_json_flag(item, "single_word", false)};
        if (!mn_json_id(mn_json_item(item, "id"), &a.id))
            continue;
        a.text = tok->vocab.token[a.id].piece;
        a.normalized = !a.special && mn_json_flag(item, "normalized", true);
        if (a.normalized)
            st = normalized_text(tok, &a.text, err);
        if (!st && !mn_str_eq(a.text, tok->vocab.token[a.id].piece))
            tok->vocab.token[a.id].flags |= MN_TOKEN_NORMALIZED;
        if (!st)
            st = mn_added_put(a.normalized ? &tok->normalized : &tok->raw, &a, err);
        if (st)
            return st;
    }
    st = mn_added_index(&tok->raw, "tokenizer.json", err);
    return st ? st : mn_added_index(&tok->normalized, "tokenizer.json", err);
}

/* ---- model ----------------------------------------------------------------------------------- */
static mn_status find_unknown(mn_tokenizer *tok, const cJSON *model, mn_error *err) {
    const char *unk = mn_json_text(model, "unk_token", NULL);
    if (unk && (tok->model_unk = mn_vocab_find(&tok->vocab, unk, strlen(unk))) < 0)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.unk_token \"%s\" is not in the vocabulary", unk);
    const cJSON *id = mn_json_item(model, "unk_id");
    if (tok->model == MN_MODEL_UNIGRAM && id && !cJSON_IsNull(id) &&
        (!mn_json_id(id, &tok->model_unk) || (uint32_t)tok->model_unk >= tok->vocab.n))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.unk_id: expected an id below %u or null",
                       tok->vocab.n);
    tok->unk = tok->model_unk;
    return MN_OK;
}

static mn_status read_bpe(mn_tokenizer *tok, const cJSON *model, mn_str merges, mn_error *err) {
    mn_status st =
        mn_vocab_keep(&tok->vocab, mn_str_of(mn_json_text(model, "continuing_subword_prefix", "")),
                      &tok->continuing, err);
    if (!st)
        st = mn_vocab_keep(&tok->vocab, mn_str_of(mn_json_text(model, "end_of_word_suffix", "")),
                           &tok->ending, err);
    if (st)
        return st;
    const cJSON *dropout = mn_json_item(model, "dropout");
    if (cJSON_IsNumber(dropout) && dropout->valuedouble > 0)
        mn_log(MN_LOG_WARN, "tokenizer.json: model.dropout %g is for training; it is not used",
               dropout->valuedouble);
    tok->ignore_merges = mn_json_flag(model, "ignore_merges", false);
    tok->byte_fallback = mn_json_flag(model, "byte_fallback", false);
    tok->fuse_unk = mn_json_flag(model, "fuse_unk", false);
    return mn_json_merges(tok, merges, err);
}

static mn_status read_words(mn_tokenizer *tok, const cJSON *model, mn_error *err) {
    const char *continuing = mn_json_text(model, "continuing_subword_prefix", "##");
    const cJSON *most = mn_json_item(model, "max_input_chars_per_word");
    int32_t max_word = MN_MAX_WORD;
    if (most && !mn_json_id(most, &max_word))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: model.max_input_chars_per_word: expected a number");
    return mn_words_init(tok, mn_str_of(continuing), (uint32_t)max_word, err);
}

/* Old files do not name it: then by what it has. */
static const char *type_of(const cJSON *model, mn_str vocab, mn_str merges) {
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

static mn_status read_model(mn_tokenizer *tok, const cJSON *model, mn_str vocab, mn_str merges,
                            const cJSON *added, mn_error *err) {
    static const struct {
        const char *type;
        mn_model_kind kind;
    } kinds[] = {{"BPE", MN_MODEL_MERGES},
                 {"Unigram", MN_MODEL_UNIGRAM},
                 {"WordPiece", MN_MODEL_WORDS},
                 {"WordLevel", MN_MODEL_WORDS}};
    const char *type = type_of(model, vocab, merges);
    size_t k = 0;
    while (k < MN_COUNT(kinds) && strcmp(type, kinds[k].type) != 0)
        k++;
    if (k == MN_COUNT(kinds))
        return mn_fail(err, MN_UNSUPPORTED,
                       "tokenizer.json: model: unsupported type \"%s\"; known: BPE Unigram "
                       "WordPiece WordLevel",
                       type);
    tok->model = kinds[k].kind;
    tok->whole_words = !strcmp(type, "WordLevel");
    mn_status st = mn_json_vocab(tok, vocab, tok->model == MN_MODEL_UNIGRAM, added, err);
    if (!st)
        st = find_unknown(tok, model, err);
    if (st)
        return st;
    if (tok->model == MN_MODEL_MERGES)
        return read_bpe(tok, model, merges, err);
    if (tok->model == MN_MODEL_WORDS)
        return read_words(tok, model, err);
    tok->byte_fallback = mn_json_flag(model, "byte_fallback", false);
    tok->fuse_unk = true;
    return MN_OK;
}

/* ---- post-processor: ids before and after the text ------------------------------------------- */
static mn_status put_id(mn_tokenizer *tok, mn_id_list *list, const cJSON *value, mn_error *err) {
    int32_t id = -1;
    if (!mn_json_id(value, &id) || (uint32_t)id >= tok->vocab.n)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: post_processor: an id that is not in the vocabulary");
    return mn_ids_put(list, id) ? MN_OK : mn_fail_memory(err, sizeof id);
}

static mn_status read_template(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    const cJSON *item = NULL, *specials = mn_json_item(json, "special_tokens");
    mn_id_list *list = &tok->prefix;
    cJSON_ArrayForEach(item, mn_json_item(json, "single")) {
        const cJSON *special = mn_json_item(item, "SpecialToken"), *value = NULL;
        if (!special && list == &tok->suffix)
            return mn_fail(err, MN_UNSUPPORTED,
                           "tokenizer.json: post_processor: a template with the text twice");
        if (!special) {
            list = &tok->suffix;
            continue;
        }
        const char *name = mn_json_text(special, "id", "");
        const cJSON *entry = mn_json_item(specials, name);
        if (!entry)
            return mn_fail(err, MN_BAD_FILE,
                           "tokenizer.json: post_processor: special_tokens has no \"%s\"", name);
        cJSON_ArrayForEach(value, mn_json_item(entry, "ids")) {
            mn_status st = put_id(tok, list, value, err);
            if (st)
                return st;
        }
    }
    return MN_OK;
}

static mn_status read_pair(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    mn_status st = put_id(tok, &tok->prefix, cJSON_GetArrayItem(mn_json_item(json, "cls"), 1), err);
    return st ? st
              : put_id(tok, &tok->suffix, cJSON_GetArrayItem(mn_json_item(json, "sep"), 1), err);
}

static mn_status read_post(mn_tokenizer *tok, const cJSON *json, int depth, mn_error *err) {
    if (!json || cJSON_IsNull(json))
        return MN_OK;
    const char *type = mn_json_text(json, "type", "");
    const bool template = !strcmp(type, "TemplateProcessing"),
               adds = tok->prefix.n || tok->suffix.n;
    if (template || !strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
        if (adds)
            return mn_fail(err, MN_UNSUPPORTED,
                           "tokenizer.json: post_processor: more than one that adds tokens");
        return template ? read_template(tok, json, err) : read_pair(tok, json, err);
    }
    if (!strcmp(type, "ByteLevel"))
        return MN_OK;
    if (strcmp(type, "Sequence") != 0 || depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_UNSUPPORTED,
                       "tokenizer.json: post_processor: unsupported type \"%s\"", type);
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(
        item,
        mn_json_item(json, "processors")) if ((st = read_post(tok, item, depth + 1, err))) break;
    return st;
}

static void mark_bytes(mn_tokenizer *tok) {
    mn_vocab_finish(&tok->vocab);
    bool bytes = tok->byte_fallback;
    for (size_t i = 0; i < tok->decoder.n; i++)
        bytes |= tok->decoder.step[i].kind == MN_DECODE_FALLBACK;
    if (!bytes)
        return;
    for (int b = 0; b < 256; b++)
        if (tok->vocab.byte_id[b] >= 0)
            tok->vocab.token[tok->vocab.byte_id[b]].flags |= MN_TOKEN_BYTE;
}

static mn_status read_json(mn_tokenizer *tok, const cJSON *json, mn_str vocab, mn_str merges,
                           mn_error *err) {
    const cJSON *model = mn_json_item(json, "model"), *added = mn_json_item(json, "added_tokens");
    if (!cJSON_IsObject(model))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: \"model\" is missing");
    mn_status st = read_model(tok, model, vocab, merges, added, err);
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
    if (st)
        return st;
    mark_bytes(tok);
    if (tok->model == MN_MODEL_MERGES && !tok->splitter.n && !tok->ignore_merges) {
        st = mn_split_words(tok, "tokenizer.json: model", err);
        if (st)
            return st;
    }
    return tok->model == MN_MODEL_UNIGRAM
               ? mn_unigram_finish(tok, "tokenizer.json: model.vocab", err)
               : MN_OK;
}

/* The rest of the file, with null where the two big values were, as a tree. */
static mn_status parse_rest(mn_str text, mn_str vocab, mn_str merges, const char *name,
                            cJSON **json, mn_error *err) {
    mn_str first = vocab, second = merges;
    if (merges.len && (!vocab.len || merges.ptr < vocab.ptr))
        first = merges, second = vocab;
    mn_text rest = {0};
    const char *at = text.ptr, *end = text.ptr + text.len;
    const mn_str cut[] = {first, second};
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
    mn_str vocab, merges;
    mn_status st = mn_companion_text(&text, MN_TOKENIZER_MAX, name, err);
    if (st)
        return st;
    size_t at = mn_utf8_check(text.ptr, (size_t)text.len);
    if (at < text.len)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid UTF-8 at byte %zu", name, at);
    bool found = mn_scan_find(text, "model", "vocab", &vocab, &at) &&
                 mn_scan_find(text, "model", "merges", &merges, &at);
    if (!found && text.len > MN_COMPANION_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, at);
    if (!found)
        vocab.len = merges.len = 0; /* the parser says what is wrong */
    st = parse_rest(text, vocab, merges, name, &json, err);
    if (st)
        return st;
    st = found ? read_json(tok, json, vocab, merges, err)
               : mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, at);
    cJSON_Delete(json);
    return st ? st : mn_tokenizer_stop_from_files(tok, files, n_files, err);
}
