/* forms.h -- compiled forms of an engine process, the latest ones, so that requests with the same
 * form share it and the masks that it has made. One thread. */
#ifndef MINERVA_SERVE_FORMS_H
#define MINERVA_SERVE_FORMS_H
#include "serve/form.h"

enum { FORMS_KEPT = 8 };
typedef struct {
    uint32_t kind, flags; /* kind 0: none */
    char *source;
    uint64_t n_source;
    uint64_t used; /* the count of uses when it was used last */
    mn_constraint *constraint;
} kept_form;
typedef struct {
    kept_form kept[FORMS_KEPT];
    uint64_t n_uses;
} forms;

/* *out: the constraint of a request, valid until the next call; NULL for kind 0. */
mn_status forms_get(forms *f, mn_model *m, uint32_t kind, uint32_t flags, mn_str source,
                    mn_constraint **out, mn_error *err);
#endif
