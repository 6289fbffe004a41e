/* arch.c -- the builder of each architecture; its row is in runtime/model/archs.def, where the
 * facts beside it are for hparams.c. */
#include "graph/arch.h"
#include <string.h>

#define MN_ARCH(name, builder, ...) {name, mn_arch_##builder},
static const mn_arch archs[] = {
#include "model/archs.def"
};
#undef MN_ARCH

const mn_arch *mn_arch_find(const char *name) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        if (!strcmp(archs[i].arch, name))
            return &archs[i];
    return NULL;
}

void mn_arch_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", archs[i].arch);
}
