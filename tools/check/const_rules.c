/* const_rules.c -- rule process.const: what a plugin is given as const it does not write. All of it
 * goes through here into pages of its own, which are read-only when the plugin is called, as a host
 * does it: a write is a SIGSEGV, whose handler fails the rule with the name of what was written.
 * The pages stay until the process of the rule ends. */
#include "case.h"
#include "life.h"
#include "loader.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A piece of memory that the plugin was given. */
typedef struct {
    uintptr_t begin, end;
    const char *what; /* a literal */
} piece;
enum { PIECES = 1 << 14 };
static piece pieces[PIECES];
static atomic_uint n_pieces;

static const mn_backend *real;
static check *judge;

/* ---- the fault ------------------------------------------------------------------------------- */
static void const_rule_append(char *to, size_t cap, const char *words) {
    size_t n = strlen(to);
    while (*words && n + 1 < cap)
        to[n++] = *words++;
    to[n] = 0;
}

/* The result lies in memory that the parent reads. */
static void fail_write(const char *what) {
    check_result *r = judge->result;
    const char *call = atomic_load(&r->call);
    r->message[0] = 0;
    const_rule_append(r->message, sizeof r->message, call ? call : "a call");
    const_rule_append(r->message, sizeof r->message, " wrote into ");
    const_rule_append(r->message, sizeof r->message, what);
    const_rule_append(r->message, sizeof r->message,
                      ", expected nothing: what is passed as const is read-only memory");
    r->status = CHECK_FAILED;
    _exit(0);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    const uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (unsigned i = 0; i < atomic_load(&n_pieces) && i < PIECES; i++)
        if (at >= pieces[i].begin && at < pieces[i].end)
            fail_write(pieces[i].what);
    signal(number, SIG_DFL); /* the instruction faults again: another crash */
}

static void catch_faults(check *c) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    judge = c;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
}

/* ---- copies ---------------------------------------------------------------------------------- */
/* n bytes in pages of their own; to be closed by shut when they are complete. NULL = none. */
static void *const_rule_copy(const char *what, const void *from, uint64_t n) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes = (n / page + 1) * page;
    const unsigned i = atomic_fetch_add(&n_pieces, 1);
    if (!from || i >= PIECES)
        return NULL;
    char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return NULL;
    if (n)
        memcpy(to, from, n);
    pieces[i] = (piece){(uintptr_t)to, (uintptr_t)to + bytes, what};
    return to;
}

/* The page that a copy begins with, and all behind it, become read-only. */
static const void *shut(void *copied) {
    const unsigned n = atomic_load(&n_pieces);
    for (unsigned i = 0; i < n && i < PIECES && copied; i++)
        if (pieces[i].begin == (uintptr_t)copied) {
            mprotect(copied, pieces[i].end - pieces[i].begin, PROT_READ);
            break;
        }
    return copied;
}

/* What there is no room for stays where it is. */
static const void *const_rule_give(const char *what, const void *from, uint64_t n) {
    void *to = const_rule_copy(what, from, n);
    return to ? shut(to) : from;
}

static const mn_host *give_host(const mn_host *host) {
    return const_rule_give("the mn_host", host, host->size);
}

static const mn_graph *give_graph(const mn_graph *g) {
    mn_graph *to = const_rule_copy("the mn_graph", g, sizeof *g);
    if (!to)
        return g;
    mn_tensor *tensors = const_rule_copy("the tensors of the graph", g->tensors,
                                         (uint64_t)g->n_tensors * sizeof *tensors);
    for (uint32_t i = 0; i < g->n_tensors && tensors; i++)
        tensors[i].name.ptr =
            const_rule_give("the name of a tensor", tensors[i].name.ptr, tensors[i].name.len + 1);
    if (tensors)
        to->tensors = shut(tensors);
    to->nodes = const_rule_give("the nodes of the graph", g->nodes,
                                (uint64_t)g->n_nodes * sizeof *g->nodes);
    to->symbols = const_rule_give("the symbols of the graph", g->symbols,
                                  (uint64_t)g->n_symbols * sizeof *g->symbols);
    to->operands = const_rule_give("the operands of the graph", g->operands,
                                   (uint64_t)g->n_operands * sizeof *g->operands);
    to->attrs =
        const_rule_give("the attributes of the graph", g->attrs, g->n_attrs * sizeof *g->attrs);
    if (g->n_blobs)
        to->blobs = const_rule_give("the blobs of the graph", g->blobs,
                                    (uint64_t)g->n_blobs * sizeof *g->blobs);
    return shut(to);
}

