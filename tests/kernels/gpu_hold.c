/* gpu_hold.c -- another process on the card, for tests of what happens then. Talks to the driver
 * alone.
 *   gpu_hold leave MIB   holds all free memory of GPU 0 but so much, says so, until standard input
 *                        ends
 *   gpu_hold watch       says at the end of standard input how little was free at the least
 * Exit code 77: no driver or no GPU. */
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB 1048576.0

static void *driver;

static void *find(const char *name) {
    void *f = driver ? dlsym(driver, name) : NULL;
    if (f)
        return f;
    printf("SKIP  no NVIDIA driver\n");
    exit(77);
}

static size_t free_bytes(void) {
    int (*info)(size_t *, size_t *);
    size_t left = 0;
    size_t all = 0;
    *(void **)&info = find("cuMemGetInfo_v2");
    if (info(&left, &all))
        return 0;
    return left;
}

static void open_gpu(void) {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*enter)(void *);
    void *context = NULL;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    *(void **)&enter = find("cuCtxSetCurrent");
    if (!init(0) && !retain(&context, 0) && !enter(context))
        return;
    printf("SKIP  no GPU\n");
    exit(77);
}

/* In pieces that halve when they do not fit any more. */
static void hold(size_t leave) {
    int (*allocate)(uintptr_t *, size_t);
    uintptr_t at = 0;
    size_t held = 0;
    size_t piece = (size_t)8 << 30;
    *(void **)&allocate = find("cuMemAlloc_v2");
    while (piece >= 2 << 20) {
        const size_t left = free_bytes();
        const size_t room = left > leave ? left - leave : 0;
        if (room < piece || allocate(&at, piece))
            piece /= 2;
        else
            held += piece;
    }
    printf("held %.0f MiB, %.0f MiB free\n", (double)held / MIB, (double)free_bytes() / MIB);
    fflush(stdout);
}

/* Whether standard input has ended, after at most so many milliseconds. */
static int over(int ms) {
    struct pollfd in = {0, POLLIN, 0};
    char any[64];
    if (poll(&in, 1, ms) <= 0)
        return 0;
    return read(0, any, sizeof any) <= 0;
}

int main(int argc, char **argv) {
    const int leave = argc == 3 && !strcmp(argv[1], "leave");
    if (!leave && !(argc == 2 && !strcmp(argv[1], "watch"))) {
        fprintf(stderr, "usage: gpu_hold leave MIB | watch\n");
        return 2;
    }
    open_gpu();
    size_t least = free_bytes();
    const size_t begin = least;
    if (leave)
        hold((size_t)atoll(argv[2]) << 20);
    while (!over(leave ? 1000 : 1)) {
        const size_t left = free_bytes();
        least = left < least ? left : least;
    }
    if (!leave)
        printf("%.0f MiB free at first, %.0f MiB at the least\n", (double)begin / MIB,
               (double)least / MIB);
    return 0;
}
