/* opencl_stub.h -- what a program that links the stub of OpenCL (opencl.c) sees of it, and tells
 * it. */
#ifndef MN_OPENCL_STUB_H
#define MN_OPENCL_STUB_H
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    /* calls so far */
    uint32_t kernels;  /* enqueued */
    uint32_t barriers; /* enqueued */
    uint32_t replays;  /* enqueued command buffers */
    uint32_t recorded; /* kernels of the last one that was made */
    uint32_t sources;  /* programs made of them */
    int32_t n_ops;     /* argument 3 of the last kernel `run_step`, a number */
    cl_mem watched;    /* how often a kernel was given this memory as an argument */
    uint32_t n_watched;
    uint32_t fails_in;                /* the kernel after so many more is refused; 0 = none */
    uint64_t max_alloc;               /* of a buffer; 0 = 4 GiB */
    size_t sub_groups[2];             /* items of each; 0, 0: it does not multiply matrices */
    size_t mad[2];                    /* items of a group of the last kernel `linear_mad` */
    bool has_commands;                /* the driver has command buffers */
    bool refuses_commands;            /* ... and makes none */
    void (*released)(void *, cl_mem); /* called when memory was released; its handle is the next */
    void *arg;                        /* of it */
} opencl_stub_state;
extern opencl_stub_state opencl_stub;

#endif
