/* ranks.h -- several processes as one machine. Each opens the same model and has one member of a
 * group of devices (mn.group/1, join). Rank 0 is the host as ever: its sessions see one device, the
 * mirror, whose calls are made on the member here and told to the other ranks, in order. The other
 * ranks follow: they make the same calls with weights from their own disks. Activations travel in
 * the plugin; over the connections here go the inputs of steps and what is to be done with them.
 *
 *   rank_place.c who this process is, by its launcher's variables
 *   message.c    bytes of a message; graphs and weights in them
 *   handshake.c  the first messages: token, versions, model   meet.c     rank 0's side of them
 *   link.c       connections, frames, signs of life
 *   mirror.c     rank 0: the backend that tells                follow.c  the others: what they do
 *   ranks.c      life of the whole
 *
 * A rank that ends, or is silent for 4 s, ends the group: every other rank is told who. */
#ifndef MN_RANKS_H
#define MN_RANKS_H
#include "model/model.h"
#include "registry/registry.h"

/* ---- rank_place.c --------------------------------------------------------------------------- */
typedef struct {
    uint32_t rank;
    uint32_t n_ranks; /* 1: this process is alone; the other fields are not set */
    uint32_t local_rank;
    uint32_t port;
    char host[256];       /* of rank 0 */
    const char *launcher; /* "Open MPI", for messages */
} mn_rank_place;
/* get: getenv, or a test's. MN_BAD_INPUT names the variables that contradict each other, lack their
 * partner or are no numbers. */
mn_status mn_rank_place_read(const char *(*get)(const char *name), mn_rank_place *out,
                             mn_error *err);

/* ---- ranks.c --------------------------------------------------------------------------------- */
typedef struct mn_ranks mn_ranks;
/* What must be the same on all ranks: "model" and its digest. */
typedef struct {
    const char *name;
    char value[200];
} mn_rank_fact;
#define MN_MAX_RANK_FACTS 8u
/* Which device a rank has: no two ranks of a group have the same one. */
typedef struct {
    char machine[64];   /* the same for all processes of a machine, and for no others */
    char uid[64];       /* of the device; "" = not known */
    char name[96];      /* "cuda:0", for messages */
    uint32_t n_devices; /* of the plugin, which this process can use */
} mn_rank_seat;
typedef struct {
    mn_rank_place place;
    mn_str token; /* a secret that all ranks know; not empty. Used only while they meet */
    uint64_t timeout_ns;
    mn_rank_fact facts[MN_MAX_RANK_FACTS];
    uint32_t n_facts;
    const mn_device_record *device; /* the member of this process; its plugin's group has join */
    mn_rank_seat seat;              /* the device, as the other ranks see it */
    const mn_file_set *files;       /* of the model, which weights come from */
    /* Called once, from a thread of the ranks, when the group has ended; names the rank that ended
     * it. Calls into the plugin may hang from then on: the program should end with a status that is
     * not 0. NULL: the device counts as lost. */
    void (*broken)(void *arg, const char *why);
    void *arg;
} mn_ranks_params;
/* Waits until all ranks are here and are the same. MN_TIMEOUT: who is missing. MN_BAD_INPUT: a rank
 * differs (found, expected), or would use the device of another one; it is told the same. */
mn_status mn_ranks_open(const mn_ranks_params *p, mn_ranks **out, mn_error *err);
/* Rank 0: ends the other ranks in order. Any thread. */
void mn_ranks_leave(mn_ranks *r);
/* Leaves, and frees r. NULL is fine. */
void mn_ranks_free(mn_ranks *r);
uint32_t mn_ranks_rank(const mn_ranks *r);
/* Rank 0: the record whose backend is the mirror; its device 0 is the group. Lives as long as r. */
const mn_plugin_record *mn_ranks_plugin(const mn_ranks *r);
/* Rank 0: a device_info of the group. */
mn_status mn_ranks_device_info(const mn_ranks *r, mn_device_info *info, mn_error *err);
/* The other ranks: follow rank 0 until it ends the group in order (MN_OK), or the group breaks. */
mn_status mn_ranks_follow(mn_ranks *r, mn_error *err);

/* A hexadecimal digest of the metadata and the tensor list of the files, not of the weights. */
void mn_rank_model_digest(const mn_canonical *m, char out[33]);
#endif
