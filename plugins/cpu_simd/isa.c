/* isa.c -- what the CPU and the operating system offer, and its cap by name. */
#include "rows.h"
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const struct {
    const char *name;
    int32_t level;
} names[] = {
    {"generic", MNK_GENERIC}, {"avx2", MNK_AVX2},
    {"avx512", MNK_AVX512},   {"avx512vnni", MNK_AVX512VNNI},
    {"amx", MNK_AMX},         {"neon", MNK_NEON_DOT},
    {"neon", MNK_NEON},
};

int32_t mnk_isa_by_name(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && !memcmp(names[i].name, name, len))
            return names[i].level;
    return -1;
}

const char *mnk_isa_name(int32_t level) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].level == level)
            return names[i].name;
    return "?";
}

int32_t mnk_isa_cap(int32_t level, int32_t cap) {
    if ((level >= MNK_NEON) != (cap >= MNK_NEON))
        return MNK_GENERIC;
    if (level < cap)
        return level;
    return cap;
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

/* Tiles and their bf16 products; products of bf16 in vectors, whose conversions the rows use.
 * saved: xcr0(). */
static bool has_amx(uint64_t saved, uint32_t d7) {
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    if (!all(d7, 1u << 22 | 1u << 24) || (saved & 0x60000) != 0x60000)
        return false;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && all(a, 1u << 5);
}

static int32_t cpu_level(bool *amx_refused) {
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    uint32_t c1;
    uint32_t b7;
    uint32_t c7;
    uint32_t d7;
    if (!__get_cpuid(1, &a, &b, &c1, &d) || !all(c1, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return MNK_GENERIC;
    uint64_t saved = xcr0();
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !all(b7, bit_AVX2))
        return MNK_GENERIC;
    (void)c;
    if ((saved & 0xe6) != 0xe6 ||
        !all(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ))
        return MNK_AVX2;
    if (!all(c7, bit_AVX512VNNI))
        return MNK_AVX512;
    if (!has_amx(saved, d7))
        return MNK_AVX512VNNI;
    *amx_refused = !may_use_tiles();
    return *amx_refused ? MNK_AVX512VNNI : MNK_AMX;
}
#elif defined(__aarch64__)
static int32_t cpu_level(bool *amx_refused) {
    (void)amx_refused;
#if defined(__linux__)
    return getauxval(AT_HWCAP) & 1u << 20 /* HWCAP_ASIMDDP */ ? MNK_NEON_DOT : MNK_NEON;
#else
    return MNK_NEON;
#endif
}
#else
static int32_t cpu_level(bool *amx_refused) {
    (void)amx_refused;
    return MNK_GENERIC;
}
#endif

int32_t mnk_cpu_level(void) {
    bool refused;
    return cpu_level(&refused);
}
bool mnk_amx_refused(void) {
    bool refused = false;
    cpu_level(&refused);
    return refused;
}
