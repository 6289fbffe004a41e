/* page.h -- the web page of minerva serve (page.html), embedded by embed.sh at build time.
 *
 * Its answer wants these headers: Content-Type text/html; charset=utf-8, and SERVE_PAGE_POLICY as
 * Content-Security-Policy, by which the page loads nothing and talks to its own server only. */
#ifndef MINERVA_SERVE_PAGE_H
#define MINERVA_SERVE_PAGE_H
#include <stddef.h>

#define SERVE_PAGE_POLICY                                                                          \
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "                  \
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "                     \
    "frame-ancestors 'none'"

extern const unsigned char serve_page[];
extern const size_t serve_page_size;
#endif
