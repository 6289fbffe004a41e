/* bench_url_none.c -- bench --url in a build without libcurl's headers: says so. bench_url.c is
 * compiled instead where they are found. */
#include "bench_url.h"

int bench_url(const url_tests *tests) {
    return complain(EXIT_FAILED,
                    "bench --url %s: this minerva was built without libcurl; install "
                    "libcurl4-openssl-dev and build it again",
                    tests->url->url);
}
