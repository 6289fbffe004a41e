/* common.h -- shared by all backends of this tree: errors, the host's graph read by strides, symbol
 * values, sizes, one arena for tensors by their lifetimes, the geometry of KV pages, and the checks
 * of bindings. C11 that also compiles as C++ (nvcc); needs plugin.h and libc alone. units.h beside
 * it turns nodes into fused units.
 *
 * Unless a line says otherwise: pure functions, any thread; they keep no pointer and own nothing;
 * `err` may be NULL; on an error outputs are undefined. Indices of operands and attributes of a
 * graph are in range only after mnp_read_compile has accepted it.
 *
 * T rows of a step, H heads, D elements of a head. Node and tensor numbers are indices in the
 * graph; -1 = absent. */
#ifndef MNP_COMMON_H
#define MNP_COMMON_H
#include <minerva/plugin.h>
#include <stdbool.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and memory ----------------------------------------------------------------------- */
#if defined(__GNUC__)
#define MNP_FORMAT(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define MNP_FORMAT(fmt, first)
#endif
/* Fills err by its size, if there is one, and returns status. node: the one at fault, or ~0u. */
mn_status mnp_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...)
    MNP_FORMAT(4, 5);
/* MN_OUT_OF_MEMORY: "out of memory: 64 bytes for a program". */
mn_status mnp_fail_memory(mn_error *err, uint64_t bytes, const char *what);

/* The first check of minerva_plugin_entry: the ABI of the host fits, and the host has alloc and
 * release. id: the plugin's. MN_UNSUPPORTED or MN_INVALID. */
mn_status mnp_check_host(const mn_host *h, const char *id, mn_error *err);
static inline mn_str mnp_str(const char *z) {
    mn_str s;
    s.ptr = z;
    s.len = strlen(z);
    return s;
}

/* Zeroed memory of the host, aligned to 64 bytes; NULL = out of memory; 0 bytes is legal. Freed
 * with mnp_delete. */
void *mnp_new(const mn_host *h, uint64_t bytes);
void mnp_delete(const mn_host *h, void *p);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* Bytes of a T up to and with field f: the least size of the other side's struct. */
#define MNP_UP_TO(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))
/* Reads a struct of the other side, which is from_bytes long; fields beyond that are 0. */
void mnp_read(void *to, uint64_t to_bytes, const void *from, uint64_t from_bytes);
/* Fills an output that begins with `uint32_t size`, its capacity, and sets size. */
void mnp_fill(void *out, const void *from, uint32_t from_bytes);

/* ---- parameters of calls --------------------------------------------------------------------- */
/* Each reads the struct by its size and refuses what these backends do not know (R10):
 * MN_UNSUPPORTED, or MN_INVALID where it contradicts itself. */
/* kind: one of MN_MEM_*. align: at most `most`, the alignment that the caller's memory has
 * anyway. */
mn_status mnp_read_alloc(const mn_alloc_params *in, uint64_t most, mn_alloc_params *out,
                         mn_error *err);
mn_status mnp_check_queue(const mn_queue_params *in, mn_error *err);
/* uid: of this device. MN_NO_DEVICE: the host asks for another device. */
mn_status mnp_check_open(const mn_open_params *in, const char *uid, mn_error *err);
mn_status mnp_read_context(const mn_context_params *in, mn_queue **queue, mn_error *err);
/* For backends without words: a step with words is MN_UNSUPPORTED. */
mn_status mnp_read_step(const mn_step *in, mn_step *out, mn_error *err);

