/* fixtures.h -- the graphs of all fixtures in MINERVA_TEST_DATA, one after the other, for tests
 * that hold a property of every architecture. Include cmocka.h first. */
#ifndef MINERVA_TEST_FIXTURES_H
#define MINERVA_TEST_FIXTURES_H
#include "opened/opened.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*fixture_fn)(void *arg, const char *name, const mn_graph *g);

/* The graph; of a model without an output matrix, or of an encoder, the one that embeds. */
static const mn_graph *fixture_graph(mn_model *m) {
    mn_error err = MN_ERROR_INIT;
    const mn_model_graph *g = NULL;
    if (mn_model_graph_of(m, &g, &err) && mn_model_graph_for(m, 0, true, &g, &err))
        fail_msg("%s", err.msg);
    return &g->abi;
}

static int is_fixture(const struct dirent *e) {
    return e->d_name[0] != '.';
}

/* Calls fn for each fixture, by name; the graph lives until it returns. Their number. */
static int each_fixture(mn_runtime *rt, fixture_fn fn, void *arg) {
    char dir[4096];
    char path[4400];
    struct dirent **found = NULL;
    snprintf(dir, sizeof dir, "%s/fixtures", getenv("MINERVA_TEST_DATA"));
    const int n = scandir(dir, &found, is_fixture, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        mn_error err = MN_ERROR_INIT;
        mn_model *m = NULL;
        const char *name = found[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        if (mn_model_open(rt, path, &m, &err))
            fail_msg("%s", err.msg);
        fn(arg, name, fixture_graph(m));
        mn_model_free(m);
        free(found[i]);
    }
    free(found);
    return n;
}
#endif
