/* json_steps.c -- tokenizer.json's "normalizer" and "pre_tokenizer" as lists of primitive
 * steps. */
#include "text/pretokenizer/regex_syntax.h"
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"
#define WORD_CHAR "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" /* Unicode's UTS 18, C */

static mn_status unsupported(const char *part, const char *type, mn_error *err) {
    return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: %s: unsupported type \"%s\"", part, type);
}

/* {"String": "x"} or {"Regex": "x"}. */
static mn_status get_pattern(mn_pattern *out, const cJSON *json, const char *part, mn_error *err) {
    const cJSON *pattern = mn_json_item(json, "pattern");
    const char *literal = mn_json_text(pattern, "String", NULL),
               *regex = mn_json_text(pattern, "Regex", NULL);
    char where[64] = "tokenizer.json: ";
    strncat(where, part, 32);
    if (literal)
        return mn_pattern_literal(out, mn_str_of(literal), err);
    if (regex)
        return mn_pattern_regex(out, mn_str_of(regex), where, err);
    return mn_fail(err, MN_BAD_FILE, "%s: \"pattern\" is neither a String nor a Regex", where);
}

static mn_status get_behavior(const cJSON *json, mn_split_behavior *out, mn_error *err) {
    static const char *const name[] = {"Isolated", "Removed", "MergedWithPrevious",
                                       "MergedWithNext", "Contiguous"};
    const char *found = mn_json_text(json, "behavior", "Isolated");
    for (size_t i = 0; i < MN_COUNT(name); i++)
        if (!strcmp(found, name[i]))
            return *out = (mn_split_behavior)i, MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "tokenizer.json: pre_tokenizer: unsupported behavior \"%s\"", found);
}

static mn_status add_plain(mn_steps *out, mn_step_kind kind, mn_error *err) {
    return mn_steps_add(out, kind) ? MN_OK : mn_fail_memory(err, sizeof(mn_step));
}

/* ---- normalizers ----------------------------------------------------------------------------- */
static mn_status add_replace(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_step *step = mn_steps_add(out, MN_STEP_REPLACE);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    const char *content = mn_json_text(json, "content", "");
    step->content = mn_strndup(content, strlen(content));
    step->content_len = strlen(content);
    return step->content ? get_pattern(&step->pattern, json, "normalizer", err)
                         : mn_fail_memory(err, strlen(content));
}

static mn_status add_strip(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_step *step = mn_steps_add(out, MN_STEP_STRIP);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    step->left = mn_json_flag(json, "strip_left", true);
    step->right = mn_json_flag(json, "strip_right", true);
    return MN_OK;
}

static mn_status add_form(mn_steps *out, int form, mn_error *err) {
    mn_step *step = mn_steps_add(out, MN_STEP_FORM);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    step->form = form;
    return MN_OK;
}

/* BASE64 of RFC 4648, padded. */
static bool decode_base64(const char *s, mn_text *out) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n = 0;
    for (; *s && *s != '='; s++) {
        const char *d = strchr(digit, *s);
        if (!d)
            return false;
        bits = bits << 6 | (uint32_t)(d - digit);
        if (++n % 4 == 0)
            mn_text_put(out, (char[]){(char)(bits >> 16), (char)(bits >> 8), (char)bits}, 3);
    }
    if (n % 4 == 2)
        mn_text_put(out, (char[]){(char)(bits >> 4)}, 1);
    if (n % 4 == 3)
        mn_text_put(out, (char[]){(char)(bits >> 10), (char)(bits >> 2)}, 2);
    return n % 4 != 1;
}

static mn_status add_precompiled(mn_steps *out, const cJSON *json, mn_error *err) {
    const char *base64 = mn_json_text(json, "precompiled_charsmap", NULL);
    mn_text blob = {0};
    mn_step *step = NULL;
    mn_status st = MN_OK;
    if (!base64 || !decode_base64(base64, &blob))
        st = mn_fail(err, MN_BAD_FILE,
                     "tokenizer.json: normalizer: Precompiled: precompiled_charsmap is not base64");
    else if (blob.failed || !(step = mn_steps_add(out, MN_STEP_CHARSMAP)))
        st = mn_fail_memory(err, blob.len);
    else
        st = mn_charsmap_create((mn_str){blob.ptr, blob.len}, true, "tokenizer.json: normalizer",
                                &step->charsmap, err);
    mn_text_free(&blob);
    return st;
}

static mn_status add_rewrite(mn_steps *out, const char *regex, const char *content, bool around,
                             mn_error *err) {
    return mn_steps_add_rewrite(out, regex, content, around, "normalizer", err);
}

#define CHINESE                                                                                    \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b73f}\\x{2b740}-" \
    "\\x{2b81f}"                                                                                   \
    "\\x{2b920}-\\x{2ceaf}\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}]"

