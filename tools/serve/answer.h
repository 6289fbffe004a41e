/* answer.h -- one HTTP answer made of generations: the choices of one or several prompts, streamed
 * as server-sent events or whole. The form (chat or text completion) writes the JSON. */
#ifndef MINERVA_SERVE_ANSWER_H
#define MINERVA_SERVE_ANSWER_H
#include "serve/generation.h"
#include "serve/reading.h"

typedef struct answer answer;

/* How an answer looks. All append to `out`. */
typedef struct {
    const char *id_prefix, *object, *chunk_object;
    /* Reads the request (a->body) and makes its prompts, in any thread (reading.h). 0: the error is
     * set. */
    int (*read)(answer *a, json_error *e);
    /* One more event of g's text. */
    void (*text)(answer *a, generation *g, const mn_stream_event *e);
    /* A drawn token with its logprobs. */
    void (*logprob)(answer *a, generation *g, const wire_event *e);
    /* The logprobs of the prompt, for one of its choices; NULL: not used. */
    void (*prompt)(answer *a, generation *g, const wire_event *e);
    /* The members of a chunk's choice after "index": what g has, which is cleared. finish: NULL or
     * the reason. */
    void (*chunk)(answer *a, generation *g, const char *finish, mn_text *out);
    /* The members of a whole answer's choice after "index". */
    void (*whole)(answer *a, generation *g, const char *finish, mn_text *out);
    int begins; /* the first chunk of a choice says the role */
    /* What writes whole answers and streams instead of chunk and whole; NULL: OpenAI's form. */
    const struct dialect *dialect;
} answer_form;

struct answer {
    reading in;
    serve *s;
    served *m; /* of `in`; set when the request is read */
    answer *prev, *next;
    http_request *http;
    const answer_form *form;
    cJSON *body; /* of `in`; texts of `ask` point into it */
    ask ask;
    mn_sample_params sample;
    char id[48];
    int64_t created;
    uint32_t n, n_admitted, n_done, n_prompts; /* generations; prompt i has ask.n of them */
    generation *g;                             /* [n] */
    int started;                               /* streams: 200 was sent */
    int failed;
    double last_sent;
    mn_text head; /* of each chunk, up to the index of the choice */
    char **echo;  /* completions: [n_prompts] texts before the answers, or NULL */
    void *own;    /* the dialect's, freed by its `free` */
};

/* The route of a form: reads r and begins an answer, which r owns from then on; or refuses it. */
void answer_serve(serve *s, http_request *r, const answer_form *form);
/* Space for the generations: n_prompts prompts with ask.n choices each. 0: the error is set. */
int answer_reserve(answer *a, uint32_t n_prompts, json_error *e);
/* The choices of prompt i, whose ids are copied. limit: tokens per choice without max_tokens; 0 =
 * as many as the context has room for. 0: the error is set. */
int answer_prompt(answer *a, uint32_t i, const int32_t *ids, uint32_t n, uint32_t stream_flags,
                  uint32_t limit, const char *param, json_error *e);
/* Keep-alive comments, slow readers; once a second. */
void answer_tick(answer *a, double now);
/* Ends the answer with an error, before or in the stream. */
void answer_fail(answer *a, unsigned status, const char *type, const char *message);
/* The same for all answers of a model. */
void answers_fail(const served *m, unsigned status, const char *message);
void answer_no_memory(answer *a); /* the same: 503, out of memory */

/* What the request does not say is the server's: stop strings, and the parameters of its
 * generations, into a->sample. */
void answer_defaults(answer *a);

/* The chat's requests for its dialects: reads a->body and makes its prompt, for answers of a->form.
 * 0: the error is set. */
int chat_read(answer *a, json_error *e);
/* One entry of the list of logprobs. */
void chat_logprob(answer *a, generation *g, const wire_event *e);
/* Likewise of text completions. limit: tokens without max_tokens; 0: as many as fit. */
int completion_read(answer *a, uint32_t limit, json_error *e);
/* The id of a call: 9 letters and digits, which suit all templates. */
void chat_put_call_id(mn_text *out);

/* Texts of tokens (text_routes.c) as JSON strings: of the token, of the token in logprobs, which
 * name_ids replaces; and the members of an entry of logprobs, whose brace is left open. */
void put_token(const served *m, mn_text *out, int32_t id);
void logprob_token(const answer *a, mn_text *out, int32_t id);
void logprob_entry(const answer *a, mn_text *out, int32_t id, float logprob);

/* What generation.c calls. */
void answer_admitted(answer *a, generation *g);
/* An event of g: its prompt is computed. */
void answer_computed(answer *a, generation *g, const wire_event *e);
/* A part of g's prompt is computed: told in a stream that asked for it. */
void answer_progress(answer *a, generation *g, const wire_event *e);
void answer_refused(answer *a, generation *g, const wire_refused *m);
void answer_token(answer *a, generation *g, const wire_event *e, const mn_stream_event *events,
                  uint32_t n);
void answer_finished(answer *a, generation *g);
#endif
