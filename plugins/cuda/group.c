/* group.c -- opening a group: cards of one kind, and a way between them. The group owns the
 * devices of its members that are here; they are closed with it. */
#include "group_step.h"
#include <unistd.h>

/* How long a member waits for the others to join. */
#define JOIN_NS UINT64_C(60000000000)

/* ---- options and messages -------------------------------------------------------------------- */
static bool option_is(const mng_plugin *p, const char *key, const char *text) {
    const mn_host *h = p->host;
    mn_str value;
    return MN_HAS(mn_host, h, option) && h->option(h->self, key, &value) == 1 &&
           value.len == strlen(text) && !memcmp(value.ptr, text, value.len);
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
    char process[32] = "";
    if (cu_is_joined_group(g))
        snprintf(process, sizeof process, " of process %ld", (long)getpid());
    mnp_fail(err, st, node, "member %u of the group (cuda:%d%s): %.400s", rank, g->of[rank]->index,
             process, said);
    return st;
}

/* ---- cards of one kind ----------------------------------------------------------------------- */
/* What a member tells the others of its card, and of what they must agree on. */
typedef struct {
    char name[96];
    int32_t major, minor;
    uint64_t memory, small;
} card;

static mn_status card_of(const cu_group *g, uint32_t rank, card *out, mn_error *err) {
    struct cudaDeviceProp p;
    CU_TRY(cudaGetDeviceProperties(&p, g->of[rank]->index), err, "device properties");
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%.90s", p.name);
    out->major = p.major;
    out->minor = p.minor;
    out->memory = p.totalGlobalMem;
    out->small = g->small;
    return MN_OK;
}

/* Of all members; the same answer in all processes. */
static mn_status compare_cards(cu_group *g, const card *cards, mn_error *err) {
    const card *a = &cards[0];
    g->least = a->memory;
    for (uint32_t r = 1; r < g->n; r++) {
        const card *b = &cards[r];
        if (a->major != b->major || a->minor != b->minor || strcmp(a->name, b->name))
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "member 0 is a %.100s (%d.%d) and member %u a %.100s (%d.%d); a group "
                            "is of cards of one kind",
                            a->name, a->major, a->minor, r, b->name, b->major, b->minor);
        if (a->small != b->small)
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "option group_small_kib is %llu for member 0 and %llu for member %u; "
                            "expected the same",
                            (unsigned long long)a->small >> 10, (unsigned long long)b->small >> 10,
                            r);
        if (b->memory < g->least)
            g->least = b->memory;
    }
    return MN_OK;
}

/* ---- ways between members -------------------------------------------------------------------- */
/* Whether member a can use the memory of member b; then it may. */
static bool reach(const mn_device *a, const mn_device *b) {
    int can = 0;
    if (a->index == b->index)
        return true;
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
    const mng_plugin *p = g->base.base.plugin;
    const bool only_nccl = option_is(p, "collectives", "nccl");
    mn_error why = {0};
    why.size = sizeof why;
    g->peers = !only_nccl && reach_all(g);
    for (uint32_t r = 1; r < g->n; r++)
        g->one_card = g->one_card || g->of[r]->index == g->of[r - 1]->index;
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
    while (g->layouts) {
        cu_group_layout *next = g->layouts->next;
        mng_delete(d, g->layouts);
        g->layouts = next;
    }
    if (g->missed)
        cudaFreeHost(g->missed);
    CU_EACH_MEMBER (g, r, true)
        mng_device_close(g->of[r]);
    mng_device_delete(d);
}

/* A group without members, of which [lo, hi) are to be here. */
static mn_status new_group(mng_plugin *p, uint32_t n, uint32_t lo, uint32_t hi, cu_group **out,
                           mn_error *err) {
    const mn_device_info unnamed = {0};
    if (n < 2 || n > CU_MAX_MEMBERS)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%u members; a group has 2 to %d", n,
                        CU_MAX_MEMBERS);
    cu_group *g = (cu_group *)mng_device_new(p, sizeof *g, &unnamed);
    if (!g)
        return mnp_fail_memory(err, sizeof *g, "a group");
    g->n = n;
    g->lo = lo;
    g->hi = hi;
    g->base.index = CU_GROUP;
    g->small = (uint64_t)mng_option(p->host, "group_small_kib", 256) << 10;
    *out = g;
    return MN_OK;
}

