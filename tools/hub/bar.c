/* bar.c -- the progress of a download: one line on a terminal, five times a second, with the rate
 * of the last seconds and the time that is left; elsewhere nothing. */
#include "hub.h"
#include <string.h>
#include <unistd.h>

#define EVERY_S 0.2
#define MEMORY_S 4.0 /* the rate is a mean whose weights fall to 1/e in this time */
enum { CELLS = 20 };

void hub_bar_begin(hub_bar *b, const char *what, int quiet) {
    memset(b, 0, sizeof *b);
    b->what = what;
    b->shows = !quiet && isatty(STDERR_FILENO);
    b->begin = b->at = seconds();
}

static void follow_rate(hub_bar *b, double now, uint64_t done) {
    const double passed = now - b->at;
    if (b->last == 0 || done < b->last) {
        b->first = b->last = done; /* what an earlier load left is not of this one */
        b->at = b->begin = now;
        return;
    }
    const double sample = passed > 0 ? (double)(done - b->last) / passed : 0;
    const double weight = passed / (passed + MEMORY_S);
    b->rate = b->rate > 0 ? b->rate + weight * (sample - b->rate) : sample;
    b->last = done;
    b->at = now;
}

/* "12 s", "3:20 min", "2:05 h". */
static void put_time(char dst[24], double s) {
    const unsigned n = s < 360000 ? (unsigned)s : 360000;
    if (n < 60)
        snprintf(dst, 24, "%u s", n);
    else if (n < 3600)
        snprintf(dst, 24, "%u:%02u min", n / 60, n % 60);
    else
        snprintf(dst, 24, "%u:%02u h", n / 3600, n / 60 % 60);
}

int hub_bar_draw(void *bar, uint64_t done, uint64_t total, uint32_t n_done, uint32_t n,
                 const char *says) {
    hub_bar *b = bar;
    char of[32];
    char rate[32];
    char left[24];
    char cells[CELLS + 1];
    const double now = seconds();
    if (!b->shows || now - b->drawn < EVERY_S)
        return 0;
    b->drawn = now;
    follow_rate(b, now, done);
    const size_t full = total ? (size_t)((double)done / (double)total * CELLS) : 0;
    memset(cells, '.', CELLS);
    memset(cells, '#', full < CELLS ? full : CELLS);
    cells[CELLS] = 0;
    fprintf(stderr, "\r\033[K%.60s [%s] %.0f %% of %s, file %u of %u", b->what, cells,
            total ? 100 * (double)done / (double)total : 0, human_bytes(total, of),
            n_done + 1 > n ? n : n_done + 1, n);
    if (says)
        fprintf(stderr, ", %s", says);
    else if (b->rate > 0) {
        put_time(left, (double)(total - done) / b->rate);
        fprintf(stderr, ", %s/s, %s left", human_bytes((uint64_t)b->rate, rate), left);
    }
    fflush(stderr);
    return 0;
}

void hub_bar_end(hub_bar *b) {
    if (b->shows)
        fputs("\r\033[K", stderr);
    b->shows = 0;
}
