/* forms.c -- how a model writes thinking and calls, by the source of its chat template and by its
 * vocabulary: facts of mn_model, set when it is opened and when its template is replaced. */
#include "opened/opened.h"
#include "text/chat/think_tags.h"

void mn_model_take_forms(mn_model *m, mn_str source) {
    m->spells_thinking |= mn_think_tags_in(source);
    const mn_call_family *calls = mn_call_family_in(source);
    if (!calls)
        return;
    m->calls = calls;
    m->call_style = mn_call_style_of(calls, source);
}

void mn_model_default_forms(mn_model *m) {
    if (m->calls || !m->tokenizer)
        return;
    m->calls = mn_call_family_of(m->tokenizer);
    m->call_style = mn_call_style_of(m->calls, (mn_str){"", 0});
}