mn_status mn_steps_add_bert_normalizer(mn_steps *out, bool clean, bool chinese, bool strip,
                                       bool lower, mn_error *err) {
    mn_status st = MN_OK;
    if (clean)
        st = add_rewrite(out, "(?![\\t\\n\\r])[\\x{fffd}\\p{Cc}\\p{Cf}\\p{Co}]", "", false, err);
    if (clean && !st)
        st = add_rewrite(out, "\\s", " ", false, err);
    if (chinese && !st)
        st = add_rewrite(out, CHINESE, " ", true, err);
    if (strip && !st)
        st = add_form(out, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, err);
    if (strip && !st) {
        st = add_plain(out, MN_STEP_UNMARK, err);
        if (!st)
            out->step[out->n - 1].nonspacing = true;
    }
    return st || !lower ? st : add_plain(out, MN_STEP_LOWER, err);
}

/* Of Google's NMT: control characters go, what looks like white space is white space. */
static mn_status add_nmt(mn_steps *out, mn_error *err) {
    mn_status st = add_rewrite(out, "[\\x{1}-\\x{8}\\x{b}\\x{e}-\\x{1f}\\x{7f}\\x{8f}\\x{9f}]", "",
                               false, err);
    return st ? st
              : add_rewrite(out,
                            "[\\t\\n\\f\\r\\x{1680}\\x{200b}-\\x{200f}\\x{2028}\\x{2029}\\x{2581}"
                            "\\x{feff}\\x{fffd}]",
                            " ", false, err);
}

static mn_status add_bert_normalizer(mn_steps *out, const cJSON *json, mn_error *err) {
    bool lower = mn_json_flag(json, "lowercase", true);
    return mn_steps_add_bert_normalizer(out, mn_json_flag(json, "clean_text", true),
                                        mn_json_flag(json, "handle_chinese_chars", true),
                                        mn_json_flag(json, "strip_accents", lower), lower, err);
}

