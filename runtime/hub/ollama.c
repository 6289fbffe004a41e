/* ollama.c -- the models of ollama, by its manifests: manifests/HOST/NAMESPACE/NAME/TAG is JSON
 * with the layers of the model, each a blob named by its SHA-256. The layer
 * application/vnd.ollama.image.model is a GGUF file. Its chat template is a program in another
 * language (Go's), which is not run: the one in the GGUF file is. Parameters and system messages of
 * the manifest are not used; adapters are an error. */
#include "hub/names.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char place[] = "ollama";
#define REGISTRY "registry.ollama.ai"
#define LAYER "application/vnd.ollama.image."
enum { MANIFEST_MAX = 1 << 20, LEVELS = 4, SHA256_DIGITS = 64 };

/* Its store; *out NULL: there is none. */
static mn_status find_store(char **out, mn_error *err) {
    static const char *const usual[] = {"~/.ollama/models", "/usr/share/ollama/.ollama/models",
                                        "/var/lib/ollama/.ollama/models"};
    *out = NULL;
    mn_status st = mn_user_path("OLLAMA_MODELS", NULL, NULL, out, err);
    for (size_t i = 0; i < MN_COUNT(usual) && !st && !*out; i++) {
        st = mn_user_path(NULL, usual[i], NULL, out, err);
        char *manifests = *out ? mn_path_join(*out, "manifests") : NULL;
        if (*out && !manifests)
            st = mn_fail_memory(err, strlen(*out));
        if (!manifests || !mn_path_is_dir(manifests)) {
            mn_free(*out);
            *out = NULL;
        }
        mn_free(manifests);
    }
    return st;
}

/* What of a manifest counts. */
typedef struct {
    char blob[SHA256_DIGITS + 8]; /* "sha256-..." */
    uint64_t bytes;
    uint32_t n_models;
    bool has_template;
    char refused[64]; /* a layer that changes the model and is not used; "" = none */
} manifest;

/* "sha256:HEX" as the name of a blob. false: it is no such digest. */
static bool blob_name(const char *digest, char out[SHA256_DIGITS + 8]) {
    if (strncmp(digest, "sha256:", 7) != 0 ||
        strspn(digest + 7, "0123456789abcdef") != SHA256_DIGITS || digest[7 + SHA256_DIGITS])
        return false;
    snprintf(out, SHA256_DIGITS + 8, "sha256-%.64s", digest + 7);
    return true;
}

static mn_status read_layer(const cJSON *layer, manifest *out) {
    const char *kind = mn_json_text(layer, "mediaType", "");
    const cJSON *size = mn_json_item(layer, "size");
    if (strncmp(kind, LAYER, strlen(LAYER)) != 0)
        return MN_OK;
    kind += strlen(LAYER);
    if (!strcmp(kind, "template") || !strcmp(kind, "prompt"))
        out->has_template = true;
    if (!strcmp(kind, "adapter") || !strcmp(kind, "tensor"))
        snprintf(out->refused, sizeof out->refused, "%s", kind);
    if (strcmp(kind, "model") != 0)
        return MN_OK;
    out->n_models++;
    if (cJSON_IsNumber(size) && size->valuedouble >= 0 && size->valuedouble < 1e18)
        out->bytes = (uint64_t)size->valuedouble;
    return blob_name(mn_json_text(layer, "digest", ""), out->blob) ? MN_OK : MN_BAD_FILE;
}

/* MN_END: there is no such manifest; MN_BAD_FILE: it is none, or of a model that is not read. */
static mn_status read_manifest(const char *path, manifest *out, mn_error *err) {
    mn_text text = {0};
    cJSON *json = NULL;
    const cJSON *layer = NULL;
    memset(out, 0, sizeof *out);
    mn_status st = mn_small_file(path, MANIFEST_MAX, &text, err);
    if (!st)
        st = mn_json_parse((mn_str){text.ptr, text.len}, path, &json, err);
    mn_text_free(&text);
    if (st)
        return st;
    cJSON_ArrayForEach(layer, mn_json_item(json, "layers")) {
        if (!st)
            st = read_layer(layer, out);
    }
    cJSON_Delete(json);
    if (st)
        return mn_fail(err, st, "%s: the digest of a layer is none of SHA-256", path);
    if (out->refused[0])
        return mn_fail(err, MN_BAD_FILE,
                       "%s: the model has a layer of kind %s, which is not used; expected one GGUF "
                       "file (" LAYER "model)",
                       path, out->refused);
    if (out->n_models != 1)
        return mn_fail(err, MN_BAD_FILE, "%s: found %u layers of kind %smodel, expected one", path,
                       out->n_models, LAYER);
    return MN_OK;
}

