/* nccl.c -- NCCL, opened when a group needs it: NVIDIA's library of collectives, which chooses how
 * data travels between cards. Only the few functions and constants of its stable interface that
 * are used here; the library stays open until the process ends. It sends and receives, and does not
 * add: the order of its sums is its own. A communicator belongs to one member of one group; one
 * thread uses all of a group at a time.
 *
 * Communicators block, as almost all programs have them. A thread of its own makes the one of a
 * group over processes, because making it waits for all others without a limit. */
#include "group.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { NCCL_FLOAT32 = 7 };
typedef void *communicator;
typedef struct {
    char bytes[CU_NCCL_ID_BYTES];
} unique_id;
typedef struct {
    int (*unique)(unique_id *);
    int (*init_all)(communicator *, int, const int *);
    int (*init_rank)(communicator *, int, unique_id, int);
    int (*destroy)(communicator);
    int (*abort)(communicator);
    int (*async_error)(communicator, int *);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *, size_t, int, int, communicator, cudaStream_t);
    int (*receive)(void *, size_t, int, int, communicator, cudaStream_t);
    const char *(*error)(int);
} functions;
struct cu_nccl {
    functions f;
    communicator of[CU_MAX_MEMBERS]; /* NULL: in another process */
    pthread_mutex_t lock;
};

/* ---- the library ----------------------------------------------------------------------------- */
/* The library at the option's path, else where the system has it. */
static void *open_library(const mng_plugin *p, char *path, size_t room) {
    const mn_host *h = p->host;
    mn_str value;
    snprintf(path, room, "libnccl.so.2");
    if (MN_HAS(mn_host, h, option) && h->option(h->self, "nccl", &value) == 1 && value.len)
        snprintf(path, room, "%.*s", (int)value.len, value.ptr);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static const char *missing(functions *f, void *lib) {
    const struct {
        const char *name;
        void *to;
    } wanted[] = {{"ncclGetUniqueId", &f->unique},
                  {"ncclCommInitAll", &f->init_all},
                  {"ncclCommInitRank", &f->init_rank},
                  {"ncclCommDestroy", &f->destroy},
                  {"ncclCommAbort", &f->abort},
                  {"ncclCommGetAsyncError", &f->async_error},
                  {"ncclGroupStart", &f->group_start},
                  {"ncclGroupEnd", &f->group_end},
                  {"ncclSend", &f->send},
                  {"ncclRecv", &f->receive},
                  {"ncclGetErrorString", &f->error}};
    for (uint32_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(lib, wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof found);
        if (!found)
            return wanted[i].name;
    }
    return NULL;
}

static mn_status find_functions(const mng_plugin *p, functions *f, mn_error *err) {
    char path[256];
    void *lib = open_library(p, path, sizeof path);
    if (!lib)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "NCCL (%.200s; option nccl of the plugin) cannot be opened: %.200s", path,
                        dlerror());
    const char *name = missing(f, lib);
    if (name)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.200s lacks %s; expected NCCL 2.7 or newer",
                        path, name);
    return MN_OK;
}

static mn_status not_started(const functions *f, int e, mn_error *err) {
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "NCCL does not start: %.200s (%d)", f->error(e), e);
}

static mn_status new_nccl(cu_group *g, mn_error *err) {
    cu_nccl *l = mng_new(&g->base, sizeof *l);
    if (!l)
        return mnp_fail_memory(err, sizeof *l, "NCCL");
    pthread_mutex_init(&l->lock, NULL);
    g->nccl = l;
    return find_functions(g->base.base.plugin, &l->f, err);
}

mn_status cu_nccl_make_id(const mng_plugin *p, uint8_t *id, mn_error *err) {
    functions f;
    unique_id made;
    const mn_status st = find_functions(p, &f, err);
    if (st)
        return st;
    const int e = f.unique(&made);
    if (e)
        return not_started(&f, e, err);
    memcpy(id, made.bytes, sizeof made.bytes);
    return MN_OK;
}

/* ---- communicators --------------------------------------------------------------------------- */
mn_status cu_nccl_open(cu_group *g, mn_error *err) {
    int devices[CU_MAX_MEMBERS];
    mn_status st = new_nccl(g, err);
    for (uint32_t r = 0; r < g->n; r++)
        devices[r] = g->of[r]->index;
    if (!st) {
        const int e = g->nccl->f.init_all(g->nccl->of, (int)g->n, devices);
        if (e)
            st = not_started(&g->nccl->f, e, err);
    }
    if (st)
        cu_nccl_close(g);
    return st;
}

