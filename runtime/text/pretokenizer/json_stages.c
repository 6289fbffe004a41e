/* json_stages.c -- tokenizer.json's "normalizer" and "pre_tokenizer" as lists of primitive stages,
 * and those of BERT, which GGUF names without describing them. Types of which no model that this
 * library runs, or is to run, makes use are unknown here and refused by name (Nmt, FixedLength,
 * UnicodeScripts, CharDelimiterSplit): ids that merely look right are worse than none. */
#include "text/json/json.h"
#include "text/pretokenizer/stages.h"
#include <cjson/cJSON.h>
#include <string.h>
#include <utf8proc.h>

#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"
#define WORD_CHAR "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" // Unicode's UTS 18, C

mn_status mn_json_pattern(mn_regex *out, const cJSON *json, const char *where, mn_error *err) {
    const cJSON *pattern = mn_json_item(json, "pattern");
    const char *literal = mn_json_text(pattern, "String", NULL);
    const char *regex = mn_json_text(pattern, "Regex", NULL);
    if (literal)
        return mn_regex_literal(out, mn_str_of(literal), err);
    if (regex)
        return mn_regex_compile(out, mn_str_of(regex), where, err);
    return mn_fail(err, MN_BAD_FILE, "%s: \"pattern\" is neither a String nor a Regex", where);
}

static mn_status add_plain(mn_stages *out, mn_stage_kind kind, mn_error *err) {
    return mn_stages_add(out, kind) ? MN_OK : mn_fail_memory(err, sizeof(mn_stage));
}

/* A row of the two tables of types. add: the stages of the object with the type; NULL: one stage of
 * this kind, about which the object says nothing more. */
typedef struct {
    const char *type;
    mn_status (*add)(mn_stages *out, const cJSON *json, mn_error *err);
    mn_stage_kind kind;
} stage_type;

/* One of the two parts of a tokenizer.json. where: for messages; list: the key of the items of a
 * "Sequence". */
typedef struct {
    const char *where, *list;
    const stage_type *types;
    size_t n;
} part;

/* The stages of one object, or of the list in one, in their order. depth: how many objects it
 * stands in. */
static mn_status add_any(mn_stages *out, const cJSON *json, const part *p, int depth,
                         mn_error *err) {
    if (!json || cJSON_IsNull(json))
        return MN_OK;
    const char *type = mn_json_text(json, "type", NULL);
    if (!type || depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_BAD_FILE, "%s: no \"type\", or nested too deeply", p->where);
    if (!strcmp(type, "Sequence")) {
        const cJSON *item = mn_json_item(json, p->list);
        mn_status st = MN_OK;
        for (item = item ? item->child : NULL; item && !st; item = item->next)
            st = add_any(out, item, p, depth + 1, err);
        return st;
    }
    for (size_t i = 0; i < p->n; i++) {
        const stage_type *t = &p->types[i];
        if (!strcmp(type, t->type))
            return t->add ? t->add(out, json, err) : add_plain(out, t->kind, err);
    }
    return mn_fail(err, MN_UNSUPPORTED, "%s: unsupported type \"%s\"", p->where, type);
}

/* ---- normalizers ----------------------------------------------------------------------------- */

#define NORMALIZER "tokenizer.json: normalizer"

/* {"pattern": ..., "content": "x"}: the content is literal, without references to groups. */
static mn_status add_replace(mn_stages *out, const cJSON *json, mn_error *err) {
    const mn_str content = mn_str_of(mn_json_text(json, "content", ""));
    mn_stage *stage = mn_stages_add_content(out, MN_STAGE_REPLACE, content, err);
    return stage ? mn_json_pattern(&stage->pattern, json, NORMALIZER, err) : MN_OUT_OF_MEMORY;
}

static mn_status add_strip(mn_stages *out, const cJSON *json, mn_error *err) {
    mn_stage *stage = mn_stages_add(out, MN_STAGE_STRIP);
    if (!stage)
        return mn_fail_memory(err, sizeof *stage);
    stage->left = mn_json_flag(json, "strip_left", true);
    stage->right = mn_json_flag(json, "strip_right", true);
    return MN_OK;
}

