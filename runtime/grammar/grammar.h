/* grammar.h -- output that follows a grammar: which tokens may come next.
 *
 * A grammar is compiled to one pushdown automaton over bytes; a state is a place in it with the
 * stack that led there. Tokens are byte strings, so characters that are split between tokens and
 * all kinds of tokenisers need nothing special. Every allowed text can be completed: from a state
 * that was reached by allowed tokens some bytes always lead to the end.
 *
 * Threads: a vocabulary is read-only once made. A grammar may be used by any thread, a state by one
 * at a time. Calls for one grammar run in parallel as long as everything they need is derived; a
 * call that derives something new waits for the others. */
#ifndef MN_GRAMMAR_GRAMMAR_H
#define MN_GRAMMAR_GRAMMAR_H
#include "base/base.h"

/* Limits, so that no input takes unbounded time or memory: beyond one of the first four a grammar
 * is refused; beyond the others fewer tokens are allowed, never wrong ones. */
#define MN_GRAMMAR_SOURCE (8u << 20)  /* bytes of a schema, regular expression or grammar */
#define MN_GRAMMAR_NODES (1u << 21)   /* of the automaton */
#define MN_GRAMMAR_RULES (1u << 17)   /* rules, and schemas that $ref names */
#define MN_GRAMMAR_NESTING 200u       /* of groups in a source */
#define MN_GRAMMAR_DEPTH 4096u        /* of the stack of a state */
#define MN_GRAMMAR_HEADS 256u         /* ways to read the same text */
#define MN_GRAMMAR_MEMORY (96u << 20) /* bytes of derived sets and masks of one grammar */
#define MN_GRAMMAR_FORCED 4096u       /* bytes that one call of mn_grammar_forced appends */
#define MN_GRAMMAR_TAGS 1024u         /* forms of calls in one text */
#define MN_GRAMMAR_MARKS 4096u        /* bytes of their different marks together */

/* Limits of work. A unit is one visit of a node, a head, a frame or an expression: 5 to 10 ns of a
 * core of 2020, memory included; counts are the same on every machine. Work that exceeds a limit is
 * refused (MN_UNSUPPORTED), and the message names the rule. The schemas and grammars of the tests
 * need at most a tenth of each limit (test `grammar`).
 *
 * COMPILE: 0.3 s, of the thread that compiles; a grammar with all MN_GRAMMAR_NODES takes a third.
 * STEP: 6 to 10 ms for the next token of one text. All others in the batch wait for it; a step may
 *   spend 50 ms on all its grammars together.
 * REQUEST, TOKEN: the time of a text in all: 20 to 30 ms at first, and 0.3 ms more with each token.
 *   Tokens that cost more because their states are new are rare; tokens that always cost more would
 *   delay the batch for ever.
 *
 * A large vocabulary needs more work, because allowed tokens are found by a walk over its trie:
 * STEP, REQUEST and TOKEN have so many more units for each node of the trie. 150,000 tokens have
 * about 400,000 nodes, which makes 2.6, 6.3 and 0.8 million units of them. */
#define MN_GRAMMAR_WORK_COMPILE (30u << 20)
#define MN_GRAMMAR_WORK_STEP (1u << 20)
#define MN_GRAMMAR_WORK_REQUEST (3u << 20)
#define MN_GRAMMAR_WORK_TOKEN (32u << 10)
enum { MN_GRAMMAR_STEP_NODE = 4, MN_GRAMMAR_REQUEST_NODE = 8, MN_GRAMMAR_TOKEN_NODE = 2 };

/* The bytes of all tokens as a trie: once per model. */
typedef struct mn_grammar_vocab mn_grammar_vocab;
/* text[id]: the bytes that token id stands for, as mn_model_token_text; tokens without any (control
 * tokens, holes) are never allowed. The bytes are copied. MN_OUT_OF_MEMORY, MN_BAD_INPUT. */
mn_status mn_grammar_vocab_create(const mn_str *text, uint32_t n, mn_grammar_vocab **out,
                                  mn_error *err);
void mn_grammar_vocab_free(mn_grammar_vocab *v); /* after its grammars */

/* Whether each token of a mask of n_words words has at most so many bytes. */
bool mn_grammar_within(const mn_grammar_vocab *v, const uint32_t *bits, uint32_t n_words,
                       uint64_t bytes);

typedef enum {
    MN_GRAMMAR_JSON,       /* any JSON object or array; source is not read */
    MN_GRAMMAR_SCHEMA,     /* JSON Schema 2020-12; schema.c lists where masks are stricter */
    MN_GRAMMAR_REGEX,      /* of the whole text; without back-references and look-around */
    MN_GRAMMAR_GBNF,       /* as llama.cpp documents it; starts at the rule "root" */
    MN_GRAMMAR_PARAMETERS, /* the properties of a schema's object as tags: schema_tags.c */
    MN_GRAMMAR_INVOKES,    /* the same with the tags of MiniMax-M2 */
    MN_GRAMMAR_ARGS,       /* and those of GLM-4.5 */
} mn_grammar_kind;
typedef struct mn_grammar mn_grammar;
/* warnings (may be NULL): lines about what is enforced more strictly than written. Errors name the
 * place: a JSON pointer, a line, an offset. MN_BAD_INPUT: the source is wrong, matches nothing, or
 * is left-recursive; MN_UNSUPPORTED: it asks for what cannot be enforced, or exceeds a limit. */
