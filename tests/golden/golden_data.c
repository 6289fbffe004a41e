/* golden_data.c -- reads what another implementation computed: golden.safetensors of a fixture
 * (logits F32, greedy and prompt I32), golden.json of the storyteller, and lists of models that
 * scripts have made. The files are the tests' own: one that is wrong ends the program. */
#include "golden.h"
#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void give_up(const char *what, const char *on) {
    printf("Bail out! %s: %s\n", what, on);
    exit(1);
}

void *get_memory(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        give_up("out of memory", "golden");
    return p;
}

static const char *root_of(const char *variable) {
    const char *root = getenv(variable);
    if (!root)
        give_up("the environment lacks a folder", variable);
    return root;
}

static void join(char *out, const char *root, const char *a, const char *b) {
    const int n = snprintf(out, MAX_PATH, "%s/%s%s%s", root, a, *b ? "/" : "", b);
    if (n < 0 || n >= MAX_PATH)
        give_up("the path is too long", a);
}

void data_path(char *out, const char *a, const char *b) {
    join(out, root_of("MINERVA_TEST_DATA"), a, b);
}

void storyteller_path(char *out, const char *file) {
    join(out, root_of("MINERVA_SOURCE_ROOT"), "models/storyteller", file);
}

/* The whole file with a NUL behind it; NULL if it cannot be opened. */
static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) || ftell(f) < 0)
        give_up("cannot be read", path);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = get_memory(*n + 1);
    if (fread(data, 1, *n, f) != *n)
        give_up("cannot be read", path);
    fclose(f);
    return data;
}

/* ---- SafeTensors ----------------------------------------------------------------------------- */

/* The header of a SafeTensors file that lies at data; *begin: where its tensors begin. */
static cJSON *read_header(const char *data, size_t n, const char *path, size_t *begin) {
    uint64_t bytes = 0;
    if (n < sizeof bytes)
        give_up("is no SafeTensors file", path);
    memcpy(&bytes, data, sizeof bytes); // little-endian, as every host that this runs on
    cJSON *head = bytes < n - 8 ? cJSON_ParseWithLength(data + 8, (size_t)bytes) : NULL;
    if (!head)
        give_up("is no SafeTensors file", path);
    *begin = 8 + (size_t)bytes;
    return head;
}

/* A copy of a tensor with elements of 4 bytes; shape: its two dimensions, or one and 1. */
static void *read_tensor(const char *path, const char *data, size_t n, const char *name,
                         const char *dtype, uint32_t shape[2]) {
    size_t begin = 0;
    cJSON *head = read_header(data, n, path, &begin);
    const cJSON *t = cJSON_GetObjectItem(head, name), *dims = cJSON_GetObjectItem(t, "shape");
    const cJSON *offsets = cJSON_GetObjectItem(t, "data_offsets");
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(t, "dtype"));
    if (!kind || strcmp(kind, dtype) || cJSON_GetArraySize(offsets) != 2 ||
        !cJSON_GetArraySize(dims))
        give_up(name, path);
    shape[0] = (uint32_t)cJSON_GetArrayItem(dims, 0)->valuedouble;
    shape[1] =
        cJSON_GetArraySize(dims) > 1 ? (uint32_t)cJSON_GetArrayItem(dims, 1)->valuedouble : 1;
    const size_t from = (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
    const size_t to = (size_t)cJSON_GetArrayItem(offsets, 1)->valuedouble;
    const size_t bytes = (size_t)shape[0] * shape[1] * 4;
    if (to < from || to - from != bytes || begin + to > n)
        give_up("has a tensor whose bytes are not those of its shape", path);
    void *copy = get_memory(bytes);
    memcpy(copy, data + begin + from, bytes);
    cJSON_Delete(head);
    return copy;
}

static void fixture_path(char *out, const char *name, const char *file) {
    char below[512];
    snprintf(below, sizeof below, "fixtures/%s", name);
    data_path(out, below, file);
}

bool read_fixture(const char *name, fixture *f) {
    char path[MAX_PATH];
    size_t n = 0;
    uint32_t logits[2], prompt[2], greedy[2];
    fixture_path(path, name, "golden.safetensors");
    char *data = read_file(path, &n);
    if (!data)
        return false;
    f->logits = read_tensor(path, data, n, "logits", "F32", logits);
    f->prompt = read_tensor(path, data, n, "prompt", "I32", prompt);
    f->greedy = read_tensor(path, data, n, "greedy", "I32", greedy);
    if (logits[0] != prompt[0])
        give_up("has another number of logits than of ids", path);
    f->n_prompt = prompt[0];
    f->n_greedy = greedy[0];
    f->n_vocab = logits[1];
    free(data);
    return true;
}

float *read_logits(const char *below, uint32_t *n, uint32_t *n_vocab) {
    char path[MAX_PATH];
    size_t bytes = 0;
    uint32_t shape[2];
    data_path(path, below, "golden.safetensors");
    char *data = read_file(path, &bytes);
    if (!data)
        give_up("cannot be read", path);
    float *logits = read_tensor(path, data, bytes, "logits", "F32", shape);
    *n = shape[0];
    *n_vocab = shape[1];
    free(data);
    return logits;
}

void free_fixture(fixture *f) {
    free(f->logits);
    free(f->prompt);
    free(f->greedy);
}

