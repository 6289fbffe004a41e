/* offer.h -- asking one device. */
#ifndef MN_OFFER_H
#define MN_OFFER_H
#include "negotiate/negotiate.h"

/* Fills *o; a refusal is o->status and o->reason, not an error. */
void mn_offer_ask(mn_registry *reg, const mn_device_record *rec, const mn_model_graph *g, const mn_request *r,
                  mn_offer *o);
void mn_offer_symbols(const mn_offer *o, const mn_request *r,
                      int64_t *symbols); /* maxima, with the device's page size */
#endif
