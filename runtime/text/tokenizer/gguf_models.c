/* gguf_models.c -- the kinds of tokeniser that GGUF's tokenizer.ggml.model names: "gpt2" (byte-
 * level BPE by merges), "gemma4" (the same on plain UTF-8), "llama" (SPM_BPE, spaces written as
 * U+2581), "t5" (Unigram) and "bert" (WordPiece). Tokens and ids are there when these functions
 * run; gguf.c does what follows. */
#include "model/model.h"
#include "text/tokenizer/gguf.h"
#include <string.h>

static mn_status absent_is_ok(mn_status st) {
    return st == MN_END ? MN_OK : st;
}

/* ---- gpt2, gemma4 ---------------------------------------------------------------------------- */

static mn_status unknown_pre(mn_str name, mn_error *err) {
    mn_text list = {0};
    mn_pre_list(&list);
    mn_status st =
        mn_fail(err, MN_UNSUPPORTED, KEY("pre") ": unknown pre-tokeniser \"%.*s\"; known: %s",
                MN_STR_ARG(name), list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return st;
}

/* A merge of pieces that are no tokens can never apply: files have them, and other readers pass
 * over them. */
static mn_status read_merges(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const void *array = NULL;
    uint64_t n = 0;
    mn_merges m = {.vocab = &tok->vocab, .where = KEY("merges"), .pass_over = true};
    mn_status st = mn_meta_array(meta, KEY("merges"), MN_VALUE_STR, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("merges") ": missing, although " KEY("model") " is \"gpt2\"");
    if (!st)
        st = mn_merges_begin(&m, n, err);
    const mn_str *merge = array;
    for (uint64_t i = 0; !st && i < n; i++) {
        mn_str left;
        mn_str right;
        if (!mn_merge_halves(merge[i], 1, &left, &right)) // a piece may begin with a space
            return mn_fail(
                err, MN_BAD_FILE,
                KEY("merges") ": merge %llu is \"%.*s\", expected two pieces and a space",
                (unsigned long long)i, MN_STR_ARG(merge[i]));
        st = mn_merges_add(&m, left, right, err);
    }
    if (!st)
        st = mn_merges_end(&m, err);
    if (!st && m.n_idle)
        mn_log(MN_LOG_WARN, "%llu of %llu merges cannot apply and are passed over; the first: %s",
               (unsigned long long)m.n_idle, (unsigned long long)n, m.first_idle.msg);
    return st;
}

/* For a file that does not say which: what its architecture has. */
static mn_str assumed_pre(const mn_meta *meta) {
    const char *known = mn_arch_pre_tokenizer(meta);
    const mn_str pre = mn_str_of(known ? known : "default");
    mn_log(MN_LOG_WARN,
           "the model does not name its pre-tokeniser (" KEY(
               "pre") "): \"%s\" is used%s, which may differ from the original",
           pre.ptr, known ? " as its architecture has it" : "");
    return pre;
}

/* The row of the pre-tokeniser. "gemma4" names no other than itself. */
static mn_status find_pre(const mn_meta *meta, const mn_pre_row **row, mn_error *err) {
    mn_str model = {NULL, 0};
    mn_str pre = {NULL, 0};
    mn_meta_str(meta, KEY("model"), &model, NULL);
    const bool gemma4 = mn_str_is(model, "gemma4");
    mn_status st = gemma4 ? MN_OK : mn_meta_str(meta, KEY("pre"), &pre, err);
    if (gemma4)
        pre = model;
    if (st == MN_END)
        pre = assumed_pre(meta);
    else if (st)
        return st;
    *row = mn_pre_find(pre);
    return *row ? MN_OK : unknown_pre(pre, err);
}

/* The stages that the row says; byte-level pieces are then written in visible bytes. */
static mn_status add_pre(mn_tokenizer *tok, const mn_pre_row *row, mn_error *err) {
    mn_stages *s = &tok->splitter;
    mn_status st = MN_OK;
    if (!tok->byte_level)
        st = mn_stages_add_replace(s, mn_str_of(" "), mn_str_of(MN_BLOCK), err);
    if (!st)
        st = mn_pre_add(s, row, KEY("pre"), err);
    if (!st && tok->byte_level && !mn_stages_add(s, MN_STAGE_BYTES))
        st = mn_fail_memory(err, sizeof(mn_stage));
    return st;
}

static mn_status read_gpt2(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    const mn_pre_row *row = NULL;
    mn_status st = find_pre(meta, &row, err);
    if (st)
        return st;
    const bool raw = row->flags & MN_PRE_RAW;
    tok->model = MN_TOKENIZER_BPE;
    tok->ignore_merges = row->flags & MN_PRE_IGNORE_MERGES;
    tok->byte_level = !raw;
    tok->byte_fallback = raw;
    *add_bos = row->flags & MN_PRE_ADD_BOS && tok->bos >= 0;
    st = read_merges(tok, meta, err);
    if (!st)
        st = add_pre(tok, row, err);
    if (st)
        return st;
    if (raw)
        return mn_decode_sentencepiece(&tok->decoder, 0, err);
    return mn_decode_add(&tok->decoder, MN_DECODE_BYTES, mn_str_of(""), NULL, err);
}

/* ---- llama ----------------------------------------------------------------------------------- */

static mn_status read_scores(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    static const char key[] = KEY("scores");
    const void *array = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, key, MN_VALUE_FLOAT, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE, "%s: missing, although " KEY("model") " is \"llama\"",
                       key);
    if (!st)
        st = mn_gguf_same_length(key, n, tok->vocab.n, err);
    for (uint64_t i = 0; !st && i < n; i++) {
        const double score = ((const double *)array)[i];
        if (!(score >= -3e38 && score <= 3e38))
            return mn_fail(err, MN_BAD_FILE, "%s: token %llu has %g, expected a finite number", key,
                           (unsigned long long)i, score);
        tok->vocab.token[i].score = (float)score;
    }
    return st;
}

