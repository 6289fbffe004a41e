/* profile_rules.c -- group profile: what mn.profile/1 says of a step, held against the program and
 * against execute. Each rule runs small random cases of every op that the device claims; the second
 * table, through which case_step profiles instead of executing, is static: one rule at a time. */
#include "life.h"
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS 64
#define GARBAGE 0xee

typedef struct {
    check_host host;
    check_plugin p;
    const mn_profile *profile;
} stage;

/* Skips the rule where the plugin has no mn.profile/1. */
static int stage_open(check *c, stage *s) {
    check_host_init(&s->host);
    if (!check_open_device(c, &s->p, &s->host))
        return 0;
    check_doing(c, "query(\"" MN_PROFILE_ID "\") ran");
    s->profile = s->p.api->query(s->p.api->self, MN_PROFILE_ID);
    if (s->profile && !MN_HAS(mn_profile, s->profile, execute)) {
        check_fail(c, MN_PROFILE_ID ": found a table of %u bytes without execute, expected it",
                   s->profile->size);
        return 0;
    }
    if (!s->profile) {
        check_close(c, &s->p);
        check_skip(c, "the plugin has no " MN_PROFILE_ID);
    }
    return s->profile != NULL;
}

/* Calls `try` with a random case of each op that the device says yes to. */
static void each_op(check *c, void (*try)(check *, stage *, op_case *, uint32_t op)) {
    stage s;
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0, tried = 0;
    op_shape shape = life_shape();
    if (!stage_open(c, &s))
        return;
    case_on on = life_on(&s.p);
    CHECK(c, !s.p.be->contracts(s.p.api->self, &table, &n), "contracts failed");
    for (uint32_t i = 0; i < n && !check_over(c); i++) {
        op_case *o = case_op_name(table[i][0]) ? case_random(table[i][0], MN_F32, &shape, 7) : NULL;
        if (o && case_supported(&on, o, NULL)) {
            try(c, &s, o, table[i][0]);
            tried++;
        }
        case_free(o);
    }
    if (check_over(c))
        return;
    check_close(c, &s.p);
    check_found(c, "%u ops", tried);
}

/* ---- the units of a program ------------------------------------------------------------------ */
static void judge_unit(check *c, const op_case *o, uint32_t i, const mn_profile_unit *u,
                       uint64_t took) {
    const char *end = memchr(u->name, 0, sizeof u->name);
    CHECK(c, u->node < o->g.n_nodes, "unit %u: found node %u, expected one of %u", i, u->node,
          o->g.n_nodes);
    CHECK(c, end && end > u->name, "unit %u: found no name, or one without its NUL", i);
    for (const char *at = u->name; at < end; at++)
        CHECK(c, *at > 32 && *at < 127, "unit %u: found a name with byte 0x%x, expected no spaces",
              i, (unsigned)(unsigned char)*at);
    CHECK(c, u->time_ns <= took,
          "unit %u, %s: found %llu ns, expected at most the %llu that the call took", i, u->name,
          (unsigned long long)u->time_ns, (unsigned long long)took);
}

/* Clocks of devices are not the host's: a tenth and 1 ms are granted. */
static uint64_t granted(uint64_t ns) {
    return ns + ns / 10 + 1000000;
}

static void judge_units(check *c, const op_case *o, const mn_profile_unit *u, uint32_t n,
                        uint64_t took) {
    uint64_t nodes = 0, sum = 0;
    for (uint32_t i = 0; i < n && !check_over(c); i++) {
        judge_unit(c, o, i, &u[i], granted(took));
        nodes += u[i].n_nodes;
        sum += u[i].time_ns;
    }
    if (check_over(c))
        return;
    CHECK(c, nodes == o->g.n_nodes,
          "units: found %llu nodes in %u units, expected the %u of the "
          "program, each once",
          (unsigned long long)nodes, n, o->g.n_nodes);
    CHECK(c, sum > 0 && sum <= granted(took),
          "units: found %llu ns together, expected more than 0 and at most the %llu that the call "
          "took",
          (unsigned long long)sum, (unsigned long long)took);
}

