/* experts_rules.c -- group experts: what the draft mn.x.experts/1 does with sets that hold some of
 * the experts. A case of MOE_LINEAR with RESIDENT runs twice, with a set that is whole and with one
 * whose experts come and go: what both compute of the experts that are there must have the same
 * bits. Sources of what is brought are overwritten once they were read. */
#include "life.h"
#include "wrong.h"
#include <string.h>

enum { EXPERTS = 6, WEIGHTS = 2 };

/* One case in two plans. */
typedef struct {
    stage s;
    const mn_experts *api;
    op_case *whole, *some; /* equal; sources of what is brought are the second's */
    case_plan *plan_whole, *plan_some;
    mn_weights *set; /* with rooms */
    uint32_t weight[WEIGHTS], resident;
} trial;

static bool open_api(check *c, trial *t) {
    memset(t, 0, sizeof *t);
    if (!stage_device(c, &t->s))
        return false;
    check_doing(c, "query(\"" MN_EXPERTS_ID "\") ran");
    t->api = t->s.p.api->query(t->s.p.api->self, MN_EXPERTS_ID);
    if (!t->api) {
        stage_close(c, &t->s);
        check_skip(c, "the plugin has no " MN_EXPERTS_ID);
        return false;
    }
    const bool whole = MN_HAS(mn_experts, t->api, drop);
    if (!whole || !t->api->open || !t->api->bring || !t->api->drop)
        check_fail(c, MN_EXPERTS_ID ": found a table of %u bytes, expected open, bring and drop",
                   t->api->size);
    return !check_over(c);
}

/* Two weights, the second with a bias, of which rows of some experts are left out of the sums. */
static op_case *experts_case(uint32_t dtype) {
    const op_shape s = {.rows = 9,
                        .k = 2 * (int64_t)case_dtype(dtype).block_elems,
                        .n = 33,
                        .n_expert = EXPERTS,
                        .n_used = 3,
                        .variant = 8 | 2};
    return case_random(MN_OP_MOE_LINEAR, dtype, &s, 7);
}

static void find_tensors(trial *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->some->g.n_tensors; i++) {
        if (!strcmp(t->some->t[i].name.ptr, "w") && n < WEIGHTS)
            t->weight[n++] = i;
        if (!strcmp(t->some->t[i].name.ptr, "resident"))
            t->resident = i;
    }
}

/* False: the device does not run it, or the rule has failed. */
static bool make_cases(check *c, trial *t, uint32_t dtype) {
    t->whole = experts_case(dtype);
    t->some = experts_case(dtype);
    if (!t->whole || !t->some || t->whole->failed || t->some->failed) {
        check_fail(c, "out of memory for a case");
        return false;
    }
    if (!case_supported(&t->s.on, t->whole))
        return false;
    find_tensors(t);
    check_doing(c, "a case with experts of %s was opened", mn_dtype_name(dtype));
    const mn_status st =
        case_open(&t->s.on, t->whole, MN_PRECISION_EXACT, &t->plan_whole, &t->s.p.err);
    return !check_status(c, st, &t->s.p.err, "a whole set of %s", mn_dtype_name(dtype));
}

/* A set with room for so many experts of each weight. */
static mn_status open_rooms(trial *t, const mn_experts_room *rooms, uint32_t n, mn_weights **out,
                            mn_error *err) {
    mn_compile ask = t->plan_whole->ask;
    const mn_compile own = case_question(t->some, MN_PRECISION_EXACT);
    ask.graph = own.graph;
    ask.weights = NULL;
    return t->api->open(t->s.p.dev, &ask, rooms, n, sizeof *rooms, out, err);
}

/* Everything but the weights of rooms. */
static mn_status put_others(trial *t, mn_error *err) {
    const mn_backend *be = t->s.p.be;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < t->some->g.n_tensors && !st; i++) {
        mn_event *ev = NULL;
        if (t->some->t[i].role != MN_ROLE_WEIGHT || i == t->weight[0] || i == t->weight[1])
            continue;
        st = case_put_weight(t->plan_whole, t->set, t->s.p.queue, i, &ev, err);
        st = case_wait(be, st, &ev, err);
    }
    return st ? st : be->weights_seal(t->set, t->s.p.queue, NULL, err);
}

static bool open_set(check *c, trial *t, uint32_t room) {
    const mn_experts_room rooms[WEIGHTS] = {{t->weight[0], room}, {t->weight[1], room}};
    mn_error *err = &t->s.p.err;
    check_doing(c, MN_EXPERTS_ID " open ran");
    mn_status st = open_rooms(t, rooms, WEIGHTS, &t->set, err);
    if (!st)
        st = put_others(t, err);
    if (!st)
        st = case_open_shared(&t->s.on, t->some, MN_PRECISION_EXACT, t->set, &t->plan_some, err);
    return !check_status(c, st, err, "a set with room for %u of %d experts", room, EXPERTS);
}

