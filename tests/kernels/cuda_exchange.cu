/* cuda_exchange.cu -- exchanges between cards through peer memory, without the rest of the plugin:
 * a step of sums in every way, gathers and takes, captured as graphs and replayed, each result bit
 * by bit what a loop in the order of ranks gives. `cuda_exchange bench [libnccl.so.2]` times sums
 * of many sizes in every way, beside NCCL's. Needs two GPUs that reach each other; without: 77. */
#include "device.cuh"
#include "exchange.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { ROOM = 65536 };
static int n_members;
static uint32_t *missed;
static cu_mailbox *mail[CU_MAX_MEMBERS];
static cudaStream_t stream[CU_MAX_MEMBERS];

/* ---- members --------------------------------------------------------------------------------- */
static void use(int rank) {
    CHECK(cudaSetDevice(rank));
}

static void *allocate(int rank, size_t bytes) {
    void *p;
    use(rank);
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemset(p, 0xff, bytes)); /* NaN */
    CHECK(cudaDeviceSynchronize());
    return p;
}

static void open_members() {
    int all = 0;
    if (cudaGetDeviceCount(&all) != cudaSuccess || all < 2) {
        printf("SKIP  %d GPUs\n", all);
        exit(77);
    }
    n_members = all < 8 ? all : 8;
    for (int a = 0; a < n_members; a++) {
        use(a);
        for (int b = 0; b < n_members; b++) {
            int can = a == b;
            if (a != b)
                CHECK(cudaDeviceCanAccessPeer(&can, a, b));
            if (!can) {
                printf("SKIP  GPU %d does not reach the memory of GPU %d\n", a, b);
                exit(77);
            }
            if (a != b)
                CHECK(cudaDeviceEnablePeerAccess(b, 0));
        }
    }
    const size_t bytes = sizeof(cu_mailbox) + 2ull * n_members * ROOM * sizeof(uint64_t);
    CHECK(cudaHostAlloc((void **)&missed, CU_MAX_MEMBERS * sizeof *missed, cudaHostAllocPortable));
    memset(missed, 0, CU_MAX_MEMBERS * sizeof *missed);
    for (int r = 0; r < n_members; r++) {
        mail[r] = (cu_mailbox *)allocate(r, bytes);
        CHECK(cudaMemset(mail[r], 0, bytes));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
    }
}

static cu_exchange exchange_of(int rank, int index) {
    cu_exchange e = {};
    for (int r = 0; r < n_members; r++)
        e.mail[r] = mail[r];
    e.missed = &missed[rank];
    e.rank = (uint32_t)rank;
    e.n = (uint32_t)n_members;
    e.index = (uint32_t)index;
    e.room = ROOM;
    return e;
}

/* ---- correctness ----------------------------------------------------------------------------- */
enum { WORDS, PARTS, GATHER, TAKE };
struct test_case {
    int kind;
    int64_t rows, width; /* a sum is of rows * width */
    bool in_place, adds;
};
static const test_case cases[] = {
    {WORDS, 1, 1, false, false},        {WORDS, 1, 4096, false, true},
    {PARTS, 1, 4096, true, false},      {WORDS, 3, 2880, true, false},
    {WORDS, 1, ROOM, false, true},      {PARTS, 1, 7, false, true},
    {PARTS, 64, 4096, false, true},     {WORDS, 1, 13, true, true},
    {GATHER, 5, 4096, false, false},    {GATHER, 1, 32001, false, false},
    {TAKE, 9, 2880, false, false},      {PARTS, 1000, 4097, true, true},
    {PARTS, 512, 4096, true, false},    {WORDS, 4, 4096, true, true},
    {GATHER, 130, 2882, false, false},  {TAKE, 7, 1001, false, false},
    {WORDS, 2, 2048, false, true},      {PARTS, 3, 100, true, true},
    {GATHER, 70, 201088, false, false},
};
enum { N_CASES = sizeof cases / sizeof *cases };
struct problem {
    float *x[CU_MAX_MEMBERS], *y[CU_MAX_MEMBERS], *add[CU_MAX_MEMBERS];
    std::vector<float> host[CU_MAX_MEMBERS], more;
};

