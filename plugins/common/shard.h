/* shard.h -- tensor parallelism: a segment divided over the members of a group. A pure function of
 * graph, segment and number of members: the same on every host and in every process.
 *
 *   attention     by KV heads, with the query heads that read them. More members than KV heads:
 *                 each KV head is held by several members, which divide its query heads
 *   feed-forward  gate and up by rows, down by columns (Shoeybi et al. 2019, Megatron-LM); experts
 *                 the same, inside of each expert
 *   embedding     by columns, so that no operation needs to know of other members' ids
 * other LINEARs by rows, as the vocabulary of the logits; except the router of experts
 *   the rest      on every member: norms, SAMPLE, SLOTS, HISTORY. All members have the same whole
 *                 logits and draw the same ids
 *
 * Columns are cut at borders of the weight's blocks, rows of F8_E4M3_128 at multiples of 128;
 * shares may be uneven. Where no border fits, the divided tensor is gathered, and the weight
 * behind it is cut by rows. A tensor that cannot be divided over n members (too few heads or rows)
 * is whole on each member.
 *
 * Each member executes an ordinary graph of its own. It has the nodes and tensors of the host's
 * graph, with the same numbers and order, but pieces have smaller dims, and additional tensors of
 * members follow behind. Between nodes stand the exchanges. Weights are named as in the host's
 * graph; a second piece of the same weight has a name of its own.
 *
 * Threads and errors as in common.h, except that a plan owns memory of the host; a finished plan is
 * constant. The host's graph outlives it. */
#ifndef MNP_SHARD_H
#define MNP_SHARD_H
#include "units.h"
#ifdef __cplusplus
extern "C" {
#endif

#define MNP_MAX_MEMBERS 64u

/* [lo, hi) along a dimension. */
typedef struct {
    int64_t lo;
    int64_t hi;
} mnp_share;

/* An exchange of the members before node `at` (n: behind the last node). SUM: `from` == `to`
 * becomes the sum over members, added in the order of ranks, on every member. GATHER: the
 * members' pieces `from`, side by side along dim, become `to` on every member. TAKE: a member's
 * share of `to` is copied out of its own `from`; it needs no other member. All are f32 and
 * dense. */
#define MNP_SUM 1u
#define MNP_GATHER 2u
#define MNP_TAKE 3u
typedef struct {
    uint32_t at;
    uint32_t kind;
    uint32_t from; /* tensors of the members' graphs */
    uint32_t to;
    uint32_t dim;
} mnp_exchange;

/* How tensor t of the members' graphs lies on them. */
typedef struct {
    uint32_t source; /* the tensor of the host's graph that it is, or is a piece of */
    int32_t dim;     /* along which it is divided; -1 = whole on every member */
} mnp_piece;

typedef struct mnp_shard mnp_shard;

/* The plan of a segment for 2 to MNP_MAX_MEMBERS members. Reads the same fields of c as
 * memory_layout: no weights, no cache. MN_INVALID: n; MN_UNSUPPORTED: a view in the segment;
 * MN_OUT_OF_MEMORY. */
mn_status mnp_shard_plan(const mn_host *h, const mn_compile *c, uint32_t n, mnp_shard **out,
                         mn_error *err);
void mnp_shard_free(mnp_shard *s); /* NULL is legal */

uint32_t mnp_shard_members(const mnp_shard *s);
/* The graph that a member executes; the plan's. */
const mn_graph *mnp_shard_graph(const mnp_shard *s, uint32_t rank);
/* The compile input of a member, made from c, the compile input that the plan was made of: it has
 * the member's graph, and for each group of the memory the member's heads. Layouts are NULL. */
mn_compile mnp_shard_compile(const mnp_shard *s, uint32_t rank, const mn_compile *c);
/* By ascending `at`. */
const mnp_exchange *mnp_shard_exchanges(const mnp_shard *s, uint32_t *n);
mnp_piece mnp_shard_piece(const mnp_shard *s, uint32_t tensor);
/* The range of the divided dimension that a member has; {0, 0} for a whole tensor. */
mnp_share mnp_shard_share(const mnp_shard *s, uint32_t tensor, uint32_t rank);
/* Bytes of the weights that a member holds, each piece once. */
uint64_t mnp_shard_weight_bytes(const mnp_shard *s, uint32_t rank);

/* ---- for members that fuse nodes to units (units.h) ------------------------------------------ */
/* To be called after mnp_count_uses of a member's graph: marks exchanged tensors as not private. */
void mnp_shard_uses(const mnp_shard *s, mnp_use *uses);
/* before: for each exchange the unit in front of which it takes place, in the order of exchanges,
 * which all members share; n_units: behind the last unit. unit_of: [n_nodes], the unit that runs
 * each node of the segment. MN_UNSUPPORTED: the units leave no place for one. */
mn_status mnp_shard_stops(const mnp_shard *s, uint32_t rank, const uint32_t *unit_of,
                          uint32_t n_units, uint32_t *before, mn_error *err);

/* ---- sources --------------------------------------------------------------------------------- */
/* A member's piece of a weight's source: planes of the same mapped file, cut by pointer and
 * stride, nothing is copied. tensor: of the members' graph, whose piece's source is in->tensor.
 * planes: room for in->n_parts * in->n_planes; out refers to it. MN_UNSUPPORTED: a plane that
 * cannot be cut. */
mn_status mnp_shard_source(const mnp_shard *s, uint32_t rank, uint32_t tensor,
                           const mn_weight_src *in, mn_plane *planes, mn_weight_src *out,
                           mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
