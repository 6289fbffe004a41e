/* plugin.c -- the GGUF loader's entry: which files it wants, and how sure it is that a folder is
 * its. What the entry returns is loaders/common's; the files are read in model.c. */
#include "gguf.h"
#include <string.h>

/* Then the path named a folder of another format: a GGUF file in it, which may be of any type, or
 * of another model, is named by itself where it is meant. */
static bool beside_checkpoint(const mn_file *files, uint32_t n, uint32_t stride) {
    bool config = false;
    bool weights = false;
    const mn_file *named = mnl_file_named(files, n, stride);
    if (named && gguf_is_ours(named))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const mn_str name = mnl_file_at(files, i, stride)->name;
        config |= mn_str_eq(name, mn_str_of("config.json"));
        weights |= mn_str_begins(name, "model") && mn_str_ends(name, ".safetensors");
    }
    return config && weights;
}

/* The magic number decides; a file that is only named .gguf is claimed so that open can say what
 * is wrong with it. */
static mn_status guess(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *g) {
    (void)host;
    for (uint32_t i = 0; i < n && g->confidence < 100; i++) {
        const mn_file *f = mnl_file_at(files, i, stride);
        if (gguf_has_magic(f)) {
            g->confidence = 100;
            strcpy(g->why, "a file begins with GGUF");
        } else if (gguf_is_ours(f)) {
            g->confidence = 60;
            strcpy(g->why, "a file is named .gguf, but does not begin with GGUF");
        }
    }
    if (g->confidence && beside_checkpoint(files, n, stride)) {
        g->confidence = 50;
        strcpy(g->why, "a GGUF file beside config.json and model*.safetensors");
    }
    return MN_OK;
}

/* A file has its tokeniser, chat template and defaults as keys. */
static const mn_file_pattern patterns[] = {
    MN_FILE_PATTERN(MODEL, "*.gguf", MN_PATTERN_WHOLE),
    MN_FILE_PATTERN(SHARD, "*-#-of-#.gguf", MN_PATTERN_WHOLE),
};

static const mn_loader_kind kind = {"gguf",    guess,    "no GGUF file",
                                    gguf_open, patterns, MN_COUNT(patterns)};

MN_PLUGIN_NOTE("gguf", MN_KIND_LOADER, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mn_loader_plugin(host, &kind, err);
}