/* ---- the graph ------------------------------------------------------------------------------- */
static inline const void *mnp_entry(const void *array, uint32_t i, uint32_t stride) {
    return (const char *)array + (uint64_t)i * stride;
}
static inline const mn_node *mnp_node(const mn_graph *g, uint32_t i) {
    return (const mn_node *)mnp_entry(g->nodes, i, g->node_stride); /* C++ reads this, too */
}
static inline const mn_tensor *mnp_tensor(const mn_graph *g, uint32_t i) {
    return (const mn_tensor *)mnp_entry(g->tensors, i, g->tensor_stride);
}
static inline const mn_symbol *mnp_symbol(const mn_graph *g, uint32_t i) {
    return (const mn_symbol *)mnp_entry(g->symbols, i, g->symbol_stride);
}
/* The tensor that is input or output i of a node; -1 = absent. */
static inline int32_t mnp_in(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
static inline int32_t mnp_out(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_out ? g->operands[n->out_off + i] : -1;
}
/* Inputs, then outputs: i < n_in + n_out. */
static inline int32_t mnp_operand(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? mnp_in(g, n, i) : mnp_out(g, n, i - n->n_in);
}
/* The same as tensors; NULL = absent. */
static inline const mn_tensor *mnp_in_tensor(const mn_graph *g, const mn_node *n, uint32_t i) {
    const int32_t t = mnp_in(g, n, i);
    return t < 0 ? NULL : mnp_tensor(g, (uint32_t)t);
}
static inline const mn_tensor *mnp_out_tensor(const mn_graph *g, const mn_node *n, uint32_t i) {
    const int32_t t = mnp_out(g, n, i);
    return t < 0 ? NULL : mnp_tensor(g, (uint32_t)t);
}
/* Attribute i; one that is missing is 0. */
static inline int64_t mnp_attr(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_attr ? (int64_t)g->attrs[n->attr_off + i] : 0;
}
static inline double mnp_attr_f64(const mn_graph *g, const mn_node *n, uint32_t i) {
    double v = 0;
    if (i < n->n_attr)
        memcpy(&v, &g->attrs[n->attr_off + i], sizeof v);
    return v;
}
/* A tensor's name for "%.*s". */
#define MNP_NAME(t)                                                                                \
    (int)((t)->name.len > 200 ? 200 : (t)->name.len), (t)->name.ptr ? (t)->name.ptr : ""

bool mnp_lookup_fits(const mn_graph *g, const mn_node *n); /* the operands of a LOOKUP */
bool mnp_lora_fits(const mn_graph *g, const mn_node *n);   /* the operands of a LORA */
/* Whether an operation reads its WEIGHT by rows, not all of it. */
static inline bool mnp_reads_rows(uint32_t op) {
    return op == MN_OP_EMBED || op == MN_OP_LOOKUP;
}
/* The name of an operation, for units of a profile: "RMS_NORM"; "?": MN_OPS has no such id. */
const char *mnp_op_name(uint32_t op);

/* The tensor behind a view; the tensor itself if it is no view. */
uint32_t mnp_root(const mn_graph *g, uint32_t tensor);
/* OPTIONAL outputs of docs/ops.md: not bound = not computed, no memory is needed. */
bool mnp_out_may_be_absent(uint32_t op, uint32_t i);
/* Ops that write a STATE tensor. */
bool mnp_changes_state(uint32_t op);

#define MNP_MAX_SETS 8u /* sets of bindings that these backends have room for */
/* Reads c by its size and checks what every function with such an argument relies on: graph and
 * symbol_max are there, entries of memory have parameters and layers, strides cover the fields
 * known here, the segment lies in the graph, the class is known, n_sets is 1 to MNP_MAX_SETS (0 is
 * read as 1), and operands and attributes of every node lie in their arrays (also outside of the
 * segment, because the readers of a tensor decide what may be fused). MN_INVALID or
 * MN_UNSUPPORTED. */
mn_status mnp_read_compile(const mn_compile *in, mn_compile *out, mn_error *err);
/* Of a segment: MN_UNSUPPORTED where a node reads or writes a view that is not dense, or a view of
 * a weight or state. */
mn_status mnp_check_views(const mn_graph *g, uint32_t lo, uint32_t hi, const int64_t *symbol_max,
                          mn_error *err);

/* The operands of role WEIGHT of a segment, one after another: begin with {lo, 0}; the operand's
 * tensor, or -1 after the last. node: where it is read. */
typedef struct {
    uint32_t node;
    uint32_t operand;
} mnp_cursor;
int32_t mnp_next_weight(const mn_graph *g, uint32_t hi, mnp_cursor *at, uint32_t *node);

/* A weight set was opened for the graph `set`: the tensor of that graph that is the same weight
 * as `tensor` of g, by name, type and dims; -1 = there is none. */
int32_t mnp_find_weight(const mn_graph *set, const mn_graph *g, uint32_t tensor);

/* ---- sources of weights ---------------------------------------------------------------------- */
/* Plane `plane` of part `part`; 0 is DATA. */
const mn_plane *mnp_plane(const mn_weight_src *s, uint32_t part, uint32_t plane);
/* Whether steps [n_dim] of the plane's strides, each at least 1, and values of `size` bytes stay
 * within its bytes. *last: the bytes that they reach. */
bool mnp_plane_reaches(const mn_plane *p, const uint64_t *steps, uint32_t n_dim, uint64_t size,
                       uint64_t *last);
/* Reads by its size a source that weights_put received. It must be a weight of the graph and have
 * its type; each part has a DATA plane of its dims, and the parts together have its rows. The
 * caller checks planes beside DATA. MN_UNSUPPORTED: more than max_dim dimensions, or DATA does not
 * come first. */
mn_status mnp_check_source(const mn_graph *g, const mn_weight_src *s, uint32_t max_dim,
                           mn_error *err);

/* ---- symbols and sizes ----------------------------------------------------------------------- */
/* Writes the values of all symbols, derived ones computed: [n_symbols]. max NULL: `given` are
 * maxima themselves. BOUND symbols fix the layout of tensors (a row of a page table), so they
 * become their maximum. MN_INVALID names a symbol outside of [min, max] or above INT32_MAX. given
 * and out may not overlap. */
mn_status mnp_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                      mn_error *err);
/* A dim with these symbol values; -1 = no such symbol. */
static inline int64_t mnp_dim(const mn_graph *g, const int64_t *symbol, int64_t dim) {
    if (dim >= 0)
        return dim;
    return (uint64_t)~dim < g->n_symbols ? symbol[~dim] : -1;
}
/* As ops see the elements: interiors of a FLOAT type are f32. */
uint32_t mnp_elem_dtype(const mn_tensor *t);
/* Bytes of one block of these elements: what offset counts in. */
uint64_t mnp_elem_bytes(const mn_tensor *t);
/* Bytes of the dense tensor; false: they overflow, or a row is no multiple of the block. */
bool mnp_bytes(const mn_graph *g, const mn_tensor *t, const int64_t *symbol, uint64_t *bytes);
/* n up to a multiple of `to`. */
static inline int64_t mnp_round(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* ---- verdicts -------------------------------------------------------------------------------- */
/* Whether the node has an operand, or an attribute that is not 0, beyond the operands and
 * attributes in plugin.h: such a node gets the verdict no. */
bool mnp_has_more(const mn_graph *g, const mn_node *n);
/* Whether a table of contracts [n] covers the node, and plugin.h has all its operands and
 * attributes. */
bool mnp_knows(const mn_op_contract *contracts, uint32_t n, const mn_graph *g, const mn_node *node);
/* A verdict, MN_VERDICT_*, with these symbol values; *reason is 0 before. */
typedef int32_t (*mnp_verdict_fn)(void *user, const int64_t *symbol, uint32_t node,
                                  uint32_t *reason);
/* The loop of supports over a segment that mnp_read_compile has accepted. */
mn_status mnp_supports(const mn_host *h, const mn_compile *c, mnp_verdict_fn fn, void *user,
                       mn_verdict *verdicts, uint32_t stride, mn_error *err);

/* ---- the arena: memory of the tensors of a segment that the host does not bind -------------- */
#define MNP_NOWHERE UINT64_MAX
typedef struct {
    uint64_t place, bytes; /* in the arena; MNP_NOWHERE = has none */
    int32_t first, last;   /* when it lives, in the caller's time; -1 = never */
    bool produced;         /* made inside, by an output that may not be absent */
} mnp_allocation;          /* one per tensor of the graph; views have their root's */

void mnp_arena_begin(const mn_graph *g, mnp_allocation *a); /* a: [n_tensors] */
/* A node runs at time `at`: the tensors that it reads and writes live then. Several calls for one
 * node widen the lifetimes. */
void mnp_arena_live(const mn_graph *g, uint32_t node, int32_t at, mnp_allocation *a);
/* Places every produced interior and output, each at a multiple of align (a power of 2), so that
 * tensors alive at the same time do not overlap. *bytes: of the whole arena. MN_INVALID: a size
 * overflows; MN_OUT_OF_MEMORY. */
mn_status mnp_arena_place(const mn_host *h, const mn_graph *g, const int64_t *symbol_max,
                          uint64_t align, mnp_allocation *a, uint64_t *bytes, mn_error *err);

/* ---- memory of sequences --------------------------------------------------------------------- */
/* The parameters of a group in c->memory; NULL = it is not there. */
const mn_memory_params *mnp_memory_of(const mn_compile *c, uint32_t group);
static inline const mn_memory_layer *mnp_memory_layer(const mn_memory_params *m, uint32_t i) {
    return (const mn_memory_layer *)mnp_entry(m->layers, i, m->layer_stride);
}

/* Properties of a backend's pages of keys and values. */
typedef struct {
    uint32_t page_tokens;
    uint32_t head_align;   /* a head's row is padded to a multiple of so many elements; 1 = dense */
    uint32_t max_head_dim; /* longer heads are MN_UNSUPPORTED; 0 = any */
} mnp_kv_rules;
/* A page of a PAGED group: per layer, K [Hkv, page_tokens, pad_k], then V [Hkv, page_tokens,
 * pad_v], of types of their own. Of Q8_0 a pad is whole blocks; how codes and scales lie within a
 * head's part of a page is the plugin's. Padding is zero in a zeroed buffer and stays so. Of a
 * group whose values are the first elements of its keys there is K alone: v_offset is 0, type and
 * row of values equal those of keys, and dim_v is 0 except for ATTENTION. */
typedef struct {
    uint32_t k_dtype, v_dtype, page_tokens; /* MN_F32, MN_F16 or MN_Q8_0 */
    uint32_t n_layers;                      /* of the group */
    int64_t n_head_kv;
    int64_t dim_k;
    int64_t dim_v;
    int64_t pad_k;
    int64_t pad_v;
    int64_t k_row; /* bytes of a head's key at one position */
    int64_t v_row;
    uint64_t page_bytes;
    uint64_t layer_bytes;
    uint64_t v_offset;
    int64_t layer; /* index of the node's layer among the layers of its group */
} mnp_kv;
/* Of a type of the cache: elements and bytes of a block. */
static inline int64_t mnp_kv_block(uint32_t dtype) {
    return dtype == MN_Q8_0 ? 32 : 1;
}
static inline int64_t mnp_kv_block_bytes(uint32_t dtype) {
    switch (dtype) {
    case MN_Q8_0:
        return 34;
    case MN_F16:
        return 2;
    default:
        return 4;
    }
}
/* Of a PAGED group; layer is 0. Types that are not stated are f32 in class exact (`precision`, the
 * class that the device uses), f16 in the others. MN_INVALID: layers of unequal shape or none,
 * sizes that overflow; MN_UNSUPPORTED: a kind, a flag, a type, or a head that is too long. */
mn_status mnp_kv_of(const mn_memory_params *m, uint32_t precision, const mnp_kv_rules *rules,
                    mnp_kv *kv, mn_error *err);
/* Of a KV_STORE or ATTENTION: the group's, and the node's layer. MN_INVALID also where PAGES or KV
 * are absent, c->memory has no such layer, or KV_STORE's operands have another shape. */
mn_status mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                         const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);

