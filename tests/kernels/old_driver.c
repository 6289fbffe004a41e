/* old_driver.c -- a libcuda.so.1 of CUDA 11.8, as far as the CUDA runtime looks before it gives
 * up. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int cuInit(unsigned flags);
EXPORTED int cuDriverGetVersion(int *version);

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 11080;
    return 0;
}
