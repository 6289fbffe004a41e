/* words.c -- gates and words of steps, by stream memory operations, which are functions of the
 * driver that are found once for all. A gate is a word of pinned memory of the plugin's: a stream
 * waits until it has a value, which gate_open writes. So a stream never waits for memory of others,
 * and an abort can let it go on. Gates are used again; a value that is passed is never waited for
 * again. They belong to their device. */
#include "cu.h"
#include <cuda.h>

enum { GATES = 256 /* of a page */ };

struct cu_gate {
    cu_gate *next;
    uint32_t *word;
    uint32_t value; /* that the last stream waits for, or has passed */
};
struct cu_gates {
    cu_gates *next;
    uint32_t *words; /* [GATES] */
    cu_gate gate[GATES];
};

typedef CUresult (*word_fn)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags);
static word_fn wait_value; /* NULL: the driver has none */
static word_fn write_value;

static bool find_word_fn(const char *name, word_fn *out) {
    enum { VERSION = 11070 };
    enum cudaDriverEntryPointQueryResult found;
    void *f = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &f, VERSION, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    memcpy(out, &f, sizeof f);
    return f != NULL;
}

bool cu_words_init(void) {
    return find_word_fn("cuStreamWaitValue32", &wait_value) &&
           find_word_fn("cuStreamWriteValue32", &write_value);
}

/* Codes of the driver are those of the runtime: cudaErrorNotSupported is MN_UNSUPPORTED. */
static mn_status check_word_fn(CUresult code, mn_error *err) {
    return cu_check((cudaError_t)code, err, "a stream memory operation");
}

/* ---- gates ----------------------------------------------------------------------------------- */
/* A page of free ones; under the lock. */
static mn_status make_gates(mn_device *d, mn_error *err) {
    void *words = NULL;
    cu_gates *page = mng_new(d, sizeof *page);
    if (!page)
        return mnp_fail_memory(err, sizeof *page, "gates");
    const mn_status st = cu_check(cudaMallocHost(&words, GATES * sizeof(uint32_t)), err, "gates");
    if (st) {
        mng_delete(d, page);
        return st;
    }
    memset(words, 0, GATES * sizeof(uint32_t));
    page->words = words;
    page->next = d->gate_pages;
    d->gate_pages = page;
    for (uint32_t i = 0; i < GATES; i++) {
        page->gate[i].word = &page->words[i];
        page->gate[i].next = d->gates;
        d->gates = &page->gate[i];
    }
    return MN_OK;
}

static mn_status take_gate(mn_device *d, cu_gate **out, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&d->base.lock);
    if (!d->gates)
        st = make_gates(d, err);
    if (!st) {
        *out = d->gates;
        d->gates = (*out)->next;
    }
    pthread_mutex_unlock(&d->base.lock);
    return st;
}

static void give_gate(mn_device *d, cu_gate *gate) {
    pthread_mutex_lock(&d->base.lock);
    gate->next = d->gates;
    d->gates = gate;
    pthread_mutex_unlock(&d->base.lock);
}

mn_status cu_gate_close(mn_queue *q, void **gate, mn_error *err) {
    cu_gate *g;
    mn_status st = take_gate(q->base.dev, &g, err);
    if (st)
        return st;
    g->value++;
    st = check_word_fn(
        wait_value(q->stream, (CUdeviceptr)(uintptr_t)g->word, g->value, CU_STREAM_WAIT_VALUE_GEQ),
        err);
    if (st)
        cu_gate_open(q->base.dev, g);
    else
        *gate = g;
    return st;
}

void cu_gate_open(mn_device *d, void *gate) {
    cu_gate *g = gate;
    __atomic_store_n(g->word, g->value, __ATOMIC_RELEASE);
    give_gate(d, g);
}

void cu_gates_free(mn_device *d) {
    for (cu_gates *page = d->gate_pages; page; page = d->gate_pages) {
        d->gate_pages = page->next;
        cudaFreeHost(page->words);
        mng_delete(d, page);
    }
}

/* ---- words ----------------------------------------------------------------------------------- */
/* What the stream wrote before is seen by whoever sees the word. */
mn_status cu_word_write(mn_queue *q, mng_ref word, uint32_t value, mn_error *err) {
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)((char *)word.mem + word.at);
    return check_word_fn(write_value(q->stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT), err);
}
