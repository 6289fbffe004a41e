/* isa.c -- the instruction sets that a plugin's note may ask for, and whether this CPU has them:
 * one table per machine. */
#include "registry/internal.h"
#include <string.h>
#include <sys/auxv.h>

/* Names of __builtin_cpu_supports, which knows what the operating system saves, too. */
/* clang-format off */
#define ISA_X86(X) \
    X("sse") X("sse2") X("sse3") X("ssse3") X("sse4.1") X("sse4.2") X("popcnt") X("avx") \
    X("avx2") X("fma") X("fma4") X("xop") X("bmi") X("bmi2") X("aes") X("pclmul") X("gfni") \
    X("vpclmulqdq") X("avx512f") X("avx512vl") X("avx512bw") X("avx512dq") X("avx512cd") \
    X("avx512vbmi") X("avx512vbmi2") X("avx512ifma") X("avx512vnni") X("avx512bitalg") \
    X("avx512vpopcntdq") X("avx512bf16")
#if defined(__clang__) /* knows fewer */
#define ISA_X86_GCC(X)
#else
#define ISA_X86_GCC(X) \
    X("f16c") X("lzcnt") X("movbe") X("sha") X("vaes") X("avxvnni") X("avx512fp16") \
    X("amx-tile") X("amx-int8") X("amx-bf16")
#endif
/* clang-format on */

#if defined(__x86_64__) || defined(__i386__)
#define ISA_ASK(name)                                                                              \
    if (n == sizeof name - 1 && !memcmp(word, name, n))                                            \
        return __builtin_cpu_supports(name) != 0;
/* 1 = has it, 0 = lacks it, -1 = no such word */
static int cpu_has(const char *word, size_t n) {
    __builtin_cpu_init();
    ISA_X86(ISA_ASK)
    ISA_X86_GCC(ISA_ASK)
    return -1;
}
#elif defined(__aarch64__)
/* Bits of AT_HWCAP and AT_HWCAP2 by the kernel's names (Linux,
 * Documentation/arch/arm64/elf_hwcaps). */
static const struct {
    const char *name;
    int bit, second;
} hwcaps[] = {
    {"fp", 0, 0},       {"asimd", 1, 0},    {"aes", 3, 0},       {"pmull", 4, 0},
    {"sha1", 5, 0},     {"sha2", 6, 0},     {"crc32", 7, 0},     {"atomics", 8, 0},
    {"fphp", 9, 0},     {"asimdhp", 10, 0}, {"asimdrdm", 12, 0}, {"fcma", 14, 0},
    {"asimddp", 20, 0}, {"sve", 22, 0},     {"asimdfhm", 23, 0}, {"sve2", 1, 1},
    {"svei8mm", 9, 1},  {"svebf16", 12, 1}, {"i8mm", 13, 1},     {"bf16", 14, 1},
    {"sme", 23, 1},
};
static int cpu_has(const char *word, size_t n) {
    for (size_t i = 0; i < MN_COUNT(hwcaps); i++)
        if (strlen(hwcaps[i].name) == n && !memcmp(word, hwcaps[i].name, n))
            return (int)(getauxval(hwcaps[i].second ? AT_HWCAP2 : AT_HWCAP) >> hwcaps[i].bit & 1);
    return -1;
}
#else
static int cpu_has(const char *word, size_t n) {
    return (void)word, (void)n, -1;
}
#endif

mn_status mn_isa_check(const char *words, mn_error *err) {
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        int has = n ? cpu_has(at, n) : 1;
        if (has < 0)
            return mn_fail(err, MN_BAD_FILE,
                           "needs the instruction set \"%.*s\", which this Minerva does not know",
                           (int)n, at);
        if (!has)
            return mn_fail(err, MN_BAD_FILE, "needs %.*s, which this CPU lacks", (int)n, at);
        at += n + (at[n] == ' ');
    }
    return MN_OK;
}
