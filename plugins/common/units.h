/* units.h -- lowering: the nodes of a segment as units, each of which a backend executes at once.
 * A unit is one anchor node and the parts that a pattern of the backend lets it absorb. Parts are
 * found by the maker and the readers of a tensor, never by the position of a node, so that
 * independent nodes between them change nothing. A unit runs in the place of its last node.
 *
 * Threads and errors as in common.h. Arrays are the caller's; patterns are constant and outlive the
 * units. */
#ifndef MNP_UNITS_H
#define MNP_UNITS_H
#include "common.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---- maker and readers of a tensor ----------------------------------------------------------- */
typedef struct {
    int32_t maker, reader; /* in the segment: the node that writes it; the last that reads it; -1 */
    uint32_t reads;        /* operands of the segment that read it; a read of its view counts 2 */
    bool crosses;          /* it, or a view of it, is read outside of the segment */
} mnp_use;
typedef struct {
    const mn_graph *g;
    uint32_t lo;
    uint32_t hi;
    const mnp_use *uses; /* [n_tensors] */
} mnp_lowering;

/* Fills uses [n_tensors] for the segment [lo, hi). */
void mnp_count_uses(const mn_graph *g, uint32_t lo, uint32_t hi, mnp_use *uses);
/* An interior that is read once, inside, and neither is a view nor has one: it need not exist in
 * memory. */
bool mnp_is_private(const mnp_lowering *l, int32_t tensor);

/* ---- patterns -------------------------------------------------------------------------------- */
enum { MNP_MAX_PARTS = 6, MNP_ANCHOR = -1 };
typedef struct mnp_unit mnp_unit;

/* How a part is found from a node that the unit has: */
#define MNP_MAKER 1u    /* the node that makes its input `operand` */
#define MNP_READER 2u   /* the one node that reads its outputs, all of them private */
#define MNP_ATTENDER 3u /* of a KV_STORE: the ATTENTION over the same layer of the same cache */
/* Flags. */
#define MNP_PRIVATE 1u /* with MNP_MAKER: only if the tensor between is private */
#define MNP_LOCATE 2u  /* only a way to further parts */
/* may be executed together with the unit, in the place of the later of them, and stays a unit of
 * its own: the backend chooses per step */
#define MNP_APART 4u

typedef struct {
    const char *name; /* for the log */
    uint32_t op;
    uint32_t edge;
    uint32_t operand;
    uint32_t flags;
    int32_t of;    /* MNP_ANCHOR, or an earlier part */
    uint32_t with; /* bits of the parts that this one needs */
    /* optional: why the node does not fit the unit so far; NULL = it fits */
    const char *(*refuse)(const mnp_lowering *l, const mnp_unit *u, uint32_t node);
} mnp_part;
typedef struct {
    const char *name;
    uint32_t op, n_parts; /* op: of the anchor */
    mnp_part parts[MNP_MAX_PARTS];
} mnp_pattern;

struct mnp_unit {
    const mnp_pattern *pattern;  /* NULL: one node that no pattern begins with */
    uint32_t node, last;         /* the anchor; the last of its nodes, in whose place it runs */
    int32_t part[MNP_MAX_PARTS]; /* nodes by the pattern's parts; -1 = not absorbed */
};

/* Turns the segment into units, in the order in which they run: units [hi - lo]. Every node that
 * was not absorbed is in exactly one unit. A node that two units could absorb goes to the later
 * anchor. log: the host that logs, at level debug, which part was not fused and why; NULL = no log.
 * MN_OUT_OF_MEMORY. */
mn_status mnp_lower(const mn_host *h, const mnp_lowering *l, const mnp_pattern *const *patterns,
                    uint32_t n_patterns, const mn_host *log, mnp_unit *units, uint32_t *n_units,
                    mn_error *err);

/* ---- patterns that several backends have (patterns.c) ---------------------------------------- */
/* [gather] [norm] LINEAR [add | glu]: the norm is an RMS_NORM of [rows, D], one operand of the
 * addition is the product, both products of the unit have one type and size. */
enum { MNP_LINEAR_NORM, MNP_LINEAR_GATHER, MNP_LINEAR_ADD, MNP_LINEAR_GLU };
extern const mnp_pattern mnp_pattern_linear;
/* [rope q, rope k] KV_STORE [attention]: both rotations or none, equal and at the rows' positions.
 * The attention stays a unit of its own, is the only reader of the rotated q, and has the same rows
 * and cache. MNP_STORE_READER only leads to further parts. */
enum { MNP_STORE_READER, MNP_STORE_ROPE_K, MNP_STORE_ROPE_Q, MNP_STORE_ATTENTION };
extern const mnp_pattern mnp_pattern_store;
/* MOE_LINEAR [glu]: both products of the unit are of one type and size. */
enum { MNP_MOE_LINEAR_GLU };
extern const mnp_pattern mnp_pattern_moe_linear;
/* MOE_COMBINE [add] */
enum { MNP_COMBINE_ADD };
extern const mnp_pattern mnp_pattern_combine;

/* The nodes that a unit of these patterns absorbed, by their kind; -1 = none. */
typedef struct {
    int32_t norm, gather, add, glu, rope_q, rope_k;
} mnp_taken;
/* Of a unit of another pattern: all -1. */
mnp_taken mnp_taken_in(const mnp_unit *u);

#ifdef __cplusplus
}
#endif
#endif
