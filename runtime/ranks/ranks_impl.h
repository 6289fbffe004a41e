/* ranks_impl.h -- the parts of ranks/ among themselves. */
#ifndef MN_RANKS_IMPL_H
#define MN_RANKS_IMPL_H
#include "ranks/ranks.h"
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- message.c: bytes of messages ------------------------------------------------------------ */
/* Both sides have the same version and byte order, which the handshake has compared: structs
 * without pointers are sent as they are. A reader that runs out of bytes or finds an impossible
 * value is bad, and returns zeros from then on. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
} mn_reader;
void mn_put(mn_text *to, const void *bytes, size_t n);
void mn_put_u32(mn_text *to, uint32_t v);
void mn_put_u64(mn_text *to, uint64_t v);
void mn_put_bytes(mn_text *to, const void *bytes, uint64_t n); /* with their number */
void mn_take(mn_reader *r, void *out, size_t n);
uint32_t mn_take_u32(mn_reader *r);
uint64_t mn_take_u64(mn_reader *r);
mn_str mn_take_bytes(mn_reader *r); /* inside the message */

/* A compile input without weights and cache. The cookies of layouts go as they are. */
void mn_put_compile(mn_text *to, const mn_compile *c);
/* Reads what was put. The graph lies in the arena and its texts in the message: both must outlive
 * it. The graph is checked like a graph of the host: MN_BAD_INPUT. */
mn_status mn_take_compile(mn_reader *r, mn_arena *arena, mn_compile *out, mn_error *err);
/* Planes are sent as places in the model's files; a plane outside of the files is sent as bytes, up
 * to 64 MiB (MN_UNSUPPORTED). */
mn_status mn_put_weight(mn_text *to, const mn_file_set *files, const mn_weight_src *src,
                        mn_error *err);
mn_status mn_take_weight(mn_reader *r, const mn_file_set *files, mn_arena *arena,
                         mn_weight_src *out, mn_error *err);

/* Kinds of frames. Kinds up to MN_SAY_BROKEN belong to the connection itself. */
typedef enum {
    MN_SAY_BEAT,   /* I live */
    MN_SAY_REPLY,  /* u32 status, bytes message, and what the question wants */
    MN_SAY_BROKEN, /* bytes: the sentence that names the rank */
    MN_SAY_BYE,    /* the group ends in order */
    /* From here on calls of rank 0; * expects a reply. Objects are numbers that rank 0 assigns. */
    MN_SAY_JOIN,    /* * id, as many bytes as the plugin's have */
    MN_SAY_CLOSE,   /* the device */
    MN_SAY_MEMORY,  /* * reply: u64 free, u64 total */
    MN_SAY_FREE,    /* object; of any kind, or none */
    MN_SAY_ALLOC,   /* * object, u32 kind, u64 bytes, u64 align, u64 flags */
    MN_SAY_QUEUE,   /* * object, u32 flags, u32 priority */
    MN_SAY_WRITE,   /* queue, buffer, u64 at, bytes */
    MN_SAY_COPY,    /* queue, to, u64, from, u64, u64 bytes */
    MN_SAY_WAIT,    /* queue: behind all that runs */
    MN_SAY_WEIGHTS, /* * object, compile */
    MN_SAY_PUT,     /* weights, queue, weight */
    MN_SAY_SEAL,    /* * weights, queue */
    MN_SAY_LAYOUT,  /* * object, u32 group, compile; reply: u32 page_tokens, u64 page_bytes */
    MN_SAY_PAGES,   /* queue, buffer, layout, u32 n, mn_page_copy[n] */
    MN_SAY_COMPILE, /* * object, weights or 0, compile */
    MN_SAY_CONTEXT, /* * object, program, queue */
    MN_SAY_BIND, /* * context, u32 set, u32 n, {tensor, flags, buffer, u64 offset, u64 bytes}[n] */
    MN_SAY_PREPARE, /* * context, u32 set, i64 symbols [of the program] */
    MN_SAY_EXECUTE, /* context, u32 set, i64 symbols */
    MN_SAY_COUNT
} mn_say;
const char *mn_say_name(uint32_t say); /* "weights_put", for messages */

/* ---- link.c: connections --------------------------------------------------------------------- */
typedef struct mn_frame {
    struct mn_frame *next;
    uint32_t say;
    uint64_t n;
    uint8_t data[]; /* 16-byte aligned */
} mn_frame;
#define MN_MAX_FRAME (UINT64_C(1) << 30)
typedef struct {
    uint32_t say, magic;
    uint64_t n;
} mn_frame_head;
#define MN_FRAME_MAGIC 0x4d4e5246u
/* The frame whose head this is, without its data; NULL: no frame, or out of memory. */
mn_frame *mn_frame_new(const mn_frame_head *head);

