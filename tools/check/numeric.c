/* numeric.c -- what the plugin computes, against the reference plugin in the same process. */
#include "numeric.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the two sides --------------------------------------------------------------------------- */
static int open_oracle(numeric *n) {
    check *c = n->c;
    check_plugin *o = &n->oracle;
    void *so = c->reference ? dlopen(c->reference, RTLD_NOW | RTLD_LOCAL) : NULL;
    mn_entry_fn entry = NULL;
    if (so)
        *(void **)&entry = dlsym(so, MN_ENTRY_NAME);
    check_host_init(&n->hosts[1]);
    o->host = &n->hosts[1], o->err = check_error();
    if (entry && (o->api = entry(&n->hosts[1].api, &o->err)))
        o->be = o->api->query(o->api->self, MN_BACKEND_ID);
    if (o->be && !o->be->device_open(o->api->self, 0, &o->dev, &o->err) &&
        !o->be->queue_create(o->dev, &o->queue, &o->err))
        return 1;
    check_skip(c, "the plugin `reference`, which numbers are held against, is not installed%s%s",
               o->err.msg[0] ? ": " : "", o->err.msg);
    return 0;
}

static case_on side(const check_plugin *p) {
    mn_device_info info = {.size = sizeof info};
    if (p->be->device_info(p->api->self, 0, &info, NULL))
        info.align = 0;
    return (case_on){p->be, p->dev, p->queue, info.align};
}

int numeric_open(check *c, numeric *n) {
    memset(n, 0, sizeof *n);
    n->c = c;
    check_host_init(&n->hosts[0]);
    if (!check_open_device(c, &n->plugin, &n->hosts[0]) || !open_oracle(n))
        return 0;
    n->here = side(&n->plugin), n->there = side(&n->oracle);
    return 1;
}

void numeric_close(numeric *n) {
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
    uint32_t grain;
} trial;

static const char *shape_text(const trial *t, char *dst, size_t n) {
    const op_shape *s = &t->mine;
    int at = snprintf(dst, n, "%s", case_op_name(t->op));
#define ADD(...)                                                                                   \
    if (at >= 0 && (size_t)at < n)                                                                 \
    at += snprintf(dst + at, n - (size_t)at, __VA_ARGS__)
    if (t->dtype)
        ADD(" %s", mn_dtype_name(t->dtype));
    ADD(", class %s", check_class_name(t->precision));
    if (s->kv_dtype)
        ADD(", KV %s", mn_dtype_name(s->kv_dtype));
    ADD(", %lld of at most %lld rows", (long long)(s->live ? s->live : s->rows),
        (long long)s->rows);
    if (s->k)
        ADD(", k %lld", (long long)s->k);
    if (s->n)
        ADD(", n %lld", (long long)s->n);
    if (s->n_head)
        ADD(", %lld heads", (long long)s->n_head);
    if (s->n_head_kv)
        ADD(" on %lld", (long long)s->n_head_kv);
    if (s->dim)
        ADD(" of %lld", (long long)s->dim);
    if (s->dim_v)
        ADD(" and %lld", (long long)s->dim_v);
    if (s->n_rot)
        ADD(", %lld turn", (long long)s->n_rot);
    if (s->past)
        ADD(", %lld before", (long long)s->past);
    if (s->n_seqs)
        ADD(", %lld sequences", (long long)s->n_seqs);
    if (s->n_expert)
        ADD(", %lld of %lld experts", (long long)s->n_used, (long long)s->n_expert);
    ADD(", variant %lld", (long long)s->variant);
    if (s->spoil)
        ADD(", rows with NaN");
#undef ADD
    return dst;
}

static void broken(const trial *t, const char *what, mn_status s, const mn_error *err) {
    char shape[400];
    check_fail(t->n->c, "%s: %s: found status 0x%x (%s), expected MN_OK",
               shape_text(t, shape, sizeof shape), what, (unsigned)s, err->msg);
}

