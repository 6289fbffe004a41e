/* budget.c -- how much work a grammar may take (grammar.h has the limits and their reasons): for
 * its compilation, for the next token of a text, and for a whole text. Work is counted where loops
 * are whose number of rounds a source decides: expr.c, nfa.c, cut.c and the schemas count into the
 * budget of a build, sets.c, stack.c and mask.c into that of a call. Who finds it used up leaves
 * all as if memory were out, and the call says here what it was. */
#include "grammar/grammar_impl.h"
#include <string.h>

void mn_grammar_budget_begin(mn_grammar_budget *b, const mn_grammar_vocab *v) {
    const uint64_t n = v->all.n;
    *b = (mn_grammar_budget){
        .most_step = MN_GRAMMAR_WORK_STEP + n * MN_GRAMMAR_STEP_NODE,
        .most_request = MN_GRAMMAR_WORK_REQUEST + n * MN_GRAMMAR_REQUEST_NODE,
        .added = MN_GRAMMAR_WORK_TOKEN + n * MN_GRAMMAR_TOKEN_NODE,
    };
    b->request = b->most_request;
    b->low = b->most_request;
    mn_grammar_budget_next(b, 0);
}

void mn_grammar_budget_next(mn_grammar_budget *b, uint32_t n_tokens) {
    b->token = 0;
    b->step = b->most_step;
    b->request = MN_MIN(b->request + n_tokens * b->added, b->most_request);
}

void mn_grammar_state_spend(mn_grammar_state *s, mn_grammar_budget *b) {
    s->budget = b;
}

mn_gbudget mn_gbudget_of(const mn_grammar_state *s) {
    const mn_grammar_budget *b = s->budget;
    const uint64_t alone =
        MN_GRAMMAR_WORK_STEP + (uint64_t)s->g->vocab->all.n * MN_GRAMMAR_STEP_NODE;
    return (mn_gbudget){.left = b ? MN_MIN(b->step, b->request) : alone};
}

void mn_gbudget_charge(const mn_grammar_state *s, const mn_gbudget *b) {
    mn_grammar_budget *to = s->budget;
    if (!to)
        return;
    const uint64_t spent = MN_MIN(to->step, to->request) - b->left;
    to->step -= spent;
    to->request -= spent;
    to->low = MN_MIN(to->low, to->request);
    to->token += spent;
    to->most = MN_MAX(to->most, to->token);
}

mn_status mn_gbudget_fail(const mn_grammar *g, const mn_gbudget *b, mn_error *err) {
    if (!b->over)
        return mn_fail_memory(err, 0);
    return mn_fail(
        err, MN_UNSUPPORTED,
        "rule \"%s\" of the grammar takes too much work to follow: it can be read in too "
        "many ways, or repeats too much",
        mn_gnfa_rule_of(&g->nfa, b->node));
}

void mn_gbuild_begin(mn_gbuild *b, mn_text *warnings, mn_error *err) {
    *b = (mn_gbuild){.err = err, .warnings = warnings};
    b->budget.left = MN_GRAMMAR_WORK_COMPILE;
}

bool mn_gbuild_spend(mn_gbuild *b, uint64_t units) {
    if (mn_gbudget_take(&b->budget, units, 0))
        return true;
    mn_gbuild_refuse(b, "takes too much work to compile", "units of work", MN_GRAMMAR_WORK_COMPILE);
    return false;
}

void mn_gbuild_refuse(mn_gbuild *b, const char *what, const char *units, uint32_t most) {
    const char *owner = b->owner ? b->owner : "";
    const char *place = b->place ? b->place : "the grammar";
    const bool is_rule = !strchr(place, ' '); /* of a source: other names have spaces */
    if (!b->status)
        b->status =
            mn_fail(b->err, MN_UNSUPPORTED,
                    "%s%s%s%s%s: %s (the limit is %u %s); use fewer alternatives and smaller "
                    "numbers of repetitions",
                    owner, *owner ? ": " : "", is_rule ? "grammar, rule \"" : "", place,
                    is_rule ? "\"" : "", what, most, units);
}
