/* arithmetic.c -- see arithmetic.h. The control registers are read and written directly: fenv.h
 * knows neither subnormals nor a cheap way. */
#include "base/arithmetic.h"
#include <fenv.h>
#include <string.h>

#if defined(__x86_64__)
#define RAISED 0x3fu /* flags of MXCSR */

static uint64_t control_now(void) {
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (uint64_t)x87 << 32 | (__builtin_ia32_stmxcsr() & ~RAISED);
}

static void set_control(uint64_t control) {
    const uint16_t x87 = (uint16_t)(control >> 32);
    __builtin_ia32_ldmxcsr((uint32_t)control);
    __asm__ volatile("fldcw %0" : : "m"(x87));
}
#elif defined(__aarch64__)
static uint64_t control_now(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static void set_control(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}
#else
static uint64_t control_now(void) {
    return (uint64_t)fegetround();
}

static void set_control(uint64_t control) {
    fesetround((int)control);
}
#endif

mn_arithmetic mn_arithmetic_now(void) {
    return (mn_arithmetic){
        .control = control_now(),
        .locale = uselocale((locale_t)0),
        .numeric = setlocale(LC_NUMERIC, NULL),
    };
}

const char *mn_arithmetic_restore(const mn_arithmetic *was) {
    const mn_arithmetic is = mn_arithmetic_now();
    if (is.control != was->control) {
        set_control(was->control);
        return "the floating-point mode";
    }
    if (is.locale != was->locale) {
        uselocale(was->locale);
        return "the thread's locale";
    }
    return is.numeric != was->numeric ? "the process's locale" : NULL;
}
