/* negotiate_fakes.h -- what the tests of the negotiation stand on: devices that are tables of
 * numbers, a registry of them, a graph by hand, and what holds of every placement. One of each per
 * program; the tests change them between two negotiations. */
#ifndef NEGOTIATE_FAKES_H
#define NEGOTIATE_FAKES_H
#include "negotiate/offer.h"
#include "unit.h"

/* ---- devices --------------------------------------------------------------------------------- */
#define ALL_OPS (~0u)
#define OP(name) (1u << MN_OP_##name)
enum { MAX_FAKES = 4, N_LAYERS = 8, D = 256, V = 2048 };

typedef enum {
    HONEST,
    BAD_VERDICT,
    NO_CLASS,
    COARSE,
    ABSURD,
    NOT_A_NUMBER,
    NO_PAGES,
    LOST,
    NO_TABLE,
    IN_PLACE,
    NO_F64
} lie; /* IN_PLACE and NO_F64 are none: weights stay in their file; no kernels for F64 */
typedef struct {
    const char *name;
    uint32_t kind, ops, old_ops; /* old_ops: known by a contract of version 0 */
    uint64_t flags, mem_free;
    double us_per_node;
    const char *pool;
    lie lies;
    uint32_t n_supports;
    double prefill; /* a prompt takes so many times a drawn id */
} fake;
/* What products take beside: GB/s of weights, TFLOP/s; 0 = time goes by nodes alone. */
typedef struct {
    double gbps, tflops;
} fake_rates;

extern fake *fakes; /* as installed */
extern mn_plugin_record records[MAX_FAKES + 2];
extern uint32_t n_extra; /* of records: behind those of the fakes */
extern mn_device_record devices[MAX_FAKES];
extern int n_in_use; /* devices that were opened and not released */
extern int n_retries[MAX_FAKES];
extern fake_rates product_rates[MAX_FAKES]; /* 0 when installed */
extern uint64_t row_scratch; /* of every device, for each row of a step; 0 when installed */

/* The devices of one test, in the order of the registry; f outlives it. */
void install_fakes(fake *f, uint32_t n);
#define INSTALL(...)                                                                               \
    fake list_[] = {__VA_ARGS__};                                                                  \
    install_fakes(list_, (uint32_t)MN_COUNT(list_))
#define CPU                                                                                        \
    { "cpu", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 10, "host", HONEST, 0, 10 }
#define ORACLE                                                                                     \
    { "oracle", MN_DEVICE_CPU, ALL_OPS, 0, MN_DEVICE_ORACLE, 0, 1, "host", HONEST, 0, 10 }
#define GPU(memory)                                                                                \
    { "gpu", MN_DEVICE_GPU, ALL_OPS, 0, 0, memory, 1, "gpu0", HONEST, 0, 10 }
#define VENDOR(us)                                                                                 \
    { "vendor", MN_DEVICE_NPU, OP(RMS_NORM) | OP(LINEAR), 0, 0, 0, us, "npu", HONEST, 0, 10 }

/* ---- the graph: EMBED, N_LAYERS of eight nodes, GATHER_ROWS, norm, LINEAR, SAMPLE ------------ */
extern const mn_model_graph *graph;
enum { MAX_NODES = 20 * N_LAYERS + 8, MAX_OPERANDS = 160 * N_LAYERS + 128 };
extern mn_node nodes[MAX_NODES];
extern uint32_t n_nodes;
extern int32_t operands[MAX_OPERANDS];
extern int32_t f64_bias;      /* nobody's, until a test gives it to a node */
int fake_graph(void **state); /* a group's set-up: builds it */
/* the same with a router and experts behind the ADD of each layer: N_EXPERTS, a token reads two */
int fake_expert_graph(void **state);
/* The same with divided experts, made once; nodes and operands stay those of the undivided one. */
const mn_model_graph *divided_graph(mn_division d);
enum { N_EXPERTS = 8, EXPERTS_NODES = 4 }; /* nodes from MOE_LINEAR to MOE_COMBINE */
/* Bytes: of a layer, of the tensors behind the last one, and room for scratch. */
enum { LAYER = 2 * D * D * 4 + 2 * 4096, HEAD = V * D * 4, SPARE = 128 << 10 };

/* ---- negotiations: no device is asked the same twice ----------------------------------------- */
mn_request request_for(const char *list); /* of 128 tokens, on these devices */
mn_placement negotiate(const char *list);
void refused(const char *list, mn_status status, const char *words);
/* Before and behind a negotiation that a test runs itself. */
void forget_questions(void);
void check_questions(void);
mn_offer *offer_of(const mn_placement *p, const char *name); /* by the device's name */
const char *at_node(const mn_placement *p, uint32_t node);   /* the name of its device */
void check_placement(const mn_placement *p);                 /* what holds of every placement */
void only_on(const mn_placement *p, const char *name);
void has_words(const char *text, const char *words);
#endif
