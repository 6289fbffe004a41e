/* profile_rules.c -- group profile: what the interface mn.profile/1 returns for a step, compared
 * with the program and with execute. Each rule runs a small case of every op that the device
 * runs. Two rules put a table of their own between case_step and the plugin, so that a step is
 * profiled instead of executed; that table is static: one rule runs at a time. */
#include "life.h"
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS 64
#define GARBAGE 0xee

/* mn.profile/1 of the plugin that the rule tries. */
static const mn_profile *profile;

/* Sets `profile`; skips the rule where the plugin does not have the interface. */
static int open_profile(check *c, stage *s) {
    if (!stage_device(c, s))
        return 0;
    check_doing(c, "query(\"" MN_PROFILE_ID "\") ran");
    profile = check_table(&s->p, MN_PROFILE_ID);
    if (!profile) {
        stage_close(c, s);
        check_skip(c, "the plugin has no " MN_PROFILE_ID);
        return 0;
    }
    if (!MN_HAS(mn_profile, profile, execute))
        check_fail(c, MN_PROFILE_ID ": found a table of %u bytes without execute, expected it",
                   profile->size);
    return !check_over(c);
}

static void each_op(check *c, stage_fn fn) {
    stage s;
    if (open_profile(c, &s))
        stage_each_op(c, &s, fn);
}

/* Compiles the case and runs one step, so that inputs are written and one-time work is done. */
static case_plan *open_and_step(check *c, stage *s, op_case *o, uint32_t op) {
    case_plan *plan = NULL;
    mn_status st = case_open(&s->on, o, MN_PRECISION_EXACT, &plan, &s->p.err);
    if (!st)
        st = case_step(plan, o, &s->p.err);
    check_status(c, st, &s->p.err, "%s", case_op_name(op));
    return plan;
}

/* Profiles a step of the plan. *n: in, room for units; out, their number. */
static mn_status profile_rule_run_profile(stage *s, case_plan *plan, mn_profile_unit *u,
                                          uint32_t stride, uint32_t *n) {
    return mn_usual_profile(profile, plan->contexts[0], 0, plan->first->value, u, stride, n,
                            &s->p.err);
}

/* ---- the units of a program ------------------------------------------------------------------ */
/* Unit i; limit: ns that it may have taken. */
static void judge_unit(check *c, const op_case *o, uint32_t i, const mn_profile_unit *u,
                       uint64_t limit) {
    const char *end = memchr(u->name, 0, sizeof u->name);
    CHECK(c, u->node < o->g.n_nodes, "unit %u: found node %u, expected one below %u", i, u->node,
          o->g.n_nodes);
    CHECK(c, end && end > u->name, "unit %u: found no name, or one without its NUL", i);
    for (const char *at = u->name; at < end; at++)
        CHECK(c, *at > 32 && *at < 127, "unit %u: found a name with byte 0x%x, expected no spaces",
              i, (unsigned)(unsigned char)*at);
    CHECK(c, u->time_ns <= limit,
          "unit %u, %s: found %llu ns, expected at most the %llu that the call took", i, u->name,
          (unsigned long long)u->time_ns, (unsigned long long)limit);
}

/* took: ns of the call. The clocks of devices are not the host's: 10 % and 1 ms are granted. */
static void judge_units(check *c, const op_case *o, const mn_profile_unit *u, uint32_t n,
                        uint64_t took) {
    const uint64_t limit = took + took / 10 + 1000000;
    uint64_t nodes = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n && !check_over(c); i++) {
        judge_unit(c, o, i, &u[i], limit);
        nodes += u[i].n_nodes;
        sum += u[i].time_ns;
    }
    CHECK(c, nodes == o->g.n_nodes,
          "units: found %llu nodes in %u units, expected the %u of the program, each once",
          (unsigned long long)nodes, n, o->g.n_nodes);
    CHECK(c, sum > 0 && sum <= limit,
          "units: found %llu ns together, expected more than 0 and at most the %llu that the call "
          "took",
          (unsigned long long)sum, (unsigned long long)took);
}

