/* nccl.c -- what the CUDA plugin uses of NCCL, for members that share one card: NCCL itself refuses
 * that before 2.30, and lets processes wait for each other in kernels, which on one card means for
 * the end of a time slice. Rows go through memory of the host, which all processes map: a slot for
 * every pair of ranks, and a word that says whether it is full. Copies and waits are operations of
 * the stream (memory operations of the driver), so that they are captured, and nothing runs on the
 * card or on a thread of the host.
 *
 * Built without CUDA: the driver's functions are looked up, with types of the same size. Operations
 * of a group go to their streams when it ends: first all that is sent, then all that is
 * received. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK, UNHANDLED = 1, INTERNAL = 3, INVALID = 4 };
enum { MAX_RANKS = 16, MAX_OPS = 4096, PAGE = 4096, LINE = 64, NAME_BYTES = 16 };
enum {
    EQUAL = 1 /* CU_STREAM_WAIT_VALUE_EQ */,
    MAPPED = 3 /* CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP */
};
#define SLOT ((size_t)16 << 20)

/* ---- the driver ------------------------------------------------------------------------------ */
typedef struct {
    int (*pin)(void *, size_t, unsigned);
    int (*unpin)(void *);
    int (*place)(uint64_t *, void *, unsigned);           /* cuMemHostGetDevicePointer */
    int (*read)(void *, uint64_t, size_t, void *);        /* cuMemcpyDtoHAsync */
    int (*write)(uint64_t, const void *, size_t, void *); /* cuMemcpyHtoDAsync */
    int (*wait)(void *, uint64_t, uint32_t, unsigned);
    int (*set)(void *, uint64_t, uint32_t, unsigned);
} driver;

static bool find_driver(driver *d) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *to;
    } wanted[] = {{"cuMemHostRegister_v2", &d->pin},           {"cuMemHostUnregister", &d->unpin},
                  {"cuMemHostGetDevicePointer_v2", &d->place}, {"cuMemcpyDtoHAsync_v2", &d->read},
                  {"cuMemcpyHtoDAsync_v2", &d->write},         {"cuStreamWaitValue32_v2", &d->wait},
                  {"cuStreamWriteValue32_v2", &d->set}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *f = lib ? dlsym(lib, wanted[i].name) : NULL;
        memcpy(wanted[i].to, &f, sizeof f);
        if (!f)
            return false;
    }
    return true;
}

/* ---- memory of a communicator ---------------------------------------------------------------- */
typedef struct {
    char bytes[128];
} unique_id;
/* Of all members of a process. */
typedef struct {
    driver d;
    uint8_t *memory; /* a page with `came`, a line per pair, slots */
    size_t bytes;
    uint64_t on_card; /* the address of `memory` there */
    size_t n;
    int users;
} shared;
typedef struct {
    shared *all;
    int rank;
} communicator;

static size_t bytes_for(size_t n) {
    return PAGE + n * n * (LINE + SLOT) + PAGE;
}
/* Of the pair of ranks; where it begins in the memory. */
static size_t flag_of(const shared *s, size_t from, size_t to) {
    return PAGE + (from * s->n + to) * LINE;
}
static size_t slot_of(const shared *s, size_t from, size_t to) {
    const size_t flags = (s->n * s->n * LINE + PAGE - 1) / PAGE * PAGE;
    return PAGE + flags + (from * s->n + to) * SLOT;
}

static int release(shared *s) {
    if (--s->users > 0)
        return OK;
    s->d.unpin(s->memory);
    munmap(s->memory, s->bytes);
    free(s);
    return OK;
}

/* fd -1: of this process alone. */
static int share(int fd, size_t n, shared **out) {
    shared *s = calloc(1, sizeof *s);
    if (!s || !n || n > MAX_RANKS || !find_driver(&s->d)) {
        free(s);
        return INVALID;
    }
    s->n = n;
    s->bytes = bytes_for(n);
    s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (s->memory == MAP_FAILED || s->d.pin(s->memory, s->bytes, MAPPED) ||
        s->d.place(&s->on_card, s->memory, 0)) {
        free(s);
        return UNHANDLED;
    }
    *out = s;
    return OK;
}

static communicator *new_communicator(shared *s, int rank) {
    communicator *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->all = s;
    c->rank = rank;
    s->users++;
    return c;
}

/* ---- communicators --------------------------------------------------------------------------- */
EXPORT const char *ncclGetErrorString(int e) {
    return e == OK ? "no error" : "an error of the stand-in for NCCL";
}

