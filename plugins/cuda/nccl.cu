/* nccl.cu -- NCCL, opened when a group needs it: NVIDIA's library of collectives, which chooses how
 * data travels between cards. Only the few functions and constants of its stable interface that
 * are used here; the library stays open until the process ends. A communicator belongs to one
 * member of one group; one thread uses all of a group at a time. */
#include "group.h"
#include <dlfcn.h>

enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0 };
typedef void *communicator;
struct cu_nccl {
    int (*init_all)(communicator *, int, const int *);
    int (*destroy)(communicator);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *, void *, size_t, int, int, communicator, cudaStream_t);
    const char *(*error)(int);
    communicator of[CU_MAX_MEMBERS];
    uint32_t n;
    pthread_mutex_t lock;
};

static mn_status failed(const cu_nccl *l, int e, mn_error *err, const char *what) {
    if (!e)
        return MN_OK;
    return mnp_fail(err, MN_DEVICE_LOST, ~0u, "NCCL, %s: %s (%d)", what, l->error(e), e);
}

/* The library at the option's path, else where the system has it. */
static void *open_library(const cu_group *g, char *path, size_t room) {
    const mn_host *h = g->plugin->host;
    mn_str value;
    snprintf(path, room, "libnccl.so.2");
    if (MN_HAS(mn_host, h, option) && h->option(h->self, "nccl", &value) == 1 && value.len)
        snprintf(path, room, "%.*s", (int)value.len, value.ptr);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool find_all(cu_nccl *l, void *lib) {
    const struct {
        const char *name;
        void *to;
    } wanted[] = {{"ncclCommInitAll", &l->init_all},   {"ncclCommDestroy", &l->destroy},
                  {"ncclGroupStart", &l->group_start}, {"ncclGroupEnd", &l->group_end},
                  {"ncclAllReduce", &l->all_reduce},   {"ncclGetErrorString", &l->error}};
    for (const auto &w : wanted) {
        void *f = dlsym(lib, w.name);
        memcpy(w.to, &f, sizeof f);
        if (!f)
            return false;
    }
    return true;
}

mn_status cu_nccl_open(cu_group *g, mn_error *err) {
    char path[256];
    int devices[CU_MAX_MEMBERS];
    void *lib = open_library(g, path, sizeof path);
    if (!lib)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                        "NCCL (%.200s; option nccl of the plugin) cannot be opened: %.200s", path,
                        dlerror());
    cu_nccl *l = (cu_nccl *)cu_new(g, sizeof *l);
    if (!l)
        return mnp_fail_memory(err, sizeof *l, "NCCL");
    pthread_mutex_init(&l->lock, NULL);
    g->nccl = l;
    if (!find_all(l, lib)) {
        cu_nccl_close(g);
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.200s lacks functions of NCCL 2", path);
    }
    for (uint32_t r = 0; r < g->n; r++)
        devices[r] = g->of[r]->index;
    const int e = l->init_all(l->of, (int)g->n, devices);
    if (e) {
        const char *said = l->error(e);
        cu_nccl_close(g);
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "NCCL does not start: %.200s (%d)", said, e);
    }
    l->n = g->n;
    return MN_OK;
}

void cu_nccl_close(cu_group *g) {
    cu_nccl *l = g->nccl;
    if (!l)
        return;
    for (uint32_t r = 0; r < l->n; r++)
        l->destroy(l->of[r]);
    pthread_mutex_destroy(&l->lock);
    cu_delete(g, l);
    g->nccl = NULL;
}

mn_status cu_nccl_sum(cu_group *g, float *const *at, int64_t n, const cudaStream_t *streams,
                      mn_error *err) {
    cu_nccl *l = g->nccl;
    pthread_mutex_lock(&l->lock);
    int e = l->group_start();
    for (uint32_t r = 0; r < g->n && !e; r++)
        e = l->all_reduce(at[r], at[r], (size_t)n, NCCL_FLOAT32, NCCL_SUM, l->of[r], streams[r]);
    const int end = l->group_end();
    pthread_mutex_unlock(&l->lock);
    return failed(l, e ? e : end, err, "a sum");
}
