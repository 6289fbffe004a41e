/* read_streams.h -- how fast memory can be read: several streams side by side, as a decode reads
 * its weight rows. */
#ifndef READ_STREAMS_H
#define READ_STREAMS_H
#include <stdint.h>
#include <string.h>

enum { READ_STREAMS = 8 };
static inline uint64_t read_streams(const uint8_t *p, uint64_t bytes) {
    typedef uint64_t v8 __attribute__((vector_size(64)));
    v8 sum[READ_STREAMS] = {0};
    /* an odd number of lines apart: streams a power of two apart would share the sets of every
     * cache */
    uint64_t part = ((bytes / READ_STREAMS / 64 - 1) | 1) * 64;
    for (uint64_t i = 0; i < part; i += 64)
        for (int s = 0; s < READ_STREAMS; s++) {
            v8 v;
            memcpy(&v, p + (uint64_t)s * part + i, 64);
            __builtin_prefetch(p + (uint64_t)s * part + i + 1024);
            sum[s] += v;
        }
    for (int s = 1; s < READ_STREAMS; s++)
        sum[0] += sum[s];
    return sum[0][0] ^ sum[0][5];
}

#endif
