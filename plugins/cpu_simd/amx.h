/* amx.h -- the instructions on tiles, written by hand: GCC 12 neither knows that a load of a tile
 * reads what a pointer points to nor keeps the stores of a configuration. */

typedef struct {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
/* All eight tiles are whole. */
static const tile_config whole_tiles __attribute__((aligned(64), unused)) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE},
};

#ifndef TILES_CONFIGURE /* a test may have tiles of its own */
#define TILES_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(config))
#define TILES_END() __asm__ volatile("tilerelease")
#define TILE_LOAD_ROWS(t, p, apart)                                                                \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(apart)) : "memory")
#define TILE_STORE_ROWS(t, p, apart)                                                               \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     : /* nothing but memory */                                                    \
                     : "r"(p), "r"((int64_t)(apart))                                               \
                     : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %tmm" #t)
#define TILE_MULTIPLY(sum, weight, x)                                                              \
    __asm__ volatile("tdpbf16ps %tmm" #x ", %tmm" #weight ", %tmm" #sum)
#define TILE_MULTIPLY_BYTES(sum, weight, x)                                                        \
    __asm__ volatile("tdpbssd %tmm" #x ", %tmm" #weight ", %tmm" #sum)

#endif
#define TILES_BEGIN() TILES_CONFIGURE(whole_tiles)
#define TILE_LOAD(t, p) TILE_LOAD_ROWS(t, p, 64)
#define TILE_STORE(t, p) TILE_STORE_ROWS(t, p, 64)
/* A tile comes into the first cache before its turn; FAR, of those in the second. */
enum { NEAR = 0, FAR = 2 * TILE_BYTES };
INLINE void ask_for(const uint8_t *tile) {
    for (int64_t l = 0; l < TILE_BYTES; l += 64)
        v_prefetch(tile + l);
}
#define TILES_ZERO()                                                                               \
    do {                                                                                           \
        TILE_ZERO(0);                                                                              \
        TILE_ZERO(1);                                                                              \
        TILE_ZERO(2);                                                                              \
        TILE_ZERO(3);                                                                              \
    } while (0)
