/* forms.c -- the latest compiled forms (forms.h). The thread that reads requests owns them: what a
 * form costs to compile delays no step. A constraint that is replaced lives on in the requests that
 * have it. */
#include "serve/forms.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* That of this source; else the one that was not used for the longest time. */
static kept_form *forms_find(forms *f, uint32_t kind, uint32_t flags, mn_str source) {
    kept_form *oldest = &f->kept[0];
    for (size_t i = 0; i < FORMS_KEPT; i++) {
        kept_form *k = &f->kept[i];
        if (k->kind == kind && k->flags == flags && k->n_source == source.len &&
            !memcmp(k->source, source.ptr, (size_t)source.len))
            return k;
        if (k->used < oldest->used)
            oldest = k;
    }
    return oldest;
}

static void drop(kept_form *k) {
    mn_constraint_free(k->constraint);
    free(k->source);
    *k = (kept_form){0};
}

mn_status forms_get(forms *f, mn_model *m, uint32_t kind, uint32_t flags, mn_str source,
                    mn_constraint **out, mn_error *err) {
    *out = NULL;
    if (!kind)
        return MN_OK;
    kept_form *k = forms_find(f, kind, flags, source);
    const int is_new = k->kind != kind || k->flags != flags || k->n_source != source.len ||
                       memcmp(k->source, source.ptr, (size_t)source.len) != 0;
    if (is_new) {
        drop(k);
        const mn_status st = form_compile(m, kind, flags, source, &k->constraint, err);
        if (st)
            return st;
        k->source = malloc((size_t)source.len + 1);
        if (!k->source) {
            drop(k);
            snprintf(err->msg, sizeof err->msg, "out of memory");
            return MN_OUT_OF_MEMORY;
        }
        memcpy(k->source, source.ptr, (size_t)source.len);
        k->n_source = source.len;
        k->kind = kind;
        k->flags = flags;
    }
    k->used = ++f->n_uses;
    *out = k->constraint;
    return MN_OK;
}