static void close_set(trial *t) {
    case_close(t->plan_some);
    if (t->set)
        t->s.p.be->weights_free(t->set);
    t->plan_some = NULL;
    t->set = NULL;
}

static void close_cases(trial *t) {
    close_set(t);
    case_close(t->plan_whole);
    case_free(t->whole);
    case_free(t->some);
    t->plan_whole = NULL;
    t->whole = NULL;
    t->some = NULL;
}

/* ---- what comes and goes --------------------------------------------------------------------- */
static mn_status bring_one(trial *t, uint32_t tensor, const int32_t *experts, uint32_t n,
                           mn_error *err) {
    mn_plane planes[CASE_MOST_PLANES];
    mn_event *ev = NULL;
    const mn_weight_src src = case_source(t->some, tensor, planes);
    const mn_status st = t->api->bring(t->set, t->s.p.queue, &src, experts, n, &ev, err);
    return case_wait(t->s.p.be, st, &ev, err);
}

static mn_status bring_all(trial *t, const int32_t *experts, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < WEIGHTS && !st; i++)
        st = bring_one(t, t->weight[i], experts, n, err);
    return st;
}

static mn_status drop_all(trial *t, const int32_t *experts, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < WEIGHTS && !st; i++)
        st = t->api->drop(t->set, t->s.p.queue, t->weight[i], experts, n, err);
    return st;
}

/* The sources become noise, or what they were. */
static void spoil_expert_sources(trial *t, bool spoil) {
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        const uint32_t w = t->weight[i];
        if (spoil)
            memset(t->some->data[w], 0x5a, t->some->bytes[w]);
        else
            memcpy(t->some->data[w], t->whole->data[w], t->some->bytes[w]);
    }
}

/* A step of both with these experts, whose sources hold noise meanwhile. */
static void compare_steps(check *c, trial *t, const int32_t *experts, uint32_t n,
                          const char *when) {
    mn_error *err = &t->s.p.err;
    const char *where = "";
    int32_t resident[EXPERTS] = {0};
    for (uint32_t i = 0; i < n; i++)
        resident[experts[i]] = 1;
    memcpy(t->whole->data[t->resident], resident, sizeof resident);
    memcpy(t->some->data[t->resident], resident, sizeof resident);
    spoil_expert_sources(t, true);
    check_doing(c, "a step ran %s", when);
    mn_status st = case_step(t->plan_whole, t->whole, err);
    if (!st)
        st = case_step(t->plan_some, t->some, err);
    CHECK_OK(c, st, err, "a step %s", when);
    const double d = case_differ(t->some, t->whole, &where);
    CHECK(c, d == 0, "%s: found another '%s' than with a whole set, expected the same bits", when,
          where);
    spoil_expert_sources(t, false);
}

/* Brings or drops, and compares a step with those that are there then. */
typedef struct {
    const char *what;
    int32_t drops[3], brings[4], there[4];
    uint32_t n_drops, n_brings, n_there;
} move;

static void make_move(check *c, trial *t, const move *m) {
    mn_error *err = &t->s.p.err;
    mn_status st = MN_OK;
    check_doing(c, "%s", m->what);
    if (m->n_drops)
        st = drop_all(t, m->drops, m->n_drops, err);
    if (!st && m->n_brings)
        st = bring_all(t, m->brings, m->n_brings, err);
    CHECK_OK(c, st, err, "%s", m->what);
    compare_steps(c, t, m->there, m->n_there, m->what);
}

/* ---- the same bits --------------------------------------------------------------------------- */
static void same_of_type(check *c, trial *t) {
    static const move moves[] = {
        {"four experts are brought", {0}, {0, 2, 3, 5}, {0, 2, 3, 5}, 0, 4, 4},
        {"two are dropped, another comes", {3, 0}, {1}, {1, 2, 5}, 2, 1, 3},
        {"one comes, beside one that is there", {0}, {1, 4, 4}, {1, 2, 4, 5}, 0, 3, 4},
    };
    for (size_t i = 0; i < MN_COUNT(moves) && !check_over(c); i++)
        make_move(c, t, &moves[i]);
    if (check_over(c))
        return;
    /* what is there is not read again */
    const int32_t there[] = {1, 2, 4, 5};
    spoil_expert_sources(t, true);
    const mn_status st = bring_all(t, there, 4, &t->s.p.err);
    CHECK_OK(c, st, &t->s.p.err, "bring of what is there");
    compare_steps(c, t, there, 4, "what is there is brought again");
}

void check_experts_same(check *c) {
    trial t;
    uint32_t n = 0;
    if (!open_api(c, &t))
        return;
    for (uint32_t i = 0; mn_dtype_at(i) && !check_over(c); i++) {
        const uint32_t dtype = mn_dtype_at(i);
        if (case_is_weight_type(dtype) && make_cases(c, &t, dtype) && open_set(c, &t, 4)) {
            same_of_type(c, &t);
            n++;
        }
        if (!check_over(c))
            close_cases(&t);
    }
    if (check_over(c))
        return;
    stage_close(c, &t.s);
    if (n)
        check_found(c, "%u types", n);
    else
        check_skip(c, "the plugin does not support MOE_LINEAR with RESIDENT");
}