static const mn_memory_params *give_memory(const mn_memory_params *p) {
    mn_memory_params *to = const_rule_copy("an mn_memory_params", p, sizeof *p);
    if (!to)
        return p;
    to->layers = const_rule_give("the layers of an mn_memory_params", p->layers,
                                 (uint64_t)p->n_layers * p->layer_stride);
    return shut(to);
}

/* The list of groups, which are one behind the other. */
static const mn_memory_use *give_uses(const mn_memory_use *uses, uint32_t n) {
    mn_memory_use *to =
        const_rule_copy("the memory of mn_compile", uses, (uint64_t)n * sizeof *uses);
    if (!to)
        return uses;
    for (uint32_t i = 0; i < n; i++) {
        const mn_memory_layout *layout = uses[i].layout;
        to[i].params = give_memory(uses[i].params);
        if (layout)
            to[i].layout = const_rule_give("an mn_memory_layout", layout, sizeof *layout);
    }
    return shut(to);
}

static const mn_compile *give_compile(const mn_compile *c) {
    mn_compile *to = const_rule_copy("the mn_compile", c, sizeof *c);
    if (!to)
        return c;
    to->graph = give_graph(c->graph);
    if (c->n_memory)
        to->memory = give_uses(c->memory, c->n_memory);
    to->symbol_max = const_rule_give("the symbol values of mn_compile", c->symbol_max,
                                     (uint64_t)c->graph->n_symbols * sizeof *c->symbol_max);
    return shut(to);
}

#define GIVE(what, p) const_rule_give(what, p, sizeof *(p))

static const mn_step *give_step(const mn_step *step, uint32_t n_values) {
    mn_step *to = const_rule_copy("the mn_step", step, sizeof *step);
    if (!to)
        return step;
    to->values = const_rule_give("the symbol values", step->values,
                                 (uint64_t)n_values * sizeof *step->values);
    return shut(to);
}

/* ---- the table ------------------------------------------------------------------------------- */
static uint32_t n_values; /* of the program that was compiled last */

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    return real->supports(d, give_compile(c), out, stride, err);
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return real->estimate(d, give_compile(c), out, err);
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    return real->memory_layout(d, give_compile(c), group, out, err);
}

static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    return real->weights_open(d, give_compile(c), out, err);
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    mn_weight_src *to = const_rule_copy("the mn_weight_src", src, sizeof *src);
    const uint64_t n = (uint64_t)src->n_parts * src->n_planes;
    mn_plane *planes = const_rule_copy("the planes of a weight", src->planes, n * sizeof *planes);
    for (uint64_t i = 0; i < n && planes; i++)
        planes[i].ptr = const_rule_give("the bytes of a weight", planes[i].ptr, planes[i].bytes);
    if (!to || !planes)
        return MN_OUT_OF_MEMORY;
    to->planes = shut(planes);
    return real->weights_put(w, q, shut(to), ev, err);
}

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    n_values = c->graph->n_symbols;
    return real->compile(d, give_compile(c), out, err);
}

static mn_status alloc(mn_device *d, const mn_alloc_params *p, mn_buffer **out, mn_error *err) {
    return real->alloc(d, GIVE("the mn_alloc_params", p), out, err);
}

static mn_status context_create(mn_program *program, const mn_context_params *p, mn_context **out,
                                mn_error *err) {
    return real->context_create(program, GIVE("the mn_context_params", p), out, err);
}

static mn_status context_bind(mn_context *x, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    const mn_binding *to = const_rule_give("the bindings", b, (uint64_t)n * stride);
    return real->context_bind(x, set, to, n, stride, err);
}

static mn_status context_prepare(mn_context *x, const mn_step *step, mn_error *err) {
    return real->context_prepare(x, give_step(step, n_values), err);
}