mn_status mn_grammar_compile(mn_grammar_kind kind, mn_str source, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_text *warnings, mn_error *err);
/* Compiles, and returns the size. *work: the work that it may take (at most
 * MN_GRAMMAR_WORK_COMPILE); what it took is subtracted. */
mn_status mn_grammar_try(mn_grammar_kind kind, mn_str source, const mn_grammar_vocab *v,
                         uint64_t *work, uint32_t *n_states, mn_error *err);
/* One of n texts. MN_BAD_INPUT: there is none. */
mn_status mn_grammar_choices(const mn_str *choice, uint32_t n, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_error *err);
void mn_grammar_free(mn_grammar *g); /* after its states */

/* ---- calls in free text ---------------------------------------------------------------------- */
/* One form of call: a mark, the source that must follow it, and the mark behind the source. */
typedef struct {
    mn_str begin;         /* at least one byte; several forms may begin alike */
    mn_grammar_kind kind; /* of source, as for mn_grammar_compile */
    mn_str source;
    mn_str end;  /* may be empty */
    bool first;  /* counts only at the very beginning of the text */
    mn_str lead; /* stands between begin and source; may be empty */
    mn_str name; /* of its tool, for messages; empty: messages have its number */
} mn_grammar_tag;
/* Thinking in front of calls without other text: begin, any bytes up to end, then next. If begin is
 * empty, the thinking has begun already. */
typedef struct {
    mn_str begin, end, next; /* end empty: nothing is thought */
    const mn_str *never;     /* [n_never] texts that it lacks; none of them contains another */
    uint32_t n_never;
} mn_grammar_thinking;
enum { MN_GRAMMAR_NEVER = 8 }; /* n_never at most */
/* A text that may hold calls. It is free, byte by byte, until any tokens have spelled a begin. The
 * source of a form with that begin must follow, then the form's end; then the text is free again.
 * The text may end wherever it is free and has enough calls. */
typedef struct {
    const mn_grammar_tag *tag;
    uint32_t n;
    uint32_t least, most; /* calls, up to 64; most 0: any number. Behind the last the text ends */
    bool only;            /* no free text: calls alone */
    mn_str between;       /* only: stands between two calls */
    mn_grammar_thinking thinking; /* only */
} mn_grammar_tags;
/* Marks that are control tokens have no text in a vocabulary of mn_model_token_text; give them one
 * in mn_grammar_vocab_create, so that masks allow them. MN_BAD_INPUT: there is no tag, a begin is
 * empty, or holds another one, which would always come first; else as mn_grammar_compile, with the
 * number of the tag in front of the message. */
mn_status mn_grammar_tagged(const mn_grammar_tags *tags, const mn_grammar_vocab *v,
                            mn_grammar **out, mn_text *warnings, mn_error *err);

/* The work that the next calls may take, in units. The caller owns it; it outlives the states that
 * use it. One thread at a time. */
typedef struct {
    uint64_t step, request;                  /* left until the next tokens; left for the text */
    uint64_t most_step, most_request, added; /* initial values of both; grows with each token */
    uint64_t low;                            /* the least that was left for the text so far */
    uint64_t token, most; /* spent since mn_grammar_budget_next; the most between two such calls */
} mn_grammar_budget;
void mn_grammar_budget_begin(mn_grammar_budget *b, const mn_grammar_vocab *v); /* of a new text */
void mn_grammar_budget_next(mn_grammar_budget *b, uint32_t n_tokens); /* of its next tokens */

/* Where one sequence is. Its memory is bounded by MN_GRAMMAR_HEADS and MN_GRAMMAR_DEPTH. */
typedef struct mn_grammar_state mn_grammar_state;
mn_status mn_grammar_state_create(mn_grammar *g, mn_grammar_state **out, mn_error *err);
mn_status mn_grammar_state_copy(const mn_grammar_state *s, mn_grammar_state **out, mn_error *err);
void mn_grammar_state_free(mn_grammar_state *s);
/* Calls with this state and with copies of it spend from b, and fail with MN_UNSUPPORTED when b is
 * used up. Without a budget each call has MN_GRAMMAR_WORK_STEP. */
void mn_grammar_state_spend(mn_grammar_state *s, mn_grammar_budget *b);

/* 32-bit words of a mask over n tokens; token id is bit id % 32 of word id / 32. */
#define MN_GRAMMAR_WORDS(n) (((n) + 31u) / 32u)
/* bits[MN_GRAMMAR_WORDS(n_vocab)] becomes the set of tokens that may come next. Stop tokens are the
 * caller's: allowed where mn_grammar_complete says so. MN_UNSUPPORTED: no token is allowed although
 * the text is not complete, because the vocabulary cannot spell what has to come. */
mn_status mn_grammar_mask(mn_grammar_state *s, uint32_t *bits, mn_error *err);
/* Advances the state by a token. MN_BAD_INPUT: the token is not allowed; the state is unchanged. */
mn_status mn_grammar_accept(mn_grammar_state *s, int32_t token, mn_error *err);
/* Advances the state by bytes, as by a token that consists of them. */
mn_status mn_grammar_accept_bytes(mn_grammar_state *s, mn_str bytes, mn_error *err);
/* Appends the bytes that are the only continuation, up to where there is a choice or an end. */
mn_status mn_grammar_forced(mn_grammar_state *s, mn_text *out, mn_error *err);
bool mn_grammar_complete(const mn_grammar_state *s); /* the text may end here */

#endif
