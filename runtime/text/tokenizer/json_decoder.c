/* json_decoder.c -- tokenizer.json's "decoder" as the stages of decoder.c. The types BPEDecoder and
 * CTC are unknown here: they belong to models of 2018 and to speech, which nothing else
 * supports. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <string.h>

#define WHERE "tokenizer.json: decoder"

static mn_status add(mn_decode_stages *s, mn_decode_kind kind, const char *content,
                     mn_decode_stage **out, mn_error *err) {
    return mn_decode_add(s, kind, mn_str_of(content), out, err);
}

static mn_status read_strip(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const cJSON *begin = mn_json_item(json, "start");
    const cJSON *end = mn_json_item(json, "stop");
    int32_t left = 0;
    int32_t right = 0;
    if ((begin && !mn_json_id(begin, &left)) || (end && !mn_json_id(end, &right)))
        return mn_fail(err, MN_BAD_FILE, WHERE ": Strip without counts");
    const mn_str what = mn_str_of(mn_json_text(json, "content", " "));
    return mn_decode_add_strip(s, what, (uint32_t)left, (uint32_t)right, err);
}

static mn_status read_replace(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const cJSON *pattern = mn_json_item(json, "pattern");
    const char *literal = mn_json_text(pattern, "String", NULL);
    const char *regex = mn_json_text(pattern, "Regex", NULL);
    const mn_str to = mn_str_of(mn_json_text(json, "content", ""));
    mn_decode_stage *stage = NULL;
    if (literal)
        return mn_decode_add_replace(s, mn_str_of(literal), to, err);
    if (!regex)
        return mn_fail(err, MN_BAD_FILE,
                       WHERE ": Replace: \"pattern\" is neither a String nor a Regex");
    mn_status st = mn_decode_add(s, MN_DECODE_REPLACE, to, &stage, err);
    return st ? st : mn_regex_compile(&stage->pattern, mn_str_of(regex), WHERE, err);
}

static mn_status read_metaspace(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const char *block = mn_json_text(json, "replacement", MN_BLOCK);
    if (!strcmp(mn_json_prepend_scheme(json), "never"))
        return mn_decode_add_replace(s, mn_str_of(block), mn_str_of(" "), err);
    return add(s, MN_DECODE_METASPACE, block, NULL, err);
}

static mn_status read_wordpiece(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    mn_decode_stage *stage = NULL;
    mn_status st = add(s, MN_DECODE_WORDPIECE, mn_json_text(json, "prefix", "##"), &stage, err);
    if (!st)
        stage->cleanup = mn_json_flag(json, "cleanup", true);
    return st;
}

static mn_status read_bytes(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    (void)json;
    return add(s, MN_DECODE_BYTES, "", NULL, err);
}

static mn_status read_fallback(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    (void)json;
    return add(s, MN_DECODE_FALLBACK, "", NULL, err);
}

static mn_status read_fuse(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    (void)json;
    return add(s, MN_DECODE_FUSE, "", NULL, err);
}

/* whole: needs whole tokens, and cannot work on what was fused into one that has no end. idle:
 * changes nothing there, and may be left out. */
static const struct {
    const char *type;
    mn_status (*read)(mn_decode_stages *s, const cJSON *json, mn_error *err);
    bool whole, idle;
} kinds[] = {{"ByteLevel", read_bytes, true, false},    {"ByteFallback", read_fallback, true, true},
             {"Fuse", read_fuse, true, true},           {"Strip", read_strip, false, false},
             {"Replace", read_replace, false, false},   {"Metaspace", read_metaspace, false, false},
             {"WordPiece", read_wordpiece, true, false}};

static mn_status read_one(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const char *type = mn_json_text(json, "type", "");
    const bool regex = mn_json_item(mn_json_item(json, "pattern"), "Regex");
    size_t i = 0;
    while (i < MN_COUNT(kinds) && strcmp(type, kinds[i].type) != 0)
        i++;
    if (i == MN_COUNT(kinds))
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": unsupported type \"%s\"", type);
    if (!s->fused || !(kinds[i].whole || regex))
        return kinds[i].read(s, json, err);
    if (kinds[i].idle)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, WHERE ": \"%s\" behind \"Fuse\" or \"ByteLevel\"", type);
}

static mn_status read_any(mn_decode_stages *s, const cJSON *json, int depth, mn_error *err) {
    const cJSON *item = mn_json_item(json, "decoders");
    mn_status st = MN_OK;
    if (strcmp(mn_json_text(json, "type", ""), "Sequence") != 0)
        return read_one(s, json, err);
    if (depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": nested too deeply");
    for (item = item ? item->child : NULL; item && !st; item = item->next)
        st = read_any(s, item, depth + 1, err);
    return st;
}

static bool writes_bytes(const mn_stages *s) {
    for (size_t i = 0; i < s->n; i++)
        if (s->stage[i].kind == MN_STAGE_BYTES)
            return true;
    return false;
}

/* Without a decoder, pieces that are written in visible bytes are read so. */
mn_status mn_json_decoder(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    mn_decode_stages *s = &tok->decoder;
    mn_status st = MN_OK;
    if (json && !cJSON_IsNull(json))
        st = read_any(s, json, 0, err);
    else if (writes_bytes(&tok->splitter) || writes_bytes(&tok->normalizer))
        st = read_bytes(s, NULL, err);
    for (size_t i = 0; i < s->n; i++)
        tok->byte_level |= s->stage[i].kind == MN_DECODE_BYTES;
    return st;
}