static mn_status read_charsmap(const mn_meta *meta, mn_text *blob, mn_error *err) {
    const void *array = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, KEY("precompiled_charsmap"), MN_VALUE_INT, &array, &n, err);
    if (st)
        return absent_is_ok(st);
    const int64_t *byte = array;
    for (uint64_t i = 0; i < n; i++) {
        const char c = (char)(byte[i] & 0xff);
        mn_text_put(blob, &c, 1);
    }
    return blob->failed ? mn_fail_memory(err, n) : MN_OK;
}

/* how: what is there when no key says otherwise; its charsmap is in blob. */
static mn_status read_spaces(const mn_meta *meta, mn_sentencepiece *how, mn_text *blob,
                             mn_error *err) {
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{KEY("add_space_prefix"), &how->dummy_prefix},
                 {KEY("remove_extra_whitespaces"), &how->squeeze},
                 {"minerva.tokenizer.graphemes", &how->graphemes},
                 {"minerva.tokenizer.keep_end", &how->keep_end}};
    mn_status st = MN_OK;
    for (size_t i = 0; !st && i < MN_COUNT(flags); i++)
        st = absent_is_ok(mn_meta_bool(meta, flags[i].key, flags[i].value, err));
    if (!st)
        st = read_charsmap(meta, blob, err);
    how->symbols = mn_gguf_has_symbols(meta);
    how->charsmap = (mn_str){blob->ptr, blob->len};
    return st;
}

/* Files give some of the ids, others leave them to their spellings, which never differ. */
static mn_status read_llama_ids(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_status st = mn_gguf_spelled_id(tok, meta, KEY("bos_token_id"), "<s>", &tok->bos, err);
    if (!st)
        st = mn_gguf_spelled_id(tok, meta, KEY("eos_token_id"), "</s>", &tok->eos, err);
    if (!st)
        st = mn_gguf_spelled_id(tok, meta, KEY("unknown_token_id"), "<unk>", &tok->unk, err);
    return st ? st : mn_ids_put_once(&tok->stop, tok->eos, err);
}

/* Without keys that ask for more, white space is treated in pieces: what stands beside an added
 * token is a text of its own, with its own prefix. */
static mn_status add_plain_spaces(mn_tokenizer *tok, bool prefix, mn_error *err) {
    const mn_str space = mn_str_of(" ");
    mn_status st = MN_OK;
    if (prefix)
        st = mn_stages_add_prepend(&tok->splitter, space, false, false, err);
    if (!st)
        st = mn_stages_add_replace(&tok->splitter, space, mn_str_of(MN_BLOCK), err);
    return st ? st : mn_decode_sentencepiece(&tok->decoder, prefix, err);
}

/* As the model's own SentencePiece treats white space and characters, where the file says more than
 * a prefix. */
static mn_status read_llama(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    mn_sentencepiece how = {.dummy_prefix = true, .escape = true};
    mn_text blob = {0};
    mn_status st = read_spaces(meta, &how, &blob, err);
    if (!st)
        st = read_scores(tok, meta, err);
    if (!st)
        st = read_llama_ids(tok, meta, err);
    tok->model = MN_TOKENIZER_SPM_BPE;
    tok->fuse_unk = true;
    tok->model_unk = tok->unk;
    *add_bos = tok->bos >= 0;
    const bool more = how.squeeze || how.charsmap.len || how.symbols;
    if (!st && more)
        st = mn_sentencepiece_stages(tok, &how, KEY("precompiled_charsmap"), err);
    else if (!st)
        st = add_plain_spaces(tok, how.dummy_prefix, err);
    mn_text_free(&blob);
    return st ? st : mn_split_words(tok, KEY("model"), err);
}

/* ---- t5 -------------------------------------------------------------------------------------- */

/* Pieces that text may become: neither special ones, nor bytes, nor those that a file lists and
 * does not use. */
