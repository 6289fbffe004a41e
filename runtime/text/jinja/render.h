/* render.h -- rendering with variables made by the caller, for the parts of runtime/text that
 * have them in memory. */
#ifndef MN_JINJA_RENDER_H
#define MN_JINJA_RENDER_H
#include "text/jinja/value.h"

/* Adds the template's variables to vars; false = failed through c. What it points to must live
 * until rendering ends. */
typedef bool (*mn_jvars_fn)(mn_jctx *c, mn_jdict *vars, const void *arg);
mn_status mn_jinja_render_with(const mn_jinja *tmpl, mn_jvars_fn fill, const void *arg, int64_t now,
                               mn_text *out, mn_text *marks, mn_error *err);

#endif