/* ---- room ------------------------------------------------------------------------------------ */
static bool open_f32(check *c, trial *t, uint32_t room) {
    if (!open_api(c, t))
        return false;
    if (make_cases(c, t, MN_F32) && open_set(c, t, room))
        return true;
    if (check_over(c))
        return false;
    close_cases(t);
    stage_close(c, &t->s);
    check_skip(c, "the plugin does not support MOE_LINEAR with RESIDENT");
    return false;
}

static void close_f32(check *c, trial *t) {
    if (check_over(c))
        return;
    close_cases(t);
    stage_close(c, &t->s);
}

static void lacks_room(check *c, trial *t, const int32_t *experts, uint32_t n, const char *what) {
    mn_error *err = &t->s.p.err;
    check_doing(c, "%s", what);
    const mn_status st = bring_one(t, t->weight[0], experts, n, err);
    CHECK(c, st == MN_OUT_OF_MEMORY, "%s: found status 0x%x, expected MN_OUT_OF_MEMORY", what,
          (unsigned)st);
}

static void fill_room(check *c, trial *t) {
    static const move one = {"one expert, room for two", {0}, {0}, {0}, 0, 1, 1};
    static const move two = {"the second expert of two", {0}, {1}, {0, 1}, 0, 1, 2};
    static const move other = {"another comes for one that goes", {0}, {2}, {1, 2}, 1, 1, 2};
    const int32_t both[] = {1, 2};
    const int32_t third[] = {0, 3};
    make_move(c, t, &one);
    if (!check_over(c))
        lacks_room(c, t, both, 2, "two more experts, room for one");
    if (check_over(c))
        return;
    const mn_status st = t->api->drop(t->set, t->s.p.queue, t->weight[0], both, 1, NULL);
    CHECK(c, st == MN_INVALID,
          "drop of an expert behind a bring without room: found status 0x%x, expected MN_INVALID: "
          "nothing was brought",
          (unsigned)st);
    make_move(c, t, &two);
    if (!check_over(c))
        lacks_room(c, t, third, 2, "a third expert, room for two");
    if (!check_over(c))
        compare_steps(c, t, two.there, 2, "an expert found no room");
    if (!check_over(c))
        make_move(c, t, &other);
}

void check_experts_room(check *c) {
    trial t;
    if (!open_f32(c, &t, 2))
        return;
    fill_room(c, &t);
    close_f32(c, &t);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */
static mn_status open_room(trial *t, uint32_t tensor, uint32_t room, mn_error *err) {
    const mn_experts_room r = {tensor, room};
    mn_weights *set = NULL;
    return open_rooms(t, &r, 1, &set, err);
}

static mn_status open_twice(trial *t, mn_error *err) {
    const mn_experts_room r[] = {{t->weight[0], 2}, {t->weight[0], 2}};
    mn_weights *set = NULL;
    return open_rooms(t, r, 2, &set, err);
}

static mn_status drop_one(trial *t, uint32_t tensor, const int32_t *experts, uint32_t n,
                          mn_error *err) {
    return t->api->drop(t->set, t->s.p.queue, tensor, experts, n, err);
}

static void wrong_experts(check *c, trial *t) {
    const int32_t none[] = {-1};
    const int32_t past[] = {0, EXPERTS};
    const int32_t twice[] = {0, 0};
    const int32_t absent[] = {0, 3};
    const uint32_t w = t->weight[0];
    const uint32_t x = (uint32_t)t->some->operands[t->some->n[0].in_off];
    WRONG(c, "open with room for no expert", open_room(t, w, 0, err));
    WRONG(c, "open with room for all experts", open_room(t, w, EXPERTS, err));
    WRONG(c, "open with room for a tensor that does not exist", open_room(t, 100000, 2, err));
    WRONG(c, "open with room for what is no weight", open_room(t, x, 2, err));
    WRONG(c, "open with two rooms for one weight", open_twice(t, err));
    WRONG(c, "bring of an expert below 0", bring_one(t, w, none, 1, err));
    WRONG(c, "bring of an expert that does not exist", bring_one(t, w, past, 2, err));
    WRONG(c, "drop of an expert that does not exist", drop_one(t, w, past, 2, err));
    CHECK_OK(c, bring_all(t, twice, 1, &t->s.p.err), &t->s.p.err, "bring behind wrong calls");
    WRONG(c, "drop of an expert that is not there", drop_one(t, w, absent, 2, err));
    WRONG(c, "drop of an expert twice", drop_one(t, w, twice, 2, err));
    WRONG(c, "drop of what has no room", drop_one(t, x, twice, 1, err));
    compare_steps(c, t, twice, 1, "behind wrong calls");
}

void check_experts_wrong(check *c) {
    trial t;
    if (!open_f32(c, &t, 2))
        return;
    wrong_experts(c, &t);
    close_f32(c, &t);
}