/* A page of a STATE group: the numbers of its layers one after the other, each layer at a multiple
 * of MNP_STATE_ALIGN bytes. */
#define MNP_STATE_ALIGN 256
typedef struct {
    uint64_t page_bytes;
    uint64_t layer_at; /* bytes in front of the node's layer */
} mnp_state;
/* The bytes of a page of a STATE group. MN_INVALID: no layer, dims that are not those of n_state
 * numbers, sizes that overflow; MN_UNSUPPORTED: a state of an unknown operation. */
mn_status mnp_state_bytes(const mn_memory_params *m, uint64_t *page_bytes, mn_error *err);
/* How a backend keeps the states of SSM_SCAN and GATED_DELTA, for mn.kv/1: those of a head in
 * blocks of so many columns, each block dense [rows, columns], the last one as narrow as what is
 * left; 0: one block of all. Columns are P and Dv, rows N and Dk. States of CONV_STATE lie as in
 * docs/ops.md. */
typedef struct {
    uint32_t ssm_scan, gated_delta;
} mnp_state_cols;
/* Of an operation with a state (mnp_has_state). MN_INVALID: it lacks STATES or STATE, or c->memory
 * has no such layer, or one of another operation or other dims than the node's. */
mn_status mnp_state_of_node(const mn_compile *c, uint32_t node, mnp_state *out, mn_error *err);

