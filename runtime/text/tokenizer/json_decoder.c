/* json_decoder.c -- tokenizer.json's "decoder" as the stages of decoder.c. The types BPEDecoder and
 * CTC are unknown here: they belong to models of 2018 and to speech, which nothing else
 * supports. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <string.h>

#define WHERE "tokenizer.json: decoder"

static mn_status json_decoder_add(mn_decode_stages *s, mn_decode_kind kind, const char *content,
                                  mn_decode_stage **out, mn_error *err) {
    return mn_decode_add(s, kind, mn_str_of(content), out, err);
}

/* {"content": " ", "start": 1, "stop": 0}: how often it goes on either side. */
static mn_status read_strip(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const mn_str what = mn_str_of(mn_json_text(json, "content", " "));
    const cJSON *begin = mn_json_item(json, "start");
    const cJSON *end = mn_json_item(json, "stop");
    int32_t left = 0;
    int32_t right = 0;
    const bool begin_ok = !begin || mn_json_id(begin, &left);
    const bool end_ok = !end || mn_json_id(end, &right);
    if (!begin_ok || !end_ok)
        return mn_fail(err, MN_BAD_FILE, WHERE ": Strip without counts");
    return mn_decode_add_strip(s, what, (uint32_t)left, (uint32_t)right, err);
}

static mn_status read_replace(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const char *to = mn_json_text(json, "content", "");
    mn_decode_stage *stage = NULL;
    mn_status st = json_decoder_add(s, MN_DECODE_REPLACE, to, &stage, err);
    return st ? st : mn_json_pattern(&stage->pattern, json, WHERE ": Replace", err);
}

/* Where no space was put in front of the text, none goes. */
static mn_status read_metaspace(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const char *block = mn_json_text(json, "replacement", MN_BLOCK);
    const char *scheme = mn_json_prepend_scheme(json);
    if (!strcmp(scheme, "never"))
        return mn_decode_add_replace(s, mn_str_of(block), mn_str_of(" "), err);
    return json_decoder_add(s, MN_DECODE_METASPACE, block, NULL, err);
}

static mn_status read_wordpiece(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    mn_decode_stage *stage = NULL;
    mn_status st =
        json_decoder_add(s, MN_DECODE_WORDPIECE, mn_json_text(json, "prefix", "##"), &stage, err);
    if (!st)
        stage->cleanup = mn_json_flag(json, "cleanup", true);
    return st;
}

/* read: the stages of the object with the type; NULL: one of this kind, about which the object says
 * nothing more. whole: needs whole tokens, and cannot work on what was fused into one that has no
 * end. idle: changes nothing there, and may be left out. */
typedef struct {
    const char *type;
    mn_status (*read)(mn_decode_stages *s, const cJSON *json, mn_error *err);
    mn_decode_kind kind;
    bool whole, idle;
} decoder_type;

static const decoder_type types[] = {
    {"ByteLevel", NULL, MN_DECODE_BYTES, true, false},
    {"ByteFallback", NULL, MN_DECODE_FALLBACK, true, true},
    {"Fuse", NULL, MN_DECODE_FUSE, true, true},
    {"Strip", read_strip, MN_DECODE_STRIP, false, false},
    {"Replace", read_replace, MN_DECODE_REPLACE, false, false},
    {"Metaspace", read_metaspace, MN_DECODE_METASPACE, false, false},
    {"WordPiece", read_wordpiece, MN_DECODE_WORDPIECE, true, false}};

/* One object that is no "Sequence". */
static mn_status json_decoder_read_one(mn_decode_stages *s, const cJSON *json, mn_error *err) {
    const char *type = mn_json_text(json, "type", "");
    const bool regex = mn_json_item(mn_json_item(json, "pattern"), "Regex");
    size_t i = 0;
    while (i < MN_COUNT(types) && strcmp(type, types[i].type) != 0)
        i++;
    if (i == MN_COUNT(types))
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": unsupported type \"%s\"", type);
    const decoder_type *t = &types[i];
    if (s->fused && t->idle)
        return MN_OK;
    if (s->fused && (t->whole || regex))
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": \"%s\" behind \"Fuse\" or \"ByteLevel\"",
                       type);
    return t->read ? t->read(s, json, err) : json_decoder_add(s, t->kind, "", NULL, err);
}

static mn_status json_decoder_read_any(mn_decode_stages *s, const cJSON *json, int depth,
                                       mn_error *err) {
    const cJSON *item = mn_json_item(json, "decoders");
    mn_status st = MN_OK;
    if (strcmp(mn_json_text(json, "type", ""), "Sequence") != 0)
        return json_decoder_read_one(s, json, err);
    if (depth > MN_JSON_DEPTH)
        return mn_fail(err, MN_UNSUPPORTED, WHERE ": nested too deeply");
    for (item = item ? item->child : NULL; item && !st; item = item->next)
        st = json_decoder_read_any(s, item, depth + 1, err);
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
        st = json_decoder_read_any(s, json, 0, err);
    else if (writes_bytes(&tok->splitter) || writes_bytes(&tok->normalizer))
        st = json_decoder_add(s, MN_DECODE_BYTES, "", NULL, err);
    for (size_t i = 0; i < s->n; i++)
        tok->byte_level |= s->stage[i].kind == MN_DECODE_BYTES;
    return st;
}