static const struct {
    const char *name;
    int form;
} forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
             {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
             {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
             {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

mn_status mn_stages_add_form(mn_stages *out, mn_str name, mn_error *err) {
    for (size_t i = 0; i < MN_COUNT(forms); i++) {
        if (!mn_str_is(name, forms[i].name))
            continue;
        mn_stage *stage = mn_stages_add(out, MN_STAGE_FORM);
        if (!stage)
            return mn_fail_memory(err, sizeof *stage);
        stage->form = forms[i].form;
        return MN_OK;
    }
    return MN_END;
}

const char *mn_stage_form(const mn_stage *stage) {
    for (size_t i = 0; i < MN_COUNT(forms); i++)
        if (stage->kind == MN_STAGE_FORM && stage->form == forms[i].form)
            return forms[i].name;
    return NULL;
}

static mn_status add_form(mn_stages *out, const cJSON *json, mn_error *err) {
    return mn_stages_add_form(out, mn_str_of(mn_json_text(json, "type", "")), err);
}

static mn_status add_prepend(mn_stages *out, const cJSON *json, mn_error *err) {
    const mn_str what = mn_str_of(mn_json_text(json, "prepend", ""));
    return mn_stages_add_prepend(out, what, false, false, err);
}

/* The first n of the three bytes that bits are. */
static void put_bits(mn_text *out, uint32_t bits, size_t n) {
    const char bytes[] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
    mn_text_put(out, bytes, n);
}

bool mn_decode_base64(mn_str s, mn_text *out) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    uint32_t n = 0;
    while (s.len && s.ptr[s.len - 1] == '=')
        s.len--;
    for (uint64_t i = 0; i < s.len; i++) {
        const char *d = s.ptr[i] ? strchr(digit, s.ptr[i]) : NULL;
        if (!d)
            return false;
        bits = bits << 6 | (uint32_t)(d - digit);
        n++;
        if (n % 4 == 0)
            put_bits(out, bits, 3);
    }
    if (n % 4 == 2)
        put_bits(out, bits << 12, 1);
    if (n % 4 == 3)
        put_bits(out, bits << 6, 2);
    return n % 4 != 1;
}

/* SentencePiece's table of characters, in BASE64. */
static mn_status add_precompiled(mn_stages *out, const cJSON *json, mn_error *err) {
    const char *base64 = mn_json_text(json, "precompiled_charsmap", NULL);
    mn_text blob = {0};
    mn_stage *stage = NULL;
    mn_status st = MN_OK;
    if (!base64 || !mn_decode_base64(mn_str_of(base64), &blob))
        st = mn_fail(err, MN_BAD_FILE,
                     NORMALIZER ": Precompiled: precompiled_charsmap is not base64");
    else if (!blob.failed)
        stage = mn_stages_add(out, MN_STAGE_CHARSMAP);
    if (!st && !stage)
        st = mn_fail_memory(err, blob.len);
    if (!st)
        st = mn_charsmap_create((mn_str){blob.ptr, blob.len}, true, NORMALIZER, &stage->charsmap,
                                err);
    mn_text_free(&blob);
    return st;
}

#define CHINESE                                                                                    \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b73f}\\x{2b740}-" \
    "\\x{2b81f}\\x{2b920}-\\x{2ceaf}\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}]"
#define UNWANTED "(?![\\t\\n\\r])[\\x{fffd}\\p{Cc}\\p{Cf}\\p{Co}]"

mn_status mn_stages_add_bert_normalizer(mn_stages *out, bool clean, bool chinese, bool strip,
                                        bool lower, mn_error *err) {
    mn_status st = MN_OK;
    if (clean)
        st = mn_stages_add_rewrite(out, UNWANTED, "", false, NORMALIZER, err);
    if (clean && !st)
        st = mn_stages_add_rewrite(out, "\\s", " ", false, NORMALIZER, err);
    if (chinese && !st)
        st = mn_stages_add_rewrite(out, CHINESE, " ", true, NORMALIZER, err);
    if (strip && !st)
        st = mn_stages_add_form(out, mn_str_of("NFD"), err);
    if (strip && !st)
        st = add_plain(out, MN_STAGE_UNMARK, err);
    if (strip && !st)
        out->stage[out->n - 1].nonspacing = true;
    if (lower && !st)
        st = add_plain(out, MN_STAGE_LOWER, err);
    return st;
}

static mn_status add_bert_normalizer(mn_stages *out, const cJSON *json, mn_error *err) {
    const bool clean = mn_json_flag(json, "clean_text", true);
    const bool chinese = mn_json_flag(json, "handle_chinese_chars", true);
    const bool lower = mn_json_flag(json, "lowercase", true);
    const bool strip = mn_json_flag(json, "strip_accents", lower);
    return mn_stages_add_bert_normalizer(out, clean, chinese, strip, lower, err);
}

mn_status mn_json_normalizer(mn_stages *out, const cJSON *json, mn_error *err) {
    static const stage_type types[] = {
        {"NFC", add_form, 0},
        {"NFD", add_form, 0},
        {"NFKC", add_form, 0},
        {"NFKD", add_form, 0},
        {"Lowercase", NULL, MN_STAGE_LOWER},
        {"StripAccents", NULL, MN_STAGE_UNMARK},
        {"ByteLevel", NULL, MN_STAGE_BYTES},
        {"Strip", add_strip, 0},
        {"Replace", add_replace, 0},
        {"Precompiled", add_precompiled, 0},
        {"BertNormalizer", add_bert_normalizer, 0},
        {"Prepend", add_prepend, 0},
    };
    static const part normalizer = {NORMALIZER, "normalizers", types, MN_COUNT(types)};
    return add_any(out, json, &normalizer, 0, err);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

#define PRE_TOKENIZER "tokenizer.json: pre_tokenizer"

static mn_status add_regex(mn_stages *out, const char *regex, mn_split_behavior behavior,
                           mn_error *err) {
    return mn_stages_add_split(out, regex, behavior, false, PRE_TOKENIZER, err);
}

/* "behavior", which says what becomes of a match. */
static mn_status get_behavior(const cJSON *json, mn_split_behavior *out, mn_error *err) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *found = mn_json_text(json, "behavior", "Isolated");
    for (size_t i = 0; i < MN_COUNT(names); i++)
        if (!strcmp(found, names[i])) {
            *out = (mn_split_behavior)i;
            return MN_OK;
        }
    return mn_fail(err, MN_UNSUPPORTED, PRE_TOKENIZER ": unsupported behavior \"%s\"", found);
}

static mn_status add_split(mn_stages *out, const cJSON *json, mn_error *err) {
    mn_stage *stage = mn_stages_add(out, MN_STAGE_SPLIT);
    if (!stage)
        return mn_fail_memory(err, sizeof *stage);
    stage->invert = mn_json_flag(json, "invert", false);
    mn_status st = get_behavior(json, &stage->behavior, err);
    return st ? st : mn_json_pattern(&stage->pattern, json, PRE_TOKENIZER, err);
}

/* GPT-2's pre-tokeniser, unless use_regex is off: then another one has cut before. */
static mn_status add_byte_level(mn_stages *out, const cJSON *json, mn_error *err) {
    mn_status st = MN_OK;
    if (mn_json_flag(json, "add_prefix_space", true))
        st = mn_stages_add_prepend(out, mn_str_of(" "), true, false, err);
    if (!st && mn_json_flag(json, "use_regex", true))
        st = add_regex(out, MN_REGEX_GPT2, MN_SPLIT_ISOLATED, err);
    return st ? st : add_plain(out, MN_STAGE_BYTES, err);
}

/* Older files have a flag instead of the scheme. */
const char *mn_json_prepend_scheme(const cJSON *json) {
    const bool prefix = mn_json_flag(json, "add_prefix_space", true);
    return mn_json_text(json, "prepend_scheme", prefix ? "always" : "never");
}

/* A space becomes the replacement; a piece begins with it, unless it is not to be split. */
static mn_status add_metaspace(mn_stages *out, const cJSON *json, mn_error *err) {
    const mn_str block = mn_str_of(mn_json_text(json, "replacement", MN_BLOCK));
    const char *scheme = mn_json_prepend_scheme(json);
    mn_status st = mn_stages_add_replace(out, mn_str_of(" "), block, err);
    if (!st && strcmp(scheme, "never") != 0)
        st = mn_stages_add_prepend(out, block, true, !strcmp(scheme, "first"), err);
    if (st || !mn_json_flag(json, "split", true))
        return st;
    mn_stage *stage = mn_stages_add(out, MN_STAGE_SPLIT);
    if (!stage)
        return mn_fail_memory(err, sizeof *stage);
    stage->behavior = MN_SPLIT_WITH_NEXT;
    return mn_regex_literal(&stage->pattern, block, err);
}

static mn_status add_punctuation(mn_stages *out, const cJSON *json, mn_error *err) {
    mn_split_behavior behavior = MN_SPLIT_ISOLATED;
    mn_status st = get_behavior(json, &behavior, err);
    return st ? st : add_regex(out, PUNCTUATION, behavior, err);
}

static mn_status add_whitespace_split(mn_stages *out, const cJSON *json, mn_error *err) {
    (void)json;
    return add_regex(out, "\\s", MN_SPLIT_REMOVED, err);
}

/* Words, and what stands between them without white space. */
static mn_status add_whitespace(mn_stages *out, const cJSON *json, mn_error *err) {
    static const char pieces[] = "[" WORD_CHAR "]+|[^\\s" WORD_CHAR "]+";
    (void)json;
    return mn_stages_add_split(out, pieces, MN_SPLIT_REMOVED, true, PRE_TOKENIZER, err);
}

/* Runs of digits, or each by itself. */
static mn_status add_digits(mn_stages *out, const cJSON *json, mn_error *err) {
    const bool single = mn_json_flag(json, "individual_digits", false);
    return add_regex(out, single ? "\\p{N}" : "\\p{N}+", MN_SPLIT_ISOLATED, err);
}

mn_status mn_stages_add_bert_split(mn_stages *out, mn_error *err) {
    mn_status st = add_regex(out, "\\s", MN_SPLIT_REMOVED, err);
    return st ? st : add_regex(out, PUNCTUATION, MN_SPLIT_ISOLATED, err);
}

static mn_status add_bert_split(mn_stages *out, const cJSON *json, mn_error *err) {
    (void)json;
    return mn_stages_add_bert_split(out, err);
}

mn_status mn_json_pre_tokenizer(mn_stages *out, const cJSON *json, mn_error *err) {
    static const stage_type types[] = {
        {"Split", add_split, 0},
        {"ByteLevel", add_byte_level, 0},
        {"Metaspace", add_metaspace, 0},
        {"Punctuation", add_punctuation, 0},
        {"BertPreTokenizer", add_bert_split, 0},
        {"Whitespace", add_whitespace, 0},
        {"WhitespaceSplit", add_whitespace_split, 0},
        {"Digits", add_digits, 0},
    };
    static const part pre_tokenizer = {PRE_TOKENIZER, "pretokenizers", types, MN_COUNT(types)};
    return add_any(out, json, &pre_tokenizer, 0, err);
}