EXPORT int ncclGetUniqueId(unique_id *id) {
    memset(id, 0, sizeof *id);
    return getrandom(id->bytes, NAME_BYTES, 0) == NAME_BYTES ? OK : UNHANDLED;
}

/* Waits for ever, as NCCL does. */
static void meet(const shared *s) {
    _Atomic uint32_t *came = (_Atomic uint32_t *)(void *)s->memory;
    const struct timespec nap = {.tv_nsec = 1000000};
    atomic_fetch_add(came, 1);
    while (atomic_load(came) < s->n)
        nanosleep(&nap, NULL);
}

EXPORT int ncclCommInitRank(communicator **out, int n, unique_id id, int rank) {
    char name[64] = "/minerva-nccl-";
    const size_t prefix = strlen(name);
    shared *s = NULL;
    for (size_t i = 0; i < NAME_BYTES; i++)
        snprintf(name + prefix + 2 * i, 3, "%02x", (unsigned char)id.bytes[i]);
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || n < 1 || ftruncate(fd, (off_t)bytes_for((size_t)n)))
        return UNHANDLED;
    const int e = share(fd, (size_t)n, &s);
    close(fd);
    if (e)
        return e;
    meet(s);
    shm_unlink(name); /* the second one finds none */
    *out = new_communicator(s, rank);
    return OK;
}

EXPORT int ncclCommInitAll(communicator **out, int n, const int *devices) {
    shared *s = NULL;
    (void)devices;
    const int e = share(-1, (size_t)n, &s);
    for (int r = 0; r < n && !e; r++)
        out[r] = new_communicator(s, r);
    return e;
}

EXPORT int ncclCommDestroy(communicator *c) {
    const int e = release(c->all);
    free(c);
    return e;
}

EXPORT int ncclCommAbort(communicator *c) {
    return ncclCommDestroy(c);
}

EXPORT int ncclCommGetAsyncError(communicator *c, int *error) {
    (void)c;
    *error = OK;
    return OK;
}

/* ---- operations ------------------------------------------------------------------------------ */
typedef struct {
    communicator *c;
    void *stream;
    uint64_t at; /* on the card */
    size_t bytes;
    int other;
    bool sends;
} operation;
static _Thread_local operation ops[MAX_OPS];
static _Thread_local int n_ops;

EXPORT int ncclGroupStart(void) {
    n_ops = 0;
    return OK;
}

static int add(communicator *c, uint64_t at, size_t count, int type, int other, void *stream,
               bool sends) {
    if (type != 7 || n_ops == MAX_OPS || count * 4 > SLOT || other < 0 ||
        (size_t)other >= c->all->n)
        return INVALID;
    ops[n_ops++] = (operation){c, stream, at, count * 4, other, sends};
    return OK;
}

EXPORT int ncclSend(const void *from, size_t n, int type, int peer, communicator *c, void *stream) {
    return add(c, (uint64_t)(uintptr_t)from, n, type, peer, stream, true);
}
EXPORT int ncclRecv(void *to, size_t n, int type, int peer, communicator *c, void *stream) {
    return add(c, (uint64_t)(uintptr_t)to, n, type, peer, stream, false);
}

/* The word of a slot: 0 = empty, 1 = full. It is the same at every launch of a captured step. */
static int enqueue(const operation *o) {
    const shared *s = o->c->all;
    const size_t from = (size_t)(o->sends ? o->c->rank : o->other);
    const size_t to = (size_t)(o->sends ? o->other : o->c->rank);
    const uint64_t flag = s->on_card + flag_of(s, from, to);
    uint8_t *slot = s->memory + slot_of(s, from, to);
    int e = s->d.wait(o->stream, flag, o->sends ? 0 : 1, EQUAL);
    if (!e && o->sends)
        e = s->d.read(slot, o->at, o->bytes, o->stream);
    else if (!e)
        e = s->d.write(o->at, slot, o->bytes, o->stream);
    if (!e)
        e = s->d.set(o->stream, flag, o->sends ? 1 : 0, 0);
    if (e)
        fprintf(stderr, "nccl stand-in: CUDA error %d\n", e);
    return e ? UNHANDLED : OK;
}

EXPORT int ncclGroupEnd(void) {
    int e = OK;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n_ops && !e; i++)
            if (ops[i].sends == !pass)
                e = enqueue(&ops[i]);
    n_ops = 0;
    return e;
}
