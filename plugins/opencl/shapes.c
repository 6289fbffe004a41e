/* shapes.c -- the groups of linear.cl: how many items share an output, and how many outputs a group
 * has. What is best differs between devices and weight types, so a GPU is asked: before the first
 * product of a type is enqueued, a prompt's product is timed in each of a few shapes. What was
 * found is kept between processes ("mn.cache/1", one entry for a device) and logged at level debug,
 * which `minerva devices --explain -v` prints. The device owns the list; a lock guards its
 * changes. */
#include "dtype.h"
#include "ops.h"

enum { ROWS = 32, N = 1024, K = 2048, RUNS = 3, MOST_MS = 2000 };

/* lanes, outputs; the first one is what a GPU has that was not asked. */
static const ocl_shape candidates[] = {{32, 4}, {8, 16}, {16, 8}, {64, 2}, {64, 4}};
enum { N_CANDIDATES = sizeof candidates / sizeof *candidates };

/* ---- between processes ----------------------------------------------------------------------- */
static void name_entry(const mn_device *d, char name[160], char stamp[160]) {
    snprintf(name, 160, "shapes|%s", d->base.uid);
    snprintf(stamp, 160, "%s|%s|%s", d->base.name, d->base.driver, MN_PLUGIN_VERSION);
}

/* "f16 32x4 q8_0 16x8 ", of the types that were asked about. */
static void write_list(const mn_device *d, char *to, size_t room) {
    size_t n = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < OCL_N_TYPES && n + 40 < room; i++)
        if (d->shapes[i].lanes)
            n += (size_t)snprintf(to + n, room - n, "%s %ux%u ", ocl_type_at(i)->name,
                                  d->shapes[i].lanes, d->shapes[i].outputs);
}

static uint32_t type_named(const char *name) {
    uint32_t i = 0;
    while (i < OCL_N_TYPES && strcmp(ocl_type_at(i)->name, name) != 0)
        i++;
    return i;
}

static bool is_candidate(ocl_shape s) {
    bool is = false;
    for (int i = 0; i < N_CANDIDATES; i++)
        is |= candidates[i].lanes == s.lanes && candidates[i].outputs == s.outputs;
    return is;
}

static void read_list(mn_device *d, const char *text) {
    char name[32];
    ocl_shape s;
    int n;
    while (sscanf(text, "%31s %ux%u %n", name, &s.lanes, &s.outputs, &n) == 3) {
        const uint32_t i = type_named(name);
        if (i < OCL_N_TYPES && is_candidate(s))
            d->shapes[i] = s;
        text += n;
    }
}

void ocl_shapes_read(mn_device *d) {
    const mn_host *h = d->base.host;
    const mn_cache *cache = ocl_cache_of_host(d->plugin);
    const int64_t wanted = mng_option(h, "shapes", 0);
    char name[160];
    char stamp[160];
    char text[1024];
    void *data;
    uint64_t bytes;
    const bool chosen_by_user = mng_option(h, "linear_lanes", 0) != 0;
    d->asks_shapes = wanted > 0 || (!wanted && !d->is_cpu && !d->ptx && !chosen_by_user);
    name_entry(d, name, stamp);
    if (!d->asks_shapes || !cache ||
        cache->read(h->self, mnp_str(name), mnp_str(stamp), &data, &bytes))
        return;
    snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)data);
    h->release(h->self, data);
    read_list(d, text);
    mng_log(d->base.host, MN_LOG_DEBUG, "%s: groups of products, as measured before: %s",
            d->base.name, text);
}

static void shapes_keep(const mn_device *d) {
    const mn_host *h = d->base.host;
    const mn_cache *cache = ocl_cache_of_host(d->plugin);
    char name[160];
    char stamp[160];
    char text[1024];
    write_list(d, text, sizeof text);
    name_entry(d, name, stamp);
    if (cache)
        cache->write(h->self, mnp_str(name), mnp_str(stamp), text, strlen(text));
}

/* ---- measuring ------------------------------------------------------------------------------- */
/* A product of K columns, N outputs and ROWS rows; weights and rows are zeros. */
typedef struct {
    mn_device *dev;
    mng_weight w;
    cl_mem weight;
    cl_mem x;
    cl_mem y;
} trial;

static mn_status open_trial(trial *t, mn_device *d, const mng_type *type, mn_error *err) {
    mn_tensor tensor = {.n_dim = 2, .dim = {N, K}};
    *t = (trial){.dev = d};
    mn_dtype_by_id(type->dtype, &tensor.dtype);
    t->w = (mng_weight){.rows = N, .cols = K, .ld = K, .n_parts = 1, .part_rows = N};
    ocl_weight_shape(d, &tensor, &t->w);
    const uint64_t bytes = t->w.part_bytes;
    mn_status st = ocl_take_memory(d, bytes, "a measurement", &t->weight, err);
    if (!st)
        st = ocl_take_memory(d, ROWS * K * sizeof(float), "a measurement", &t->x, err);
    if (!st)
        st = ocl_take_memory(d, ROWS * N * sizeof(float), "a measurement", &t->y, err);
    return st;
}

