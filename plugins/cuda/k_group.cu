/* k_group.cu -- exchanges between the members of a group through peer memory. In one shot each
 * member sends its row to all, value by value, every value in one word with the number of the
 * exchange, and adds what arrives: one trip over the link. Large sums go in two: member r sums up
 * part r of all rows and writes it to everybody; flags before and behind, one per block, say that
 * the others are there and that they are done.
 *
 * Sums are added in the order of ranks, on whichever member; also those of rows that NCCL brought,
 * which are in the memory of this card. Blocks of kernels that wait are few, for all of them must
 * run at once, beside kernels of other queues. */
#include "device.cuh"
#include "exchange.h"

enum { THREADS = 512 };

/* ---- words and flags ------------------------------------------------------------------------- */
__device__ __forceinline__ void send(uint64_t *to, uint64_t word) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t receive(const uint64_t *from) {
    uint64_t word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
__device__ __forceinline__ void raise_flag(uint32_t *to, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t read_flag(const uint32_t *from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
/* Not from a cache of this card: another card has written it. */
__device__ __forceinline__ float4 load4(const float *from) {
    float4 v;
    asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from));
    return v;
}
__device__ __forceinline__ float load1(const float *from) {
    float v;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
}

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* How long a thread has waited for a member; past all patience it ends this member's work, too. */
struct patience {
    uint32_t polls;
    uint64_t until;
};
__device__ __forceinline__ void wait_more(patience *p, const cu_exchange &e, uint32_t rank) {
    p->polls++;
    if (p->polls % 4096)
        return;
    const uint64_t now = now_ns();
    if (!p->until)
        p->until = now + (uint64_t)CU_PATIENCE * 1000000000;
    if (now < p->until)
        return;
    *e.missed = rank + 1;
    __threadfence_system();
    __trap();
}

/* The number of this exchange: odd, so that it is never what zeroed memory has. */
__device__ __forceinline__ uint32_t number_of(const cu_exchange &e) {
    return (e.mail[e.rank]->number + e.index) * 2 + 1;
}
__device__ __forceinline__ uint64_t *words_of(cu_mailbox *mail, const cu_exchange &e,
                                              uint32_t number, uint32_t sender) {
    const uint32_t slot = number / 2 % 2;
    return (uint64_t *)(mail + 1) + (slot * e.n + sender) * e.room;
}

/* Block b of every member is as far as `step`, and what it wrote before is here. */
__device__ __forceinline__ void meet(const cu_exchange &e, uint32_t step) {
    __syncthreads();
    const uint32_t r = threadIdx.x;
    if (r < e.n && r != e.rank) {
        raise_flag(&e.mail[r]->arrived[e.rank][blockIdx.x], step);
        const uint32_t *from = &e.mail[e.rank]->arrived[r][blockIdx.x];
        patience p = {};
        while ((int32_t)(read_flag(from) - step) < 0)
            wait_more(&p, e, r);
    }
    __syncthreads();
}

/* ---- sums ------------------------------------------------------------------------------------ */
__global__ void __launch_bounds__(THREADS) sum_words(cu_sum a) {
    if (!a.e.one_card)
        cu_next();
    cu_wait();
    const cu_exchange &e = a.e;
    const uint32_t number = number_of(e);
    const int64_t step = (int64_t)gridDim.x * THREADS;
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const float *own = a.x[e.rank];
    for (int64_t i = first; i < a.n; i += step) {
        const uint64_t word = (uint64_t)number << 32 | __float_as_uint(__ldcg(&own[i]));
        for (uint32_t r = 0; r < e.n; r++)
            if (r != e.rank)
                send(words_of(e.mail[r], e, number, e.rank) + i, word);
    }
    for (int64_t i = first; i < a.n; i += step) {
        float all = 0;
        for (uint32_t r = 0; r < e.n; r++) {
            float v;
            if (r == e.rank) {
                v = __ldcg(&own[i]);
            } else {
                const uint64_t *from = words_of(e.mail[e.rank], e, number, r) + i;
                uint64_t word = receive(from);
                patience p = {};
                while ((uint32_t)(word >> 32) != number) {
                    wait_more(&p, e, r);
                    word = receive(from);
                }
                v = __uint_as_float((uint32_t)word);
            }
            all = r ? all + v : v;
        }
        a.y[e.rank][i] = a.add ? all + __ldcg(&a.add[i]) : all;
    }
}

/* Elements [4 i, 4 i + 4) of all members, summed up, for everybody; for MANY i, `step` apart, that
 * are below hi. All that is read is on its way at once. */
template <int N, int MANY>
__device__ __forceinline__ void sum4(const cu_sum &a, int64_t i, int64_t step, int64_t hi) {
    float4 part[MANY][N];
#pragma unroll
    for (int u = 0; u < MANY; u++) {
        const int64_t at = i + u * step < hi ? i + u * step : i;
#pragma unroll
        for (int r = 0; r < N; r++)
            part[u][r] = load4(a.x[r] + at * 4);
    }
#pragma unroll
    for (int u = 0; u < MANY; u++) {
        const int64_t at = i + u * step;
        float4 all = part[u][0];
#pragma unroll
        for (int r = 1; r < N; r++) {
            all.x += part[u][r].x;
            all.y += part[u][r].y;
            all.z += part[u][r].z;
            all.w += part[u][r].w;
        }
        if (at >= hi)
            continue;
        if (a.add) {
            const float4 more = __ldcg((const float4 *)(a.add + at * 4));
            all.x += more.x;
            all.y += more.y;
            all.z += more.z;
            all.w += more.w;
        }
#pragma unroll
        for (int r = 0; r < N; r++)
            *(float4 *)(a.y[r] + at * 4) = all;
    }
}

/* One element, of any number of members. */
__device__ __forceinline__ void sum1(const cu_sum &a, int64_t i) {
    float all = load1(a.x[0] + i);
    for (uint32_t r = 1; r < a.e.n; r++)
        all += load1(a.x[r] + i);
    if (a.add)
        all += __ldcg(&a.add[i]);
    for (uint32_t r = 0; r < a.e.n; r++)
        a.y[r][i] = all;
}

/* N members; 0: any number, or rows that are not 16-byte aligned. */
template <int N> __global__ void __launch_bounds__(THREADS) sum_parts(cu_sum a) {
    if (!a.e.one_card)
        cu_next();
    cu_wait();
    const cu_exchange &e = a.e;
    const uint32_t number = number_of(e);
    const int64_t per = N ? 4 : 1;
    const int64_t total = a.n / per;
    const int64_t lo = total * e.rank / e.n;
    const int64_t hi = total * (e.rank + 1) / e.n;
    const int64_t step = (int64_t)gridDim.x * THREADS;
    meet(e, number);
    int64_t i = lo + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if constexpr (N != 0) {
        enum { MANY = 8 / N };
        for (; i < hi; i += MANY * step)
            sum4<N, MANY>(a, i, step, hi);
    } else {
        for (; i < hi; i += step)
            sum1(a, i);
    }
    meet(e, number + 1);
}

/* V: float4 where everything is a multiple of four, or float. */
__device__ __forceinline__ void add_to(float4 &all, float4 v) {
    all.x += v.x;
    all.y += v.y;
    all.z += v.z;
    all.w += v.w;
}
__device__ __forceinline__ void add_to(float &all, float v) {
    all += v;
}
template <class V> __global__ void __launch_bounds__(THREADS) sum_rows(cu_sum a) {
    cu_next();
    cu_wait();
    const int64_t n = a.n * 4 / (int64_t)sizeof(V);
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        V all = __ldcg((const V *)a.x[0] + i);
        for (uint32_t r = 1; r < a.e.n; r++)
            add_to(all, __ldcg((const V *)a.x[r] + i));
        if (a.add)
            add_to(all, __ldcg((const V *)a.add + i));
        ((V *)a.y[a.e.rank])[i] = all;
    }
}