bool read_prompts(const char *name, const char *file, fixture_prompts *p) {
    char path[MAX_PATH];
    size_t n = 0;
    uint32_t ids[2], lengths[2], logits[2], sum = 0;
    fixture_path(path, name, file);
    char *data = read_file(path, &n);
    if (!data)
        return false;
    p->ids = read_tensor(path, data, n, "ids", "I32", ids);
    p->lengths = read_tensor(path, data, n, "lengths", "I32", lengths);
    p->logits = read_tensor(path, data, n, "logits", "F32", logits);
    p->n = lengths[0];
    p->n_vocab = logits[1];
    for (uint32_t i = 0; i < p->n; i++)
        sum += (uint32_t)p->lengths[i];
    if (logits[0] != p->n || sum != ids[0])
        give_up("has other lengths than prompts", path);
    free(data);
    return true;
}

void free_prompts(fixture_prompts *p) {
    free(p->ids);
    free(p->lengths);
    free(p->logits);
}

static int is_weights(const struct dirent *e) {
    const size_t n = strlen(e->d_name);
    return !strncmp(e->d_name, "model", 5) && n > 12 && !strcmp(e->d_name + n - 12, ".safetensors");
}

bool fixture_is_bf16(const char *name) {
    char folder[MAX_PATH], path[MAX_PATH];
    struct dirent **found = NULL;
    fixture_path(folder, name, "");
    const int n_files = scandir(folder, &found, is_weights, alphasort);
    if (n_files < 1)
        return false;
    size_t n = 0, begin = 0;
    fixture_path(path, name, found[0]->d_name);
    char *data = read_file(path, &n);
    if (!data)
        give_up("cannot be read", path);
    cJSON *head = read_header(data, n, path, &begin);
    bool is_bf16 = false;
    const cJSON *t = NULL;
    cJSON_ArrayForEach(t, head) {
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(t, "dtype"));
        is_bf16 |= kind && !strcmp(kind, "BF16");
    }
    cJSON_Delete(head);
    free(data);
    for (int i = 0; i < n_files; i++)
        free(found[i]);
    free(found);
    return is_bf16;
}

static int is_folder(const struct dirent *e) {
    char path[MAX_PATH];
    if (e->d_name[0] == '.' || strlen(e->d_name) >= 64)
        return 0;
    fixture_path(path, e->d_name, "golden.safetensors");
    return access(path, R_OK) == 0;
}

uint32_t list_fixtures(char names[MAX_FIXTURES][64]) {
    char folder[MAX_PATH];
    struct dirent **found = NULL;
    data_path(folder, "fixtures", "");
    const int n = scandir(folder, &found, is_folder, alphasort);
    if (n < 1 || n > MAX_FIXTURES)
        give_up("has no fixtures, or too many", folder);
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%.63s", found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return (uint32_t)n;
}

/* ---- golden.json ----------------------------------------------------------------------------- */

static int32_t *read_ids(const cJSON *entry, const char *key, uint32_t *n) {
    const cJSON *list = cJSON_GetObjectItem(entry, key), *id = NULL;
    int32_t *ids = get_memory((size_t)cJSON_GetArraySize(list) * sizeof *ids);
    cJSON_ArrayForEach(id, list) ids[(*n)++] = (int32_t)id->valuedouble;
    if (!*n)
        give_up("golden.json has an entry without ids", key);
    return ids;
}

static char *read_text(const cJSON *entry, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(entry, key));
    return text ? strcpy(get_memory(strlen(text) + 1), text) : NULL;
}

uint32_t read_stories(story out[MAX_STORIES]) {
    char path[MAX_PATH];
    size_t bytes = 0;
    uint32_t n = 0;
    storyteller_path(path, "golden.json");
    char *data = read_file(path, &bytes);
    cJSON *list = data ? cJSON_ParseWithLength(data, bytes) : NULL;
    const cJSON *entry = NULL;
    if (!cJSON_GetArraySize(list) || cJSON_GetArraySize(list) > MAX_STORIES)
        give_up("has no entries, or too many", path);
    cJSON_ArrayForEach(entry, list) {
        story *s = &out[n++];
        *s = (story){.prompt = read_text(entry, "prompt"), .text = read_text(entry, "text")};
        s->prompt_ids = read_ids(entry, "prompt_ids", &s->n_prompt);
        s->greedy_ids = read_ids(entry, "greedy_ids", &s->n_greedy);
        if (!s->prompt || s->n_greedy > MAX_NEW)
            give_up("has an entry without a prompt, or with too many ids", path);
    }
    cJSON_Delete(list);
    free(data);
    return n;
}

void free_stories(story *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        free(s[i].prompt);
        free(s[i].text);
        free(s[i].prompt_ids);
        free(s[i].greedy_ids);
    }
}

/* ---- lists of scripts ------------------------------------------------------------------------ */

listed *read_list(const char *path, uint32_t *n) {
    size_t bytes = 0;
    char *data = read_file(path, &bytes);
    cJSON *list = data ? cJSON_ParseWithLength(data, bytes) : NULL;
    const cJSON *entry = NULL;
    if (!cJSON_GetArraySize(list))
        give_up("is no list of models", path);
    listed *all = get_memory((size_t)cJSON_GetArraySize(list) * sizeof *all);
    *n = 0;
    cJSON_ArrayForEach(entry, list) {
        listed *l = &all[(*n)++];
        *l = (listed){.what = read_text(entry, "what"),
                      .model = read_text(entry, "model"),
                      .fixture = read_text(entry, "fixture"),
                      .beside = read_text(entry, "beside"),
                      .limit = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "limit"))};
        if (!l->what || !l->model || !l->fixture == !l->beside)
            give_up("has an entry without a model, or without what it is compared with", path);
        if (l->beside)
            l->ids = read_ids(entry, "ids", &l->n_ids);
    }
    cJSON_Delete(list);
    free(data);
    return all;
}

void free_list(listed *l, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        free(l[i].what);
        free(l[i].model);
        free(l[i].fixture);
        free(l[i].beside);
        free(l[i].ids);
    }
    free(l);
}
