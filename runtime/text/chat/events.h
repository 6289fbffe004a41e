/* events.h -- the events of a stream while they are collected: kinds with their texts, in the order
 * of the output. */
#ifndef MN_EVENTS_H
#define MN_EVENTS_H
#include "base/base.h"
#include <minerva/minerva.h>

/* {0}: none; freed by mn_events_free. The texts lie one behind the other in `text`; the pointers in
 * the list are set by mn_events_done. */
typedef struct {
    mn_stream_event *list;
    uint32_t n;
    size_t cap;
    mn_text text;
    bool failed; /* out of memory: later events are missing */
} mn_events;

void mn_events_clear(mn_events *e);
/* Appends to the last event if it is of this kind and call, else a new one; every MN_EVENT_CALL is
 * a new one. An empty text adds nothing. */
void mn_events_put(mn_events *e, uint32_t kind, uint32_t call, mn_str text);
/* The list can be read until the next put or clear. MN_OUT_OF_MEMORY: something is missing. */
mn_status mn_events_done(mn_events *e);
void mn_events_free(mn_events *e);

#endif
