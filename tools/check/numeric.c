/* numeric.c -- what the plugin computes, compared with the plugin `reference` in the same
 * process. A trial is one op, weight type, shape and precision class: a program on each side,
 * and steps with several numbers of rows, with NaN in single rows, after a step on NaN, and in a
 * second context. The plans and cases of a trial live in numeric_compare; numeric_rules.c
 * chooses the trials. */
#include "numeric.h"
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the two sides --------------------------------------------------------------------------- */
/* The entry of the plugin `reference`; NULL = not installed. */
static mn_entry_fn reference_entry(const check *c) {
    mn_entry_fn entry = NULL;
    void *so = NULL;
    if (c->reference)
        so = dlopen(c->reference, RTLD_NOW | RTLD_LOCAL);
    if (so)
        *(void **)&entry = dlsym(so, MN_ENTRY_NAME);
    return entry;
}

/* Device and queue of the plugin `reference`. 1, or 0: it cannot be used. */
static int open_device(check_plugin *o, check_host *host, mn_entry_fn entry) {
    check_host_init(host);
    o->host = host;
    o->err = check_error();
    if (entry)
        o->api = entry(&host->api, &o->err);
    if (o->api)
        o->be = o->api->query(o->api->self, MN_BACKEND_ID);
    if (!o->be || mn_usual_open(o->be, o->api->self, 0, &o->dev, &o->err))
        return 0;
    return !mn_usual_queue(o->be, o->dev, &o->queue, &o->err);
}

static int open_oracle(numeric *n) {
    check_plugin *o = &n->oracle;
    if (open_device(o, &n->hosts[1], reference_entry(n->c)))
        return 1;
    check_skip(n->c,
               "the plugin `reference`, with which numbers are compared, is not installed%s%s",
               o->err.msg[0] ? ": " : "", o->err.msg);
    return 0;
}

static case_on side(const check_plugin *p) {
    mn_device_info info = {.size = sizeof info};
    if (p->be->device_info(p->api->self, 0, &info, NULL))
        info.align = 0;
    return (case_on){.be = p->be, .dev = p->dev, .queue = p->queue, .align = info.align};
}

int numeric_open(check *c, numeric *n) {
    memset(n, 0, sizeof *n);
    n->c = c;
    check_host_init(&n->hosts[0]);
    if (!check_open_device(c, &n->plugin, &n->hosts[0]) || !open_oracle(n))
        return 0;
    n->here = side(&n->plugin);
    n->here.self = n->plugin.api->self;
    n->here.no = &n->plugin.no;
    n->there = side(&n->oracle);
    return 1;
}

void numeric_close(numeric *n) {
    for (size_t i = 0; i < sizeof n->answers / sizeof *n->answers; i++)
        case_free(n->answers[i].results);
    check_close(n->c, &n->plugin);
    if (n->oracle.api)
        check_close(n->c, &n->oracle);
}

/* ---- one comparison -------------------------------------------------------------------------- */
typedef struct {
    numeric *n;
    uint32_t op, dtype, precision;
    op_shape mine, theirs; /* they differ in the tokens of a page */
    case_plan *plan, *oracle;
    op_case *first, *first_oracle; /* hold the weights */
    uint32_t grain;                /* mn_estimate.row_grain */
    char text[400];                /* for messages: the op and its shape */
} trial;

/* Appends to t->text, as far as there is room. */
static void numeric_add_text(trial *t, const char *fmt, ...) MN_PRINTF(2, 3);
static void numeric_add_text(trial *t, const char *fmt, ...) {
    const size_t n = strlen(t->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->text + n, sizeof t->text - n, fmt, args);
    va_end(args);
}

/* A number of the shape, if it is not 0. */
static void add_number(trial *t, const char *before, int64_t n, const char *after) {
    if (n)
        numeric_add_text(t, "%s%lld%s", before, (long long)n, after);
}