/* The positions of operands and attributes of a node that uses memory of sequences. */
typedef struct {
    uint32_t pages;  /* operand PAGES or STATES */
    uint32_t memory; /* operand KV or STATE */
    uint32_t layer;  /* attributes */
    uint32_t group;
} mnp_memory_node;
/* False: the node uses no memory of sequences. */
bool mnp_memory_node_of(const mn_node *n, mnp_memory_node *out);

/* The body of memory_layout, behind mnp_read_compile and the choice of a class. flags:
 * MN_MEMORY_*. */
mn_status mnp_memory_layout(const mn_compile *c, uint32_t group, uint32_t precision, uint64_t flags,
                            const mnp_kv_rules *rules, mn_memory_layout *out, mn_error *err);
/* Copy i of memory_copy's array, checked against a buffer of `bytes`. */
mn_status mnp_memory_copy_at(const mn_memory_layout *l, const mn_page_copy *copies, uint32_t i,
                             uint32_t stride, uint64_t bytes, mn_page_copy *out, mn_error *err);

/* ---- transfers ------------------------------------------------------------------------------- */
/* n bytes at off of a buffer; MN_INVALID names the call. */
mn_status mnp_check_range(uint64_t off, uint64_t n, uint64_t bytes, const char *call,
                          mn_error *err);

