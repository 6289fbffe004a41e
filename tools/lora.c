/* lora.c -- --lora FILE[:SCALE] of the commands that compute, and --merge of convert: which files,
 * and how strongly. All files of a command line are one adapter: the sum of what each adds. */
#include "app.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define F(field) offsetof(app_flags, field)
const arg_row app_lora_rows[APP_LORA_ROWS] = {
    {"--lora", "FILE[:SCALE]", ARG_FILES, F(lora), 1, 0, NULL,
     "an adapter (LoRA) of the model: a folder of PEFT, its weight file, or GGUF;\nSCALE: a factor "
     "beside its own (default: 1); more than once: all of them at once"},
};

const arg_row app_lora_each_rows[APP_LORA_EACH_ROWS] = {
    {"--lora-each", NULL, ARG_FLAG, F(lora_each), 0, 0, NULL,
     "each --lora is an adapter of its own, and sequences have them in turn"},
    {"--lora-type", "TYPE", ARG_CHOICE, F(lora_type), 0, 0, "f32|f16",
     "of the adapters on the device"},
};

/* Where ":SCALE" begins; NULL: the text is a file's name as it stands. */
static const char *lora_scale_of(const char *text, double *scale) {
    struct stat st;
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    *scale = 1;
    if (!colon || colon == text || !colon[1] || !stat(text, &st))
        return NULL;
    if (colon[1 + strspn(colon + 1, "+-.0123456789eE")])
        return NULL;
    *scale = strtod(colon + 1, &end);
    return *end ? NULL : colon;
}

void lora_free(mn_adapter_source *sources, size_t n) {
    for (size_t i = 0; sources && i < n; i++)
        free((void *)(uintptr_t)sources[i].path);
    free(sources);
}

int lora_sources(const char *flag, const arg_texts *given, mn_adapter_source **out) {
    mn_adapter_source *all = calloc(given->n + 1, sizeof *all);
    if (!all)
        return no_memory();
    for (size_t i = 0; i < given->n; i++) {
        double scale;
        const char *end = lora_scale_of(given->v[i], &scale);
        const size_t n = end ? (size_t)(end - given->v[i]) : strlen(given->v[i]);
        all[i] = (mn_adapter_source){.path = strndup(given->v[i], n), .scale = (float)scale};
        if (!all[i].path) {
            lora_free(all, given->n);
            return no_memory();
        }
    }
    if (given->n > MN_MAX_ADAPTER_FILES) {
        lora_free(all, given->n);
        return complain(EXIT_USAGE, "%s: found %zu files, expected at most %d", flag, given->n,
                        MN_MAX_ADAPTER_FILES);
    }
    *out = all;
    return 0;
}

const char *lora_name(size_t i, char dst[LORA_NAME]) {
    snprintf(dst, LORA_NAME, "lora%zu", i);
    return dst;
}

/* --lora-each: before the first session, whose room is for all of them. */
static mn_status lora_load_each(app *a, const mn_adapter_source *all, size_t n) {
    char name[LORA_NAME];
    mn_status status = MN_OK;
    for (size_t i = 0; i < n && status == MN_OK; i++)
        status = mn_model_load_adapter(a->model, lora_name(i, name), &all[i], 1, &a->err);
    return status;
}

/* --lora-type. */
static mn_status lora_set_room(app *a) {
    const mn_adapter_room room = {.size = sizeof room, .dtype = MN_F16};
    if (!a->flags->lora_type)
        return MN_OK;
    return mn_model_set_adapter_room(a->model, &room, &a->err);
}

int lora_load(app *a, mn_session_params *params) {
    static const char name[] = "lora";
    const arg_texts *given = &a->flags->lora;
    mn_adapter_source *all = NULL;
    mn_adapter_item item = {.size = sizeof item};
    if (!given->n)
        return 0;
    const int code = lora_sources("--lora", given, &all);
    if (code)
        return code;
    mn_status status = MN_OK;
    if (mn_model_adapter(a->model, 0, &item) == MN_END) {
        status = lora_set_room(a);
        if (status == MN_OK && a->flags->lora_each)
            status = lora_load_each(a, all, given->n);
        else if (status == MN_OK)
            status = mn_model_load_adapter(a->model, name, all, (uint32_t)given->n, &a->err);
    }
    lora_free(all, given->n);
    if (!a->flags->lora_each)
        params->adapter = name;
    return status == MN_OK ? 0 : app_fail(a, status);
}
