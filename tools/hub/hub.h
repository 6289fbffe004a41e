/* hub.h -- models of a hub that speaks Hugging Face's HTTP interface: what a repository has, and
 * its files into the cache that huggingface_hub shares.
 *
 *   GET  /api/models/ORG/REPO/revision/REV?blobs=true   commit, files with sizes and hashes
 *   HEAD /ORG/REPO/resolve/COMMIT/FILE                  ETag, size (X-Linked-* where a file is in
 *                                                       Git LFS and the answer leads elsewhere)
 *   GET  the same                                       the bytes, from where an earlier load ended
 *
 * Nothing that a hub says is trusted: names stay inside the snapshot, hashes and sizes must agree,
 * lengths are limited. The token goes to the hub itself and to no other host; it is taken out of
 * the environment when the program starts (token.c). Functions print their errors and return the
 * exit code; 0 = done. */
#ifndef MINERVA_HUB_H
#define MINERVA_HUB_H
#include "app.h"
#include "digest.h"

/* ---- token.c: HF_TOKEN and the file of huggingface_hub --------------------------------------- */
/* The token of HF_TOKEN, else of the file (HF_TOKEN_PATH, HF_HOME/token); NULL: none. */
const char *hub_token(void);
/* Another token from now on: of a process that starts this one. One that is none is ignored. */
void hub_use_token(const char *text);

/* ---- address.c: where things are ------------------------------------------------------------- */
typedef struct {
    char scheme[8], host[256]; /* small letters; host with port, as the URL has it */
} hub_origin;
/* 1 if url is http or https with a host. */
int hub_origin_of(const char *url, hub_origin *out);
int hub_same_origin(const char *a, const char *b);
/* HF_ENDPOINT without slashes at its end, else https://huggingface.co; NULL with the error printed.
 * Lives as long as the program. */
const char *hub_endpoint(void);
/* The URL that a Location names, seen from url; malloc'ed. NULL: out of memory, or none that may be
 * followed: not http or https, or http behind https. */
char *hub_follow(const char *url, const char *location);
/* A part of a URL: percent-encoded but for letters, digits and -._~ (and '/', with slashes). */
void hub_put_escaped(mn_text *to, const char *text, int slashes);
/* 1: no network may be used: --offline, HF_HUB_OFFLINE. */
int hub_is_offline(const app_flags *flags);

/* ---- listing.c: what a repository has -------------------------------------------------------- */
#define HUB_ANSWER_MAX ((size_t)64 << 20)
#define HUB_FILES_MAX 100000u
typedef struct {
    char *name;
    uint64_t bytes;
    char hash[65]; /* SHA-256 of a file in Git LFS, else git's SHA-1; "" = not said */
} hub_file;
typedef struct {
    char commit[41];
    hub_file *files;
    uint32_t n;
} hub_listing;
/* The answer of the hub, as text. Files whose names would leave the snapshot are left out. 0;
 * EXIT_FAILED: it is no listing, and dst says why; EXIT_NO_MEMORY. */
int hub_listing_parse(const char *json, size_t n, hub_listing *out, char *dst, size_t n_dst);
void hub_listing_free(hub_listing *list);
int hub_is_hex(const char *text, size_t digits);
int hub_is_inner_path(const char *path);

/* ---- client.c: requests ---------------------------------------------------------------------- */
typedef struct hub_client hub_client;
/* what: the command, for messages. NULL with the error printed. */
hub_client *hub_client_new(const char *what);
void hub_client_free(hub_client *c);
/* What the revision ("": main) of a repository has. */
int hub_client_list(hub_client *c, const char *repo, const char *revision, hub_listing *out);
/* The sentence for an answer that is no success: gated, not found, refused, or the status. code: of
 * X-Error-Code, "" = not said. */
int hub_complain_status(const char *repo, const char *revision, const char *file, long status,
                        const char *error_code, const char *message);

/* ---- store.c: the cache ---------------------------------------------------------------------- */
typedef struct {
    const char *cache, *folder; /* of mn_hub_name */
    char commit[41];
    const char *revision; /* whose ref is written; NULL: none */
} hub_store;
/* One file of it on its way. */
typedef struct {
    char name[80];            /* of the blob: the ETag */
    char *blob, *part, *lock; /* paths */
    int fd, lock_fd;          /* -1: closed */
    uint64_t have;            /* bytes of part */
    digest sum;               /* of the first `summed` of them */
    uint64_t summed, expected;
} hub_blob;
/* 1: the blob is there, whole. */
int hub_blob_is_there(const hub_store *s, const char *etag, uint64_t bytes);
/* Bytes of it that an earlier load left; at most `bytes`. */
uint64_t hub_blob_left(const hub_store *s, const char *etag, uint64_t bytes);
/* Makes folders, takes the lock and opens what an earlier load left. 0; -1: another program holds
 * the lock; else the exit code. kind: of the check. */
int hub_blob_open(const hub_store *s, const char *etag, uint64_t bytes, digest_kind kind,
                  hub_blob *out);
/* Sums up to n bytes of what was there before; 1: more is left. -1: the error was printed. */
int hub_blob_sum(hub_blob *b, size_t n);
int hub_blob_write(hub_blob *b, const void *bytes, size_t n);
int hub_blob_restart(hub_blob *b); /* begins anew: what is there is cut off */
void hub_blob_drop(hub_blob *b);   /* removes what is there */
/* All bytes are there: 0 the file has its name; -1: the hash is another one, in hex; else the exit
 * code. */
int hub_blob_finish(hub_blob *b, const char *hash, char hex[65]);
void hub_blob_close(hub_blob *b);
/* Links the snapshot's name to the blob; then, when all are linked, writes the ref. */
int hub_store_link(const hub_store *s, const char *name, const char *etag);
int hub_store_ref(const hub_store *s);
/* Whether `need` bytes fit on the disk of the cache. */
int hub_store_room(const hub_store *s, uint64_t need);

/* ---- transfer.c: files, four at a time ------------------------------------------------------- */
typedef struct {
    const hub_file *file;
    char etag[80];
} hub_wanted;
/* Bytes and files of all; says: what is waited for, or NULL. Non-zero ends the load as Ctrl-C does,
 * with EXIT_INTERRUPTED. Often, on the thread that loads. */
typedef int (*hub_progress)(void *arg, uint64_t done, uint64_t total, uint32_t n_done, uint32_t n,
                            const char *says);
typedef struct {
    const char *repo, *revision;
    uint64_t done, total; /* bytes */
    uint32_t n_done, n;   /* files */
    const char *says;     /* what is waited for; NULL */
    hub_progress progress;
    void *arg;
} hub_transfer;
/* Loads the blobs of all that is wanted, and sets their etags. */
int hub_client_load(hub_client *c, const hub_store *s, hub_wanted *wanted, uint32_t n,
                    hub_transfer *t);

/* ---- bar.c: progress on standard error ------------------------------------------------------- */
typedef struct {
    const char *what;
    double begin, drawn, rate, at;
    uint64_t first, last;
    int shows; /* a terminal, and not quiet */
} hub_bar;
void hub_bar_begin(hub_bar *b, const char *what, int quiet);
int hub_bar_draw(void *bar, uint64_t done, uint64_t total, uint32_t n_done, uint32_t n,
                 const char *says);
void hub_bar_end(hub_bar *b); /* wipes the line */

/* ---- pull.c, absent.c ------------------------------------------------------------------------ */
/* Loads the model of a name; a->rt is open. progress NULL: a bar on the terminal, and Ctrl-C. */
int hub_pull(app *a, const char *name, hub_progress progress, void *arg);
#endif
