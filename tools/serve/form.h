/* form.h -- the form that a request wants its answers to have: response_format, vLLM's fields. */
#ifndef MINERVA_SERVE_FORM_H
#define MINERVA_SERVE_FORM_H
#include "serve/json.h"
#include <minerva/minerva.h>

#define FORM_MAX_SOURCE (256u << 10) /* bytes of a schema, regular expression or grammar */

/* kind 0: none. The engine compiles it. */
typedef struct {
    uint32_t kind;  /* MN_CONSTRAINT_* */
    uint32_t flags; /* MN_CONSTRAINT_CALLS_ONLY, MN_CONSTRAINT_ONE_CALL */
    mn_str source;  /* of choices: the texts with NULs between them */
    mn_text text;   /* what source points into */
    const char *param;
    int one_call; /* parallel_tool_calls: false */
} ask_form;

/* The fields of a request. 0: the error is set. */
int form_read(const cJSON *body, ask_form *out, json_error *e);
/* tools, tool_choice and parallel_tool_calls, after form_read: a call that is forced replaces what
 * response_format wants, strict tools alone give way to it. *has_tools: the request has tools that
 * the model may call. 0: the error is set. */
int form_calls(const cJSON *body, ask_form *out, int *has_tools, json_error *e);
void form_free(ask_form *f);
/* The constraint of kind, flags and source as above; made for each call. */
mn_status form_compile(mn_model *m, uint32_t kind, uint32_t flags, mn_str source,
                       mn_constraint **out, mn_error *err);
#endif
