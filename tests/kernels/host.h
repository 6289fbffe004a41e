#ifndef MN_TEST_HOST_H
#define MN_TEST_HOST_H
#include <minerva/plugin.h>
extern const mn_host h_host;
/* How many phases of the last team had more than one chunk. */
uint32_t h_host_shared_phases(void);
#endif