/* "LINEAR Q8_0, class exact, 5 of at most 37 rows, k 96, n 37, variant 1" */
static const char *numeric_text_of(trial *t) {
    const op_shape *s = &t->mine;
    t->text[0] = 0;
    numeric_add_text(t, "%s", case_op_name(t->op));
    if (t->dtype)
        numeric_add_text(t, " %s", mn_dtype_name(t->dtype));
    numeric_add_text(t, ", class %s", check_class_name(t->precision));
    if (s->kv_dtype)
        numeric_add_text(t, ", KV %s", mn_dtype_name(s->kv_dtype));
    if (s->v_dtype && s->v_dtype != s->kv_dtype)
        numeric_add_text(t, " and %s", mn_dtype_name(s->v_dtype));
    if (s->kv_free)
        numeric_add_text(t, ", KV of the class");
    add_number(t, ", ", s->live ? s->live : s->rows, "");
    add_number(t, " of at most ", s->rows, " rows");
    add_number(t, ", k ", s->k, "");
    add_number(t, ", n ", s->n, "");
    add_number(t, ", ", s->n_head, " heads");
    add_number(t, " on ", s->n_head_kv, "");
    add_number(t, " of ", s->dim, "");
    add_number(t, " and ", s->dim_v, "");
    add_number(t, ", ", s->n_rot, " rotated");
    add_number(t, ", ", s->past, " before");
    add_number(t, ", ", s->n_seqs, " sequences");
    add_number(t, ", ", s->n_used, "");
    add_number(t, " of ", s->n_expert, " experts");
    add_number(t, ", step ", s->phase, "");
    numeric_add_text(t, ", variant %lld", (long long)s->variant);
    if (s->spoil)
        numeric_add_text(t, ", rows with NaN");
    return t->text;
}

static void broken(trial *t, const char *what, mn_status st, const mn_error *err) {
    check_status(t->n->c, st, err, "%s: %s", numeric_text_of(t), what);
}

/* How many tokens a page of this side has; false: it has no cache of this type. */
static bool page_tokens(const case_on *on, const trial *t, op_shape *s) {
    op_case *c = case_random(t->op, t->dtype, s, 1);
    mn_memory_layout l = {.size = sizeof l};
    mn_status st = MN_OUT_OF_MEMORY;
    if (c && !c->failed) {
        const mn_compile ask = case_question(c, t->precision);
        st = on->be->memory_layout(on->dev, &ask, 0, &l, NULL);
    }
    case_free(c);
    s->page_tokens = l.page_tokens;
    return !st && l.page_tokens;
}

int64_t numeric_bucket(int64_t n, int64_t max, uint32_t grain) {
    int64_t b = 1;
    if (grain && (grain == 1 || n >= (int64_t)grain)) {
        b = (n + grain - 1) / grain * grain;
    } else {
        while (b < n)
            b *= 2;
    }
    if (b < max)
        return b;
    return max;
}

/* A case of the trial, at the values of a step with s->live rows. */
static op_case *numeric_make(const trial *t, const op_shape *s) {
    op_case *c = case_random(t->op, t->dtype, s, 42 + t->op);
    const int64_t live = s->live ? s->live : s->rows;
    if (!c)
        return NULL;
    c->value[0] = numeric_bucket(live, c->sym[0].max, t->grain);
    if (t->op == MN_OP_GATHER_ROWS) {
        const int64_t max = c->sym[1].max;
        c->value[1] = numeric_bucket(live < max ? live : max, max, t->grain);
    }
    return c;
}

/* a: results of the plugin, b: of `reference`. */
static void judge_results(trial *t, const op_case *a, const op_case *b) {
    check *c = t->n->c;
    const bool exact = t->precision == MN_PRECISION_EXACT;
    const double most = check_class_limit(t->precision);
    const char *where = "";
    const double e = case_differ(a, b, &where);
    CHECK(c, e <= most,
          "%s: '%s' differs from reference's: found relative L2 %g, expected at most %g%s",
          numeric_text_of(t), where, e, most, isinf(e) ? " (ids and states: equal, no NaN)" : "");
    if (!t->mine.spoil)
        return;
    const char *hides = case_hides_nan(a, b, !exact);
    CHECK(
        c, !hides,
        "%s: '%s' of a row that holds NaN: found a number where reference's is NaN, expected NaN%s",
        numeric_text_of(t), hides, exact ? "" : " or an infinity");
}

