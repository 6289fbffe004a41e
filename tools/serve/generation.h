/* generation.h -- one generation of the front: the tokens of a prompt and of what was drawn, the
 * text that they make, and the engine that computes it. */
#ifndef MINERVA_SERVE_GENERATION_H
#define MINERVA_SERVE_GENERATION_H
#include "serve/serve.h"

typedef struct generation {
    struct answer *answer;
    uint32_t index; /* choice of the answer */
    uint64_t id;
    struct generation *next; /* in the table */
    engine_link *link;       /* NULL: none yet, or it died: sent when one is ready */
    int admitted, done;
    int32_t *ids; /* [n_ids]: the prompt, then what was drawn */
    uint32_t n_prompt, n_ids, cap, n_cached, n_thinking;
    uint64_t n_drafted, n_accepted; /* in the engine that ended it */
    uint32_t max_new;               /* 0: the prompt alone is computed */
    uint64_t seed;
    mn_stream *stream;
    int finish;         /* MN_FINISH_* */
    int stop_string;    /* 1 + the index of the stop string that ended it; 0: none */
    unsigned n_crashes; /* of engines, while it ran */
    double begin, first, last;
    double logged;   /* when the log had the progress of its prompt */
    uint64_t prefix; /* hash of the prompt's first tokens, for the choice of an engine */
    /* the text that is not sent, or of a whole answer all; JSON without quotes */
    mn_text content, thinking, calls, logprobs, offsets;
    uint32_t n_calls; /* calls that were begun */
    int call_open;    /* a whole answer: the last call's object is not closed */
    uint32_t text_at; /* characters of text so far: text_offset of completions */
    int echoed;       /* completions: the prompt's text was sent */
    int has_prompt; /* it has the logprobs of its prompt; an engine that goes on says them again */
    int has_new_line;  /* llama-server's: a line of the answer has ended */
    uint32_t n_blocks; /* dialects: blocks of the answer that were begun */
    uint32_t open;     /* dialects: MN_EVENT_* of the block that is not closed; 0: none */
    uint32_t n_given; /* ids that the client has, with return_token_ids; 0: not even the prompt's */
} generation;

/* Creates the stream and takes over ids (by mn_ids_free's allocator: copied). 0: the error is
 * set. */
int generation_open(served *m, generation *g, const int32_t *ids, uint32_t n, uint32_t stream_flags,
                    const ask *a, json_error *e);
/* Gives it an id and sends it to an engine, as soon as one is ready. */
void generation_start(serve *s, generation *g);
/* Ends it: the engine forgets it, no more events come. */
void generation_abort(serve *s, generation *g);
void generation_free(serve *s, generation *g);
/* Those that have no engine are sent again; called when an engine is ready. */
void generations_resume(serve *s);
generation *generation_find(serve *s, uint64_t id);
#endif