static unsigned blocks_for(int64_t threads) {
    const int64_t blocks = (threads + THREADS - 1) / THREADS;
    if (blocks < 1)
        return 1;
    return (unsigned)(blocks < CU_EXCHANGE_BLOCKS ? blocks : CU_EXCHANGE_BLOCKS);
}

void cu_sum_words(cudaStream_t s, const cu_sum *a) {
    launch(s, sum_words, dim3(blocks_for(a->n)), THREADS, 0, *a);
}

/* The same answer on every member: sizes are alike, and so is the alignment of what each has. */
static bool goes_by_four(const cu_sum *a) {
    bool fits = a->n % 4 == 0 && (uintptr_t)a->add % 16 == 0;
    for (uint32_t r = 0; r < a->e.n; r++)
        fits = fits && (uintptr_t)a->x[r] % 16 == 0 && (uintptr_t)a->y[r] % 16 == 0;
    return fits;
}

void cu_sum_parts(cudaStream_t s, const cu_sum *a) {
    const bool by_four = goes_by_four(a);
    const dim3 grid(blocks_for(a->n / (by_four ? 4 : 1) / a->e.n));
    if (by_four && a->e.n == 2)
        launch(s, sum_parts<2>, grid, THREADS, 0, *a);
    else if (by_four && a->e.n == 4)
        launch(s, sum_parts<4>, grid, THREADS, 0, *a);
    else if (by_four && a->e.n == 8)
        launch(s, sum_parts<8>, grid, THREADS, 0, *a);
    else
        launch(s, sum_parts<0>, grid, THREADS, 0, *a);
}

