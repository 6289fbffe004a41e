/* bench_profile.c -- minerva bench --profile: sums the time of each unit over all steps of a test,
 * for prompt steps and generation steps separately, and prints them by kind (tables) or unit
 * (JSON), beside the least time that the device's rates allow (bench_floor.c).
 *
 * The sums belong to one call of bench_print_profile; mn_session_profile adds to them on the
 * thread that steps the session, which is the main thread. Interface: bench.h. */
#include "bench.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One unit of the program, or one kind, over all steps. */
typedef struct {
    char device[96], name[40], op[24];
    uint32_t node, n_nodes;
    int32_t layer;
    double count, ns, bytes, flop;
    double floor_ns; /* 0: unknown */
} unit_sum;

typedef struct {
    unit_sum *v;
    size_t n, cap;
} unit_list;

/* Steps of one kind. */
typedef struct {
    unit_list units;
    double steps, rows, ns, unit_ns;
    double bytes, floor_ns; /* of all units */
} phase;

typedef struct {
    const bench_test *test;
    phase prompt, generated;
    bench_limits limits;
    int failed; /* out of memory */
} profile;

/* A new one, zeroed; NULL = out of memory. */
static unit_sum *bench_profile_append(unit_list *list) {
    if (list->n == list->cap) {
        const size_t cap = list->cap ? list->cap * 2 : 256;
        unit_sum *grown = realloc(list->v, cap * sizeof *grown);
        if (!grown)
            return NULL;
        list->v = grown;
        list->cap = cap;
    }
    memset(&list->v[list->n], 0, sizeof *list->v);
    return &list->v[list->n++];
}

static int is_unit(const unit_sum *s, const mn_step_unit *u) {
    return s->node == u->node && !strcmp(s->name, u->name) && !strcmp(s->device, u->device);
}

/* Unit i of a step: in most steps it is the i-th of the list. */
static unit_sum *find_unit(unit_list *list, size_t i, const mn_step_unit *u) {
    if (i < list->n && is_unit(&list->v[i], u))
        return &list->v[i];
    for (size_t k = 0; k < list->n; k++)
        if (is_unit(&list->v[k], u))
            return &list->v[k];
    unit_sum *s = bench_profile_append(list);
    if (!s)
        return NULL;
    snprintf(s->device, sizeof s->device, "%s", u->device);
    snprintf(s->name, sizeof s->name, "%s", u->name);
    snprintf(s->op, sizeof s->op, "%s", u->op);
    s->node = u->node;
    s->n_nodes = u->n_nodes;
    s->layer = u->layer;
    return s;
}

/* Adds one step. A unit that cannot be stored sets p->failed. */
static void on_step(void *arg, const mn_step_profile *step) {
    profile *p = arg;
    phase *to = p->test->n_prompt && step->n_prompt ? &p->prompt : &p->generated;
    to->steps++;
    to->rows += step->n_rows;
    to->ns += (double)step->time_ns;
    for (size_t i = 0; i < step->n_units; i++) {
        const mn_step_unit *u =
            (const void *)((const char *)step->units + i * (size_t)step->unit_stride);
        unit_sum *s = find_unit(&to->units, i, u);
        if (!s) {
            p->failed = 1;
            return;
        }
        s->count++;
        s->ns += (double)u->time_ns;
        s->bytes += (double)u->bytes;
        s->flop += (double)u->flop;
        to->unit_ns += (double)u->time_ns;
    }
}