static void close_trial(trial *t) {
    const cl_mem all[] = {t->weight, t->x, t->y};
    for (int i = 0; i < 3; i++)
        if (all[i])
            t->dev->cl->ReleaseMemObject(all[i]);
}

static cl_int set_args(const trial *t, cl_kernel kernel) {
    const ocl_icd *cl = t->dev->cl;
    const cl_mem mems[] = {t->x, t->weight, t->x, t->x, t->y};
    const cl_ulong offsets[] = {0, 0, OCL_ABSENT, OCL_ABSENT, 0};
    const ocl_linear_args a = {.w = ocl_matrix_of(&t->w),
                               .K = K,
                               .N = N,
                               .rows = ROWS,
                               .per_x = 1,
                               .n_experts = 1,
                               .stride = N,
                               .count = 1};
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < 5 && code == CL_SUCCESS; i++) {
        code = cl->SetKernelArg(kernel, 2 * i, sizeof mems[i], &mems[i]);
        if (code == CL_SUCCESS)
            code = cl->SetKernelArg(kernel, 2 * i + 1, sizeof offsets[i], &offsets[i]);
    }
    if (code == CL_SUCCESS)
        code = cl->SetKernelArg(kernel, 10, sizeof a, &a);
    return code;
}

/* The best of RUNS behind one that warms up, in ns. */
static cl_int time_kernel(const trial *t, cl_kernel kernel, ocl_shape s, uint64_t *best) {
    const ocl_icd *cl = t->dev->cl;
    const mn_host *h = t->dev->base.host;
    const ocl_grid g = ocl_linear_grid(s, N, ROWS / OCL_LINEAR_FEW);
    cl_int code = set_args(t, kernel);
    *best = UINT64_MAX;
    for (int i = 0; i <= RUNS && code == CL_SUCCESS; i++) {
        const uint64_t from = h->now_ns(h->self);
        code = cl->EnqueueNDRangeKernel(t->dev->own, kernel, 3, NULL, g.global, g.local, 0, NULL,
                                        NULL);
        if (code == CL_SUCCESS)
            code = cl->Finish(t->dev->own);
        const uint64_t took = h->now_ns(h->self) - from;
        if (i && took < *best)
            *best = took;
    }
    return code;
}

/* A shape that the device does not take counts as slow. */
static uint64_t time_shape(const trial *t, const mng_type *type, ocl_shape s) {
    mn_device *d = t->dev;
    cl_program program;
    cl_int code;
    uint64_t ns = UINT64_MAX;
    if (s.lanes * s.outputs > d->most_items || ocl_build_shape(d, type, s, &program, NULL))
        return ns;
    cl_kernel kernel = d->cl->CreateKernel(program, "linear_few", &code);
    if (kernel) {
        code = time_kernel(t, kernel, s, &ns);
        d->cl->ReleaseKernel(kernel);
    }
    d->cl->ReleaseProgram(program);
    return code == CL_SUCCESS ? ns : UINT64_MAX;
}

/* The fastest shape; the default where nothing could be timed. */
static ocl_shape shape_measure(mn_device *d, const mng_type *type) {
    const mn_host *h = d->base.host;
    const uint64_t from = h->now_ns(h->self);
    ocl_shape best = ocl_default_shape(d);
    uint64_t least = UINT64_MAX;
    char said[300] = "";
    size_t n = 0;
    trial t;
    mn_status st = open_trial(&t, d, type, NULL);
    if (!st && t.w.n_parts > 1)
        st = MN_UNSUPPORTED;
    for (int i = 0; i < N_CANDIDATES && !st; i++) {
        if (h->now_ns(h->self) - from > MOST_MS * UINT64_C(1000000))
            break;
        const ocl_shape s = candidates[i];
        const uint64_t ns = time_shape(&t, type, s);
        if (ns == UINT64_MAX)
            continue;
        n += (size_t)snprintf(said + n, sizeof said - n, ", %ux%u %.0f us", s.lanes, s.outputs,
                              (double)ns / 1e3);
        if (ns < least) {
            least = ns;
            best = s;
        }
    }
    close_trial(&t);
    mng_log(d->base.host, MN_LOG_DEBUG, "%s: groups of products of %s, measured: %ux%u%s",
            d->base.name, type->name, best.lanes, best.outputs, said);
    return best;
}

ocl_shape ocl_shape_of(mn_device *d, const mng_type *type) {
    if (!d->asks_shapes)
        return ocl_default_shape(d);
    pthread_mutex_lock(&d->shape_lock);
    if (!d->shapes[type->index].lanes) {
        d->shapes[type->index] = shape_measure(d, type);
        shapes_keep(d);
    }
    const ocl_shape s = d->shapes[type->index];
    pthread_mutex_unlock(&d->shape_lock);
    return s;
}

ocl_shape ocl_default_shape(const mn_device *d) {
    return (ocl_shape){d->linear_lanes, d->is_cpu ? 8 : 4};
}