static const struct {
    const char *type;
    int form;
} forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
             {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
             {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
             {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

mn_status mn_steps_add_form(mn_steps *out, mn_str name, mn_error *err) {
    for (size_t i = 0; i < MN_COUNT(forms); i++)
        if (mn_str_is(name, forms[i].type))
            return add_form(out, forms[i].form, err);
    return MN_END;
}

const char *mn_step_form(const mn_step *step) {
    for (size_t i = 0; i < MN_COUNT(forms); i++)
        if (step->kind == MN_STEP_FORM && step->form == forms[i].form)
            return forms[i].type;
    return NULL;
}

static mn_status add_normalizer(mn_steps *out, const cJSON *json, int depth, mn_error *err) {
    if (!json || cJSON_IsNull(json))
        return MN_OK;
    const char *type = mn_json_text(json, "type", NULL);
    if (!type || depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: normalizer: no \"type\", or nested too deeply");
    mn_status st = MN_OK;
    if (!strcmp(type, "Sequence")) {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(
            item, mn_json_item(json, "normalizers")) if ((st = add_normalizer(out, item, depth + 1,
                                                                              err))) return st;
        return MN_OK;
    }
    if ((st = mn_steps_add_form(out, mn_str_of(type), err)) != MN_END)
        return st;
    if (!strcmp(type, "Lowercase"))
        return add_plain(out, MN_STEP_LOWER, err);
    if (!strcmp(type, "StripAccents"))
        return add_plain(out, MN_STEP_UNMARK, err);
    if (!strcmp(type, "ByteLevel"))
        return add_plain(out, MN_STEP_BYTES, err);
    if (!strcmp(type, "Strip"))
        return add_strip(out, json, err);
    if (!strcmp(type, "Replace"))
        return add_replace(out, json, err);
    if (!strcmp(type, "Precompiled"))
        return add_precompiled(out, json, err);
    if (!strcmp(type, "BertNormalizer"))
        return add_bert_normalizer(out, json, err);
    if (!strcmp(type, "Nmt"))
        return add_nmt(out, err);
    if (!strcmp(type, "Prepend"))
        return mn_steps_add_prepend(out, mn_str_of(mn_json_text(json, "prepend", "")), false, false,
                                    err);
    return unsupported("normalizer", type, err);
}

mn_status mn_json_normalizer(mn_steps *out, const cJSON *json, mn_error *err) {
    return add_normalizer(out, json, 0, err);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */
static mn_status add_regex(mn_steps *out, const char *regex, mn_split_behavior behavior,
                           bool invert, mn_error *err) {
    return mn_steps_add_split(out, regex, behavior, invert, "tokenizer.json: pre_tokenizer", err);
}

static mn_status add_split(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_step *step = mn_steps_add(out, MN_STEP_SPLIT);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    step->invert = mn_json_flag(json, "invert", false);
    mn_status st = get_behavior(json, &step->behavior, err);
    return st ? st : get_pattern(&step->pattern, json, "pre_tokenizer", err);
}

static mn_status add_delimiter(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_step *step = mn_steps_add(out, MN_STEP_SPLIT);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    step->behavior = MN_SPLIT_REMOVED;
    return mn_pattern_literal(&step->pattern, mn_str_of(mn_json_text(json, "delimiter", " ")), err);
}

static mn_status add_byte_level(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_status st = MN_OK;
    if (mn_json_flag(json, "add_prefix_space", true))
        st = mn_steps_add_prepend(out, mn_str_of(" "), true, false, err);
    if (!st && mn_json_flag(json, "use_regex", true))
        st = add_regex(out, MN_REGEX_GPT2, MN_SPLIT_ISOLATED, false, err);
    return st ? st : add_plain(out, MN_STEP_BYTES, err);
}

static mn_status add_metaspace(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_str block = mn_str_of(mn_json_text(json, "replacement", MN_BLOCK));
    const char *scheme = mn_json_text(
        json, "prepend_scheme", mn_json_flag(json, "add_prefix_space", true) ? "always" : "never");
    mn_status st = mn_steps_add_replace(out, mn_str_of(" "), block, err);
    if (!st && strcmp(scheme, "never") != 0)
        st = mn_steps_add_prepend(out, block, true, !strcmp(scheme, "first"), err);
    if (st || !mn_json_flag(json, "split", true))
        return st;
    mn_step *step = mn_steps_add(out, MN_STEP_SPLIT);
    if (!step)
        return mn_fail_memory(err, sizeof *step);
    step->behavior = MN_SPLIT_WITH_NEXT;
    return mn_pattern_literal(&step->pattern, block, err);
}

static mn_status add_punctuation(mn_steps *out, const cJSON *json, mn_error *err) {
    mn_split_behavior behavior = MN_SPLIT_ISOLATED;
    mn_status st = get_behavior(json, &behavior, err);
    return st ? st : add_regex(out, PUNCTUATION, behavior, false, err);
}

mn_status mn_steps_add_bert_split(mn_steps *out, mn_error *err) {
    mn_status st = add_regex(out, "\\s", MN_SPLIT_REMOVED, false, err);
    return st ? st : add_regex(out, PUNCTUATION, MN_SPLIT_ISOLATED, false, err);
}

static mn_status add_fixed_length(mn_steps *out, const cJSON *json, mn_error *err) {
    const cJSON *length = mn_json_item(json, "length");
    int32_t n = 5;
    char regex[32];
    if (length && (!mn_json_id(length, &n) || n < 1 || n > 65535))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: pre_tokenizer: FixedLength: length: expected 1 to 65535");
    snprintf(regex, sizeof regex, "[\\s\\S]{1,%d}", n);
    return add_regex(out, regex, MN_SPLIT_ISOLATED, false, err);
}

/* A cut wherever the script changes; spaces go with what stands before them, and are dropped in
 * front. */
static mn_status add_scripts(mn_steps *out, mn_error *err) {
    mn_text regex = {0};
    mn_status st = add_regex(out, "\\A[ \\p{sc:Unknown}]+", MN_SPLIT_REMOVED, false, err);
    mn_pattern_scripts(&regex);
    if (!st)
        st = regex.failed ? mn_fail_memory(err, regex.len)
                          : add_regex(out, regex.ptr, MN_SPLIT_ISOLATED, false, err);
    mn_text_free(&regex);
    return st;
}

static mn_status add_pre_tokenizer(mn_steps *out, const cJSON *json, int depth, mn_error *err) {
    if (!json || cJSON_IsNull(json))
        return MN_OK;
    const char *type = mn_json_text(json, "type", NULL);
    if (!type || depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: pre_tokenizer: no \"type\", or nested too deeply");
    mn_status st = MN_OK;
    if (!strcmp(type, "Sequence")) {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(item, mn_json_item(json, "pretokenizers")) if ((st = add_pre_tokenizer(
                                                                               out, item, depth + 1,
                                                                               err))) return st;
        return MN_OK;
    }
    if (!strcmp(type, "Split"))
        return add_split(out, json, err);
    if (!strcmp(type, "ByteLevel"))
        return add_byte_level(out, json, err);
    if (!strcmp(type, "Metaspace"))
        return add_metaspace(out, json, err);
    if (!strcmp(type, "Punctuation"))
        return add_punctuation(out, json, err);
    if (!strcmp(type, "BertPreTokenizer"))
        return mn_steps_add_bert_split(out, err);
    if (!strcmp(type, "FixedLength"))
        return add_fixed_length(out, json, err);
    if (!strcmp(type, "UnicodeScripts"))
        return add_scripts(out, err);
    if (!strcmp(type, "CharDelimiterSplit"))
        return add_delimiter(out, json, err);
    if (!strcmp(type, "Whitespace"))
        return add_regex(out, "[" WORD_CHAR "]+|[^\\s" WORD_CHAR "]+", MN_SPLIT_REMOVED, true, err);
    if (!strcmp(type, "WhitespaceSplit"))
        return add_regex(out, "\\s", MN_SPLIT_REMOVED, false, err);
    if (!strcmp(type, "Digits"))
        return add_regex(out, mn_json_flag(json, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                         MN_SPLIT_ISOLATED, false, err);
    return unsupported("pre_tokenizer", type, err);
}

mn_status mn_json_pre_tokenizer(mn_steps *out, const cJSON *json, mn_error *err) {
    return add_pre_tokenizer(out, json, 0, err);
}
