/* isa.c -- what the CPU and the operating system offer, and its cap by name. Which instruction set
 * builds upon which is in rows.h: AVX-VNNI and AVX-512 are two branches, of which a CPU may have
 * either or both. */
#include "rows.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#define NAME(ID, name, BASE) [MNK_##ID] = name,
#define BASE_OF(ID, name, BASE) [MNK_##ID] = MNK_##BASE,
static const char *const names[] = {MNK_ISAS(NAME)};
static const int32_t bases[] = {MNK_ISAS(BASE_OF)};

int32_t mnk_isa_by_name(const char *name, size_t len) {
    for (int32_t i = 0; i < MNK_N_LEVELS; i++)
        if (strlen(names[i]) == len && !memcmp(names[i], name, len))
            return i;
    return -1;
}

const char *mnk_isa_name(int32_t level) {
    return names[level];
}

int32_t mnk_isa_cap(uint32_t levels, int32_t cap) {
    while (cap != MNK_GENERIC && !(levels >> cap & 1))
        cap = bases[cap];
    return cap;
}

bool mnk_isa_runs(int32_t level, int32_t isa) {
    while (level != isa && level != MNK_GENERIC)
        level = bases[level];
    return level == isa;
}

/* levels, and one more. */
static uint32_t with(uint32_t levels, int32_t level) {
    return levels | 1u << level;
}

#if defined(__x86_64__)
static uint64_t xcr0(void) { /* which registers the operating system saves */
    uint32_t lo;
    uint32_t hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}
static bool all(uint32_t have, uint32_t want) {
    return (have & want) == want;
}

/* Linux gives the registers of tiles to processes that ask; threads made before and later have
 * them, too. */
static bool may_use_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

/* EAX of the second part of leaf 7: AVX-VNNI, and products of bf16 in vectors. */
static uint32_t leaf7_1(void) {
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) ? a : 0;
}

/* Tiles and their bf16 products; products of bf16 in vectors, whose conversions the rows use.
 * saved: xcr0(). */
static bool has_amx(uint64_t saved, uint32_t d7) {
    if (!all(d7, 1u << 22 | 1u << 24) || (saved & 0x60000) != 0x60000)
        return false;
    return all(leaf7_1(), 1u << 5);
}

/* ---- VDPBF16PS: twice the products of f32's, and on some processors a quarter as often ---- */

enum { CHAINS = 12, STEPS = 16, TRIES = 64 };
/* Ticks of STEPS steps of independent chains of an instruction. */
#define TICKS(name, isa, step)                                                                     \
    __attribute__((target(isa))) static uint64_t name(void) {                                      \
        __m512 sum[CHAINS] = {0};                                                                  \
        const __m512 ones = _mm512_set1_ps(1);                                                     \
        const uint64_t since = __builtin_ia32_rdtsc();                                             \
        for (int i = 0; i < STEPS; i++)                                                            \
            _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++) {                            \
                sum[j] = step;                                                                     \
                __asm__ volatile("" : "+v"(sum[j]));                                               \
            }                                                                                      \
        return __builtin_ia32_rdtsc() - since;                                                     \
    }
TICKS(ticks_f32, "avx512f", _mm512_fmadd_ps(ones, ones, sum[j]))
TICKS(ticks_bf16, "avx512f,avx512bf16", _mm512_dpbf16_ps(sum[j], (__m512bh)ones, (__m512bh)ones))

/* The least of many tries, in turn: neighbours and interruptions are in some alone. The answer
 * decides about results, so a process has one. */
static bool bf16_pays(void) {
    static _Atomic int answer; /* 1: no, 2: yes */
    uint64_t f32 = UINT64_MAX;
    uint64_t bf16 = UINT64_MAX;
    int found = atomic_load(&answer);
    for (int i = 0; i < TRIES && !found; i++) {
        const uint64_t of_f32 = ticks_f32();
        const uint64_t of_bf16 = ticks_bf16();
        f32 = of_f32 < f32 ? of_f32 : f32;
        bf16 = of_bf16 < bf16 ? of_bf16 : bf16;
    }
    int none = 0;
    if (!found) {
        found = bf16 < 2 * f32 ? 2 : 1;
        if (!atomic_compare_exchange_strong(&answer, &none, found))
            found = none;
    }
    return found == 2;
}

static uint32_t cpu_levels(bool *amx_refused) {
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    uint32_t c1;
    uint32_t b7;
    uint32_t c7;
    uint32_t d7;
    uint32_t levels = with(0, MNK_GENERIC);
    if (!__get_cpuid(1, &a, &b, &c1, &d))
        return levels;
    if (!all(c1, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return levels;
    uint64_t saved = xcr0();
    if ((saved & 0x6) != 0x6)
        return levels;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !all(b7, bit_AVX2))
        return levels;
    (void)c;
    levels = with(levels, MNK_AVX2);
    if (all(leaf7_1(), 1u << 4))
        levels = with(levels, MNK_AVXVNNI);
    if ((saved & 0xe6) != 0xe6)
        return levels;
    if (!all(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ))
        return levels;
    levels = with(levels, MNK_AVX512);
    if (!all(c7, bit_AVX512VNNI))
        return levels;
    levels = with(levels, MNK_AVX512VNNI);
    if (all(leaf7_1(), 1u << 5) && bf16_pays())
        levels = with(levels, MNK_AVX512BF16);
    if (!has_amx(saved, d7))
        return levels;
    *amx_refused = !may_use_tiles();
    return *amx_refused ? levels : with(levels, MNK_AMX);
}
#elif defined(__aarch64__)
/* The length of vectors that the kernel has set for this thread, and for those that it makes. */
static bool has_sve256(void) {
#if defined(__linux__) && defined(PR_SVE_GET_VL)
    enum { SVE = 1 << 22 }; /* HWCAP_ */
    if (!(getauxval(AT_HWCAP) & SVE))
        return false;
    const int found = prctl(PR_SVE_GET_VL);
    return found > 0 && (found & PR_SVE_VL_LEN_MASK) == 256 / 8;
#else
    return false;
#endif
}

/* Each level needs those that it builds upon. */
static uint32_t cpu_levels(bool *amx_refused) {
    uint32_t levels = with(with(0, MNK_GENERIC), MNK_NEON);
    (void)amx_refused;
#if defined(__linux__)
    enum { ASIMDDP = 1 << 20, I8MM = 1 << 13, BF16 = 1 << 14 }; /* HWCAP_, HWCAP2_ */
    const unsigned long more = getauxval(AT_HWCAP2);
    if (!(getauxval(AT_HWCAP) & ASIMDDP))
        return levels;
    levels = with(levels, MNK_NEON_DOT);
    if (!(more & I8MM))
        return levels;
    levels = with(levels, MNK_NEON_I8MM);
    if (!(more & BF16))
        return levels;
    levels = with(levels, MNK_NEON_BF16);
    if (has_sve256())
        levels = with(levels, MNK_SVE256);
#endif
    return levels;
}
#else
static uint32_t cpu_levels(bool *amx_refused) {
    (void)amx_refused;
    return with(0, MNK_GENERIC);
}
#endif

uint32_t mnk_cpu_levels(void) {
    bool refused;
    return cpu_levels(&refused);
}
int32_t mnk_cpu_level(void) {
    return 31 - __builtin_clz(mnk_cpu_levels());
}
bool mnk_amx_refused(void) {
    bool refused = false;
    cpu_levels(&refused);
    return refused;
}
