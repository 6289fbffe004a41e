#ifndef MN_TEST_HOST_H
#define MN_TEST_HOST_H
#include <minerva/plugin.h>
extern const mn_host h_host;
#endif