static void units(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    mn_profile_unit u[MAX_UNITS] = {{0}};
    uint32_t n = MAX_UNITS;
    case_plan *plan = open_and_step(c, s, o, op);
    if (check_over(c))
        return;
    check_doing(c, "%s was profiled", name);
    const uint64_t began = check_now_ns();
    mn_status st = profile_rule_run_profile(s, plan, u, sizeof u[0], &n);
    const uint64_t took = check_now_ns() - began;
    CHECK_OK(c, st, &s->p.err, "a profile of %s", name);
    CHECK(c, n > 0 && n <= MAX_UNITS, "%s: found %u units of %u nodes, expected 1 to %d", name, n,
          o->g.n_nodes, MAX_UNITS);
    judge_units(c, o, u, n, took);
    case_close(plan);
}

void check_profile_units(check *c) {
    each_op(c, units);
}

/* ---- the same results ------------------------------------------------------------------------ */
static mn_status execute_profiled(mn_context *ctx, const mn_step *step, mn_event **event,
                                  mn_error *err) {
    mn_profile_unit u[MAX_UNITS];
    uint32_t n = MAX_UNITS;
    if (event)
        *event = NULL;
    return profile->execute(ctx, step, u, sizeof u[0], &n, err);
}

static mn_status only_count(mn_context *ctx, const mn_step *step, mn_event **event, mn_error *err) {
    uint32_t n = 0;
    if (event)
        *event = NULL;
    return profile->execute(ctx, step, NULL, 0, &n, err);
}

typedef mn_status (*execute_fn)(mn_context *, const mn_step *, mn_event **, mn_error *);

/* The plugin's table with another execute; valid until the next call. */
static const mn_backend *backend_with(const stage *s, execute_fn execute) {
    static mn_backend table;
    const size_t size = s->p.be->size;
    memset(&table, 0, sizeof table);
    memcpy(&table, s->p.be, size < sizeof table ? size : sizeof table);
    table.execute = execute;
    return &table;
}

static void profile_rule_same(check *c, stage *s, op_case *plain, uint32_t op) {
    const char *name = case_op_name(op);
    const char *where = "";
    case_on profiled = s->on;
    op_case *o = life_case(c, op);
    if (!o)
        return;
    profiled.be = backend_with(s, execute_profiled);
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &s->p.err);
    check_doing(c, "%s was profiled", name);
    if (!st)
        st = case_run(&profiled, o, MN_PRECISION_EXACT, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "a profile of %s", name);
    const double d = case_differ(o, plain, &where);
    CHECK(c, d < 1e-5, "%s: '%s' differs by %g from what execute gives, expected the same", name,
          where, d);
    case_free(o);
}

void check_profile_same(check *c) {
    each_op(c, profile_rule_same);
}

/* ---- room and strides ------------------------------------------------------------------------ */
/* Bytes that the plugin must not write: behind the room, and behind the known bytes of each
 * unit. */
static void judge_garbage(check *c, const uint8_t *at, uint32_t all, uint32_t room,
                          uint32_t stride) {
    const uint32_t known = stride < sizeof(mn_profile_unit) ? stride : sizeof(mn_profile_unit);
    for (uint32_t i = 0; i <= all; i++)
        for (uint32_t k = i < room ? known : 0; k < stride; k++)
            CHECK(c, at[(size_t)i * stride + k] == GARBAGE,
                  "room for %u of %u units, %u bytes apart: byte %u of unit %u was written", room,
                  all, stride, k, i);
}

