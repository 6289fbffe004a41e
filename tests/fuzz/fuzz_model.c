/* Input: a model's files for the loader FUZZ_LOADER, as parts; alone it is FUZZ_ALONE. First the
 * loader by itself, over copies of exactly the files' sizes; what it opens then takes the way of
 * every model: canonical form, hyper-parameters, tokeniser, template, graph, and a small one is
 * converted, which reads every weight. Where the first part is a GGUF, it is what the user names,
 * not the folder. Weights are cheap: a GGUF that begins with Z (not part of it) is followed by
 * zeros, and a .safetensors that begins with { is a header alone, which gets its length in front
 * and as many zeros behind as it speaks of. */
#include "opened/opened.h"
#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ZEROS_MAX = 1 << 20, GGUF_ZEROS = 1 << 17, CONVERT_MAX = 1 << 15 };
static mn_runtime *rt;
static const mn_plugin_record *loader;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    mn_error err = MN_ERROR_INIT;
    char path[4096];
    fuzz_quiet();
    fuzz_plugins(FUZZ_PLUGINS, path, sizeof path);
    const mn_setting settings[] = {
        {"plugin_path_only", path}, {"probe_timeout", "0"}, {"threads", "1"}};
    const mn_runtime_params params = {
        .size = sizeof params, .n_settings = MN_COUNT(settings), .settings = settings};
    size_t n = 0;
    if (mn_runtime_create(&params, &rt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    const mn_plugin_record *r = mn_registry_plugins(rt->registry, &n);
    for (size_t i = 0; i < n; i++)
        if (r[i].loader && mn_str_is(r[i].id, FUZZ_LOADER))
            loader = &r[i];
    if (!loader) {
        fprintf(stderr, "%s: no loader " FUZZ_LOADER "\n", path);
        exit(1);
    }
    (void)argv;
    return 0;
}

/* ---- weights that are not in the input ------------------------------------------------------- */
static uint64_t zeros_of(mn_str header) {
    uint64_t most = 0;
    for (const char *at = header.ptr, *end = at + header.len;
         (at = memchr(at, ',', (size_t)(end - at)));) {
        uint64_t n = 0;
        for (at++; at < end && *at >= '0' && *at <= '9' && n < ZEROS_MAX; at++)
            n = n * 10 + (uint64_t)(*at - '0');
        if (at < end && *at == ']' && n > most)
            most = n;
    }
    return MN_MIN(most, (uint64_t)ZEROS_MAX);
}

static void put_zeros(mn_file *f, uint64_t *zeros) {
    const char *at = f->map;
    const bool gguf = mn_str_ends(f->name, ".gguf") && f->bytes && at[0] == 'Z';
    const bool header = mn_str_ends(f->name, ".safetensors") && f->bytes && at[0] == '{';
    *zeros = 0;
    if (!gguf && !header)
        return;
    const uint64_t n = f->bytes - gguf;
    const uint64_t before = header ? 8 : 0;
    const uint64_t padded = header ? (n + 7) / 8 * 8 : n;
    *zeros = gguf ? GGUF_ZEROS : zeros_of((mn_str){at, n});
    uint8_t *whole = calloc(1, before + padded + *zeros);
    FUZZ_CHECK(whole);
    for (int i = 0; header && i < 8; i++)
        whole[i] = (uint8_t)(padded >> 8 * i);
    memcpy(whole + before, at + gguf, n);
    memset(whole + before + n, ' ', padded - n);
    free((void *)(uintptr_t)at);
    *f = (mn_file){f->name, whole, before + padded + *zeros, 0, 0};
}

/* ---- the loader by itself -------------------------------------------------------------------- */
static volatile uint64_t sum;

static void read_value(const mn_value *v) {
    for (uint64_t i = 0; v->type == MN_VALUE_STR && i < v->s.len; i++)
        sum += (uint8_t)v->s.ptr[i];
    for (uint64_t i = 0; v->type == (MN_VALUE_ARRAY | MN_VALUE_STR) && i < v->n; i++) {
        const mn_str *s = (const mn_str *)v->array + i;
        if (s->len)
            sum += (uint64_t)s->ptr[0] + (uint64_t)s->ptr[s->len - 1];
    }
    if (v->n && (v->type == (MN_VALUE_ARRAY | MN_VALUE_INT) ||
                 v->type == (MN_VALUE_ARRAY | MN_VALUE_FLOAT)))
        sum += ((const uint64_t *)v->array)[v->n - 1];
}

static bool inside(const fuzz_parts *parts, const mn_plane *p) {
    for (uint32_t i = 0; i < parts->n; i++) {
        uintptr_t lo = (uintptr_t)parts->file[i].map;
        uintptr_t at = (uintptr_t)p->ptr;
        if (at >= lo && at - lo <= parts->file[i].bytes &&
            p->bytes <= parts->file[i].bytes - (at - lo))
            return true;
    }
    return mn_ledger_holds(loader->memory, p->ptr, p->bytes);
}

static bool open_alone(const fuzz_parts *parts) {
    mn_error err = MN_ERROR_INIT;
    mn_guess guess = {.size = sizeof guess};
    mn_parsed *m = NULL;
    mn_str key;
    mn_str native;
    void *self = loader->plugin->self;
    const mn_loader *l = loader->loader;
    fuzz_well(l->guess(self, parts->file, parts->n, sizeof *parts->file, &guess));
    if (!fuzz_ok(l->open(self, parts->file, parts->n, sizeof *parts->file, &m, &err), &err))
        return false;
    mn_value v = {.size = sizeof v};
    for (uint32_t i = 0; l->meta_at(m, i, &key, &native, &v) == MN_OK; i++)
        read_value(&v);
    mn_tensor_info t = {.size = sizeof t};
    for (uint32_t i = 0; l->tensor_at(m, i, &t) == MN_OK; i++)
        for (uint32_t k = 0; k < t.n_parts * t.n_planes; k++)
            FUZZ_CHECK(inside(
                parts, (const mn_plane *)((const uint8_t *)t.planes + (size_t)k * t.plane_stride)));
    l->close(m);
    return guess.confidence > 0;
}

/* ---- the whole way --------------------------------------------------------------------------- */
static void use_events(const mn_stream_event *events, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const mn_str text = events[i].text;
        fuzz_answered(text.ptr, text.len);
        FUZZ_CHECK(text.len && mn_utf8_check(text.ptr, text.len) == text.len);
        sum += events[i].kind + events[i].call;
    }
}

