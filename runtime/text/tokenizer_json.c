/* tokenizer_json.c -- a tokeniser from tokenizer.json: vocabulary, merges, added tokens, template, decoder.
 * Big objects are walked once, never searched. */
#include "text/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <string.h>

#define BLOCK "\xe2\x96\x81" /* U+2581 */

static const cJSON *item_of(const cJSON *json, const char *key) { return cJSON_GetObjectItemCaseSensitive(json, key); }

static const char *text_of(const cJSON *json, const char *key, const char *otherwise) {
    const cJSON *v = item_of(json, key);
    return cJSON_IsString(v) ? v->valuestring : otherwise;
}

static bool flag_of(const cJSON *json, const char *key, bool otherwise) {
    const cJSON *v = item_of(json, key);
    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : otherwise;
}

static bool id_of(const cJSON *v, int32_t *id) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < MN_VOCAB_MAX)) return false;
    *id = (int32_t)v->valuedouble;
    return (double)*id == v->valuedouble;
}

mn_status mn_json_parse(mn_str text, const char *name, cJSON **out, mn_error *err) {
    *out = NULL;
    size_t valid = mn_utf8_check(text.ptr, (size_t)text.len);
    if (valid < text.len) return mn_fail(err, MN_BAD_FILE, "%s: not valid UTF-8 at byte %zu", name, valid);
    const char *end = NULL;
    cJSON *json = text.len ? cJSON_ParseWithLengthOpts(text.ptr, (size_t)text.len, &end, false) : NULL;
    if (!json)
        return mn_fail(err, MN_BAD_FILE, "%s: not valid JSON at byte %zu", name, end ? (size_t)(end - text.ptr) : 0);
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return mn_fail(err, MN_BAD_FILE, "%s: expected an object", name);
    }
    *out = json;
    return MN_OK;
}

mn_status mn_json_file(const mn_file *files, uint32_t n_files, const char *name, cJSON **out, mn_error *err) {
    *out = NULL;
    for (uint32_t i = 0; i < n_files; i++)
        if (mn_str_is(files[i].name, name))
            return mn_json_parse((mn_str){files[i].map, files[i].bytes}, name, out, err);
    return MN_OK;
}

/* ---- vocabulary ---- */
static mn_status bad_id(const char *part, const char *content, mn_error *err) {
    return mn_fail(err, MN_BAD_FILE, "tokenizer.json: %s: the id of \"%.80s\" is not an integer from 0 to %d", part,
                   content ? content : "?", MN_VOCAB_MAX - 1);
}

static mn_status count_ids(const cJSON *vocab, const cJSON *added, uint64_t *n, mn_error *err) {
    const cJSON *item = NULL;
    int32_t id = 0;
    *n = 0;
    uint64_t n_items = 0;
    cJSON_ArrayForEach(item, vocab) {
        if (!id_of(item, &id)) return bad_id("model.vocab", item->string, err);
        *n = MN_MAX(*n, (uint64_t)id + 1);
        n_items++;
    }
    cJSON_ArrayForEach(item, added) {
        if (!text_of(item, "content", NULL))
            return mn_fail(err, MN_BAD_FILE, "tokenizer.json: added_tokens: an entry has no \"content\"");
        if (!id_of(item_of(item, "id"), &id)) return bad_id("added_tokens", text_of(item, "content", ""), err);
        *n = MN_MAX(*n, (uint64_t)id + 1);
        n_items++;
    }
    /* Real vocabularies leave gaps, but a small file must not ask for a large table. */
    if (*n > 64 * n_items + 4096)
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: ids up to %llu, but only %llu tokens",
                       (unsigned long long)*n - 1, (unsigned long long)n_items);
    return MN_OK;
}

static mn_status enter_added(mn_tokenizer *tok, const cJSON *item, mn_error *err) {
    mn_str content = mn_str_of(text_of(item, "content", ""));
    int32_t id = -1;
    if (!id_of(item_of(item, "id"), &id)) return bad_id("added_tokens", content.ptr, err);
    uint32_t flags = MN_TOKEN_ADDED | (flag_of(item, "special", false) ? MN_TOKEN_SPECIAL : 0);
    int32_t there = mn_vocab_find(&tok->vocab, content.ptr, (size_t)content.len);
    if (there >= 0 && there != id)
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: added_tokens: \"%.*s\" has id %d, but %d in model.vocab",
                       MN_STR_ARG(content), id, there);
    if (there < 0) return mn_vocab_set(&tok->vocab, id, content, flags, "tokenizer.json: added_tokens", err);
    tok->vocab.token[id].flags |= flags;
    return MN_OK;
}

