/* ground.h -- the ground floor of tools, loaders, plugins and runtime: what each of them would
 * otherwise write again. Macros, checked arithmetic, characters, strings with a length, FNV.
 * It needs the C library and plugin.h alone; no function has a state, and none allocates. */
#ifndef MN_GROUND_H
#define MN_GROUND_H
#include <minerva/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define MN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define MN_PRINTF(fmt, args)
#endif
#define MN_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define MN_MAX(a, b) ((a) > (b) ? (a) : (b))
/* Bytes of a T up to and with field f: what the other side must at least own. Its sizeof may be
 * smaller or larger than ours. */
#define MN_UP_TO(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))

/* ---- overflow: false, and *out is not the result --------------------------------------------- */
static inline bool mn_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool mn_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* ---- characters: ASCII, whatever the locale is ----------------------------------------------- */
static inline bool mn_is_digit(char c) {
    return c >= '0' && c <= '9';
}
/* The white space of JSON: blank, tab, line feed, carriage return. */
static inline bool mn_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
/* The value of a hexadecimal digit; -1: c is none. */
static inline int mn_hex_digit(char c) {
    const char low = (char)(c | 0x20);
    if (mn_is_digit(c))
        return c - '0';
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* ---- strings with a length; ptr may be NULL where len is 0 ----------------------------------- */
/* The text of z without its NUL; NULL is empty. */
static inline mn_str mn_str_of(const char *z) {
    return (mn_str){z, z ? strlen(z) : 0};
}
static inline bool mn_str_begins(mn_str a, const char *z) {
    const size_t n = strlen(z);
    return a.len >= n && (!n || !memcmp(a.ptr, z, n));
}
static inline bool mn_str_ends(mn_str a, const char *z) {
    const size_t n = strlen(z);
    return a.len >= n && (!n || !memcmp(a.ptr + (a.len - n), z, n));
}
static inline bool mn_str_eq(mn_str a, mn_str b) {
    return a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
}
static inline bool mn_str_is(mn_str a, const char *z) {
    return mn_str_eq(a, mn_str_of(z));
}
/* By bytes, as strcmp. */
static inline int mn_str_cmp(mn_str a, mn_str b) {
    const uint64_t n = MN_MIN(a.len, b.len);
    const int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

/* ---- FNV-1a, 64 bits (Fowler, Noll, Vo): digests that no adversary chooses ------------------- */
#define MN_FNV_BASIS UINT64_C(0xcbf29ce484222325)
/* One word, or one byte, into h, which begins as MN_FNV_BASIS. */
static inline uint64_t mn_fnv_word(uint64_t h, uint64_t word) {
    return (h ^ word) * UINT64_C(0x100000001b3);
}
static inline uint64_t mn_fnv(uint64_t h, const void *data, size_t n) {
    const uint8_t *bytes = (const uint8_t *)data;
    for (size_t i = 0; i < n; i++)
        h = mn_fnv_word(h, bytes[i]);
    return h;
}
static inline uint64_t mn_fnv_z(uint64_t h, const char *z) {
    return mn_fnv(h, z, strlen(z));
}

#endif
