/* host.h -- the host of the check: it counts and guards the blocks that it allocates, makes
 * allocations fail when a rule asks for it, and runs tasks on threads. */
#ifndef MINERVA_CHECK_HOST_H
#define MINERVA_CHECK_HOST_H
#include <minerva/plugin.h>
#include <stdatomic.h>

typedef struct {
    /* passed to the plugin; a rule may change it between check_host_init and the entry */
    mn_host api;
    uint64_t api_more[8]; /* of api, where a newer host is played: what the plugin does not know */
    atomic_llong calls;   /* of alloc */
    atomic_llong live;    /* blocks not released */
    atomic_llong bytes, peak; /* in these blocks; their maximum since check_host_mark */
    atomic_llong fail_in; /* number of allocations that succeed before all fail; < 0: none fails */
    int fail_once;        /* 1: one allocation fails, and later ones succeed */
    atomic_llong refused; /* allocations that were made to fail */
    /* blocks whose guard bytes were overwritten, or that are not ours: CHECK_HOST_* bits */
    atomic_uint broken;
    atomic_llong stop_in; /* calls of progress that return 0 before all return 1; < 0: all 0 */
    atomic_llong progressed;
    uint32_t workers;                      /* 3; at most 16 */
    const char *option_key, *option_value; /* the one option that is set; NULL = none */
    char asked[16][64];                    /* keys that the plugin queried */
    atomic_uint n_asked;
} check_host;

#define CHECK_HOST_OVERRUN 1u  /* wrote behind a block */
#define CHECK_HOST_UNDERRUN 2u /* wrote before a block */
#define CHECK_HOST_FOREIGN 4u  /* released what is not a block, or a block twice */
#define CHECK_HOST_ALIGN 8u    /* requested an alignment that is not a power of 2 */

/* Hosts that check_host_init makes from now on are of that version of this major (--abi), and of
 * this one before the first call. */
void check_host_play(uint32_t abi);
uint32_t check_host_played(void);
static inline int check_host_is_newer(void) {
    return check_host_played() > MN_ABI_VERSION;
}
void check_host_init(check_host *h);
void check_host_mark(check_host *h); /* the peak becomes the present number of bytes */
/* What the plugin did wrong with the host's memory, as the end of "the plugin ..."; NULL =
 * nothing. Known of released blocks only. */
const char *check_host_fault(const check_host *h);
uint64_t check_now_ns(void);
#endif
