/* plugin.c -- the SafeTensors loader's entry. */
#include "safetensors.h"
#include <string.h>

static mn_status guess(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *g) {
    (void)host;
    if (model_is_ours(files, n, stride)) {
        g->confidence = 90;
        strcpy(g->why, "model*.safetensors, or the index of its shards");
    }
    if (adapter_is_ours(files, n, stride)) {
        g->confidence = 90;
        strcpy(g->why, "adapter_model.safetensors, an adapter of PEFT");
    }
    return MN_OK;
}

static mn_status open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                      mn_parsed **out, mn_error *err) {
    if (adapter_is_ours(files, n, stride))
        return adapter_open(host, files, n, stride, out, err);
    return model_open(host, files, n, stride, layout_accept, out, err);
}

static const mn_loader_kind kind = {"safetensors", guess,          "no model*.safetensors",
                                    open,          model_patterns, MODEL_PATTERNS};

MN_PLUGIN_NOTE("safetensors", MN_KIND_LOADER, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mn_loader_plugin(host, &kind, err);
}
