/* group.cu -- opening a group: cards of one kind, and a way between them. The group owns its
 * members' devices; they are closed with it. */
#include "group.h"

/* ---- options and messages -------------------------------------------------------------------- */
static bool option(const cu_plugin *p, const char *key, mn_str *value) {
    return MN_HAS(mn_host, p->host, option) && p->host->option(p->host->self, key, value) == 1 &&
           value->len;
}

static bool option_is(const cu_plugin *p, const char *key, const char *text) {
    mn_str value;
    return option(p, key, &value) && value.len == strlen(text) &&
           !memcmp(value.ptr, text, value.len);
}

static uint64_t option_number(const cu_plugin *p, const char *key, uint64_t otherwise) {
    mn_str value;
    uint64_t n = 0;
    if (!option(p, key, &value))
        return otherwise;
    for (uint64_t i = 0; i < value.len && value.ptr[i] >= '0' && value.ptr[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(value.ptr[i] - '0');
    return n;
}

mn_status cu_group_blame(const cu_group *g, uint32_t rank, mn_status st, mn_error *err) {
    char said[sizeof err->msg];
    if (!st || !err || err->size < MNP_UP_TO(mn_error, msg))
        return st;
    snprintf(said, sizeof said, "%s", err->msg);
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST && g->missed)
        for (uint32_t r = 0; r < g->n; r++) {
            const uint32_t missed = g->missed[r];
            if (missed && missed <= g->n)
                return mnp_fail(err, st, ~0u,
                                "member %u of the group (cuda:%d) did not answer member %u for "
                                "%d s; the group is lost to this process",
                                missed - 1, g->of[missed - 1]->index, r, CU_PATIENCE);
        }
    const uint32_t node = err->node;
    mnp_fail(err, st, node, "member %u of the group (cuda:%d): %.400s", rank, g->of[rank]->index,
             said);
    return st;
}

/* ---- ways between members -------------------------------------------------------------------- */
static mn_status not_alike(const mn_device *a, const mn_device *b, mn_error *err) {
    cudaDeviceProp p;
    cudaDeviceProp q;
    CU_TRY(cudaGetDeviceProperties(&p, a->index), err, "device properties");
    CU_TRY(cudaGetDeviceProperties(&q, b->index), err, "device properties");
    if (a->cc == b->cc && !strcmp(p.name, q.name))
        return MN_OK;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                    "cuda:%d is a %.100s (%d.%d) and cuda:%d a %.100s (%d.%d); a group is of cards "
                    "of one kind",
                    a->index, p.name, p.major, p.minor, b->index, q.name, q.major, q.minor);
}

/* Whether member a can use the memory of member b; then it may. */
static bool reach(const mn_device *a, const mn_device *b) {
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, a->index, b->index) != cudaSuccess || !can) {
        cudaGetLastError();
        return false;
    }
    const bool set = cudaSetDevice(a->index) == cudaSuccess;
    const cudaError_t e = cudaDeviceEnablePeerAccess(b->index, 0);
    cudaGetLastError();
    return set && (e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled);
}

static bool reach_all(const cu_group *g) {
    for (uint32_t a = 0; a < g->n; a++)
        for (uint32_t b = 0; b < g->n; b++)
            if (a != b && !reach(g->of[a], g->of[b]))
                return false;
    return true;
}

/* Peer memory where it is there, NCCL where it is not or is asked for. */
static mn_status connect(cu_group *g, mn_error *err) {
    const cu_plugin *p = g->plugin;
    const bool only_nccl = option_is(p, "collectives", "nccl");
    mn_error why = {};
    why.size = sizeof why;
    g->small = option_number(p, "group_small_kib", 256) << 10;
    g->peers = !only_nccl && reach_all(g);
    if (g->peers && !option_is(p, "collectives", "mixed"))
        return MN_OK;
    const mn_status st = cu_nccl_open(g, &why);
    if (!st)
        return MN_OK;
    if (g->peers)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.400s", why.msg);
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "the cards %s each other's memory, and %.300s",
                    only_nccl ? "were told not to use" : "cannot read", why.msg);
}