/* A profile with room for `room` of `all` units, `stride` bytes apart, in a block of garbage. */
static void profile_rule_fill(check *c, stage *s, case_plan *plan, uint32_t all, uint32_t room,
                              uint32_t stride) {
    const size_t bytes = (size_t)(all + 1) * stride;
    uint8_t *at = malloc(bytes);
    uint32_t n = room;
    CHECK(c, at, "out of memory");
    memset(at, GARBAGE, bytes);
    check_doing(c, "a profile was made with room for %u of %u units, %u bytes apart", room, all,
                stride);
    mn_status st = profile_rule_run_profile(s, plan, (mn_profile_unit *)(void *)at, stride, &n);
    CHECK_OK(c, st, &s->p.err, "room for %u of %u units", room, all);
    CHECK(c, n == all, "room for %u units: found the number %u, expected %u as with room for all",
          room, n, all);
    judge_garbage(c, at, all, room, stride);
    free(at);
}

static bool is_poison(const uint8_t *bytes, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i] != bytes[0] || (bytes[0] != 0xff && bytes[0] != 0x5b))
            return false;
    return true;
}

/* With units NULL no step runs: outputs keep the poison that case_step wrote before. */
static void runs_nothing(check *c, stage *s, uint32_t op) {
    const char *name = case_op_name(op);
    case_on counting = s->on;
    op_case *o = life_case(c, op);
    if (!o)
        return;
    counting.be = backend_with(s, only_count);
    check_doing(c, "the number of units of %s was queried instead of a step", name);
    mn_status st = case_run(&counting, o, MN_PRECISION_EXACT, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "%s with units NULL", name);
    for (uint32_t t = 0; t < o->g.n_tensors; t++)
        CHECK(c, o->t[t].role != MN_ROLE_OUTPUT || is_poison(o->result[t], o->bytes[t]),
              "units NULL: found '%s' written, expected that no step is run", o->t[t].name.ptr);
    case_free(o);
}

/* The number alone is the number with all units. */
static void count_only(check *c, stage *s, case_plan *plan, uint32_t *all) {
    mn_profile_unit u[MAX_UNITS];
    uint32_t n = MAX_UNITS;
    *all = 0;
    check_doing(c, "the number of units was queried");
    mn_status st = profile_rule_run_profile(s, plan, NULL, 0, all);
    CHECK_OK(c, st, &s->p.err, "units NULL, which asks for their number");
    st = profile_rule_run_profile(s, plan, u, sizeof u[0], &n);
    CHECK_OK(c, st, &s->p.err, "room for all units");
    CHECK(c, n == *all && n > 0 && n <= MAX_UNITS,
          "units NULL: found the number %u, expected %u as with room for all", *all, n);
}

/* op: what plan, which is open, runs. */
static void odd_profiles(check *c, stage *s, case_plan *plan, uint32_t op) {
    static const uint32_t strides[] = {sizeof(mn_profile_unit), sizeof(mn_profile_unit) + 24,
                                       offsetof(mn_profile_unit, name)};
    const int64_t *values = plan->first->value;
    uint32_t all = 0;
    uint32_t none = 0;
    count_only(c, s, plan, &all);
    if (!check_over(c))
        runs_nothing(c, s, op);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (uint32_t k = 0; k <= all && !check_over(c); k++)
            profile_rule_fill(c, s, plan, all, k, strides[i]);
    if (check_over(c))
        return;
    check_doing(c, "a profile of binding set 1, which is not bound, was requested");
    const mn_status st =
        mn_usual_profile(profile, plan->contexts[0], 1, values, NULL, 0, &none, &s->p.err);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_CALLER,
          "a set that is not bound: found status 0x%x, expected MN_INVALID", (unsigned)st);
}

static void room(check *c, stage *s, op_case *o, uint32_t op) {
    case_plan *plan = open_and_step(c, s, o, op);
    if (!check_over(c))
        odd_profiles(c, s, plan, op);
    if (check_over(c))
        return;
    mn_status st = case_step(plan, o, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "execute after a profile");
    CHECK(c, !case_breach(plan)[0], "%s", case_breach(plan));
    case_close(plan);
}

void check_profile_room(check *c) {
    each_op(c, room);
}