static mn_status read_vocab(mn_tokenizer *tok, const cJSON *vocab, const cJSON *added, mn_error *err) {
    if (!cJSON_IsObject(vocab)) return mn_fail(err, MN_BAD_FILE, "tokenizer.json: model.vocab: expected an object");
    if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: added_tokens: expected a list");
    uint64_t n = 0;
    mn_status st = count_ids(vocab, added, &n, err);
    if (!st) st = mn_vocab_init(&tok->vocab, n, "tokenizer.json: model.vocab", err);
    const cJSON *item = NULL;
    if (!st) cJSON_ArrayForEach(item, vocab) {
            int32_t id = -1;
            id_of(item, &id);
            if ((st = mn_vocab_set(&tok->vocab, id, mn_str_of(item->string), 0, "tokenizer.json: model.vocab", err)))
                break;
        }
    if (!st) cJSON_ArrayForEach(item, added) if ((st = enter_added(tok, item, err))) break;
    return st;
}

/* What an added token looks like once the normaliser has seen the text it stands in. */
static mn_status normalized_text(mn_tokenizer *tok, mn_str *text, mn_error *err) {
    mn_pieces p = {0};
    mn_status st = mn_pieces_set(&p, text->ptr, (size_t)text->len, err);
    if (!st) st = mn_steps_run(&tok->normalizer, &p, true, err);
    if (!st && p.n) {
        char *copy = mn_arena_strndup(&tok->vocab.arena, p.text.ptr + p.span[0].off, p.span[0].len);
        *text = (mn_str){copy, p.span[0].len};
        if (!copy) st = mn_fail_memory(err, p.text.len);
    }
    mn_pieces_free(&p);
    return st;
}

/* Special tokens are always matched as written: only there is it known which text a user typed. */
static mn_status collect_added(mn_tokenizer *tok, const cJSON *added, mn_error *err) {
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(item, added) {
        mn_added a = {.special = flag_of(item, "special", false),
                      .lstrip = flag_of(item, "lstrip", false),
                      .rstrip = flag_of(item, "rstrip", false),
                      .single_word = flag_of(item, "single_word", false)};
        if (!id_of(item_of(item, "id"), &a.id)) continue;
        a.text = tok->vocab.token[a.id].piece;
        a.normalized = !a.special && tok->normalizer.n && flag_of(item, "normalized", true);
        if (a.normalized) st = normalized_text(tok, &a.text, err);
        if (!st) st = mn_added_put(a.normalized ? &tok->normalized : &tok->raw, &a, err);
        if (st) return st;
    }
    st = mn_added_index(&tok->raw, "tokenizer.json", err);
    return st ? st : mn_added_index(&tok->normalized, "tokenizer.json", err);
}

/* ---- model ---- */
static bool split_merge(const cJSON *item, mn_str *left, mn_str *right) {
    if (cJSON_IsArray(item)) {
        const cJSON *a = item->child, *b = a ? a->next : NULL;
        if (!cJSON_IsString(a) || !cJSON_IsString(b) || b->next) return false;
        *left = mn_str_of(a->valuestring);
        *right = mn_str_of(b->valuestring);
        return true;
    }
    const char *blank = cJSON_IsString(item) ? strchr(item->valuestring, ' ') : NULL;
    if (!blank || strchr(blank + 1, ' ')) return false;
    *left = (mn_str){item->valuestring, (uint64_t)(blank - item->valuestring)};
    *right = mn_str_of(blank + 1);
    return true;
}