/* members: of those that are to be here. */
static mn_status open_members(cu_group *g, const uint32_t *members, mn_error *err) {
    const uint64_t bytes = g->n * sizeof *g->missed;
    mn_status st = MN_OK;
    const mn_open_params usual = {.size = sizeof usual};
    CU_EACH_MEMBER (g, r, !st)
        st = mng_device_open(g->base.base.plugin, members[r - g->lo], &usual, &g->of[r], err);
    if (!st)
        st = cu_check(
            cudaHostAlloc((void **)&g->missed, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
            err, "pinned memory of a group");
    if (st)
        return st;
    memset(g->missed, 0, bytes);
    const mn_device *first = g->of[g->lo];
    g->base.card = first->card;
    g->base.gbps = first->gbps;
    return MN_OK;
}

static mn_status open_group(void *self, const uint32_t *members, uint32_t n, mn_device **out,
                            mn_error *err) {
    card cards[CU_MAX_MEMBERS];
    cu_group *g = NULL;
    mn_status st = new_group(self, n, 0, n, &g, err);
    if (st)
        return st;
    st = open_members(g, members, err);
    for (uint32_t r = 0; r < n && !st; r++)
        st = card_of(g, r, &cards[r], err);
    if (!st)
        st = compare_cards(g, cards, err);
    if (!st)
        st = connect(g, err);
    if (st)
        cu_group_device_close(&g->base);
    else
        *out = &g->base;
    return st;
}

/* ---- joining --------------------------------------------------------------------------------- */
/* All members' cards, each sent by its process. on: memory of the card for n of them. */
static mn_status send_cards(cu_group *g, mn_queue *q, card *on, card *cards, uint64_t timeout_ns,
                            mn_error *err) {
    enum { FLOATS = sizeof(card) / sizeof(float) };
    cu_parcels parcels[CU_MAX_MEMBERS] = {0};
    cudaStream_t streams[CU_MAX_MEMBERS] = {0};
    const uint32_t own = g->lo;
    mn_event *sent = NULL;
    streams[own] = q->stream;
    for (uint32_t r = 0; r < g->n; r++)
        parcels[own].of[r] = (cu_parcel){(const float *)&on[own], (float *)&on[r], FLOATS, FLOATS};
    CU_TRY(cudaMemcpyAsync(&on[own], &cards[own], sizeof(card), cudaMemcpyDefault, q->stream), err,
           "joining");
    mn_status st = cu_nccl_swap(g, parcels, streams, err);
    if (!st)
        st = mng_event_new(q, &sent, err);
    if (!st)
        st = mng_wait(sent, timeout_ns, err);
    if (st == MN_TIMEOUT)
        mnp_fail(err, st, ~0u, "member %u of a group: a member does not answer", own);
    mng_event_free(sent);
    if (st)
        return st;
    return cu_check(cudaMemcpy(cards, on, g->n * sizeof(card), cudaMemcpyDefault), err, "joining");
}

static mn_status exchange_cards(cu_group *g, uint64_t timeout_ns, mn_error *err) {
    card cards[CU_MAX_MEMBERS];
    card *on = NULL;
    mn_queue *q = NULL;
    const mn_queue_params usual = {.size = sizeof usual};
    mn_status st = card_of(g, g->lo, &cards[g->lo], err);
    if (!st)
        st = mng_queue_create(g->of[g->lo], &usual, &q, err);
    if (!st)
        st = cu_check(cudaMalloc((void **)&on, g->n * sizeof(card)), err, "joining");
    if (!st)
        st = send_cards(g, q, on, cards, timeout_ns, err);
    if (!st)
        st = compare_cards(g, cards, err);
    g->stuck = st == MN_TIMEOUT;
    if (g->stuck)
        return st; /* the exchange may still write there, and the process is to end */
    mng_queue_free(q);
    cudaFree(on);
    return st;
}

static mn_status make_id(void *self, uint8_t *id, mn_error *err) {
    return cu_nccl_make_id(self, id, err);
}

static mn_status join(void *self, uint32_t index, uint32_t rank, uint32_t n, const uint8_t *id,
                      mn_device **out, mn_error *err) {
    const mng_plugin *p = self;
    const mn_host *h = p->host;
    const uint64_t from = h->now_ns(h->self);
    cu_group *g = NULL;
    if (rank >= n)
        return mnp_fail(err, MN_INVALID, ~0u, "member %u of %u", rank, n);
    mn_status st = new_group(self, n, rank, rank + 1, &g, err);
    if (st)
        return st;
    st = open_members(g, &index, err);
    if (!st)
        st = cu_nccl_join(g, id, JOIN_NS, err);
    const uint64_t past = h->now_ns(h->self) - from;
    if (!st)
        st = exchange_cards(g, past < JOIN_NS ? JOIN_NS - past : 0, err);
    if (st)
        cu_group_device_close(&g->base);
    else
        *out = &g->base;
    return st;
}

/* ---- facts ----------------------------------------------------------------------------------- */
static mn_status member_memory(mn_device *d, uint32_t rank, uint64_t *free_bytes, uint64_t *total,
                               mn_error *err) {
    const cu_group *g = cu_group_of(d);
    if (rank >= g->n)
        return mnp_fail(err, MN_INVALID, ~0u, "member %u of %u", rank, g->n);
    if (!g->of[rank])
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "member %u of the group is in another process",
                        rank);
    const mn_status st = mng_device_memory(g->of[rank], free_bytes, total, err);
    return cu_group_blame(g, rank, st, err);
}

/* What is free in other processes their hosts ask for. */
mn_status cu_group_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total,
                                 mn_error *err) {
    const cu_group *g = cu_group_of(d);
    CU_EACH_MEMBER (g, r, true) {
        uint64_t left;
        uint64_t all;
        const mn_status st = member_memory(d, r, &left, &all, err);
        if (st)
            return st;
        if (r == g->lo || left < *free_bytes)
            *free_bytes = left;
    }
    *total = g->least;
    return MN_OK;
}

mn_status cu_group_self_test(mn_device *d, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_status st = MN_OK;
    CU_EACH_MEMBER (g, r, !st)
        st = cu_group_blame(g, r, mng_self_test(g->of[r], err), err);
    return st;
}

/* Members are alike, and what they have of a node is never larger than the node. */
mn_status cu_group_supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                            mn_error *err) {
    const cu_group *group = cu_group_of(d);
    return mng_supports(group->of[group->lo], c, v, stride, err);
}

const mn_group cu_group_table = {
    .size = sizeof(mn_group),
    .open = open_group,
    .memory = member_memory,
    .member_estimate = cu_group_member_estimate,
    .make_id = make_id,
    .join = join,
    .id_bytes = CU_NCCL_ID_BYTES,
};
