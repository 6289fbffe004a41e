/* module.c -- a folder of sentence-transformers' module Dense: config.json without a model_type,
 * and one matrix. It is opened like a model, so that weights in folders of their own are read by
 * the same code; the architecture "dense" has no graph: the host applies it to pooled texts. */
#include "families.h"
#include <stdio.h>
#include <string.h>

bool module_is_dense(const cJSON *root) {
    return !json_get(root, "model_type") && json_get(root, "in_features") &&
           json_get(root, "out_features");
}

/* "torch.nn.modules.activation.Tanh" as "tanh". */
static void read_activation(config_reader *c) {
    static const char *const known[][2] = {{"Identity", "none"},
                                           {"Tanh", "tanh"},
                                           {"GELU", "gelu"},
                                           {"ReLU", "relu"},
                                           {"SiLU", "silu"}};
    const char *path =
        config_str(c, c->root, "", "activation_function", "torch.nn.modules.activation.Tanh");
    const char *dot = strrchr(path, '.');
    const char *name = dot ? dot + 1 : path;
    for (size_t i = 0; i < MN_COUNT(known); i++)
        if (!strncmp(path, "torch.", 6) && !strcmp(name, known[i][0])) {
            config_put_str(c, "minerva.dense.activation", "", "activation_function", known[i][1]);
            return;
        }
    if (!c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'activation_function' is \"%.80s\", expected Identity, "
                             "Tanh, GELU, ReLU or SiLU of torch.nn",
                             MN_STR_ARG(c->file->name), path);
}

/* A module on other inputs, or with another sum, is another one. */
static void check_plain(config_reader *c) {
    static const char *const ends[] = {"module_input_name", "module_output_name"};
    for (size_t i = 0; i < MN_COUNT(ends); i++) {
        const char *name = config_str(c, c->root, "", ends[i], "sentence_embedding");
        if (!c->status && strcmp(name, "sentence_embedding"))
            c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                                 "%.*s: key '%s' is \"%.40s\", expected \"sentence_embedding\"",
                                 MN_STR_ARG(c->file->name), ends[i], name);
    }
    if (config_bool(c, "use_residual", false) && !c->status)
        c->status =
            mnl_fail(c->err, MN_UNSUPPORTED,
                     "%.*s: key 'use_residual' is true, which is unsupported; expected false",
                     MN_STR_ARG(c->file->name));
}

/* The numbers of config.json are those of the matrix. */
static void check_matrix(config_reader *c) {
    const int64_t n_in = config_int(c, c->root, "", "in_features", 1, 1 << 24, NULL);
    const int64_t n_out = config_int(c, c->root, "", "out_features", 1, 1 << 24, NULL);
    const mn_parsed_tensor *t = layout_find(c->parsed, mn_str_of("linear"), ".weight");
    if (c->status)
        return;
    if (!t)
        c->status = mnl_fail(c->err, MN_BAD_FILE, "tensor linear.weight is missing");
    else if (t->n_dim != 2 || t->dim[0] != n_out || t->dim[1] != n_in)
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: tensor linear.weight is no matrix of 'out_features' %lld x "
                             "'in_features' %lld",
                             MN_STR_ARG(t->file->name), (long long)n_out, (long long)n_in);
}

mn_status module_read(mn_parsed *p, const mn_file *f, cJSON *root, mn_error *err) {
    config_reader c = {.parsed = p, .file = f, .err = err, .root = root, .arch = "dense"};
    config_put_str(&c, "general.architecture", "", "in_features", c.arch);
    read_activation(&c);
    check_plain(&c);
    check_matrix(&c);
    for (uint64_t i = 0; i < p->n_tensors; i++)
        p->tensors[i].name = p->tensors[i].native;
    return c.status ? c.status : mn_parsed_check_names(p, err);
}