static mn_status read_merges(mn_tokenizer *tok, const cJSON *merges, mn_error *err) {
    if (!cJSON_IsArray(merges)) return mn_fail(err, MN_BAD_FILE, "tokenizer.json: model.merges: expected a list");
    mn_status st = mn_vocab_merges(&tok->vocab, (uint64_t)cJSON_GetArraySize(merges), err);
    int32_t rank = 0;
    const cJSON *item = NULL;
    if (!st) cJSON_ArrayForEach(item, merges) {
            mn_str left = {NULL, 0}, right = {NULL, 0};
            if (!split_merge(item, &left, &right))
                return mn_fail(err, MN_BAD_FILE, "tokenizer.json: model.merges: merge %d is not a pair of pieces",
                               rank);
            if ((st = mn_vocab_add_merge(&tok->vocab, left, right, rank++, true, "tokenizer.json: model.merges", err)))
                break;
        }
    return st;
}

static mn_status read_model(mn_tokenizer *tok, const cJSON *model, mn_error *err) {
    static const char *const affix[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < MN_COUNT(affix); i++)
        if (text_of(model, affix[i], "")[0])
            return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: model.%s \"%s\": not supported", affix[i],
                           text_of(model, affix[i], ""));
    tok->model = MN_MODEL_MERGES;
    tok->ignore_merges = flag_of(model, "ignore_merges", false);
    tok->byte_fallback = flag_of(model, "byte_fallback", false);
    tok->fuse_unk = flag_of(model, "fuse_unk", false);
    const char *unk = text_of(model, "unk_token", NULL);
    if (unk && (tok->model_unk = mn_vocab_find(&tok->vocab, unk, strlen(unk))) < 0)
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: model.unk_token \"%s\" is not in the vocabulary", unk);
    tok->unk = tok->model_unk;
    return read_merges(tok, item_of(model, "merges"), err);
}

/* ---- post-processor: ids before and after the text ---- */
static mn_status put_id(mn_tokenizer *tok, mn_id_list *list, const cJSON *value, mn_error *err) {
    int32_t id = -1;
    if (!id_of(value, &id) || (uint32_t)id >= tok->vocab.n)
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: post_processor: an id that is not in the vocabulary");
    return mn_ids_put(list, id) ? MN_OK : mn_fail_memory(err, sizeof id);
}

static mn_status read_template(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    const cJSON *item = NULL, *specials = item_of(json, "special_tokens");
    mn_id_list *list = &tok->prefix;
    cJSON_ArrayForEach(item, item_of(json, "single")) {
        const cJSON *special = item_of(item, "SpecialToken"), *value = NULL;
        if (!special) {
            list = &tok->suffix;
            continue;
        }
        const char *name = text_of(special, "id", "");
        const cJSON *entry = item_of(specials, name);
        if (!entry)
            return mn_fail(err, MN_BAD_FILE, "tokenizer.json: post_processor: special_tokens has no \"%s\"", name);
        cJSON_ArrayForEach(value, item_of(entry, "ids")) {
            mn_status st = put_id(tok, list, value, err);
            if (st) return st;
        }
    }
    return MN_OK;
}

static mn_status read_post(mn_tokenizer *tok, const cJSON *json, int depth, mn_error *err) {
    if (!json || cJSON_IsNull(json)) return MN_OK;
    const char *type = text_of(json, "type", "");
    if (!strcmp(type, "TemplateProcessing")) return read_template(tok, json, err);
    if (!strcmp(type, "ByteLevel")) return MN_OK;
    mn_status st = MN_OK;
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
        st = put_id(tok, &tok->prefix, cJSON_GetArrayItem(item_of(json, "cls"), 1), err);
        return st ? st : put_id(tok, &tok->suffix, cJSON_GetArrayItem(item_of(json, "sep"), 1), err);
    }
    if (strcmp(type, "Sequence") != 0 || depth > 8)
        return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: post_processor: unsupported type \"%s\"", type);
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, item_of(json, "processors")) if ((st = read_post(tok, item, depth + 1, err))) break;
    return st;
}

/* ---- decoder ---- */
static mn_status read_strip(mn_tokenizer *tok, const cJSON *json, bool fused, mn_error *err) {
    const cJSON *begin = item_of(json, "start"), *end = item_of(json, "stop");
    int32_t n_begin = 0, n_end = 0;
    if ((begin && !id_of(begin, &n_begin)) || (end && !id_of(end, &n_end)))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: decoder: Strip without counts");
    if (n_end || !fused)
        return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: decoder: \"Strip\" at the end, or of single pieces");
    return mn_tokenizer_add_strip(tok, mn_str_of(text_of(json, "content", " ")), (uint32_t)n_begin, err);
}