/* A communicator that is being made. Whoever is last frees it: the thread that makes it may outlive
 * the group, the plugin and its host, so that its memory is none of the host's. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done, is_left;
    int (*init_rank)(communicator *, int, unique_id, int);
    int (*abort)(communicator);
    unique_id id;
    int device, rank, n, error;
    communicator made;
} making;

static making *new_making(const cu_group *g, const uint8_t *id) {
    pthread_condattr_t clock;
    making *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->done, &clock);
    pthread_condattr_destroy(&clock);
    memcpy(m->id.bytes, id, sizeof m->id.bytes);
    m->init_rank = g->nccl->f.init_rank;
    m->abort = g->nccl->f.abort;
    m->device = g->of[g->lo]->index;
    m->rank = (int)g->lo;
    m->n = (int)g->n;
    return m;
}

static void free_making(making *m) {
    pthread_cond_destroy(&m->done);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void *make_communicator(void *arg) {
    making *m = arg;
    cudaSetDevice(m->device);
    const int e = m->init_rank(&m->made, m->n, m->id, m->rank);
    pthread_mutex_lock(&m->lock);
    m->error = e;
    m->is_done = true;
    const bool is_left = m->is_left;
    pthread_cond_signal(&m->done);
    pthread_mutex_unlock(&m->lock);
    if (is_left && !e)
        m->abort(m->made);
    if (is_left)
        free_making(m);
    return NULL;
}

/* Whether it was done in time; else the thread goes on by itself, and m is the thread's. */
static bool wait_for(making *m, uint64_t timeout_ns) {
    struct timespec until;
    int e = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&m->lock);
    while (!m->is_done && e != ETIMEDOUT)
        e = pthread_cond_timedwait(&m->done, &m->lock, &until);
    const bool is_done = m->is_done;
    m->is_left = !is_done;
    pthread_mutex_unlock(&m->lock);
    return is_done;
}

static mn_status make_in_time(cu_group *g, making *m, uint64_t timeout_ns, mn_error *err) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_communicator, m)) {
        free_making(m);
        return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u, "no thread for NCCL");
    }
    pthread_detach(thread);
    if (!wait_for(m, timeout_ns))
        return mnp_fail(err, MN_TIMEOUT, ~0u,
                        "member %u of a group: not all %u members have joined within %llu s", g->lo,
                        g->n, (unsigned long long)(timeout_ns / 1000000000));
    const int e = m->error;
    g->nccl->of[g->lo] = e ? NULL : m->made;
    free_making(m);
    if (e)
        return not_started(&g->nccl->f, e, err);
    return MN_OK;
}

mn_status cu_nccl_join(cu_group *g, const uint8_t *id, uint64_t timeout_ns, mn_error *err) {
    mn_status st = new_nccl(g, err);
    making *m = st ? NULL : new_making(g, id);
    if (!st && !m)
        st = mnp_fail_memory(err, sizeof *m, "NCCL");
    if (!st)
        st = make_in_time(g, m, timeout_ns, err);
    if (st)
        cu_nccl_close(g);
    return st;
}

/* Without waiting for others where one is known to be gone. */
void cu_nccl_close(cu_group *g) {
    cu_nccl *l = g->nccl;
    if (!l)
        return;
    const bool is_lost = g->stuck || cu_nccl_check(g, NULL) != MN_OK;
    CU_EACH_MEMBER (g, r, true) {
        if (!l->of[r])
            continue;
        if (is_lost)
            l->f.abort(l->of[r]);
        else
            l->f.destroy(l->of[r]);
    }
    pthread_mutex_destroy(&l->lock);
    mng_delete(&g->base, l);
    g->nccl = NULL;
}

/* ---- exchanges ------------------------------------------------------------------------------- */
static mn_status lost(const cu_nccl *l, int e, mn_error *err) {
    return mnp_fail(err, MN_DEVICE_LOST, ~0u, "NCCL, an exchange of the group: %.200s (%d)",
                    l->f.error(e), e);
}

mn_status cu_nccl_check(const cu_group *g, mn_error *err) {
    const cu_nccl *l = g->nccl;
    for (uint32_t r = g->lo; r < g->hi && l; r++) {
        int seen = 0;
        int e = l->of[r] ? l->f.async_error(l->of[r], &seen) : 0;
        if (!e)
            e = seen;
        if (e)
            return lost(l, e, err);
    }
    return MN_OK;
}

static int post(const cu_nccl *l, communicator c, uint32_t other, const cu_parcel *p,
                cudaStream_t stream) {
    int e = 0;
    if (p->n_from)
        e = l->f.send(p->from, (size_t)p->n_from, NCCL_FLOAT32, (int)other, c, stream);
    if (!e && p->n_to)
        e = l->f.receive(p->to, (size_t)p->n_to, NCCL_FLOAT32, (int)other, c, stream);
    return e;
}

mn_status cu_nccl_swap(cu_group *g, const cu_parcels *parcels, const cudaStream_t *streams,
                       mn_error *err) {
    cu_nccl *l = g->nccl;
    pthread_mutex_lock(&l->lock);
    int e = l->f.group_start();
    CU_EACH_MEMBER (g, r, true)
        for (uint32_t other = 0; other < g->n && !e; other++)
            if (other != r)
                e = post(l, l->of[r], other, &parcels[r].of[other], streams[r]);
    const int end = l->f.group_end();
    pthread_mutex_unlock(&l->lock);
    if (!e)
        e = end;
    if (e)
        return lost(l, e, err);
    return MN_OK;
}