typedef struct {
    int fd; /* -1: ended */
    uint32_t rank;
    char name[300];    /* "rank 1 (host 10.0.0.2)" */
    mn_rank_seat seat; /* rank 0: of that rank */
    pthread_mutex_t send_lock;
    /* the thread of links alone: */
    mn_frame_head head;
    size_t got_head;
    mn_frame *frame; /* whose data comes */
    uint64_t got;
    uint64_t heard_ns;
    bool said_bye;
    /* with mn_ranks.wait_lock: frames that have arrived, for the thread that waits */
    mn_frame *first, *last;
} mn_link;

struct mn_ranks {
    mn_ranks_params params;
    uint32_t n_links; /* rank 0: to all others, by rank; else one, to rank 0 */
    mn_link *links;
    pthread_t thread;
    bool has_thread;
    int wake[2];
    pthread_mutex_t wait_lock;
    pthread_cond_t came;
    pthread_mutex_t leave_lock;
    atomic_bool over;   /* in order */
    atomic_bool broken; /* why is set before */
    char why[700];
    /* mirror.c */
    pthread_mutex_t lock; /* of sending: one call at a time, in one order */
    mn_text out;          /* frames that are not sent yet */
    size_t frame_at;      /* where the last one begins */
    uint32_t *free_ids, n_free, n_ids;
    size_t cap_free;
    mn_plugin mirror_plugin;
    mn_backend mirror;
    mn_profile mirror_profile;
    mn_plugin_record record;
    const mn_backend *inner;
    void *inner_self;
};
/* The thread that reads and gives signs of life, from now on. */
mn_status mn_links_start(mn_ranks *r, mn_error *err);
void mn_links_stop(mn_ranks *r);
/* Sends the whole frame, from any thread. A failure breaks the group. */
void mn_link_send(mn_ranks *r, mn_link *l, const void *bytes, size_t n);
void mn_link_say(mn_ranks *r, mn_link *l, uint32_t say, const void *data, size_t n);
/* The next frame, mn_free; NULL: the group is over or broken. */
mn_frame *mn_link_next(mn_ranks *r, mn_link *l);
/* The group has ended: informs the other ranks, and the owner. */
void mn_ranks_break(mn_ranks *r, const char *fmt, ...) MN_PRINTF(2, 3);

/* ---- handshake.c, meet.c --------------------------------------------------------------------- */
/* All connections, authenticated and compared; the thread does not run yet. */
mn_status mn_ranks_meet(mn_ranks *r, mn_error *err);
/* meet.c: rank 0's side of it. All callers are heard at once, each for MN_RANK_CALLER_MS. */
mn_status mn_ranks_hear_all(mn_ranks *r, mn_error *err);

#define MN_NONCE 16
#define MN_PROOF 16
#define MN_RANK_MAGIC 8
#define MN_RANK_MAX_HELLO 8192u
#define MN_RANK_CALLER_MS 2000
extern const char mn_rank_magic[MN_RANK_MAGIC];
/* Compares in constant time. a, b: [MN_PROOF] */
bool mn_rank_is_proof(const uint8_t *a, const uint8_t *b);
bool mn_rank_nonce(uint8_t out[MN_NONCE]); /* false: the system has no random bytes */
/* Milliseconds until then, rounded up, at most 60,000; 0: it has passed. */
int mn_rank_left_ms(uint64_t until_ns);
/* All bytes of t, on a blocking socket; false: the other side ended, or t failed. */
bool mn_rank_transmit(int fd, const mn_text *t);
/* Makes fd the connection to a rank: small messages leave at once, and a send that gets nowhere for
 * 4 s fails. host: of the rank, for messages. */
void mn_rank_link_set(mn_link *l, int fd, uint32_t rank, const char *host);
/* The addresses of rank 0; freeaddrinfo. NULL: why. */
struct addrinfo *mn_rank_look_up(const mn_rank_place *at, bool passive, const char **why);

/* What a rank sends, and what rank 0 makes of it. */
/* Only a process that knows the token can make it. from: 0 or 1, the side that proves; nonces: rank
 * 0's, then the other's. */
void mn_rank_proof(mn_str token, uint64_t from, const uint8_t nonces[2 * MN_NONCE],
                   const void *data, size_t n, uint8_t out[MN_PROOF]);
void mn_put_hello(mn_text *to, const mn_ranks_params *p);
/* MN_BAD_INPUT: the first fact that differs, or bytes that are no such message. rank, seat: whose
 * it is, and which device that rank has. */
mn_status mn_check_hello(mn_str hello, const mn_ranks_params *p, uint32_t *rank, mn_rank_seat *seat,
                         mn_error *err);
/* MN_BAD_INPUT: two ranks of a group of n would use one device; says how many there are. */
mn_status mn_check_seats(uint32_t a, const mn_rank_seat *of_a, uint32_t b, const mn_rank_seat *of_b,
                         uint32_t n, mn_error *err);

/* ---- mirror.c, follow.c ---------------------------------------------------------------------- */
void mn_mirror_init(mn_ranks *r);
mn_status mn_follow(mn_ranks *r, mn_error *err);
#endif