static void units(check *c, stage *s, op_case *o, uint32_t op) {
    mn_profile_unit u[MAX_UNITS] = {{0}};
    uint32_t n = MAX_UNITS;
    case_plan *plan = NULL;
    case_on on = life_on(&s->p);
    mn_status st = case_open(&on, o, MN_PRECISION_EXACT, &plan, &s->p.err);
    if (!st)
        st = case_step(plan, o, &s->p.err); /* inputs are written, and what is made once is there */
    CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, s->p.err.msg);
    check_doing(c, "%s was profiled", case_op_name(op));
    const uint64_t began = check_now_ns();
    st = s->profile->execute(plan->contexts[0], 0, o->value, u, sizeof u[0], &n, &s->p.err);
    const uint64_t took = check_now_ns() - began;
    CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, s->p.err.msg);
    CHECK(c, n > 0 && n <= MAX_UNITS, "%s: found %u units of %u nodes", case_op_name(op), n,
          o->g.n_nodes);
    judge_units(c, o, u, n, took);
    case_close(plan);
}
void check_profile_units(check *c) {
    each_op(c, units);
}

/* ---- the same results ------------------------------------------------------------------------ */
static const mn_profile *through;
static mn_status execute_profiled(mn_context *ctx, uint32_t set, const int64_t *values,
                                  mn_event **event, mn_error *err) {
    mn_profile_unit u[MAX_UNITS];
    uint32_t n = MAX_UNITS;
    if (event)
        *event = NULL;
    return through->execute(ctx, set, values, u, sizeof u[0], &n, err);
}

static const mn_backend *profiled_backend(const stage *s) {
    static mn_backend table;
    const size_t size = s->p.be->size;
    through = s->profile;
    memset(&table, 0, sizeof table);
    memcpy(&table, s->p.be, size < sizeof table ? size : sizeof table);
    table.execute = execute_profiled;
    return &table;
}

static void same(check *c, stage *s, op_case *plain, uint32_t op) {
    op_shape shape = life_shape();
    const char *where = "";
    case_on on = life_on(&s->p), watched = on;
    op_case *o = case_random(op, MN_F32, &shape, 7);
    watched.be = profiled_backend(s);
    CHECK(c, o, "out of memory");
    mn_status st = case_run(&on, plain, MN_PRECISION_EXACT, &s->p.err);
    check_doing(c, "%s was profiled", case_op_name(op));
    if (!st)
        st = case_run(&watched, o, MN_PRECISION_EXACT, &s->p.err);
    CHECK(c, !st, "%s: found status 0x%x (%s), expected that it runs as with execute",
          case_op_name(op), (unsigned)st, s->p.err.msg);
    const double d = case_differ(o, plain, &where);
    CHECK(c, d < 1e-5, "%s: '%s' differs by %g from what execute gives, expected the same",
          case_op_name(op), where, d);
    case_free(o);
}
void check_profile_same(check *c) {
    each_op(c, same);
}

/* ---- room and strides ------------------------------------------------------------------------ */
/* Units into `room` places of `stride` bytes with garbage behind: what is not the plugin's to write
 * stays as it is. */
static void fill(check *c, stage *s, case_plan *plan, uint32_t all, uint32_t room,
                 uint32_t stride) {
    const uint32_t known = stride < sizeof(mn_profile_unit) ? stride : sizeof(mn_profile_unit);
    uint8_t *at = malloc((size_t)(all + 1) * stride);
    uint32_t n = room;
    CHECK(c, at, "out of memory");
    memset(at, GARBAGE, (size_t)(all + 1) * stride);
    check_doing(c, "a profile was made with room for %u of %u units, %u bytes apart", room, all,
                stride);
    mn_status st = s->profile->execute(plan->contexts[0], 0, plan->first->value,
                                       (mn_profile_unit *)(void *)at, stride, &n, &s->p.err);
    CHECK(c, !st, "room for %u of %u units: found status 0x%x (%s)", room, all, (unsigned)st,
          s->p.err.msg);
    CHECK(c, n == all, "room for %u units: found the number %u, expected %u as with room for all",
          room, n, all);
    for (size_t i = 0; i < (size_t)(all + 1) * stride; i++)
        if (i / stride >= room || i % stride >= known)
            CHECK(c, at[i] == GARBAGE,
                  "room for %u of %u units, %u bytes apart: byte %zu of unit %zu was written", room,
                  all, stride, i % stride, i / stride);
    free(at);
}