static mn_status execute(mn_context *x, const mn_step *step, mn_event **ev, mn_error *err) {
    return real->execute(x, give_step(step, n_values), ev, err);
}

static mn_status write_bytes(mn_queue *q, mn_buffer *to, uint64_t at, const void *from, uint64_t n,
                             mn_error *err) {
    return real->write(q, to, at, const_rule_give("the source of write", from, n), n, err);
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    const mn_memory_layout *layout = GIVE("the mn_memory_layout", l);
    const mn_page_copy *pages = const_rule_give("the pages to copy", p, (uint64_t)n * stride);
    return real->memory_copy(q, kv, layout, pages, n, stride, ev, err);
}

static const mn_backend *const_backend(const mn_backend *be) {
    static mn_backend table;
    real = be;
    memset(&table, 0, sizeof table);
    memcpy(&table, be, be->size < sizeof table ? be->size : sizeof table);
    table.supports = supports;
    table.estimate = estimate;
    table.memory_layout = memory_layout;
    table.weights_open = weights_open;
    table.weights_put = weights_put;
    table.compile = compile;
    table.alloc = alloc;
    table.context_create = context_create;
    table.context_bind = context_bind;
    if (table.context_prepare)
        table.context_prepare = context_prepare;
    table.execute = execute;
    table.write = write_bytes;
    table.memory_copy = memory_copy;
    return &table;
}

/* ---- the rule -------------------------------------------------------------------------------- */
/* Statuses are judged by other rules. */
static void run_op(check *c, stage *s, op_case *o, uint32_t op) {
    const mn_page_copy pair = {.src_page = 0, .dst_page = 1, .n_tokens = op == MN_OP_ATTENTION};
    mn_error err = check_error();
    case_plan *plan = NULL;
    check_doing(c, "%s ran with read-only arguments", case_op_name(op));
    mn_status st = case_open(&s->on, o, MN_PRECISION_EXACT, &plan, &err);
    if (!st)
        st = case_step(plan, o, &err);
    check_doing(c, "memory_copy of %s ran with read-only arguments", case_op_name(op));
    if (!st && o->kv[0].tensor >= 0 && o->kv[0].pages > 1)
        case_memory_copy(plan, 0, &pair, 1, &err);
    case_close(plan);
}

static void run_backend(check *c) {
    stage s;
    check_doing(c, "the plugin was entered");
    if (!stage_device(c, &s))
        return;
    s.on.be = const_backend(s.on.be);
    stage_each_op(c, &s, run_op);
}

/* The files as a host maps them, and their list. */
static void run_loader(loader *l, mapped_files *m) {
    mn_guess g = {.size = sizeof g};
    mn_file *files = const_rule_copy("the list of files", m->views, m->n * sizeof *files);
    for (uint32_t i = 0; i < m->n && files; i++) {
        const mn_str name = files[i].name;
        files[i].name.ptr = const_rule_give("the name of a file", name.ptr, name.len + 1);
        pieces[atomic_fetch_add(&n_pieces, 1) % PIECES] =
            (piece){(uintptr_t)m->file[i].map, (uintptr_t)m->file[i].map + m->file[i].map_bytes,
                    "a mapped file"};
        mprotect(m->file[i].map, m->file[i].map_bytes, PROT_READ);
    }
    check_doing(l->c, "guess and open ran with read-only arguments");
    if (!shut(files))
        return;
    l->plugin.ld->guess(l->plugin.api->self, files, m->n, sizeof *files, &g);
    loader_digest_of(l, m, files, sizeof *files);
}

void check_process_const(check *c) {
    if (check_host_is_newer()) {
        check_skip(c, "a newer host is played, whose arguments are copies");
        return;
    }
    catch_faults(c);
    check_give_host(give_host);
    if (c->facts->kinds & MN_KIND_BACKEND)
        run_backend(c);
    if (c->facts->kinds & MN_KIND_LOADER && !check_over(c))
        loader_on_model(c, MAP_BEGIN, run_loader);
    check_give_host(NULL);
    signal(SIGSEGV, SIG_DFL);
}
