/* pattern_loader.h -- a loader that states patterns of files and reads nothing, for what chooses
 * files by them: test_hub.c and the fuzz target names. pattern_loader_read fills patterns, ref and
 * how. */
#ifndef PATTERN_LOADER_H
#define PATTERN_LOADER_H
#include "hub/names.h"

typedef struct {
    uint32_t kind;
    const char *text;
    uint32_t flags;
} row;
static const row rows[] = {{MN_PATTERN_MODEL, "*.gguf", MN_PATTERN_WHOLE},
                           {MN_PATTERN_SHARD, "*-#-of-#.gguf", MN_PATTERN_WHOLE},
                           {MN_PATTERN_MODEL, "model.safetensors", 0},
                           {MN_PATTERN_SHARD, "model*-#-of-#.safetensors", 0},
                           {MN_PATTERN_FOLDER, "config.json", 0},
                           {MN_PATTERN_FOLDER, "model.safetensors.index.json", 0},
                           {MN_PATTERN_COMPANION, "*.safetensors", 0}};
static mn_status state_rows(void *self, uint32_t i, mn_file_pattern *out) {
    (void)self;
    if (i >= MN_COUNT(rows))
        return MN_END;
    out->kind = rows[i].kind;
    out->text = mn_str_of(rows[i].text);
    out->flags = rows[i].flags;
    return MN_OK;
}
static const mn_loader loader = {.size = sizeof loader, .patterns = state_rows};
static mn_patterns patterns;
static mn_loader_ref ref;
static mn_choose_how how;

/* memory: bytes that a model may take. */
static inline mn_status pattern_loader_read(uint64_t memory) {
    const mn_status st = mn_patterns_read(&loader, NULL, &patterns, NULL);
    ref = (mn_loader_ref){.loader = &loader, .id = {"stub", 4}, .patterns = &patterns};
    how = (mn_choose_how){&ref, 1, memory};
    return st;
}
#endif
