/* emulated.cpp -- the fibers of emulated.h. A block's threads run in turn, each until it has to
 * wait; a warp's exchange is over when all of its lanes that have not ended are there. */
#include <ucontext.h>
#include <vector>

emulated_index threadIdx, blockIdx, gridDim, blockDim;

struct fiber {
    ucontext_t context;
    bool done, waits; /* waits: in __syncthreads */
};
struct exchange {
    uint32_t put[32], got[32];
    int arrived, living;
    unsigned turn;
};

enum { STACK = 64 << 10 };
static std::vector<fiber> fibers;
static std::vector<exchange> warps;
static std::vector<char> stacks;
static ucontext_t scheduler;
static int current;
static void (*kernel)(void *);
static void *kernel_arg;

static void next_thread() {
    const int self = current;
    swapcontext(&fibers[self].context, &scheduler);
}

static void finish(exchange &w) {
    if (!w.arrived || w.arrived != w.living)
        return;
    memcpy(w.got, w.put, sizeof w.got);
    w.arrived = 0;
    w.turn++;
}

static void run_thread() {
    kernel(kernel_arg);
    const int self = current;
    exchange &w = warps[self / 32];
    fibers[self].done = true;
    w.living--;
    finish(w);
    swapcontext(&fibers[self].context, &scheduler);
}

void emulated_sync() {
    const int self = current;
    fibers[self].waits = true;
    while (fibers[self].waits)
        next_thread();
}

int emulated_any(int value) {
    static int any;
    any |= value;
    emulated_sync();
    const int result = any;
    emulated_sync();
    any = 0;
    emulated_sync();
    return result != 0;
}

static const exchange &meet(uint32_t value) {
    const int self = current;
    exchange &w = warps[self / 32];
    const unsigned turn = w.turn;
    w.put[self % 32] = value;
    w.arrived++;
    finish(w);
    while (w.turn == turn)
        next_thread();
    return w;
}

uint32_t emulated_lane(uint32_t value, int lane) {
    return meet(value).got[lane];
}

int emulated_all(uint32_t value) {
    const exchange &w = meet(value);
    for (uint32_t got : w.got) {
        if (!got)
            return 0;
    }
    return 1;
}

static void begin_block(int threads) {
    fibers.assign((size_t)threads, fiber());
    warps.assign((size_t)(threads + 31) / 32, exchange());
    for (exchange &w : warps)
        w.living = 32;
    for (int i = 0; i < threads; i++) {
        ucontext_t *c = &fibers[i].context;
        getcontext(c);
        c->uc_stack.ss_sp = &stacks[(size_t)i * STACK];
        c->uc_stack.ss_size = STACK;
        c->uc_link = &scheduler;
        makecontext(c, run_thread, 0);
    }
}

static void run_block(int threads) {
    begin_block(threads);
    for (int living = threads; living;) {
        int waiting = 0;
        living = 0;
        for (int i = 0; i < threads; i++) {
            if (!fibers[i].done && !fibers[i].waits) {
                current = i;
                threadIdx = emulated_index{(unsigned)i, 0, 0};
                swapcontext(&scheduler, &fibers[i].context);
            }
            living += !fibers[i].done;
            waiting += fibers[i].waits;
        }
        if (waiting != living)
            continue;
        for (fiber &f : fibers)
            f.waits = false;
    }
}

void emulated_run(dim3 grid, int threads, void (*fn)(void *), void *arg) {
    kernel = fn;
    kernel_arg = arg;
    stacks.resize((size_t)threads * STACK);
    gridDim = emulated_index{grid.x, grid.y, grid.z};
    blockDim = emulated_index{(unsigned)threads, 1, 1};
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = emulated_index{x, y, z};
                run_block(threads);
            }
        }
    }
}

/* What launches ask of the driver. */
extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *) {
    return cudaErrorUnknown;
}
extern "C" cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
extern "C" cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) {
    return cudaSuccess;
}
