/* cu.h -- what the parts of the CUDA plugin that run on the host share: their parts of gpu_host's
 * devices and queues, its errors, and the hooks of the backend's table (plugin.c) by file. Kernels
 * see none of it (kernels.h). */
#ifndef CU_H
#define CU_H
#include "gpu_host.h"
#include "kernels.h"
#include "types.h"
#include <stdio.h>

#ifndef CU_BUILT_FOR /* which GPUs this file has code for; the build says it */
#define CU_BUILT_FOR "one kind of GPU"
#endif

/* What kernels are made for: elements of a head (prompt.cuh has rows for as many, k_cache.cu shared
 * memory), experts of a layer. */
enum { CU_MAX_EXPERTS = 1024 };

typedef struct cu_teller cu_teller; /* memory.c */
typedef struct cu_gate cu_gate;     /* words.c */
typedef struct cu_gates cu_gates;
struct mn_device {
    mng_device base;
    cu_card card;
    int index; /* the driver's */
    double gbps;
    cu_teller *tellers; /* of events that somebody is told of; under base.lock */
    cu_gate *gates;     /* those that are open; under base.lock */
    cu_gates *gate_pages;
};

/* Weights that are repacked go through an area on the device, made when it is needed. */
enum { CU_STAGE_BYTES = 6 << 20 };
struct mn_queue {
    mng_queue base;
    cudaStream_t stream;
    char *staging;
};

/* ---- error.c --------------------------------------------------------------------------------- */
mn_status cu_check(cudaError_t e, mn_error *err, const char *what);
/* The same of an allocation on the current device: without room, how much is free. */
mn_status cu_check_room(cudaError_t e, uint64_t bytes, mn_error *err, const char *what);
#define CU_TRY(call, err, what)                                                                    \
    do {                                                                                           \
        mn_status st_ = cu_check((call), (err), (what));                                           \
        if (st_)                                                                                   \
            return st_;                                                                            \
    } while (0)

/* ---- weights.c ------------------------------------------------------------------------------- */
/* The row of a weight's type, its planes, and the address of a flat one. */
static inline const cu_type *cu_row_of(const mng_weight *w) {
    return (const cu_type *)(const void *)w->type;
}
static inline char *cu_plane(const mng_weight *w, int i) {
    return (char *)w->mem[0] + w->at + w->plane[i];
}
static inline const float *cu_floats(const mng_weight *w, int i) {
    return (const float *)cu_plane(w, i);
}
static inline cu_planes cu_planes_of(const mng_weight *w) {
    return (cu_planes){{cu_plane(w, 0), cu_plane(w, 1), cu_plane(w, 2), cu_plane(w, 3)}};
}

/* ---- hooks, by file; contracts: gpu_host.h --------------------------------------------------- */
/* plugin.c */
extern const mng_backend cu_gpu;
/* table.c, profile.c: of single devices and of groups */
extern const mn_backend cu_backend;
extern const mn_profile cu_profile;
extern const mn_kv_moves cu_moves; /* moves.c */
extern const struct mnp_rows cu_page_rows;
/* facts.c */
mn_status cu_device_count(mng_plugin *, uint32_t *, mn_error *);
mn_status cu_device_info(mng_plugin *, uint32_t, mn_device_info *, mn_error *);
mn_status cu_device_open(mng_plugin *, uint32_t, mn_device *, mn_error *);
void cu_device_close(mn_device *);
mn_status cu_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status cu_self_test(mn_device *, mn_error *);
mn_status cu_enter(const mn_device *, mn_error *);
/* memory.c */
mn_status cu_memory_alloc(mn_device *, uint64_t, uint32_t, const char *, void **, mn_error *);
void cu_memory_free(mn_device *, void *);
mn_status cu_pinned_alloc(mn_device *, uint64_t, void **, char **, mn_error *);
void cu_pinned_free(mn_device *, void *, char *);
mn_status cu_wrap(mn_device *, char *, uint64_t, void **, mn_error *);
void cu_unwrap(mn_device *, void *, char *);
mn_status cu_queue_open(mn_queue *, mn_error *);
void cu_queue_close(mn_queue *);
mn_status cu_queue_finish(mn_queue *, mn_error *);
mn_status cu_copy_in(mn_queue *, mng_ref, const char *, uint64_t, void **, mn_error *);
mn_status cu_copy_out(mn_queue *, char *, mng_ref, uint64_t, mn_error *);
mn_status cu_copy(mn_queue *, mng_ref, mng_ref, uint64_t, mn_error *);
mn_status cu_event_record(mn_queue *, void **, mn_error *);
mn_status cu_event_make(mn_device *, void **, mn_error *);
mn_status cu_event_poll(mn_device *, void *, bool *, mn_error *);
mn_status cu_event_wait(mn_device *, void *, mn_error *);
mn_status cu_event_join(mn_queue *, void *, mn_error *);
void cu_event_free(mn_device *, void *);
mn_status cu_event_tell(mn_device *, void *, void (*)(void *, mn_status), void *, mn_error *);
/* Of a device that is closed. */
void cu_tellers_free(mn_device *);
/* words.c */
/* Whether the driver has what steps with words need. */
bool cu_words_init(void);
mn_status cu_gate_close(mn_queue *, void **, mn_error *);
void cu_gate_open(mn_device *, void *);
mn_status cu_word_write(mn_queue *, mng_ref, uint32_t, mn_error *);
/* Of a device that is closed. */
void cu_gates_free(mn_device *);
/* weights.c */
void cu_weight_shape(const mn_device *, const mn_tensor *, mng_weight *);
mn_status cu_weight_put(mn_queue *, const mng_weight *, const mnp_source_row *, mn_error *);
uint32_t cu_weight_kept(const mng_weight *);
#endif
