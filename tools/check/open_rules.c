/* open_rules.c -- group open: the file becomes a plugin with devices. What it finds, the later groups stand on. */
#include "check.h"
#include <string.h>

void check_open_load(check *c) { check_entry(c); }

void check_open_entry(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h)) return;
    c->facts->kinds = (p.be ? MN_KIND_BACKEND : 0u) | (p.ld ? MN_KIND_LOADER : 0u);
    check_close(c, &p);
}
