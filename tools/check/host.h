/* host.h -- the host that the check plays: counted and guarded blocks, allocations that fail when
 * asked to, real threads. */
#ifndef MINERVA_CHECK_HOST_H
#define MINERVA_CHECK_HOST_H
#include <minerva/plugin.h>
#include <stdatomic.h>

typedef struct {
    /* what the plugin gets; change it after check_host_init, before the entry */
    mn_host api;
    atomic_llong calls;       /* of alloc */
    atomic_llong live;        /* blocks not released */
    atomic_llong bytes, peak; /* that they hold; the most at one time since check_host_mark */
    atomic_llong fail_in;     /* this many allocations succeed, then all fail; < 0: none fails */
    int fail_once;            /* one allocation fails, and later ones succeed again */
    atomic_llong refused;     /* allocations that were made to fail */
    /* blocks whose guard bytes were overwritten, or that are not ours: CHECK_HOST_* bits */
    atomic_uint broken;
    atomic_llong stop_in; /* this many calls of progress return 0, then all 1; < 0: all 0 */
    atomic_llong progressed;
    uint32_t workers;                      /* 3; at most 16 */
    const char *option_key, *option_value; /* the one option that is set; NULL = none */
    char asked[16][64];                    /* keys that the plugin asked for */
    atomic_uint n_asked;
} check_host;

#define CHECK_HOST_OVERRUN 1u  /* wrote behind a block */
#define CHECK_HOST_UNDERRUN 2u /* wrote before a block */
#define CHECK_HOST_FOREIGN 4u  /* released what is no block, or twice */
#define CHECK_HOST_ALIGN 8u    /* asked for an alignment that is not a power of 2 */

void check_host_init(check_host *h);
/* Peak begins again at what is held now. */
void check_host_mark(check_host *h);
/* What the plugin did wrong with the host's memory, as a phrase; NULL = nothing. Looks at released
 * blocks only. */
const char *check_host_fault(const check_host *h);
uint64_t check_now_ns(void);
#endif
