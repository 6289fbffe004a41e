/* fuzz_names.c -- a name of a model, and what other programs' stores say of it. Parts: "name"; the
 * user's aliases.ini; "main", a ref of the cache of Hugging Face; "latest", a manifest of ollama;
 * LM Studio's settings.json and manifest.json; "files", a line "BYTES NAME" for each file of a
 * repository, of which "what" is chosen. Whatever they say, paths stay inside the stores. */
#include "fuzz.h"
#include "../unit/pattern_loader.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
enum { FILES = 200, NAME_BYTES = 2000 };

static char root[256];

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void remove_folders(void) {
    static const char *const names[] = {"hf", "ollama", ".lmstudio"};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    }
}

/* A folder below the root with all above it. */
static void make_folder(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/", root, name);
    for (char *c = path + strlen(root) + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0700);
            *c = '/';
        }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const folders[] = {"hf/models--org--repo/refs",
                                          "hf/models--org--repo/snapshots/" COMMIT,
                                          "ollama/manifests/registry.ollama.ai/library/m",
                                          "ollama/blobs",
                                          ".lmstudio/hub/models/org/repo",
                                          ".lmstudio/models/pub/thing"};
    char path[512];
    (void)argc;
    (void)argv;
    fuzz_quiet();
    snprintf(root, sizeof root, "%s", fuzz_folder());
    setenv("HOME", root, 1);
    snprintf(path, sizeof path, "%s/hf", root);
    setenv("HF_HUB_CACHE", path, 1);
    snprintf(path, sizeof path, "%s/ollama", root);
    setenv("OLLAMA_MODELS", path, 1);
    unsetenv("HF_ENDPOINT");
    for (size_t i = 0; i < MN_COUNT(folders); i++)
        make_folder(folders[i]);
    snprintf(path, sizeof path, "%s/.lmstudio/models/pub/thing/m-Q4_0.gguf", root);
    FILE *f = fopen(path, "w");
    FUZZ_CHECK(f && !fclose(f));
    atexit(remove_folders);
    FUZZ_CHECK(!pattern_loader_read(1000));
    return 0;
}

static void check_name(const char *text) {
    mn_model_name n = {0};
    mn_error err = MN_ERROR_INIT;
    const mn_status st = mn_name_parse(text, &n, &err);
    if (st == MN_END || !fuzz_ok(st, &err))
        return;
    FUZZ_CHECK(mn_is_inner_path(n.plain, strlen(n.plain)));
    FUZZ_CHECK(!*n.repo || (mn_is_inner_path(n.repo, strlen(n.repo)) && strchr(n.repo, '/')));
    FUZZ_CHECK(!*n.what || mn_is_inner_path(n.what, strlen(n.what)));
    FUZZ_CHECK(!*n.revision || mn_is_inner_path(n.revision, strlen(n.revision)));
    FUZZ_CHECK(!strstr(n.repo, "--"));
    mn_name_free(&n);
}

static void check_found(const char *text) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    const mn_status st = mn_find_model(&how, "", text, &found, &err);
    if (!fuzz_ok(st, &err))
        return;
    FUZZ_CHECK(found->n || found->missing.len);
    for (size_t i = 0; i < found->n; i++) {
        const mn_found_entry *e = &found->at[i];
        const bool inside = !strncmp(e->path, root, strlen(root));
        FUZZ_CHECK(!strstr(e->path, "/../") || !strcmp(e->place, "path") ||
                   !strcmp(e->place, "lmstudio"));
        FUZZ_CHECK(inside || (strcmp(e->place, "ollama") && strcmp(e->place, "huggingface")));
        fuzz_accepted = true;
        fuzz_answered(e->path, strlen(e->path));
    }
    mn_found_free(found);
}

static void check_listed(void) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    if (fuzz_ok(mn_find_all(&how, "", &found, &err), &err))
        fuzz_answered(&found->n, sizeof found->n);
    mn_found_free(found);
}

static void check_choice(mn_str text, const char *what) {
    static mn_hub_file files[FILES];
    uint8_t chosen[FILES];
    uint32_t n = 0;
    uint32_t n_chosen = 0;
    mn_error err = MN_ERROR_INIT;
    mn_hub_choice choice = {.size = sizeof choice};
    while (text.len && n < FILES) {
        const char *end = memchr(text.ptr, '\n', (size_t)text.len);
        const uint64_t line = end ? (uint64_t)(end - text.ptr) : text.len;
        const char *blank = memchr(text.ptr, ' ', (size_t)line);
        const uint64_t digits = blank ? (uint64_t)(blank - text.ptr) : 0;
        int64_t bytes = 0;
        mn_parse_i64((mn_str){text.ptr, digits}, &bytes);
        const uint64_t skip = blank ? digits + 1 : 0;
        if (line > skip)
            files[n++] = (mn_hub_file){{text.ptr + skip, line - skip}, (uint64_t)bytes};
        text.ptr += line + (end != NULL);
        text.len -= line + (end != NULL);
    }
    const mn_status st = mn_choose_files(&how, files, n, what, chosen, &choice, NULL, &err);
    if (st == MN_END || !fuzz_ok(st, &err))
        return;
    for (uint32_t i = 0; i < n; i++)
        n_chosen += chosen[i];
    FUZZ_CHECK(n_chosen && n_chosen == choice.n_chosen);
    FUZZ_CHECK(memchr(choice.what, 0, sizeof choice.what));
    FUZZ_CHECK(memchr(choice.remark, 0, sizeof choice.remark));
    fuzz_answered(chosen, n);
}

/* The part as text without a NUL. */
static void text_part(const fuzz_parts *parts, const char *name, char out[NAME_BYTES]) {
    const mn_str s = fuzz_text(parts, name, "");
    snprintf(out, NAME_BYTES, "%.*s", (int)MN_MIN(s.len, (uint64_t)NAME_BYTES - 1), s.ptr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const files[][2] = {
        {"aliases.ini", "aliases.ini"},
        {"main", "hf/models--org--repo/refs/main"},
        {"latest", "ollama/manifests/registry.ollama.ai/library/m/latest"},
        {"settings.json", ".lmstudio/settings.json"},
        {"manifest.json", ".lmstudio/hub/models/org/repo/manifest.json"}};
    char name[NAME_BYTES];
    char what[NAME_BYTES];
    fuzz_parts parts;
    fuzz_split(data, n, "name", &parts);
    for (size_t i = 0; i < MN_COUNT(files); i++) {
        const mn_file *part = fuzz_part(&parts, files[i][0]);
        if (part)
            fuzz_file(files[i][1], (mn_str){(const char *)part->map, part->bytes}, 0);
    }
    text_part(&parts, "name", name);
    text_part(&parts, "what", what);
    check_name(name);
    if (name[0] != '/' && name[0] != '.') /* the files of whoever runs this are not ours */
        check_found(name);
    check_listed();
    check_choice(fuzz_text(&parts, "files", ""), what);
    fuzz_files_remove();
    fuzz_free(&parts);
    return 0;
}
