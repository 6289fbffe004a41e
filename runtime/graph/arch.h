/* arch.h -- the builders that arch.c lists. Each appends its layers to g and returns g->status. */
#ifndef MN_ARCH_H
#define MN_ARCH_H
#include "graph/graph.h"

mn_status mn_arch_llama(mn_model_graph *g);
#endif