static mn_status read_log_probs(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const bool symbols = mn_gguf_has_symbols(meta);
    const int64_t *types = NULL;
    mn_status st = read_scores(tok, meta, err);
    if (!st)
        st = mn_unigram_init(tok, err);
    if (!st)
        st = mn_gguf_types(meta, tok->vocab.n, &types, err);
    for (uint32_t i = 0; !st && i < tok->vocab.n; i++) {
        const mn_vocab_token *t = &tok->vocab.token[i];
        const int64_t type = types ? types[i] : MN_TYPE_NORMAL;
        if (type == MN_TYPE_UNUSED || type == MN_TYPE_UNDEFINED ||
            t->flags & (MN_TOKEN_SPECIAL | MN_TOKEN_BYTE))
            continue;
        const bool symbol = symbols && type == MN_TYPE_USER;
        tok->unigram.log_prob[i] = symbol ? mn_symbol_log_prob(t->piece.len) : (double)t->score;
    }
    return st;
}

static mn_status read_t5(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    mn_sentencepiece how = {.dummy_prefix = true, .squeeze = true, .escape = true};
    mn_text blob = {0};
    tok->model = MN_TOKENIZER_UNIGRAM;
    tok->unigram.single = true;
    tok->fuse_unk = true;
    tok->byte_fallback = true; // if there are bytes
    tok->model_unk = tok->unk;
    *add_bos = false;
    mn_status st = read_spaces(meta, &how, &blob, err);
    if (!st)
        st = read_log_probs(tok, meta, err);
    if (!st)
        st = mn_sentencepiece_stages(tok, &how, KEY("precompiled_charsmap"), err);
    mn_text_free(&blob);
    return st ? st : mn_unigram_finish(tok, KEY("scores"), err);
}

/* ---- bert: pieces that begin a word have U+2581 in front, where BERT's own list marks those that
 * go on one ------------------------------------------------------------------------------------ */

/* U+FFFF, a character that no text has: U+2581 in a text begins no word */
#define NONE "\xef\xbf\xbf"

static mn_status read_bert_ids(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos,
                               mn_error *err) {
    static const char sep_key[] = KEY("seperator_token_id"); // spelled so
    int32_t sep = -1;
    int32_t mask = -1;
    bool add_sep = true;
    mn_status st = mn_gguf_spelled_id(tok, meta, KEY("cls_token_id"), "[CLS]", &tok->bos, err);
    if (!st)
        st = mn_gguf_spelled_id(tok, meta, sep_key, "[SEP]", &sep, err);
    if (!st)
        st = mn_gguf_spelled_id(tok, meta, KEY("unknown_token_id"), "[UNK]", &tok->unk, err);
    if (!st)
        st = mn_gguf_spelled_id(tok, meta, KEY("mask_token_id"), "[MASK]", &mask, err);
    if (!st)
        st = absent_is_ok(mn_meta_bool(meta, KEY("add_sep_token"), &add_sep, err));
    if (st)
        return st;
    if (tok->eos < 0)
        tok->eos = sep;
    tok->model_unk = tok->unk;
    *add_bos = tok->bos >= 0;
    return add_sep ? mn_ids_put(&tok->suffix, sep, err) : MN_OK;
}

/* Normaliser, cuts and marks. */
static mn_status add_bert_stages(mn_tokenizer *tok, bool strip, bool lower, mn_error *err) {
    const mn_str block = mn_str_of(MN_BLOCK);
    mn_status st = mn_stages_add_bert_normalizer(&tok->normalizer, true, true, strip, lower, err);
    if (!st)
        st = mn_stages_add_bert_split(&tok->splitter, err);
    if (!st)
        st = mn_stages_add_replace(&tok->splitter, block, mn_str_of(NONE), err);
    if (!st)
        st = mn_stages_add_prepend(&tok->splitter, block, false, false, err);
    return st ? st : mn_decode_add(&tok->decoder, MN_DECODE_METASPACE, block, NULL, err);
}

static mn_status read_bert(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    static const char max_word_key[] = "minerva.tokenizer.max_word";
    bool lower = true;
    int64_t max_word = MN_MAX_WORD;
    mn_status st = absent_is_ok(mn_meta_bool(meta, KEY("normalizer.lowercase"), &lower, err));
    bool strip = lower;
    if (!st)
        st = absent_is_ok(mn_meta_bool(meta, KEY("normalizer.strip_accents"), &strip, err));
    if (!st)
        st = absent_is_ok(mn_meta_i64(meta, max_word_key, 0, UINT32_MAX, &max_word, err));
    if (st)
        return st;
    tok->model = MN_TOKENIZER_WORDPIECE;
    st = mn_wordpiece_init(tok, mn_str_of(""), (uint32_t)max_word, err);
    if (!st)
        st = read_bert_ids(tok, meta, add_bos, err);
    return st ? st : add_bert_stages(tok, strip, lower, err);
}

mn_gguf_model_fn mn_gguf_model(mn_str name) {
    static const struct {
        const char *name;
        mn_gguf_model_fn read;
    } models[] = {{"gpt2", read_gpt2},
                  {"llama", read_llama},
                  {"gemma4", read_gpt2},
                  {"t5", read_t5},
                  {"bert", read_bert}};
    for (size_t i = 0; i < MN_COUNT(models); i++)
        if (mn_str_is(name, models[i].name))
            return models[i].read;
    return NULL;
}