/* How many tokens a page of this side has; false: it has no cache of this type. */
static bool page_tokens(const case_on *on, const trial *t, op_shape *s) {
    op_case *c = case_random(t->op, t->dtype, s, 1);
    mn_kv_layout l = {.size = sizeof l};
    mn_status st = MN_OUT_OF_MEMORY;
    if (c && !c->failed) {
        mn_compile ask = {.size = sizeof ask,
                          .precision = t->precision,
                          .graph = &c->g,
                          .node_hi = c->g.n_nodes,
                          .symbol_max = c->value,
                          .k_dtype = c->kv_dtype,
                          .v_dtype = c->kv_dtype};
        st = on->be->kv_layout(on->dev, &ask, 0, &l, NULL);
    }
    case_free(c);
    s->page_tokens = l.page_tokens;
    return !st && l.page_tokens;
}

static int64_t bucket(int64_t n, int64_t max, uint32_t grain) {
    int64_t b = n;
    if (grain != 1 && (!grain || n < (int64_t)grain))
        for (b = 1; b < n;)
            b *= 2;
    else if (grain)
        b = (n + grain - 1) / grain * grain;
    return b < max ? b : max;
}

static op_case *make(const trial *t, const op_shape *s) {
    op_case *c = case_random(t->op, t->dtype, s, 42 + t->op);
    int64_t live = s->live ? s->live : s->rows;
    if (!c)
        return NULL;
    c->value[0] = bucket(live, c->sym[0].max, t->grain);
    if (t->op == MN_OP_GATHER_ROWS)
        c->value[1] = bucket(live < c->sym[1].max ? live : c->sym[1].max, c->sym[1].max, t->grain);
    return c;
}

/* One step on both sides. keep: results of the plugin, for the caller; may be NULL. */
static void step(trial *t, int64_t live, bool spoil, op_case **keep) {
    numeric *n = t->n;
    mn_error err = check_error();
    const char *where = "";
    char shape[400];
    t->mine.live = t->theirs.live = live;
    t->mine.spoil = t->theirs.spoil = spoil;
    op_case *a = make(t, &t->mine), *b = make(t, &t->theirs);
    mn_status s = a && b ? case_step(t->oracle, b, &err) : MN_OUT_OF_MEMORY;
    if (s)
        check_skip(n->c, "the oracle failed: %s", err.msg);
    if (!s && (s = case_step(t->plan, a, &err)))
        broken(t, "execute", s, &err);
    if (!s && case_breach(t->plan)[0])
        check_fail(n->c, "%s: %s", shape_text(t, shape, sizeof shape), case_breach(t->plan));
    double e = s ? 0 : case_differ(a, b, &where), most = check_class_limit(t->precision);
    if (!(e <= most))
        check_fail(n->c,
                   isinf(e)
                       ? "%s: '%s' differs from reference's: relative L2 %g, expected at most %g "
                         "(ids and states: "
                         "equal, no NaN)"
                       : "%s: '%s' differs from reference's: relative L2 %g, expected at most %g",
                   shape_text(t, shape, sizeof shape), where, e, most);
    const char *hides =
        s || !spoil ? NULL : case_hides_nan(a, b, t->precision != MN_PRECISION_EXACT);
    if (hides)
        check_fail(n->c,
                   "%s: '%s' of a row that holds NaN is a number where reference's is NaN, "
                   "expected NaN%s: NaN goes through",
                   shape_text(t, shape, sizeof shape), hides,
                   t->precision == MN_PRECISION_EXACT ? "" : " or an infinity");
    n->n_cases++;
    if (keep && !s)
        *keep = a;
    else
        case_free(a);
    case_free(b);
}

/* What a second context of the program gives for the same inputs: the same bits. */
static void again(trial *t, const op_case *before) {
    mn_error err = check_error();
    const char *where = "";
    char shape[400];
    op_case *c = make(t, &t->mine);
    mn_status s = c ? case_second_context(t->plan, &err) : MN_OUT_OF_MEMORY;
    if (!s)
        s = case_step(t->plan, c, &err);
    if (s)
        broken(t, "a second context", s, &err);
    else if (case_differ(c, before, &where) != 0)
        check_fail(
            t->n->c,
            "%s: a second context of the same program gives another '%s', expected the same bits",
            shape_text(t, shape, sizeof shape), where);
    case_free(c);
}

