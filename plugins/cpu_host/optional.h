/* optional.h -- operands that a node may lack; with which operand says what experts are there. */
#ifndef MNC_OPTIONAL_H
#define MNC_OPTIONAL_H
#include "cpu_host.h"
#include "residents.h"

/* Where the numbers of an operand that is no weight lie; NULL: the node lacks it. */
static inline const void *mnc_optional_ptr(const mnc_call *c, uint32_t in) {
    return in < c->node->n_in ? c->in[in].ptr : NULL;
}

#endif
