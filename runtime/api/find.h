/* find.h -- what of a runtime says where models are and which files make them. */
#ifndef MN_API_FIND_H
#define MN_API_FIND_H
#include "opened/opened.h"

/* The loaders of a runtime; *out: mn_free by the caller. */
mn_status mn_loader_refs(const mn_runtime *rt, mn_loader_ref **out, uint32_t *n, mn_error *err);
/* model.c: where the demo model is; *out: mn_free by the caller. */
mn_status mn_model_demo_path(char **out, mn_error *err);
#endif
