/* plugin.c -- the GGUF loader's table and entry. */
#include "gguf.h"
#include <string.h>

static mn_status loader_guess(void *self, const mn_file *files, uint32_t n, uint32_t stride, mn_guess *out) {
    (void)self;
    mn_guess g = {.size = sizeof g, .format = "gguf", .why = "no GGUF file"};
    if ((n && !files) || stride < MN_UP_TO(mn_file, bytes)) return MN_INVALID;
    for (uint32_t i = 0; i < n && g.confidence < 100; i++) {
        const mn_file *f = mn_file_at(files, i, stride);
        if (gguf_has_magic(f))
            g.confidence = 100, strcpy(g.why, "a file begins with GGUF");
        else if (gguf_is_ours(f))
            g.confidence = 60, strcpy(g.why, "a file is named .gguf, but does not begin with GGUF");
    }
    return mn_out(out, &g);
}

static mn_status loader_open(void *self, const mn_file *files, uint32_t n, uint32_t stride, mn_parsed **out,
                             mn_error *err) {
    if ((n && !files) || stride < MN_UP_TO(mn_file, bytes) || !out)
        return mn_fail(err, MN_INVALID, "gguf: open needs files, their stride and a place for the model");
    *out = NULL;
    return gguf_open(mn_loader_host(self), files, n, stride, out, err);
}

static const mn_loader table = {.size = sizeof table,
                                .guess = loader_guess,
                                .open = loader_open,
                                .meta_at = mn_parsed_meta_at,
                                .tensor_at = mn_parsed_tensor_at,
                                .close = mn_parsed_free};

MN_PLUGIN_NOTE("gguf", MN_KIND_LOADER, "")

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mn_loader_plugin(host, "gguf", &table, err);
}
