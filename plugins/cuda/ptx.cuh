/* ptx.cuh -- instructions that C++ has no words for, as functions: copies into shared memory and
 * their barriers, clusters of blocks, matrix units. Those of compute capability 9.0 exist only
 * where CU_SM90 is defined, warpgroup products only where CU_SM90A is. */
#ifndef CU_PTX_CUH
#define CU_PTX_CUH
#include "device.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CU_SM90 1
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CU_SM90A 1
#endif

__device__ __forceinline__ uint32_t shared_at(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- copies of a thread's own (cp.async) ----------------------------------------------------- */
/* BYTES (4, 8, 16 or a multiple of 16) to shared memory; neither address generic: `to` counts in
 * shared memory, `from` lies in global memory. */
template <int BYTES> __device__ __forceinline__ void copy_bytes(uint32_t to, const char *from) {
    if constexpr (BYTES < 16) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                     : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < BYTES; i += 16) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                         : "memory");
        }
    }
}
/* 16 bytes; not `in`: zeros, and `from` is not read */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool in) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(in ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most LEFT groups of this thread are under way. */
template <int LEFT> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* A thread's own stores, where addresses count in shared memory. */
__device__ __forceinline__ void shared_store(uint32_t to, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void shared_store(uint32_t to, uint32_t a) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(a) : "memory");
}

/* ---- matrix units of a warp ------------------------------------------------------------------ */
/* Four matrices of 8 x 8 from shared memory; lane i gives the row i % 8 of matrix i / 8. */
__device__ __forceinline__ void load_matrices(uint32_t v[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t v[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
}
/* c [16, 8] += a [16, 16] b [16, 8], of 16-bit numbers of KIND, in f32 */
#define MMA(type)                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, "     \
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                          \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
template <int KIND>
__device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                    uint32_t b0, uint32_t b1) {
    if (KIND == CU_BF16)
        MMA("bf16");
    else
        MMA("f16");
}
#undef MMA
template <int KIND>
__device__ __forceinline__ void mma(float c[4], const uint32_t a[4], const uint32_t *b) {
    mma<KIND>(c, a[0], a[1], a[2], a[3], b[0], b[1]);
}

/* ---- clusters -------------------------------------------------------------------------------- */
#ifdef CU_SM90
/* The place in another block's shared memory. */
__device__ __forceinline__ uint32_t peer_at(uint32_t at, int block) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}
/* Four floats to another block, counted as bytes by a barrier there; both places of peer_at. */
__device__ __forceinline__ void peer_send(uint32_t to, uint32_t bar, const float v[4]) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                 "{%2, %3, %4, %5}, [%1];" ::"r"(to),
                 "r"(bar), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
}
/* Every thread of the cluster is here; says nothing of what was written. */
__device__ __forceinline__ void cluster_here() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
#endif

#ifdef CU_SM90A
/* ---- barriers in shared memory --------------------------------------------------------------- */
__device__ __forceinline__ void barrier_init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/* Fresh barriers may be used by the whole cluster. */
__device__ __forceinline__ void barrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
}
/* The same for what another block of the cluster stored here. */
__device__ __forceinline__ void barrier_wait_cluster(uint32_t bar, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
}
__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_arrive_at(uint32_t bar, int block) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_at(bar, block))
                 : "memory");
}

/* ---- barriers of some of a block's threads, by number --------------------------------------- */
__device__ __forceinline__ void named_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- products of a warpgroup ----------------------------------------------------------------- */
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* What this thread wrote to shared memory is seen by warpgroup products behind the next barrier. */
__device__ __forceinline__ void fence_products() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* An operand in rows of 128 bytes whose vectors are swizzled (vector v of row r at v ^ r % 8),
 * eight rows after each other; `at` is a multiple of 1,024, plus where in the row it starts. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t at) {
    const uint64_t swizzle_128 = 1ull << 62;
    const uint64_t eight_rows = (uint64_t)(1024 / 16) << 32;
    return swizzle_128 | eight_rows | 1ull << 16 | (at & 0x3ffff) / 16;
}

/* An operand whose k are rows: 64 columns in rows of 128 bytes, swizzled likewise; the next 64
 * columns lie `apart` bytes behind. */
__device__ __forceinline__ uint64_t wgmma_rows(uint32_t at, int apart) {
    const uint64_t swizzle_128 = 1ull << 62;
    const uint64_t eight_rows = (uint64_t)(1024 / 16) << 32;
    return swizzle_128 | eight_rows | (uint64_t)(apart / 16) << 16 | (at & 0x3ffff) / 16;
}