static float noise(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((int32_t)(*seed >> 32)) * 1e-6f;
}

/* Of `width` columns the share of a member. */
static int64_t begin_of(int64_t width, int rank) {
    return width * rank / n_members;
}

static int64_t own_size(const test_case *c, int rank) {
    const int64_t part = begin_of(c->width, rank + 1) - begin_of(c->width, rank);
    return c->rows * (c->kind == GATHER ? part : c->width);
}

static void make(const test_case *c, problem *p) {
    for (int r = 0; r < n_members; r++) {
        const size_t whole = (size_t)(c->rows * c->width) * sizeof(float);
        p->x[r] = (float *)allocate(r, whole);
        p->y[r] = c->in_place ? p->x[r] : (float *)allocate(r, whole);
        p->add[r] = c->adds ? (float *)allocate(r, whole) : NULL;
    }
}

static void fill(const test_case *c, problem *p, uint64_t *seed) {
    p->more.resize((size_t)(c->rows * c->width));
    for (float &v : p->more)
        v = noise(seed);
    for (int r = 0; r < n_members; r++) {
        use(r);
        p->host[r].resize((size_t)own_size(c, r));
        for (float &v : p->host[r])
            v = noise(seed);
        if (!c->in_place)
            CHECK(cudaMemset(p->y[r], 0xff, p->more.size() * sizeof(float)));
        CHECK(cudaMemcpy(p->x[r], p->host[r].data(), p->host[r].size() * sizeof(float),
                         cudaMemcpyHostToDevice));
        if (c->adds)
            CHECK(cudaMemcpy(p->add[r], p->more.data(), p->more.size() * sizeof(float),
                             cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
    }
}

/* One case on one member. True: it took a number. */
static bool launch_case(const test_case *c, const problem *p, int rank, int index) {
    cu_sum s = {};
    cu_gather_parts g = {};
    cu_take t = {};
    const int64_t first = begin_of(c->width, rank);
    const cu_columns columns = {c->rows, begin_of(c->width, rank + 1) - first, first, c->width};
    s.e = g.e = exchange_of(rank, index);
    for (int r = 0; r < n_members; r++) {
        s.x[r] = p->x[r];
        s.y[r] = g.y[r] = p->y[r];
    }
    s.add = p->add[rank];
    s.n = c->rows * c->width;
    g.x = t.x = p->x[rank];
    g.c = t.c = columns;
    t.y = p->y[rank];
    if (c->kind == WORDS)
        cu_sum_words(stream[rank], &s);
    else if (c->kind == PARTS)
        cu_sum_parts(stream[rank], &s);
    else if (c->kind == GATHER)
        cu_gather_run(stream[rank], &g);
    else
        cu_take_run(stream[rank], &t);
    CHECK(cudaGetLastError());
    return c->kind != TAKE;
}

static float expected(const test_case *c, const problem *p, int rank, int64_t i) {
    if (c->kind == GATHER) {
        int owner = 0;
        while (begin_of(c->width, owner + 1) <= i % c->width)
            owner++;
        const int64_t first = begin_of(c->width, owner);
        const int64_t part = begin_of(c->width, owner + 1) - first;
        return p->host[owner][(size_t)(i / c->width * part + i % c->width - first)];
    }
    if (c->kind == TAKE) {
        const int64_t first = begin_of(c->width, rank);
        const int64_t part = begin_of(c->width, rank + 1) - first;
        return p->host[rank][(size_t)(i / part * c->width + first + i % part)];
    }
    float all = p->host[0][(size_t)i];
    for (int r = 1; r < n_members; r++)
        all += p->host[r][(size_t)i];
    return c->adds ? all + p->more[(size_t)i] : all;
}

static int check_case(int k, const problem *p, int round) {
    const test_case *c = &cases[k];
    for (int r = 0; r < n_members; r++) {
        int64_t n = c->rows * c->width;
        if (c->kind == TAKE)
            n = c->rows * (begin_of(c->width, r + 1) - begin_of(c->width, r));
        std::vector<float> got((size_t)n);
        use(r);
        CHECK(cudaMemcpy(got.data(), p->y[r], (size_t)n * sizeof(float), cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < n; i++) {
            const float want = expected(c, p, r, i);
            if (memcmp(&want, &got[(size_t)i], sizeof want)) {
                printf("FAIL  case %d, round %d, member %d, element %lld: %g, expected %g\n", k,
                       round, r, (long long)i, (double)got[(size_t)i], (double)want);
                return 1;
            }
        }
    }
    return 0;
}

static void test() {
    static problem problems[N_CASES];
    cudaGraphExec_t exec[CU_MAX_MEMBERS];
    uint64_t seed = 1;
    int failed = 0;
    for (int k = 0; k < N_CASES; k++)
        make(&cases[k], &problems[k]);
    for (int r = 0; r < n_members; r++) {
        cudaGraph_t graph;
        int index = 0;
        use(r);
        CHECK(cudaStreamBeginCapture(stream[r], cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < N_CASES; k++)
            index += launch_case(&cases[k], &problems[k], r, index);
        cu_count_exchanges(stream[r], mail[r], (uint32_t)index);
        CHECK(cudaStreamEndCapture(stream[r], &graph));
        CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < N_CASES; k++)
            fill(&cases[k], &problems[k], &seed);
        for (int r = 0; r < n_members; r++) {
            use(r);
            CHECK(cudaGraphLaunch(exec[r], stream[r]));
        }
        for (int r = 0; r < n_members; r++) {
            use(r);
            CHECK(cudaStreamSynchronize(stream[r]));
        }
        for (int k = 0; k < N_CASES; k++)
            failed += check_case(k, &problems[k], round);
    }
    printf("%d members, %d cases, 6 rounds: %d failed\n", n_members, (int)N_CASES, failed);
    if (failed)
        exit(1);
}

/* ---- times ----------------------------------------------------------------------------------- */
struct nccl {
    int (*init_all)(void **, int, const int *);
    int (*start)();
    int (*end)();
    int (*all_reduce)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    void *of[CU_MAX_MEMBERS];
};

static bool open_nccl(nccl *l, const char *path) {
    int devices[CU_MAX_MEMBERS];
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib) {
        printf("%s\n", dlerror());
        return false;
    }
    *(void **)&l->init_all = dlsym(lib, "ncclCommInitAll");
    *(void **)&l->start = dlsym(lib, "ncclGroupStart");
    *(void **)&l->end = dlsym(lib, "ncclGroupEnd");
    *(void **)&l->all_reduce = dlsym(lib, "ncclAllReduce");
    for (int r = 0; r < n_members; r++)
        devices[r] = r;
    const int e = l->init_all(l->of, n_members, devices);
    if (e)
        printf("NCCL does not start: %d\n", e);
    return !e;
}

enum { BY_WORDS, BY_PARTS, BY_NCCL, BY_NOTHING };
__global__ void nothing() {
    cu_next();
    cu_wait();
}

/* us of one of 64 sums in a graph; the least of ten replays. */
static float time_sum(int way, int64_t n, float *const *x, float *const *y, const nccl *l) {
    enum { MANY = 64 };
    cudaGraphExec_t exec[CU_MAX_MEMBERS];
    cudaGraph_t graph[CU_MAX_MEMBERS];
    cudaEvent_t from;
    cudaEvent_t to;
    float least = INFINITY;
    for (int r = 0; r < n_members; r++) {
        use(r);
        CHECK(cudaStreamBeginCapture(stream[r], cudaStreamCaptureModeThreadLocal));
    }
    for (int i = 0; i < MANY; i++) {
        if (way == BY_NCCL)
            l->start();
        for (int r = 0; r < n_members; r++) {
            cu_sum s = {};
            use(r);
            s.e = exchange_of(r, i);
            for (int k = 0; k < n_members; k++) {
                s.x[k] = i % 2 ? y[k] : x[k];
                s.y[k] = i % 2 ? x[k] : y[k];
            }
            s.n = n;
            if (way == BY_WORDS)
                cu_sum_words(stream[r], &s);
            else if (way == BY_PARTS)
                cu_sum_parts(stream[r], &s);
            else if (way == BY_NCCL)
                l->all_reduce(s.x[r], s.y[r], (size_t)n, 7, 0, l->of[r], stream[r]);
            else
                launch(stream[r], nothing, dim3(8), 512, 0);
        }
        if (way == BY_NCCL)
            l->end();
    }
    for (int r = 0; r < n_members; r++) {
        use(r);
        if (way <= BY_PARTS)
            cu_count_exchanges(stream[r], mail[r], MANY);
        CHECK(cudaStreamEndCapture(stream[r], &graph[r]));
        CHECK(cudaGraphInstantiate(&exec[r], graph[r], 0));
        CHECK(cudaGraphUpload(exec[r], stream[r]));
        CHECK(cudaStreamSynchronize(stream[r]));
    }
    use(0);
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (int round = 0; round < 10; round++) {
        /* the second of two steps is timed: by then all members are there */
        for (int k = 0; k < 2; k++)
            for (int r = n_members; r-- > 0;) {
                use(r);
                if (!r && k)
                    CHECK(cudaEventRecord(from, stream[0]));
                CHECK(cudaGraphLaunch(exec[r], stream[r]));
                if (!r && k)
                    CHECK(cudaEventRecord(to, stream[0]));
            }
        float ms;
        for (int r = 0; r < n_members; r++) {
            use(r);
            CHECK(cudaStreamSynchronize(stream[r]));
        }
        CHECK(cudaEventElapsedTime(&ms, from, to));
        least = fminf(least, ms * 1000 / MANY);
    }
    for (int r = 0; r < n_members; r++) {
        CHECK(cudaGraphExecDestroy(exec[r]));
        CHECK(cudaGraphDestroy(graph[r]));
    }
    return least;
}

static void bench(const char *path) {
    float *x[CU_MAX_MEMBERS];
    float *y[CU_MAX_MEMBERS];
    nccl l = {};
    const int64_t most = 16 << 20;
    const bool has_nccl = path && open_nccl(&l, path);
    for (int r = 0; r < n_members; r++) {
        x[r] = (float *)allocate(r, most * sizeof(float));
        y[r] = (float *)allocate(r, most * sizeof(float));
        CHECK(cudaMemset(x[r], 0, most * sizeof(float)));
        CHECK(cudaDeviceSynchronize());
    }
    printf("a kernel that does nothing: %.2f us\n", time_sum(BY_NOTHING, 0, x, y, &l));
    printf("| KiB | words, us | parts, us | NCCL, us |\n|---|---|---|---|\n");
    for (int64_t n = 1024; n <= most; n *= n < 65536 ? 2 : 4) {
        printf("| %lld | ", (long long)(n / 256));
        if (n <= ROOM)
            printf("%.2f", time_sum(BY_WORDS, n, x, y, &l));
        printf(" | %.2f | ", time_sum(BY_PARTS, n, x, y, &l));
        if (has_nccl)
            printf("%.2f", time_sum(BY_NCCL, n, x, y, &l));
        printf(" |\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    open_members();
    test();
    if (argc > 1 && !strcmp(argv[1], "bench"))
        bench(argc > 2 ? argv[2] : NULL);
    return 0;
}