static mn_status only_count(mn_context *ctx, uint32_t set, const int64_t *values, mn_event **event,
                            mn_error *err) {
    uint32_t n = 0;
    if (event)
        *event = NULL;
    return through->execute(ctx, set, values, NULL, 0, &n, err);
}

/* With units NULL nothing runs: outputs keep the poison that case_step wrote before. */
static void runs_nothing(check *c, stage *s, uint32_t op) {
    op_shape shape = life_shape();
    case_on on = life_on(&s->p);
    mn_backend table = *profiled_backend(s);
    op_case *o = case_random(op, MN_F32, &shape, 7);
    CHECK(c, o, "out of memory");
    table.execute = only_count;
    on.be = &table;
    check_doing(c, "the number of units of %s was asked for instead of a step", case_op_name(op));
    mn_status st = case_run(&on, o, MN_PRECISION_EXACT, &s->p.err);
    CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, s->p.err.msg);
    for (uint32_t t = 0; t < o->g.n_tensors; t++) {
        const uint8_t *bytes = o->result[t];
        if (o->t[t].role != MN_ROLE_OUTPUT)
            continue;
        for (uint64_t i = 0; i < o->bytes[t]; i++)
            CHECK(c, bytes[i] == bytes[0] && (bytes[0] == 0xff || bytes[0] == 0x5b),
                  "units NULL: found '%s' written, expected that nothing is run", o->t[t].name.ptr);
    }
    case_free(o);
}

/* The number alone, and the number with all units, are the same. */
static void count_only(check *c, stage *s, case_plan *plan, uint32_t *all) {
    mn_profile_unit u[MAX_UNITS];
    uint32_t n = MAX_UNITS;
    *all = 0;
    check_doing(c, "the number of units was asked for");
    mn_status st =
        s->profile->execute(plan->contexts[0], 0, plan->first->value, NULL, 0, all, &s->p.err);
    CHECK(c, !st, "units NULL: found status 0x%x (%s), expected MN_OK and their number",
          (unsigned)st, s->p.err.msg);
    st = s->profile->execute(plan->contexts[0], 0, plan->first->value, u, sizeof u[0], &n,
                             &s->p.err);
    CHECK(c, !st && n == *all && n > 0 && n <= MAX_UNITS,
          "units NULL: found the number %u, and then %u units (status 0x%x)", *all, n,
          (unsigned)st);
}

static void room(check *c, stage *s, op_case *o, uint32_t op) {
    static const uint32_t strides[] = {sizeof(mn_profile_unit), sizeof(mn_profile_unit) + 24,
                                       offsetof(mn_profile_unit, name)};
    uint32_t all = 0, none = 0;
    case_plan *plan = NULL;
    case_on on = life_on(&s->p);
    mn_status st = case_open(&on, o, MN_PRECISION_EXACT, &plan, &s->p.err);
    if (!st)
        st = case_step(plan, o, &s->p.err);
    CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, s->p.err.msg);
    count_only(c, s, plan, &all);
    if (!check_over(c))
        runs_nothing(c, s, op);
    for (size_t i = 0; i < sizeof strides / sizeof *strides && !check_over(c); i++)
        for (uint32_t k = 0; k <= all && !check_over(c); k++)
            fill(c, s, plan, all, k, strides[i]);
    if (check_over(c))
        return;
    check_doing(c, "a profile of binding set 1, which is not bound, was asked for");
    st = s->profile->execute(plan->contexts[0], 1, o->value, NULL, 0, &none, &s->p.err);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_CALLER,
          "a set that is not bound: found status 0x%x, expected MN_INVALID", (unsigned)st);
    st = case_step(plan, o, &s->p.err);
    CHECK(c, !st, "execute after a profile: found status 0x%x (%s)", (unsigned)st, s->p.err.msg);
    CHECK(c, !case_breach(plan)[0], "%s", case_breach(plan));
    case_close(plan);
}
void check_profile_room(check *c) {
    each_op(c, room);
}