static void use_stream(const mn_model *m, uint32_t flags, const int32_t *ids, uint32_t n) {
    mn_error err = MN_ERROR_INIT;
    mn_stream *s = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    fuzz_answered(ids, n * sizeof *ids);
    if (!fuzz_ok(mn_stream_create(m, MN_STREAM_CONTINUE | flags, &s, &err), &err))
        return;
    mn_stream_prompt(s, ids, n / 2);
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(fuzz_ok(mn_stream_push(s, ids[i], &events, &n_events, &err), &err));
        use_events(events, n_events);
        sum += (uint64_t)mn_model_is_stop(m, ids[i]);
    }
    FUZZ_CHECK(fuzz_ok(mn_stream_finish(s, &events, &n_events, &err), &err));
    use_events(events, n_events);
    mn_stream_free(s);
}

static void use_text(const mn_model *m) {
    static const char said[] = "Hello, w\xc3\xb6rld! 12  <|im_end|>\n";
    static const char vars[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"add_generation_prompt\":true}";
    const mn_message messages[] = {{mn_str_of("user"), mn_str_of(said), {NULL, 0}}};
    mn_error err = MN_ERROR_INIT;
    int32_t *ids = NULL;
    uint32_t n = 0;
    char *text = NULL;
    uint64_t bytes = 0;
    if (!m->tokenizer)
        return;
    if (fuzz_ok(mn_model_tokenize(m, mn_str_of(said), MN_TEXT_ADD_SPECIAL, &ids, &n, &err), &err)) {
        use_stream(m, 0, ids, n);
        mn_ids_free(ids);
    }
    if (m->chat && fuzz_ok(mn_model_chat(m, messages, 1, 0, &ids, &n, &err), &err)) {
        use_stream(m, 0, ids, n);
        mn_ids_free(ids);
    }
    if (m->chat &&
        fuzz_ok(mn_template_render(m, NULL, mn_str_of(vars), &text, &bytes, &err), &err)) {
        fuzz_answered(text, bytes);
        mn_json_free(text);
    }
}

static void use_lists(const mn_model *m) {
    mn_str key;
    mn_value v = {.size = sizeof v};
    mn_tensor_item t = {0};
    for (uint32_t i = 0; !mn_model_meta(m, i, &key, &v); i++) {
        read_value(&v);
        fuzz_answered(key.ptr, key.len);
    }
    for (uint32_t i = 0; !mn_model_tensor(m, i, &t); i++) {
        FUZZ_CHECK(t.dtype[0] != '?');
        fuzz_answered(t.name.ptr, t.name.len);
        fuzz_answered(t.file.ptr, t.file.len); /* empty of codes that the loader moved */
    }
    fuzz_answered(m->stop, m->n_stop * sizeof *m->stop);
    fuzz_answered(&m->defaults, sizeof m->defaults);
}

/* The type is the input's choice, by its size. A device's ways to read weights are others'; this
 * one is the runtime's. */
static void convert(const mn_model *m, const mn_model_info *info, size_t n) {
    static const char *const types[] = {NULL, "f16", "q8_0", "q4_0", "q4_k_m"};
    const mn_convert_params params = {
        .size = sizeof params, .flags = MN_CONVERT_REPLACE, .type = types[n % MN_COUNT(types)]};
    mn_error err = MN_ERROR_INIT;
    char path[160];
    if (info->n_params > CONVERT_MAX)
        return;
    snprintf(path, sizeof path, "%s/converted", fuzz_folder());
    if (fuzz_ok(mn_model_convert(m, path, &params, &err), &err)) {
        static uint8_t made[1 << 20];
        FILE *f = fopen(path, "rb");
        FUZZ_CHECK(f);
        fuzz_answered(made, f ? fread(made, 1, sizeof made, f) : 0);
        if (f)
            fclose(f);
    }
    unlink(path);
}

/* Within, a message may quote the input. */
static bool ends(const char *msg, const char *with) {
    size_t n = strlen(msg);
    size_t k = strlen(with);
    return n >= k && !strcmp(msg + n - k, with);
}

static bool open_whole(const char *path, size_t n) {
    mn_model *m = NULL;
    mn_error err = MN_ERROR_INIT;
    if (!fuzz_ok(mn_model_open(rt, path, &m, &err), &err)) {
        FUZZ_CHECK(!ends(err.msg, "does not lie inside its file") &&
                   !ends(err.msg, "description is incomplete"));
        return false;
    }
    const mn_model_graph *g = NULL;
    mn_model_info info = {.size = sizeof info};
    mn_sample_params sampling = {.size = sizeof sampling};
    mn_model_get_info(m, &info);
    mn_model_sample_defaults(m, &sampling);
    bool built = fuzz_ok(mn_model_graph_of(m, &g, &err), &err);
    if (built)
        fuzz_ok(mn_model_graph_for(m, 1u << 20, false, &g, &err), &err);
    built |= fuzz_ok(mn_model_graph_for(m, 0, true, &g, &err), &err);
    use_text(m);
    use_lists(m);
    convert(m, &info, n);
    mn_model_free(m);
    return built;
}

/* A name of a file in one folder; loaders see any others in the first stage alone. */
static bool is_name(mn_str name, const fuzz_parts *parts) {
    for (uint64_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '/' || !name.ptr[i])
            return false;
    uint32_t same = 0;
    for (uint32_t i = 0; i < parts->n; i++)
        same += mn_str_eq(parts->file[i].name, name);
    return same == 1 && name.len < 64 && name.ptr[0] != '.';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    uint64_t zeros[FUZZ_PARTS];
    char name[64];
    char path[160];
    fuzz_split(data, n, FUZZ_ALONE, &parts);
    for (uint32_t i = 0; i < parts.n; i++)
        put_zeros(&parts.file[i], &zeros[i]);
    if (open_alone(&parts)) {
        for (uint32_t i = 0; i < parts.n; i++) {
            const mn_file *f = &parts.file[i];
            if (!is_name(f->name, &parts))
                continue;
            snprintf(name, sizeof name, "%.*s", (int)f->name.len, f->name.ptr);
            fuzz_file(name, (mn_str){f->map, f->bytes - zeros[i]}, zeros[i]);
        }
        const mn_str first = parts.file[0].name;
        if (mn_str_ends(first, ".gguf") && is_name(first, &parts))
            snprintf(path, sizeof path, "%s/%.*s", fuzz_folder(), (int)first.len, first.ptr);
        else
            snprintf(path, sizeof path, "%s", fuzz_folder());
        fuzz_accepted = open_whole(path, n);
        fuzz_files_remove();
    }
    fuzz_free(&parts);
    return 0;
}