void cu_sum_rows(cudaStream_t s, const cu_sum *a) {
    const float *y = a->y[a->e.rank];
    bool by_four = a->n % 4 == 0 && (uintptr_t)a->add % 16 == 0 && (uintptr_t)y % 16 == 0;
    for (uint32_t r = 0; r < a->e.n; r++)
        by_four = by_four && (uintptr_t)a->x[r] % 16 == 0;
    const int64_t blocks = (a->n / (by_four ? 4 : 1) + THREADS - 1) / THREADS;
    const dim3 grid((unsigned)(blocks < 1024 ? blocks : 1024));
    if (by_four)
        launch(s, sum_rows<float4>, grid, THREADS, 0, *a);
    else
        launch(s, sum_rows<float>, grid, THREADS, 0, *a);
}

/* ---- copies ---------------------------------------------------------------------------------- */
/* Elements of type V: of one f32, or of four where everything is a multiple of four. */
template <class V>
__device__ __forceinline__ int64_t place(const cu_columns &c, uint32_t i, uint32_t width) {
    const uint32_t row = i / width;
    const int64_t pitch = c.pitch / (int64_t)(sizeof(V) / 4);
    const int64_t first = c.first / (int64_t)(sizeof(V) / 4);
    return row * pitch + first + i % width;
}

template <class V> __global__ void __launch_bounds__(THREADS) gather_parts(cu_gather_parts a) {
    if (!a.e.one_card)
        cu_next();
    cu_wait();
    const cu_exchange &e = a.e;
    const uint32_t number = number_of(e);
    const uint32_t step = gridDim.x * THREADS;
    const uint32_t width = (uint32_t)(a.c.width * 4 / sizeof(V));
    const uint32_t total = (uint32_t)a.c.rows * width;
    const V *from = (const V *)a.x;
    meet(e, number);
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < total; i += step) {
        const int64_t at = place<V>(a.c, i, width);
        const V v = __ldcg(&from[i]);
        for (uint32_t r = 0; r < e.n; r++)
            ((V *)a.y[r])[at] = v;
    }
    meet(e, number + 1);
}

static bool columns_by_four(const cu_columns *c, const void *x, const void *y) {
    const bool aligned = (uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0;
    return aligned && c->width % 4 == 0 && c->first % 4 == 0 && c->pitch % 4 == 0;
}

/* Members may differ in how they copy, but not in how many blocks they have. */
void cu_gather_run(cudaStream_t s, const cu_gather_parts *a) {
    const dim3 grid(blocks_for(a->c.rows * a->c.pitch / a->e.n / 4));
    bool by_four = true;
    for (uint32_t r = 0; r < a->e.n; r++)
        by_four = by_four && columns_by_four(&a->c, a->x, a->y[r]);
    if (by_four)
        launch(s, gather_parts<float4>, grid, THREADS, 0, *a);
    else
        launch(s, gather_parts<float>, grid, THREADS, 0, *a);
}

template <class V> __global__ void __launch_bounds__(THREADS) take_columns(cu_take a) {
    cu_next();
    cu_wait();
    const uint32_t step = gridDim.x * THREADS;
    const uint32_t width = (uint32_t)(a.c.width * 4 / sizeof(V));
    const uint32_t total = (uint32_t)a.c.rows * width;
    V *to = (V *)a.y;
    const V *from = (const V *)a.x;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < total; i += step)
        to[i] = __ldcg(&from[place<V>(a.c, i, width)]);
}

void cu_take_run(cudaStream_t s, const cu_take *a) {
    const int64_t blocks = (a->c.rows * a->c.width + THREADS - 1) / THREADS;
    const dim3 grid((unsigned)(blocks < 1024 ? blocks : 1024));
    if (columns_by_four(&a->c, a->x, a->y))
        launch(s, take_columns<float4>, grid, THREADS, 0, *a);
    else
        launch(s, take_columns<float>, grid, THREADS, 0, *a);
}

__global__ void count_exchanges(cu_mailbox *mail, uint32_t n) {
    cu_next();
    cu_wait();
    mail->number += n;
}

void cu_count_exchanges(cudaStream_t s, cu_mailbox *mail, uint32_t n) {
    launch(s, count_exchanges, dim3(1), 1, 0, mail, n);
}