/* Operand tables: registers 0 to N / 2 - 1 are sums, the others follow. */
#define R10(t)                                                                                     \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define R30 R10() "," R10(1) "," R10(2)
#define R60 R30 "," R10(3) "," R10(4) "," R10(5)
#define R90 R60 "," R10(6) "," R10(7) "," R10(8)
#define R120 R90 "," R10(9) "," R10(10) "," R10(11)
#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F12(i) F4(i), F4(i + 4), F4(i + 8)
#define F16(i) F4(i), F12(i + 4)
#define F32(i) F16(i), F16(i + 16)
#define F64(i) F32(i), F32(i + 32)
#define WGMMA_TYPES(...)                                                                           \
    do {                                                                                           \
        if (KIND == CU_BF16)                                                                       \
            WGMMA_OF("bf16", __VA_ARGS__);                                                         \
        else                                                                                       \
            WGMMA_OF("f16", __VA_ARGS__);                                                          \
    } while (0)
#define WGMMA(n, type, regs, x, w, add, ...)                                                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" regs "}, %" x \
                 ", %" w ", p, 1, 1, 0, 0;\n}"                                                     \
                 : __VA_ARGS__                                                                     \
                 : "l"(x_at), "l"(w_at), "r"(more))
#define WGMMA_OF(type, n, regs, x, w, add, ...) WGMMA(n, type, regs, x, w, add, __VA_ARGS__)

/* d [64 rows, N columns] = (more ? d : 0) + x [64, 16] w [N, 16]^T; both K-major in shared
 * memory */
template <int KIND, int N>
__device__ __forceinline__ void wgmma(float *d, uint64_t x_at, uint64_t w_at, int more) {
    static_assert(N == 64 || N == 128 || N == 192 || N == 256, "a width with operand tables");
    if constexpr (N == 64) {
        WGMMA_TYPES("64", R30 ",%30,%31", "32", "33", "34", F32(0));
    } else if constexpr (N == 128) {
        WGMMA_TYPES("128", R60 ",%60,%61,%62,%63", "64", "65", "66", F64(0));
    } else if constexpr (N == 192) {
        WGMMA_TYPES("192", R90 ",%90,%91,%92,%93,%94,%95", "96", "97", "98", F64(0), F32(64));
    } else {
        WGMMA_TYPES("256", R120 ",%120,%121,%122,%123,%124,%125,%126,%127", "128", "129", "130",
                    F64(0), F64(64));
    }
}
#undef WGMMA
#undef WGMMA_OF
#define WGMMA(n, type, regs, w, x, ...)                                                            \
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" regs "}, {" w \
                 "}, %" x ", p, 1, 1, 0;\n}"                                                       \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x_at))
#define WGMMA_OF(type, n, regs, w, x, ...) WGMMA(n, type, regs, w, x, __VA_ARGS__)

/* d [64, N] += a [64, 16] x [N, 16]^T; a in registers, a warp's 16 rows as in mma; x in shared
 * memory. a must stay as it is until a wait. */
template <int KIND, int N>
__device__ __forceinline__ void wgmma(float *d, const uint32_t a[4], uint64_t x_at) {
    static_assert(N == 8 || N == 24 || N % 32 == 0, "a width with operand tables");
    if constexpr (N == 8) {
        WGMMA_TYPES("8", "%0,%1,%2,%3", "%4,%5,%6,%7", "8", F4(0));
    } else if constexpr (N == 24) {
        WGMMA_TYPES("24", R10() ",%10,%11", "%12,%13,%14,%15", "16", F12(0));
    } else if constexpr (N == 32) {
        WGMMA_TYPES("32", R10() ",%10,%11,%12,%13,%14,%15", "%16,%17,%18,%19", "20", F16(0));
    } else if constexpr (N == 64) {
        WGMMA_TYPES("64", R30 ",%30,%31", "%32,%33,%34,%35", "36", F32(0));
    } else {
        static_assert(N == 128, "a width with operand tables");
        WGMMA_TYPES("128", R60 ",%60,%61,%62,%63", "%64,%65,%66,%67", "68", F64(0));
    }
}
#undef WGMMA
#undef WGMMA_OF
#undef WGMMA_TYPES
#define WGMMA(n, regs, w, x, ...)                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" regs "}, {" w "}, %" x  \
                 ", 1, 1, 1, 1;"                                                                   \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x_at))

/* d [64, N] += a [64, 16] x [16, N], all f16; a in registers, x in shared memory as it lies:
 * wgmma_rows. a must stay as it is until a wait. */
template <int N>
__device__ __forceinline__ void wgmma_by_rows(float *d, const uint32_t a[4], uint64_t x_at) {
    static_assert(N == 64 || N == 128 || N == 256, "a width with operand tables");
    if constexpr (N == 64)
        WGMMA("64", R30 ",%30,%31", "%32,%33,%34,%35", "36", F32(0));
    else if constexpr (N == 128)
        WGMMA("128", R60 ",%60,%61,%62,%63", "%64,%65,%66,%67", "68", F64(0));
    else
        WGMMA("256", R120 ",%120,%121,%122,%123,%124,%125,%126,%127", "%128,%129,%130,%131", "132",
              F64(0), F64(64));
}
#undef WGMMA
#undef F64
#undef F32
#undef F16
#undef F12
#undef F4
#undef R120
#undef R90
#undef R60
#undef R30
#undef R10
#endif
#endif