/* ---- devices --------------------------------------------------------------------------------- */
void cu_group_device_close(mn_device *d) {
    cu_group *g = cu_group_of(d);
    cu_nccl_close(g);
    for (mn_event *e = g->spare, *next; e; e = next) {
        next = e->next;
        mnp_delete(g->plugin->host, (cu_group_event *)e);
    }
    while (g->layouts) {
        cu_group_layout *next = g->layouts->next;
        mnp_delete(g->plugin->host, g->layouts);
        g->layouts = next;
    }
    if (g->missed)
        cudaFreeHost(g->missed);
    for (uint32_t r = 0; r < g->n; r++)
        cu_device_close(g->of[r]);
    pthread_mutex_destroy(&g->lock);
    mnp_delete(g->plugin->host, g);
}

static mn_status open_members(cu_group *g, const uint32_t *members, mn_error *err) {
    uint32_t count = 0;
    mn_status st = cu_device_count(g->plugin, &count, err);
    for (uint32_t r = 0; r < g->n && !st; r++) {
        if (members[r] >= count)
            return mnp_fail(err, MN_NO_DEVICE, ~0u, "cuda:%u; there are %u", members[r], count);
        st = cu_device_open(g->plugin, members[r], &g->of[r], err);
        if (!st && r)
            st = not_alike(g->of[0], g->of[r], err);
    }
    return st;
}

static mn_status open_group(void *self, const uint32_t *members, uint32_t n, mn_device **out,
                            mn_error *err) {
    cu_plugin *p = (cu_plugin *)self;
    if (n < 2 || n > CU_MAX_MEMBERS)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%u members; a group has 2 to %d", n,
                        CU_MAX_MEMBERS);
    cu_group *g = (cu_group *)mnp_new(p->host, sizeof *g);
    if (!g)
        return mnp_fail_memory(err, sizeof *g, "a group");
    g->plugin = p;
    g->n = n;
    g->index = CU_GROUP;
    pthread_mutex_init(&g->lock, NULL);
    mn_status st = open_members(g, members, err);
    if (!st)
        st = cu_check(cudaHostAlloc((void **)&g->missed, n * sizeof *g->missed,
                                    cudaHostAllocPortable | cudaHostAllocMapped),
                      err, "pinned memory of a group");
    if (!st) {
        memset(g->missed, 0, n * sizeof *g->missed);
        g->sms = g->of[0]->sms;
        g->smem_max = g->of[0]->smem_max;
        g->cc = g->of[0]->cc;
        g->gbps = g->of[0]->gbps;
        st = connect(g, err);
    }
    if (st)
        cu_group_device_close(g);
    else
        *out = g;
    return st;
}

static mn_status member_memory(mn_device *d, uint32_t rank, uint64_t *free_bytes, uint64_t *total,
                               mn_error *err) {
    const cu_group *g = cu_group_of(d);
    if (rank >= g->n)
        return mnp_fail(err, MN_INVALID, ~0u, "member %u of %u", rank, g->n);
    const mn_status st = cu_device_memory(g->of[rank], free_bytes, total, err);
    return cu_group_blame(g, rank, st, err);
}

mn_status cu_group_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total,
                                 mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < cu_group_of(d)->n && !st; r++) {
        uint64_t left;
        uint64_t all;
        st = member_memory(d, r, &left, &all, err);
        if (st)
            return st;
        *free_bytes = r && *free_bytes < left ? *free_bytes : left;
        *total = r && *total < all ? *total : all;
    }
    return st;
}

mn_status cu_group_self_test(mn_device *d, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < g->n && !st; r++)
        st = cu_group_blame(g, r, cu_self_test(g->of[r], err), err);
    return st;
}

/* Members are alike, and what they have of a node is never larger than the node. */
mn_status cu_group_supports(mn_device *d, const mn_graph *g, const int64_t *symbols, mn_verdict *v,
                            uint32_t stride, mn_error *err) {
    return cu_supports(cu_group_of(d)->of[0], g, symbols, v, stride, err);
}

const mn_group cu_group_table = {sizeof(mn_group), 0, open_group, member_memory,
                                 cu_group_member_estimate};