/* Adds the model of a manifest. */
static mn_status add_manifest(mn_find *f, const char *store, const manifest *m, const char *name,
                              mn_error *err) {
    struct stat at;
    mn_text path = {0};
    mn_text_printf(&path, "%s/blobs/%s", store, m->blob);
    if (path.failed)
        return mn_fail_memory(err, strlen(store));
    mn_status st = MN_END;
    if (stat(path.ptr, &at) || !S_ISREG(at.st_mode) ||
        (m->bytes && (uint64_t)at.st_size != m->bytes)) {
        mn_find_says(f, place, "%s: its file %s is not there, or not whole", name, path.ptr);
    } else {
        const mn_found_entry entry = {.name = (char *)(uintptr_t)name,
                                      .path = path.ptr,
                                      .place = place,
                                      .bytes = (uint64_t)at.st_size,
                                      .used = at.st_atime,
                                      .flags = m->has_template ? MN_FOUND_FOREIGN_TEMPLATE : 0};
        mn_find_says(f, place, "%s: %s", name, path.ptr);
        st = mn_found_add(f->found, &entry, err);
    }
    mn_text_free(&path);
    return st;
}

/* One manifest by the path below manifests/, which names the model `name`. */
static mn_status find_manifest(mn_find *f, const char *store, const char *inner, const char *name,
                               mn_error *err) {
    manifest m;
    mn_text path = {0};
    mn_text_printf(&path, "%s/manifests/%s", store, inner);
    mn_status st = path.failed ? mn_fail_memory(err, 64) : read_manifest(path.ptr, &m, err);
    if (st == MN_END)
        mn_find_says(f, place, "%s: not there", path.ptr);
    if (!st)
        st = add_manifest(f, store, &m, name, err);
    mn_text_free(&path);
    return st;
}

/* The paths that a name may have: as ollama completes it, and what it loaded from a hub. */
static mn_status find_name(mn_find *f, const char *store, const char *registry, mn_error *err) {
    const mn_model_name *n = f->name;
    const char *tag = *n->what ? n->what : "latest";
    const char *folder = registry;
    uint32_t parts = 1;
    mn_text inner = {0};
    mn_text name = {0};
    for (const char *c = n->plain; *c; c++)
        parts += *c == '/';
    if (parts > 2)
        folder = "";
    mn_text_printf(&inner, "%s%s%s%s/%s", folder, *folder ? "/" : "", parts == 1 ? "library/" : "",
                   n->plain, tag);
    mn_text_printf(&name, "%s%s:%s", strcmp(registry, "hf.co") ? "" : "hf.co/", n->plain, tag);
    mn_status st = MN_END;
    if (inner.failed || name.failed)
        st = mn_fail_memory(err, 64);
    else if (mn_is_inner_path(inner.ptr, inner.len))
        st = find_manifest(f, store, inner.ptr, name.ptr, err);
    mn_text_free(&inner);
    mn_text_free(&name);
    return st;
}

mn_status mn_ollama_find(mn_find *f, mn_error *err) {
    char *store = NULL;
    mn_status st = find_store(&store, err);
    if (st)
        return st;
    if (!store) {
        mn_find_says(f, place, "~/.ollama/models is not there");
        return MN_END;
    }
    st = f->name->only == MN_STORE_HUB ? MN_END : find_name(f, store, REGISTRY, err);
    if (st == MN_END && *f->name->repo)
        st = find_name(f, store, "hf.co", err);
    mn_free(store);
    return st;
}

/* ---- all of them ----------------------------------------------------------------------------- */
/* "registry.ollama.ai/library/llama3.2/1b" is "llama3.2:1b". */
static mn_status list_manifest(mn_find *f, const char *store, const char *inner, mn_error *err) {
    const char *name = inner;
    manifest m;
    mn_text path = {0};
    mn_text shown = {0};
    mn_error why = MN_ERROR_INIT;
    if (!strncmp(name, REGISTRY "/", strlen(REGISTRY) + 1))
        name += strlen(REGISTRY) + 1;
    if (!strncmp(name, "library/", 8))
        name += 8;
    const char *slash = strrchr(name, '/');
    if (!slash)
        return MN_OK;
    mn_text_printf(&path, "%s/manifests/%s", store, inner);
    mn_text_printf(&shown, "%.*s:%s", (int)(slash - name), name, slash + 1);
    mn_status st =
        path.failed || shown.failed ? MN_OUT_OF_MEMORY : read_manifest(path.ptr, &m, &why);
    if (st == MN_OUT_OF_MEMORY)
        mn_fail_memory(err, MANIFEST_MAX);
    else if (!st)
        st = add_manifest(f, store, &m, shown.ptr, err);
    mn_text_free(&path);
    mn_text_free(&shown);
    return st == MN_OUT_OF_MEMORY ? st : MN_OK;
}

mn_status mn_ollama_list(mn_find *f, mn_error *err) {
    char *store = NULL;
    mn_listing list = {0};
    mn_status st = find_store(&store, err);
    char *manifests = store ? mn_path_join(store, "manifests") : NULL;
    if (!st && store)
        st = manifests ? mn_listing_read(manifests, LEVELS, &list, err) : mn_fail_memory(err, 64);
    for (uint32_t i = 0; i < list.n && !st; i++)
        st = list_manifest(f, store, list.files[i].name.ptr, err);
    mn_listing_free(&list);
    mn_free(manifests);
    mn_free(store);
    return st;
}