/* Fills scratch, arenas and pages with NaN and Inf, as a step of other data may. */
static void dirty(trial *t) {
    mn_error err = check_error();
    op_shape s = t->mine;
    s.dirty = true;
    op_case *c = make(t, &s);
    mn_status st = c ? case_step(t->plan, c, &err) : MN_OUT_OF_MEMORY;
    if (st)
        broken(t, "execute on NaN and Inf", st, &err);
    case_free(c);
}

static void run_steps(trial *t) {
    static const int64_t lives[] = {1, 2, 3, 5, 17, 33};
    op_case *last = NULL;
    dirty(t);
    for (size_t i = 0; i < sizeof lives / sizeof *lives && !check_over(t->n->c); i++)
        if (lives[i] < t->mine.rows && (t->precision == MN_PRECISION_EXACT || i % 2))
            step(t, lives[i], false, NULL);
    if (!check_over(t->n->c) && t->mine.rows > 2)
        step(t, t->mine.rows - 1, true, NULL);
    if (!check_over(t->n->c))
        step(t, t->mine.rows, false, &last);
    if (!check_over(t->n->c))
        again(t, last);
    case_free(last);
}

/* The verdicts, the programs of both sides. False: not claimed, not comparable, or failed. */
static bool begin(trial *t) {
    numeric *n = t->n;
    mn_error err = check_error();
    mn_estimate est = {.size = sizeof est};
    uint32_t why = 0;
    bool usual =
        t->precision == MN_PRECISION_EXACT && (!t->mine.kv_dtype || t->mine.kv_dtype == MN_F32);
    t->mine.live = t->mine.rows, t->theirs.live = t->theirs.rows;
    t->first = make(t, &t->mine), t->first_oracle = make(t, &t->theirs);
    if (!t->first || !t->first_oracle || t->first->failed ||
        !case_supported(&n->here, t->first, &why))
        return false;
    if (!case_supported(&n->there, t->first_oracle, &why)) {
        n->n_unproven++;
        return false;
    }
    mn_status s = case_open(&n->there, t->first_oracle, MN_PRECISION_EXACT, &t->oracle, &err);
    if (s)
        return false;
    s = case_open(&n->here, t->first, t->precision, &t->plan, &err);
    if (s && (usual || MN_STATUS_CLASS(s) != MN_CLASS_REFUSE))
        broken(t, "it is claimed, but estimate, weights or compile fail", s, &err);
    if (s)
        return false;
    mn_compile ask = {.size = sizeof ask,
                      .precision = t->precision,
                      .graph = &t->first->g,
                      .node_hi = t->first->g.n_nodes,
                      .symbol_max = t->first->value,
                      .k_dtype = t->first->kv_dtype,
                      .v_dtype = t->first->kv_dtype};
    if (!n->here.be->estimate(n->here.dev, &ask, &est, NULL))
        t->grain = est.row_grain;
    return true;
}

void numeric_compare(numeric *n, uint32_t op, uint32_t dtype, const op_shape *s,
                     uint32_t precision) {
    trial t = {.n = n,
               .op = op,
               .dtype = dtype,
               .precision = precision,
               .mine = *s,
               .theirs = *s,
               .grain = 1};
    char shape[400];
    bool cached = op == MN_OP_KV_STORE || op == MN_OP_ATTENTION;
    check_doing(n->c, "%s ran", shape_text(&t, shape, sizeof shape));
    if (cached && (!page_tokens(&n->here, &t, &t.mine) || !page_tokens(&n->there, &t, &t.theirs)))
        return;
    if (begin(&t))
        run_steps(&t);
    case_close(t.plan), case_close(t.oracle);
    case_free(t.first), case_free(t.first_oracle);
}