/* ---- bindings -------------------------------------------------------------------------------- */
/* A number with the alignment of the buffer's address, and the buffer's bytes. */
typedef struct {
    uint64_t address;
    uint64_t bytes;
} mnp_extent;
typedef mnp_extent (*mnp_extent_fn)(const mn_buffer *b);

/* The first half of context_bind: fills table [n_tensors] (buffer NULL = not bound). Checks that
 * each tensor comes once, inside of its buffer, aligned to 4 bytes, and is neither a weight nor a
 * view of a tensor that the segment makes. */
mn_status mnp_bind(const mn_graph *g, const mnp_allocation *a, const mn_binding *given, uint32_t n,
                   uint32_t stride, mnp_extent_fn extent, mn_binding *table, mn_error *err);
/* The second half, for each node that will run: checks that every operand is bound, has a place or
 * may be absent, and that rows of SLOTS and PARAMS hold the fields of the first release. */
mn_status mnp_check_bound(const mn_graph *g, uint32_t node, const mnp_allocation *a,
                          const int64_t *symbol_max, const mn_binding *table, mn_error *err);
/* At execute: checks that bound buffers hold these symbol values; users of a KV buffer check it. */
mn_status mnp_check_sizes(const mn_graph *g, const int64_t *symbol, const mn_binding *table,
                          mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