/* Whether the oracle's step at t->theirs is this one. Numbers that a shape lacks are 0 in both. */
static bool is_answer(const trial *t, const numeric_answer *a) {
    if (a->op != t->op || a->dtype != t->dtype || a->grain != t->grain)
        return false;
    return a->results && !memcmp(&a->shape, &t->theirs, sizeof a->shape);
}

/* The oracle's results at t->theirs: those of an earlier class, or made now, in place of the
 * oldest. NULL: the rule is over. */
static const op_case *numeric_answer_of(trial *t) {
    enum { ROOM = sizeof t->n->answers / sizeof *t->n->answers };
    numeric *n = t->n;
    mn_error err = check_error();
    for (int i = 0; i < ROOM; i++)
        if (is_answer(t, &n->answers[i]))
            return n->answers[i].results;
    op_case *c = numeric_make(t, &t->theirs);
    mn_status st = MN_OUT_OF_MEMORY;
    if (c)
        st = case_step(t->oracle, c, &err);
    if (st) {
        check_skip(n->c, "the plugin `reference` failed: %s", err.msg);
        case_free(c);
        return NULL;
    }
    numeric_answer *to = &n->answers[n->n_answers++ % ROOM];
    case_free(to->results);
    *to = (numeric_answer){t->op, t->dtype, t->grain, t->theirs, c};
    return c;
}

/* One step of a phase on both sides. keep: receives the results of the plugin, for the caller; may
 * be NULL. */
static void step_phase(trial *t, uint32_t phase, op_case **keep) {
    check *c = t->n->c;
    mn_error err = check_error();
    t->mine.phase = phase;
    t->theirs.phase = phase;
    op_case *a = numeric_make(t, &t->mine);
    const op_case *b = numeric_answer_of(t);
    mn_status st = MN_OUT_OF_MEMORY;
    if (a && b)
        st = case_step(t->plan, a, &err);
    if (b)
        broken(t, "execute", st, &err);
    if (case_breach(t->plan)[0])
        check_fail(c, "%s: %s", numeric_text_of(t), case_breach(t->plan));
    if (!check_over(c))
        judge_results(t, a, b);
    t->n->n_cases++;
    if (keep)
        *keep = a;
    else
        case_free(a);
}

/* Of operations with a state a step goes on from the one before it. */
static uint32_t numeric_phases(const trial *t) {
    return case_has_state(t->op) ? CASE_PHASES : 1;
}

static void numeric_step(trial *t, int64_t live, bool spoil, op_case **keep) {
    const uint32_t n = numeric_phases(t);
    t->mine.live = live;
    t->theirs.live = live;
    t->mine.spoil = spoil;
    t->theirs.spoil = spoil;
    for (uint32_t i = 0; i < n && !check_over(t->n->c); i++)
        step_phase(t, i, i + 1 == n ? keep : NULL);
}

/* A second context of the program gives the same bits for the same inputs. before: the results
 * of the first. */
static void again(trial *t, const op_case *before) {
    mn_error err = check_error();
    const char *where = "";
    op_case *c = numeric_make(t, &t->mine);
    mn_status st = MN_OUT_OF_MEMORY;
    if (c)
        st = case_second_context(t->plan, &err);
    if (!st)
        st = case_step(t->plan, c, &err);
    broken(t, "a second context", st, &err);
    if (!st && case_differ(c, before, &where) != 0)
        check_fail(t->n->c,
                   "%s: a second context of the same program computes another '%s', expected equal "
                   "bits",
                   numeric_text_of(t), where);
    case_free(c);
}

