/* wide_args.h -- arguments of a call as a host of a later minor has them: longer, with garbage in
 * what the plugin does not know, and guards behind what it may write. A struct whose size is not
 * this minor's is left as it is: a rule plays another host with it. The copies are the caller's,
 * valid until the matching _end. */
#ifndef MINERVA_CHECK_WIDE_ARGS_H
#define MINERVA_CHECK_WIDE_ARGS_H
#include <minerva/plugin.h>
#include <stdbool.h>

#define WIDE_MORE 24 /* bytes that the plugin does not know, behind each element and input */
#define WIDE_ROOM 64 /* and behind each output */

/* What the plugin wrote where it must not: the first such sentence since it was emptied. */
extern char wide_found[160];
/* Bytes at `at` that the plugin must not have written. */
void wide_look(const char *what, const void *at, uint64_t n);

/* Elements of `size` bytes, `stride` apart, as elements with garbage between them, WIDE_MORE bytes
 * each; from NULL: nothing but garbage. The caller frees; NULL: out of memory. */
void *wide_spread(const void *from, uint64_t n, uint64_t size, uint64_t stride);

/* ---- an input struct ------------------------------------------------------------------------- */
typedef union {
    uint32_t size;
    mn_open_params open;
    mn_alloc_params alloc;
    mn_queue_params queue;
    mn_context_params context;
    mn_step step;
    mn_weight_src src;
    mn_memory_layout layout;
    mn_kv_page page;
    uint8_t bytes[sizeof(mn_step) + sizeof(mn_weight_src) + WIDE_MORE];
} wide_in;
/* A longer copy of the struct of `known` bytes at `from`; w, or `from` itself. */
const void *wide_input(wide_in *w, const void *from, uint32_t known);

/* ---- an output struct ------------------------------------------------------------------------ */
typedef struct {
    union {
        uint32_t size;
        mn_error error;
        mn_device_info info;
        mn_estimate estimate;
        mn_memory_layout layout;
        mn_guess guess;
        mn_value value;
        mn_tensor_info tensor;
        mn_file_pattern pattern;
    } u;
    uint8_t more[WIDE_ROOM];
} wide_out;
/* What the plugin is given for `out`: w, or `out` itself. */
void *wide_out_begin(wide_out *w, void *out, uint32_t known);
/* Copies the known bytes to `out`, if the call filled them, and looks at the rest. */
void wide_out_end(wide_out *w, void *out, uint32_t known, bool filled, const char *what);

/* An mn_error; err may be NULL. */
mn_error *wide_error_begin(wide_out *w, mn_error *err);
mn_status wide_error_end(wide_out *w, mn_error *err, mn_status st, const char *what);

/* ---- mn_compile ------------------------------------------------------------------------------ */
typedef struct {
    struct {
        mn_compile compile;
        uint8_t more[WIDE_MORE];
    } c;
    void *block[3]; /* uses, params with their layouts, layers */
    void *graph;    /* its arrays and itself, if it was asked for; the plugin may keep it */
} wide_ask;
/* The longer request; graph: the graph, too, which wide_ask_end leaves to the caller. NULL: out of
 * memory. */
const mn_compile *wide_ask_begin(wide_ask *a, const mn_compile *c, bool graph);
void wide_ask_end(wide_ask *a);
#endif