static mn_status read_decoder(mn_tokenizer *tok, const cJSON *json, bool *fused, int depth, mn_error *err) {
    const char *type = text_of(json, "type", "");
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    if (!strcmp(type, "ByteLevel")) return tok->decode_bytes = true, MN_OK;
    if (!strcmp(type, "ByteFallback")) return tok->decode_fallback = true, MN_OK;
    if (!strcmp(type, "Fuse")) return *fused = true, MN_OK;
    if (!strcmp(type, "Strip")) return read_strip(tok, json, *fused, err);
    if (!strcmp(type, "Metaspace")) {
        const char *scheme =
            text_of(json, "prepend_scheme", flag_of(json, "add_prefix_space", true) ? "always" : "never");
        st = mn_tokenizer_add_replace(tok, mn_str_of(text_of(json, "replacement", BLOCK)), mn_str_of(" "), err);
        return st ? st : mn_tokenizer_add_strip(tok, mn_str_of(" "), strcmp(scheme, "never") != 0, err);
    }
    const char *from = text_of(item_of(json, "pattern"), "String", NULL);
    if (!strcmp(type, "Replace") && from)
        return mn_tokenizer_add_replace(tok, mn_str_of(from), mn_str_of(text_of(json, "content", "")), err);
    if (strcmp(type, "Sequence") != 0 || depth > 8)
        return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: decoder: unsupported type \"%s\"", type);
    cJSON_ArrayForEach(item,
                       item_of(json, "decoders")) if ((st = read_decoder(tok, item, fused, depth + 1, err))) break;
    return st;
}

static mn_status read_any_decoder(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    bool fused = false;
    if (json && !cJSON_IsNull(json)) return read_decoder(tok, json, &fused, 0, err);
    for (size_t i = 0; i < tok->splitter.n; i++) tok->decode_bytes |= tok->splitter.step[i].kind == MN_STEP_BYTES;
    return MN_OK;
}

static void mark_bytes(mn_tokenizer *tok) {
    mn_vocab_finish(&tok->vocab);
    if (!tok->byte_fallback && !tok->decode_fallback) return;
    for (int b = 0; b < 256; b++)
        if (tok->vocab.byte_id[b] >= 0) tok->vocab.token[tok->vocab.byte_id[b]].flags |= MN_TOKEN_BYTE;
}

static mn_status read_json(mn_tokenizer *tok, const cJSON *json, mn_error *err) {
    const cJSON *model = item_of(json, "model"), *added = item_of(json, "added_tokens");
    if (!cJSON_IsObject(model)) return mn_fail(err, MN_BAD_FILE, "tokenizer.json: \"model\" is missing");
    const char *type = text_of(model, "type", item_of(model, "merges") ? "BPE" : "(none)");
    if (strcmp(type, "BPE") != 0)
        return mn_fail(err, MN_UNSUPPORTED, "tokenizer.json: model: unsupported type \"%s\"; known: BPE", type);
    mn_status st = read_vocab(tok, item_of(model, "vocab"), added, err);
    if (!st) st = read_model(tok, model, err);
    if (!st) st = mn_json_normalizer(&tok->normalizer, item_of(json, "normalizer"), err);
    if (!st) st = mn_json_pre_tokenizer(&tok->splitter, item_of(json, "pre_tokenizer"), err);
    if (!st) st = collect_added(tok, added, err);
    if (!st) st = read_post(tok, item_of(json, "post_processor"), 0, err);
    if (!st) st = read_any_decoder(tok, item_of(json, "decoder"), err);
    if (!st) mark_bytes(tok);
    return st;
}

mn_status mn_tokenizer_from_json(mn_tokenizer *tok, mn_str text, const char *name, const mn_file *files,
                                 uint32_t n_files, mn_error *err) {
    cJSON *json = NULL;
    mn_status st = mn_json_parse(text, name, &json, err);
    if (st) return st;
    st = read_json(tok, json, err);
    cJSON_Delete(json);
    return st ? st : mn_tokenizer_stop_from_files(tok, files, n_files, err);
}