/* Fills scratch, arenas and pages with NaN and Inf, as a step of other data may. */
static void dirty(trial *t) {
    mn_error err = check_error();
    op_shape s = t->mine;
    s.dirty = true;
    for (s.phase = 0; s.phase < numeric_phases(t) && !check_over(t->n->c); s.phase++) {
        op_case *c = numeric_make(t, &s);
        mn_status st = MN_OUT_OF_MEMORY;
        if (c)
            st = case_step(t->plan, c, &err);
        broken(t, "execute on NaN and Inf", st, &err);
        case_free(c);
    }
}

/* Fewer steps in the rounding classes, which share most code with the exact one. */
static void run_steps(trial *t) {
    static const int64_t lives[] = {1, 2, 3, 5, 17, 33};
    const check *c = t->n->c;
    const bool exact = t->precision == MN_PRECISION_EXACT;
    op_case *last = NULL;
    dirty(t);
    for (size_t i = 0; i < sizeof lives / sizeof *lives && !check_over(c); i++)
        if (lives[i] < t->mine.rows && (exact || i % 2))
            numeric_step(t, lives[i], false, NULL);
    if (!check_over(c) && t->mine.rows > 2)
        numeric_step(t, t->mine.rows - 1, true, NULL);
    if (!check_over(c))
        numeric_step(t, t->mine.rows, false, &last);
    if (!check_over(c))
        again(t, last);
    case_free(last);
}

/* Whether a plugin that claims the op must run it in this class and with this cache; it may
 * refuse the others. */
static bool must_run(const trial *t) {
    const uint32_t k = t->mine.kv_dtype;
    const uint32_t v = t->mine.v_dtype;
    const bool usual = (!k || k == MN_F32) && (!v || v == MN_F32);
    return t->precision == MN_PRECISION_EXACT && usual;
}

/* Verdicts and programs of both sides. False: not claimed, not comparable, or failed. */
static bool numeric_begin(trial *t) {
    numeric *n = t->n;
    mn_error err = check_error();
    mn_estimate est = {.size = sizeof est};
    t->mine.live = t->mine.rows;
    t->theirs.live = t->theirs.rows;
    t->first = numeric_make(t, &t->mine);
    t->first_oracle = numeric_make(t, &t->theirs);
    if (!t->first || !t->first_oracle || !case_supported(&n->here, t->first))
        return false;
    if (!case_supported(&n->there, t->first_oracle)) {
        n->n_unproven++;
        return false;
    }
    if (case_open(&n->there, t->first_oracle, MN_PRECISION_EXACT, &t->oracle, &err))
        return false;
    mn_status st = case_open(&n->here, t->first, t->precision, &t->plan, &err);
    if (st && (must_run(t) || MN_STATUS_CLASS(st) != MN_CLASS_REFUSE))
        broken(t, "it is claimed, but estimate, weights or compile fail", st, &err);
    if (st)
        return false;
    const mn_compile ask = case_question(t->first, t->precision);
    if (!n->here.be->estimate(n->here.dev, &ask, &est, NULL))
        t->grain = est.row_grain;
    return true;
}

void numeric_compare(numeric *n, uint32_t op, uint32_t dtype, const op_shape *s,
                     uint32_t precision) {
    trial t = {
        .n = n,
        .op = op,
        .dtype = dtype,
        .precision = precision,
        .mine = *s,
        .theirs = *s,
        .grain = 1,
    };
    const bool cached = op == MN_OP_KV_STORE || op == MN_OP_ATTENTION;
    check_doing(n->c, "%s ran", numeric_text_of(&t));
    if (cached && !page_tokens(&n->here, &t, &t.mine))
        return;
    if (cached && !page_tokens(&n->there, &t, &t.theirs))
        return;
    if (numeric_begin(&t))
        run_steps(&t);
    case_close(t.plan);
    case_close(t.oracle);
    case_free(t.first);
    case_free(t.first_oracle);
}
