/* harness.h -- drives a plugin's real table with small graphs, and holds two plugins side by side.
 * Everything fails by cmocka assertion; a plugin that is not built makes the test skip. */
#ifndef MN_HARNESS_H
#define MN_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <minerva/plugin.h>
#include <stdbool.h>
#include "case.h"

/* ---- the host that plugins see: counts what lives, can refuse the k-th allocation ------------ */
void h_host_of_plugins(const mn_host *host); /* of plugins opened after it; NULL = h_host */
void h_host_workers(uint32_t n);             /* of plugins opened after it; default 3 */
void h_host_late(bool on); /* one thread runs a team's chunks, those of the end first */
void h_host_option(const char *key, const char *value); /* one option at a time; NULL = none */
/* the k-th allocation from now fails, and all later ones; < 0 = none */
void h_host_fail_after(int64_t k);
int64_t h_host_live(void); /* allocations not yet released */

typedef struct {
    void *so;
    const mn_plugin *api;
    const mn_backend *be;
    mn_device *dev;
    mn_queue *queue;
} h_plugin;
bool h_built(const char *name); /* NAME of the build's plugins, or a path */
/* NAME of the build's plugins/NAME/NAME.so, or a path; false = not built, or no device */
bool h_open(h_plugin *p, const char *name);
void h_close(h_plugin *p);

/* weights, compile, bind, execute n_steps times, read back. The plain form asserts MN_OK; `try`
 * returns the status and cleans up. */
mn_status h_try(h_plugin *p, op_case *c, uint32_t precision, mn_error *err);
void h_run(h_plugin *p, op_case *c, uint32_t precision);

/* ---- two plugins on one random case ---------------------------------------------------------- */
/* Largest relative L2 over the FLOAT outputs of `name` against `against`; < 0 = one of the two is
 * not built or says no. */
double h_compare(const char *name, const char *against, uint32_t op, uint32_t dtype,
                 const op_shape *s, uint32_t precision);

/* LINEAR in class exact: are 33, 16, 8 ... 1 rows of one input the same bits? 1 yes, 0 no, -1 the
 * plugin is not usable here. */
int h_batch_invariant(const char *plugin, uint32_t dtype);

#endif
