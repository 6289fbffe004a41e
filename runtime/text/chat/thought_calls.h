/* thought_calls.h -- calls that a model writes into its thinking without ending the thinking. A
 * complete call of a tool of the request, in a line of its own, counts if the thinking never ends,
 * or if it ends right behind the call and no answer follows; text behind an open call is text of
 * the answer. Else the call was only thought. Until this is decided, the text since the call is
 * held, at most MN_THOUGHT_HELD bytes. */
#ifndef MN_THOUGHT_CALLS_H
#define MN_THOUGHT_CALLS_H
#include "text/chat/calls.h"

enum { MN_THOUGHT_HELD = 65536 };

/* {.calls = {.family, .tools, .strict = true}}; freed by mn_thought_free. */
typedef struct {
    mn_calls calls;
    mn_events found;   /* by calls, of the last text */
    mn_events pending; /* since the first call */
    mn_text raw;       /* thinking that was not given yet */
    bool holds;        /* a call was found */
    bool closed;       /* the thinking has ended right behind it */
} mn_thought;

/* Text of the thinking. Appends MN_EVENT_THINKING. */
void mn_thought_push(mn_thought *t, mn_str text, mn_events *out);
/* The thinking ends; other text may follow. */
void mn_thought_close(mn_thought *t, mn_events *out);
/* An answer follows: the held text was only thought. */
void mn_thought_release(mn_thought *t, mn_events *out);
/* The output ends. Calls are numbered from n_calls on; returns their number. */
uint32_t mn_thought_finish(mn_thought *t, uint32_t n_calls, mn_events *out);
void mn_thought_free(mn_thought *t);

#endif
