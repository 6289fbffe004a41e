/* digest.h -- SHA-256 and SHA-1 (FIPS 180-4): the first names files in Git LFS, the second git's
 * blobs. SHA-1 tells damage here, not forgery. */
#ifndef MINERVA_HUB_DIGEST_H
#define MINERVA_HUB_DIGEST_H
#include <stddef.h>
#include <stdint.h>

typedef enum { DIGEST_SHA1, DIGEST_SHA256 } digest_kind;
typedef struct {
    uint64_t n; /* bytes so far */
    uint32_t h[8];
    uint8_t block[64];
    digest_kind kind;
} digest;

void digest_begin(digest *d, digest_kind kind);
void digest_put(digest *d, const void *bytes, size_t n);
/* Ends it; 40 or 64 digits. */
void digest_end(digest *d, char hex[65]);
#endif
