/* plugin.c -- the SafeTensors loader's table and entry. */
#include "safetensors.h"
#include <string.h>

static mn_status loader_guess(void *self, const mn_file *files, uint32_t n, uint32_t stride, mn_guess *out) {
    (void)self;
    mn_guess g = {.size = sizeof g, .format = "safetensors", .why = "no model*.safetensors"};
    if ((n && !files) || stride < MN_UP_TO(mn_file, bytes)) return MN_INVALID;
    if (model_is_ours(files, n, stride))
        g.confidence = 90, strcpy(g.why, "model*.safetensors, or the index of its shards");
    return mn_out(out, &g);
}

static mn_status loader_open(void *self, const mn_file *files, uint32_t n, uint32_t stride, mn_parsed **out,
                             mn_error *err) {
    if ((n && !files) || stride < MN_UP_TO(mn_file, bytes) || !out)
        return mn_fail(err, MN_INVALID, "safetensors: open needs files, their stride and a place for the model");
    *out = NULL;
    return model_open(mn_loader_host(self), files, n, stride, layout_accept, out, err);
}

static const mn_loader table = {.size = sizeof table,
                                .guess = loader_guess,
                                .open = loader_open,
                                .meta_at = mn_parsed_meta_at,
                                .tensor_at = mn_parsed_tensor_at,
                                .close = mn_parsed_free};

MN_PLUGIN_NOTE("safetensors", MN_KIND_LOADER, "")

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mn_loader_plugin(host, "safetensors", &table, err);
}