/* The floor of each unit, and of all: units follow each other, so the sum. */
static void add_floors(const bench_limits *limits, phase *p) {
    for (size_t i = 0; i < p->units.n; i++) {
        unit_sum *u = &p->units.v[i];
        u->floor_ns = bench_floor(limits, u->device, u->bytes, u->flop);
        p->bytes += u->bytes;
        p->floor_ns += u->floor_ns;
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */
/* The floor of n times, and its share of the time that they took; null: unknown. */
static void json_floor(json_out *j, double floor_ns, double ns, double n) {
    if (floor_ns > 0 && ns > 0) {
        json_put_num(j, "floor_us", floor_ns / n / 1e3);
        json_put_num(j, "floor_share", floor_ns / ns);
        return;
    }
    json_key(j, "floor_us");
    json_null(j);
    json_key(j, "floor_share");
    json_null(j);
}

static void json_limit(json_out *j, const bench_limit *l) {
    json_open(j, '{');
    json_put_z(j, "device", l->device);
    json_put_num(j, "gbps", l->gbps);
    json_put_num(j, "gflops", l->gflops);
    json_put_z(j, "source", l->source);
    json_close(j);
}

static void json_unit(json_out *j, const unit_sum *u) {
    json_open(j, '{');
    json_put_z(j, "device", u->device);
    json_put_z(j, "unit", u->name);
    json_put_z(j, "op", u->op);
    json_put_uint(j, "node", u->node);
    json_put_uint(j, "n_nodes", u->n_nodes);
    json_put_int(j, "layer", u->layer);
    json_put_num(j, "us", u->ns / u->count / 1e3);
    json_put_num(j, "bytes", u->bytes / u->count);
    json_put_num(j, "flop", u->flop / u->count);
    json_floor(j, u->floor_ns, u->ns, u->count);
    json_close(j);
}

static void bench_profile_print_json(const app *a, const bench_test *t, const char *what,
                                     const phase *p, const bench_limits *limits, out_file *out) {
    json_out j = out_json(out);
    char test[64];
    bench_name(t, test, sizeof test);
    json_open(&j, '{');
    json_put_z(&j, "model", bench_model(a));
    json_put_z(&j, "device", a->session_info.device);
    json_put_uint(&j, "threads", a->session_info.threads);
    json_put_z(&j, "precision", precision_name(a->session_info.precision));
    json_put_z(&j, "test", test);
    json_put_uint(&j, "batch", t->batch);
    json_put_z(&j, "phase", what);
    json_put_num(&j, "steps", p->steps);
    json_put_num(&j, "rows_per_step", p->rows / p->steps);
    json_put_num(&j, "us_per_step", p->ns / p->steps / 1e3);
    json_put_num(&j, "us_in_units", p->unit_ns / p->steps / 1e3);
    json_put_num(&j, "bytes", p->bytes / p->steps);
    json_floor(&j, p->floor_ns, p->unit_ns, p->steps);
    json_put_array(&j, "limits");
    for (size_t i = 0; i < limits->n; i++)
        json_limit(&j, &limits->v[i]);
    json_close(&j);
    json_put_array(&j, "units");
    for (size_t i = 0; i < p->units.n; i++)
        json_unit(&j, &p->units.v[i]);
    json_close(&j);
    json_close(&j);
    json_line(&j);
}

/* ---- tables ---------------------------------------------------------------------------------- */
static int slowest_first(const void *x, const void *y) {
    const unit_sum *a = x, *b = y;
    return (a->ns < b->ns) - (a->ns > b->ns);
}

/* Sums the units of the same name and device in kinds, the slowest first. 0 = out of memory. */
static int add_kinds(const unit_list *units, unit_list *kinds) {
    for (size_t i = 0; i < units->n; i++) {
        const unit_sum *u = &units->v[i];
        unit_sum *k = NULL;
        for (size_t s = 0; s < kinds->n && !k; s++)
            if (!strcmp(kinds->v[s].name, u->name) && !strcmp(kinds->v[s].device, u->device))
                k = &kinds->v[s];
        if (!k)
            k = bench_profile_append(kinds);
        if (!k)
            return 0;
        memcpy(k->name, u->name, sizeof k->name);
        memcpy(k->device, u->device, sizeof k->device);
        k->count += u->count;
        k->ns += u->ns;
        k->bytes += u->bytes;
        k->flop += u->flop;
        k->floor_ns += u->floor_ns;
    }
    if (kinds->n)
        qsort(kinds->v, kinds->n, sizeof *kinds->v, slowest_first);
    return 1;
}

/* amount / ns: 1e9 per second if ns is a time; empty if the plugin does not state the amount. */
static void rate_cell(table *t, double amount, double ns) {
    if (amount > 0 && ns > 0)
        table_cell(t, "%.2f", amount / ns);
    else
        table_cell(t, "%s", "");
}

static void kind_row(table *t, const phase *p, const char *name, const unit_sum *k) {
    table_cell(t, "%s", name);
    table_cell(t, "%s", k->device);
    table_cell(t, "%.10g", k->count / p->steps);
    table_cell(t, "%.1f", k->ns / p->steps / 1e3);
    table_cell(t, "%.1f %%", p->ns > 0 ? 100 * k->ns / p->ns : 0);
    rate_cell(t, k->bytes, k->ns);
    rate_cell(t, k->flop, k->ns);
    rate_cell(t, k->bytes, p->steps * 1e6);
    rate_cell(t, k->floor_ns, p->steps * 1e3);
    if (k->floor_ns > 0 && k->ns > 0)
        table_cell(t, "%.1f %%", 100 * k->floor_ns / k->ns);
    else
        table_cell(t, "%s", "");
}

static void limit_line(const bench_limit *l, out_file *out) {
    out_printf(out, "floor on %s: %.1f GB/s, %.1f GFLOP/s (0: unknown); %s\n", l->device, l->gbps,
               l->gflops, l->source);
}

static int bench_profile_print_table(const bench_test *t, const char *what, const phase *p,
                                     const bench_limits *limits, out_file *out) {
    static const char *const columns[] = {"unit",      "device",        "per step", "us per step",
                                          "share",     "GB/s",          "GFLOP/s",  "MB per step",
                                          "floor, us", "floor of time", NULL};
    unit_list kinds = {0};
    unit_sum all = {.device = ""};
    char test[64];
    table rows;
    if (!add_kinds(&p->units, &kinds)) {
        free(kinds.v);
        return no_memory();
    }
    bench_name(t, test, sizeof test);
    out_printf(out, "%s, %s: %.0f steps of %.10g rows, %.1f us each, %.1f %% of it in units\n\n",
               test, what, p->steps, p->rows / p->steps, p->ns / p->steps / 1e3,
               p->ns > 0 ? 100 * p->unit_ns / p->ns : 0);
    for (size_t i = 0; i < limits->n; i++)
        limit_line(&limits->v[i], out);
    if (limits->n)
        out_puts(out, "\n");
    table_begin(&rows, columns, 0x3fc);
    for (size_t i = 0; i < kinds.n; i++) {
        const unit_sum *k = &kinds.v[i];
        kind_row(&rows, p, k->name, k);
        all.count += k->count;
        all.ns += k->ns;
        all.bytes += k->bytes;
        all.flop += k->flop;
        all.floor_ns += k->floor_ns;
    }
    kind_row(&rows, p, "all units", &all);
    table_print(&rows, TABLE_MARKDOWN, out);
    out_puts(out, "\n");
    table_free(&rows);
    free(kinds.v);
    return 0;
}

int bench_print_profile(app *a, const bench_test *t, size_t n_reps, int json, out_file *out) {
    profile p = {.test = t};
    const struct {
        const char *name;
        const phase *phase;
    } parts[] = {{"prompt", &p.prompt}, {"generated", &p.generated}};
    int code = bench_profile(a, t, n_reps, on_step, &p);
    if (code == 0 && p.failed)
        code = no_memory();
    if (code == 0)
        code = bench_limits_get(a, &p.limits);
    add_floors(&p.limits, &p.prompt);
    add_floors(&p.limits, &p.generated);
    for (size_t i = 0; i < MN_COUNT(parts) && code == 0; i++) {
        if (parts[i].phase->steps == 0)
            continue;
        if (json)
            bench_profile_print_json(a, t, parts[i].name, parts[i].phase, &p.limits, out);
        else
            code = bench_profile_print_table(t, parts[i].name, parts[i].phase, &p.limits, out);
    }
    out_flush(out);
    bench_limits_free(&p.limits);
    free(p.prompt.units.v);
    free(p.generated.units.v);
    return code == 0 && out->error ? EXIT_FAILED : code;
}
