/* json_decoder.c -- tokenizer.json's "decoder" as the steps of decoder.c. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <string.h>

#define WHERE "tokenizer.json: decoder"

static mn_status read_strip(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    const cJSON *begin = mn_json_item(json, "start"), *end = mn_json_item(json, "stop");
    int32_t left = 0, right = 0;
    if ((begin && !mn_json_id(begin, &left)) || (end && !mn_json_id(end, &right)))
        return mn_fail(err, MN_BAD_FILE, WHERE ": Strip without counts");
    return mn_decode_add_strip(s, mn_str_of(mn_json_text(json, "content", " ")), (uint32_t)left,
                               (uint32_t)right, err);
}

static mn_status read_replace(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    const cJSON *pattern = mn_json_item(json, "pattern");
    const char *from = mn_json_text(pattern, "String", NULL),
               *regex = mn_json_text(pattern, "Regex", NULL);
    const mn_str to = mn_str_of(mn_json_text(json, "content", ""));
    mn_decode_step *step = NULL;
    if (from)
        return mn_decode_add_replace(s, mn_str_of(from), to, err);
    if (!regex)
        return mn_fail(err, MN_BAD_FILE,
                       WHERE ": Replace: \"pattern\" is neither a String nor a Regex");
    mn_status st = mn_decode_add(s, MN_DECODE_REPLACE, to, &step, err);
    return st ? st : mn_pattern_regex(&step->pattern, mn_str_of(regex), WHERE, err);
}

static mn_status read_metaspace(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    const mn_str block = mn_str_of(mn_json_text(json, "replacement", MN_BLOCK));
    const char *scheme = mn_json_text(
        json, "prepend_scheme", mn_json_flag(json, "add_prefix_space", true) ? "always" : "never");
    if (!strcmp(scheme, "never"))
        return mn_decode_add_replace(s, block, mn_str_of(" "), err);
    return mn_decode_add(s, MN_DECODE_METASPACE, block, NULL, err);
}

static mn_status read_words(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    mn_decode_step *step = NULL;
    mn_status st = mn_decode_add(s, MN_DECODE_WORDS, mn_str_of(mn_json_text(json, "prefix", "##")),
                                 &step, err);
    if (!st)
        step->cleanup = mn_json_flag(json, "cleanup", true);
    return st;
}

static mn_status read_ctc(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    mn_decode_step *step = NULL;
    const char *delimiter = mn_json_text(json, "word_delimiter_token", "|");
    mn_status st = mn_decode_add(s, MN_DECODE_CTC,
                                 mn_str_of(mn_json_text(json, "pad_token", "<pad>")), &step, err);
    if (st)
        return st;
    step->cleanup = mn_json_flag(json, "cleanup", true);
    step->extra = mn_strndup(delimiter, strlen(delimiter));
    return step->extra ? MN_OK : mn_fail_memory(err, strlen(delimiter));
}

static mn_status read_suffix(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    return mn_decode_add(s, MN_DECODE_SUFFIX, mn_str_of(mn_json_text(json, "suffix", "</w>")), NULL,
                         err);
}

static mn_status read_bytes(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    (void)json;
    return mn_decode_add(s, MN_DECODE_BYTES, mn_str_of(""), NULL, err);
}

static mn_status read_fallback(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    (void)json;
    return mn_decode_add(s, MN_DECODE_FALLBACK, mn_str_of(""), NULL, err);
}

static mn_status read_fuse(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    (void)json;
    return mn_decode_add(s, MN_DECODE_FUSE, mn_str_of(""), NULL, err);
}

/* whole: needs whole tokens, and cannot work on what was fused into one that has no end. */
static const struct {
    const char *type;
    mn_status (*read)(mn_decode_steps *s, const cJSON *json, mn_error *err);
    bool whole, idle; /* idle: changes nothing there */
} kinds[] = {{"ByteLevel", read_bytes, true, false},  {"ByteFallback", read_fallback, true, true},
             {"Fuse", read_fuse, true, true},         {"Strip", read_strip, false, false},
             {"Replace", read_replace, false, false}, {"Metaspace", read_metaspace, false, false},
             {"WordPiece", read_words, true, false},  {"BPEDecoder", read_suffix, true, false},
             {"CTC", read_ctc, true, false}};

static mn_status read_one(mn_decode_steps *s, const cJSON *json, mn_error *err) {
    const char *type = mn_json_text(json, "type", "");
    size_t i = 0;
    while (i < MN_COUNT(kinds) && strcmp(type, kinds[i].type) != 0)
        i++;
    if (i == MN_COUNT(kinds))
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": unsupported type \"%s\"", type);
    const bool whole = kinds[i].whole || mn_json_item(mn_json_item(json, "pattern"), "Regex");
    if (s->fused && whole && kinds[i].idle)
        return MN_OK;
    if (s->fused && whole)
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": \"%s\" behind \"Fuse\" or \"ByteLevel\"",
                       type);
    return kinds[i].read(s, json, err);
}

static mn_status read_any(mn_decode_steps *s, const cJSON *json, int depth, mn_error *err) {
    if (strcmp(mn_json_text(json, "type", ""), "Sequence") != 0)
        return read_one(s, json, err);
    if (depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": nested too deeply");
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(
        item, mn_json_item(json, "decoders")) if ((st = read_any(s, item, depth + 1, err))) break;
    return st;
}

static bool writes_bytes(const mn_steps *s) {
    for (size_t i = 0; i < s->n; i++)
        if (s->step[i].kind == MN_STEP_BYTES)
            return true;
    return false;
}

mn_status mn_json_decoder(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    mn_decode_steps *s = &tok->decoder;
    mn_status st = MN_OK;
    if (json && !cJSON_IsNull(json))
        st = read_any(s, json, 0, err);
    else if (writes_bytes(&tok->splitter) || writes_bytes(&tok->normalizer))
        st = read_bytes(s, NULL, err);
    for (size_t i = 0; i < s->n; i++)
        tok->byte_level |= s->step[i].kind == MN_DECODE_BYTES;
    return st;
}
