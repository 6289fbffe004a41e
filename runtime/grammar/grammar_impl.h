/* grammar_impl.h -- between the files of this folder: expressions that the front ends make, the
 * automaton, the sets of its nodes that are derived on demand, and the vocabulary. */
#ifndef MN_GRAMMAR_IMPL_H
#define MN_GRAMMAR_IMPL_H
#include "grammar/grammar.h"
#include <pthread.h>

#define MN_GNONE UINT32_MAX
#define MN_GNEVER UINT32_MAX /* of REPEAT: no upper limit; of need: cannot be completed */

/* ---- budget.c: work that is left, in the units of grammar.h ---------------------------------- */
typedef struct {
    uint64_t left;
    uint32_t node; /* of the automaton: the one at hand when it was used up */
    bool over;
} mn_gbudget;
/* false: there is not so much left, and b->over. */
static inline bool mn_gbudget_take(mn_gbudget *b, uint64_t units, uint32_t node) {
    if (units <= b->left) {
        b->left -= units;
        return true;
    }
    if (!b->over)
        b->node = node;
    b->left = 0;
    b->over = true;
    return false;
}

/* ---- expr.c: what the front ends build ------------------------------------------------------- */
typedef enum {
    MN_GX_BYTES,  /* one byte of lo to hi */
    MN_GX_TEXT,   /* these bytes */
    MN_GX_SEQ,    /* all children in order */
    MN_GX_ALT,    /* one of the children; without any: nothing matches */
    MN_GX_REPEAT, /* child[0], min to max times */
    MN_GX_REF,    /* rule */
    MN_GX_LIST,   /* the children in order, those with optional set or not, `between` them; then
                   * `tail` any number of times */
    MN_GX_CHAIN,  /* the children in order; may end after min of them */
    MN_GX_FREE,   /* any bytes until `marks` lead to a child, min to max times; any bytes behind */
    MN_GX_TABLE,  /* a deterministic automaton */
} mn_gexpr_kind;
typedef struct mn_gexpr mn_gexpr;
/* A deterministic automaton over bytes that finds marks. next: [n * 256] a state, or n + a child of
 * the expression, which follows here. State 0: no mark has begun; `first`: nothing was read. */
typedef struct {
    uint32_t n, first;
    uint32_t *next;
} mn_gmarks;
/* Bytes lo to hi of a state lead to state `to`. */
typedef struct {
    uint8_t lo, hi;
    uint32_t to;
} mn_grun;
/* State i has the runs from[i] to from[i + 1]; state 0 is the first. */
typedef struct {
    uint32_t n, n_runs;
    uint32_t *from;
    mn_grun *run;
    bool *ends; /* [n] */
} mn_gtable;
struct mn_gexpr {
    mn_gexpr_kind kind;
    uint8_t lo, hi;
    bool optional; /* as a child of LIST */
    uint32_t min, max, rule;
    mn_str text;
    mn_gexpr **child;
    uint32_t n, cap;
    mn_gexpr *between, *tail;
    const mn_gmarks *marks;
    const mn_gtable *table;
};
typedef struct {
    const char *name;  /* for messages */
    const char *owner; /* likewise: the tool that it is made for, or NULL */
    mn_gexpr *expr;    /* NULL = named, not defined yet */
    bool shared;       /* always called, so that all places share its masks */
    uint32_t line;
} mn_grule;
/* The characters of a Unicode general category, found once for a build. */
typedef struct mn_gcategory mn_gcategory;
/* What a front end builds: expressions in an arena, and rules; rule 0 is the whole text. Functions
 * that make expressions return NULL on failure, with status set, and when given NULL. */
typedef struct {
    mn_arena arena;
    mn_grule *rule;
    uint32_t n_rules;
    size_t cap_rules;
    mn_status status;
    mn_error *err;
    mn_text *warnings;
    mn_gbudget budget;
    const char *place, *owner; /* for messages: what is being compiled; NULL: all of it, none */
    mn_gcategory *categories;
} mn_gbuild;
void mn_gbuild_begin(mn_gbuild *b, mn_text *warnings, mn_error *err);
void mn_gbuild_free(mn_gbuild *b);
bool mn_gbuild_spend(mn_gbuild *b, uint64_t units); /* false: b->status says that it is too much */
/* MN_UNSUPPORTED, with the place that is being compiled: it does `what`, beyond a limit. */
void mn_gbuild_refuse(mn_gbuild *b, const char *what, const char *units, uint32_t most);
mn_gexpr *mn_gbuild_memory(mn_gbuild *b); /* fails with MN_OUT_OF_MEMORY */
uint32_t mn_grule_add(mn_gbuild *b, const char *name, mn_gexpr *expr); /* MN_GNONE = failed */
mn_gexpr *mn_gx_new(mn_gbuild *b, mn_gexpr_kind kind);
mn_gexpr *mn_gx_bytes(mn_gbuild *b, uint32_t lo, uint32_t hi);
mn_gexpr *mn_gx_text(mn_gbuild *b, const char *bytes, size_t n); /* copied */
mn_gexpr *mn_gx_ref(mn_gbuild *b, uint32_t rule);
mn_gexpr *mn_gx_repeat(mn_gbuild *b, mn_gexpr *child, uint32_t min, uint32_t max);
bool mn_gx_add(mn_gbuild *b, mn_gexpr *parent, mn_gexpr *child);
/* SEQ or ALT of up to four; the list ends at the first NULL pointer of the array's n. */
mn_gexpr *mn_gx_join(mn_gbuild *b, mn_gexpr_kind kind, mn_gexpr *const *child, uint32_t n);

/* ---- chars.c: sets of characters ------------------------------------------------------------- */
typedef struct {
    uint32_t lo, hi; /* code points */
} mn_grange;
typedef struct {
    mn_grange *at;
    uint32_t n;
    size_t cap;
    bool failed; /* out of memory */
} mn_gchars;
void mn_gchars_add(mn_gchars *c, uint32_t lo, uint32_t hi);
void mn_gchars_merge(mn_gchars *c, const mn_gchars *more);
void mn_gchars_sort(mn_gchars *c);   /* in order, without overlaps and surrogates */
void mn_gchars_invert(mn_gchars *c); /* of all characters; sorts */
void mn_gchars_free(mn_gchars *c);
/* One character of c, in UTF-8; sorts c. json: as it is written inside a JSON string. */
mn_gexpr *mn_gx_chars(mn_gbuild *b, mn_gchars *c, bool json);
/* The text as it is written inside a JSON string, by the rules of mn_gx_chars. */
bool mn_gchars_json(mn_text *out, mn_str text);
/* Adds the characters of a Unicode general category ("L", "Nd"); false = there is no such one. */
bool mn_gchars_category(mn_gbuild *b, mn_gchars *c, mn_str name);

/* ---- cut.c ----------------------------------------------------------------------------------- */
enum { MN_GCUT_PARTS = 12 };
/* Strings, as inside JSON, that all parts match, but none of those with `not`; of min to max
 * characters. Parts hold no REF. */
typedef struct {
    struct {
        mn_gexpr *x;
        bool not ;
    } part[MN_GCUT_PARTS];
    uint32_t n, min, max;
    const char *where; /* for messages */
} mn_gcut;
mn_gexpr *mn_gx_cut(mn_gbuild *b, const mn_gcut *cut);
mn_gexpr *mn_gx_any_char(mn_gbuild *b);                     /* as inside a JSON string */
bool mn_gx_matches(mn_gbuild *b, mn_gexpr *x, mn_str text); /* without REF */

/* ---- regex.c, gbnf.c, schema.c --------------------------------------------------------------- */
typedef struct {
    bool json;            /* characters as in JSON strings */
    bool search;          /* matches anywhere in the text unless anchored, as in JSON Schema */
    mn_gexpr *any;        /* search: what may stand before and behind */
    uint32_t least, most; /* out: characters that it matches; most MN_GNEVER: no limit */
} mn_gregex;
/* where: names the place of the expression in messages. */
mn_gexpr *mn_gregex_parse(mn_gbuild *b, mn_str source, const char *where, mn_gregex *how);
/* The rule "root" of a grammar: rule 0 where b has none yet. */
mn_gexpr *mn_ggbnf_parse(mn_gbuild *b, mn_str source);

/* ---- tags.c ---------------------------------------------------------------------------------- */
/* Text with calls; content[t->n] is what follows the begin of each. */
mn_gexpr *mn_gx_tags(mn_gbuild *b, const mn_grammar_tags *t, mn_gexpr *const *content);

/* ---- nfa.c ----------------------------------------------------------------------------------- */
typedef enum { MN_GN_BYTES, MN_GN_SPLIT, MN_GN_CALL, MN_GN_END } mn_gnode_kind;
typedef struct {
    uint8_t kind, lo, hi;
    uint32_t to, other; /* SPLIT: other, MN_GNONE = none; CALL: other is the rule */
} mn_gnode;
typedef struct {
    mn_gnode *node;
    uint32_t n;
    size_t cap;
    uint32_t *need;  /* [n] stack above this one until the rule ends; MN_GNEVER = cannot */
    uint32_t *start; /* [n_rules] */
    uint32_t *first; /* [n_rules] first of its nodes; rules lie one behind the other */
    char **name;     /* [n_rules] for messages, in one block */
    uint32_t n_rules;
    bool calls_root; /* rule 0 is called; else the end of rule 0, node 0, is the end of the text */
} mn_gnfa;
mn_status mn_gnfa_build(mn_gbuild *b, mn_gnfa *out);
void mn_gnfa_free(mn_gnfa *a);
const char *mn_gnfa_rule_of(const mn_gnfa *a, uint32_t node); /* the name of the node's rule */

/* ---- trie.c ---------------------------------------------------------------------------------- */
/* Plain tokens are whole characters that a JSON string holds as they are; most tokens are. A run is
 * a number of such characters; tokens with more are not plain. */
enum { MN_GRUN_MOST = 32, MN_GRUN_NONE = 255 };

/* Nodes in the order of a walk that visits a node before its children; node 0 is the root. */
typedef struct {
    uint32_t n;
    uint8_t *byte;
    uint16_t *depth;
    uint32_t *skip; /* the node behind the last one below this one */
    int32_t *token; /* -1 = no token ends here */
} mn_gtrie;
typedef struct mn_galphabets mn_galphabets; /* alphabet.c */
struct mn_grammar_vocab {
    mn_galphabets *alphabets; /* made on demand, shared by all grammars */
    mn_gtrie all, rest;       /* rest: of the tokens that are not plain */
    uint32_t n_vocab, longest, n_plain;
    uint8_t *run; /* [all.n] characters of the path to a node; MN_GRUN_NONE: not plain */
    uint32_t
        *rest_from; /* [all.n + 1] nodes of rest before this one, which is one if it is there */
    uint32_t *plain_from; /* [all.n + 1] plain tokens before this node */
    uint32_t *origin;     /* [rest.n] the nodes in all */
    int32_t *plain;       /* [n_plain] plain tokens in the order of the trie */
    uint8_t *plain_run;   /* [n_plain] */
    uint32_t *up_to;      /* [MN_GRUN_MOST + 1][words] masks of the plain tokens up to a run */
    int32_t *same;        /* [n_vocab] the next token of the same bytes, -1 = none */
    uint64_t *offset;     /* [n_vocab + 1] into bytes */
    char *bytes;
};

/* ---- alphabet.c ------------------------------------------------------------------------------ */
/* The tokens that consist of these bytes alone, and the nodes of the trie at which others leave
 * them: by another byte, or by one more than MN_GRUN_MOST. */
typedef struct {
    uint64_t bytes[4];
    uint32_t *exit; /* [n_exits] nodes by their byte, those with a byte from from[byte] on */
    uint32_t n_exits, from[257];
    uint32_t *up_to; /* [MN_GRUN_MOST + 1][words] masks of the tokens of up to so many bytes */
} mn_galphabet;
mn_galphabets *mn_galphabets_create(void);
void mn_galphabets_free(mn_galphabets *a);
/* NULL: no memory, or too many are there already. Any thread; lives as long as v. */
const mn_galphabet *mn_galphabet_of(const mn_grammar_vocab *v, const uint64_t *bytes);

/* ---- sets.c: sets of nodes, made on demand --------------------------------------------------- */
typedef struct {
    uint32_t start, then; /* sets: where the rule begins, and where it goes on behind it */
    bool last;            /* nothing follows but the end of this rule: no frame is needed */
} mn_gcall;
/* The tokens that can follow from a set alone, whatever the stack below it. */
typedef struct {
    uint32_t *bits; /* NULL: ids instead */
    int32_t *id;
    uint32_t n;
    uint32_t *escape; /* nodes of the trie at which the rule may have ended */
    uint32_t n_escape;
    size_t cap, cap_escape;
    uint32_t deepest; /* stack above the set's that some of these tokens need to be completed */
} mn_gmask;
typedef struct {
    int32_t *next; /* [256] sets; MN_GSET_DEAD, MN_GSET_ASK */
    uint32_t n, need;
    bool plain; /* neither calls nor ends, unless that is the end of the text */
    bool calls_known, has_calls, ends, has_bytes, marked;
    int32_t run_next; /* the set behind any one plain character; see mn_gset_run */
    mn_gmask *mask;
    uint32_t *node; /* [n], sorted: BYTES, CALL and END nodes of one rule */
    uint64_t hash;
    uint64_t first[4];
    mn_gcall *call;
    uint32_t n_calls;
} mn_gset;
enum { MN_GSET_DEAD = -1, MN_GSET_ASK = -2, MN_GSET_MIXED = -3 };

typedef struct {
    uint32_t set, frame;
} mn_ghead;
typedef struct {
    uint32_t set, parent, depth; /* where to go on when the rule above it ends */
} mn_gframe;
/* Frame 0 is the bottom: when the rule above it ends, so does the text. */
typedef struct {
    mn_ghead *head;
    mn_gframe *frame;
    uint32_t n_heads, n_frames;
    size_t cap_heads, cap_frames;
    uint64_t *slot; /* stack.c: the closure at hand by hash; NULL until one is large */
    uint32_t stamp; /* the last closure's */
} mn_gstack;

/* Sets and what is derived from them grow under the lock for writing. A reader holds the lock for
 * reading and has a view: a copy of all fields above `lock`. If the view lacks a set, that counts
 * as `failed`, and a writer does the work again. */
struct mn_grammar {
    bool is_view;
    const mn_grammar_vocab *vocab;
    mn_gnfa nfa;
    mn_gset **set;
    uint32_t n_sets;
    size_t cap_sets;
    uint32_t *slot; /* [n_slots] sets by hash, MN_GNONE = free */
    uint32_t n_slots;
    uint32_t *start;       /* [n_rules] sets, MN_GNONE = not made yet */
    uint32_t *mark, stamp; /* [nfa.n] of a closure that is being made */
    uint32_t *visits;      /* [nfa.n] its nodes to visit */
    uint32_t *gather;      /* [nfa.n] its result */
    uint64_t bytes;        /* held by sets and masks */
    bool full;             /* beyond MN_GRAMMAR_MEMORY: no more sets until a sweep */
    bool failed;           /* out of memory or work since the last call began */
    mn_gbudget *budget;    /* of the call */
    uint64_t work;         /* units that it took to compile */
    pthread_rwlock_t lock;
    pthread_mutex_t list_lock; /* of states; taken behind lock */
    mn_grammar_state *states;  /* all that live */
};
struct mn_grammar_state {
    mn_grammar *g;
    mn_grammar_state *before, *after;
    mn_gstack stack;
    bool complete;
    mn_grammar_budget *budget; /* the caller's; NULL: each call has its own */
};
/* Work that nodes or sets take; false: it is used up, and g->failed. */
static inline bool mn_gspend_node(mn_grammar *g, uint64_t units, uint32_t node) {
    const bool ok = mn_gbudget_take(g->budget, units, node);
    g->failed |= !ok;
    return ok;
}
static inline bool mn_gspend(mn_grammar *g, uint64_t units, uint32_t set) {
    return mn_gspend_node(g, units, g->set[set]->node[0]);
}
/* A call with a state begins, and ends. */
mn_gbudget mn_gbudget_of(const mn_grammar_state *s);
void mn_gbudget_charge(const mn_grammar_state *s, const mn_gbudget *b);
/* Why g->failed after such a call. */
mn_status mn_gbudget_fail(const mn_grammar *g, const mn_gbudget *b, mn_error *err);
mn_status mn_gsets_init(mn_grammar *g);
/* Under the lock for reading: *view becomes one, which spends from b; false: the work is a
 * writer's. */
bool mn_grammar_view(const mn_grammar *g, mn_gbudget *b, mn_grammar *view);
void mn_gsets_free(mn_grammar *g);
/* Set of where rule begins; MN_GSET_DEAD: no memory. */
int32_t mn_gset_start(mn_grammar *g, uint32_t rule);
/* The set behind one byte; MN_GSET_DEAD: none, or no memory (g->failed, g->full). */
int32_t mn_gset_next(mn_grammar *g, mn_gset *s, uint8_t byte);
/* Up to which run all plain tokens may follow a set, while no longer ones may; MN_GRUN_NONE: it
 * depends on the characters. deepest becomes at least what the sets on the way need. */
uint32_t mn_gset_run(mn_grammar *g, uint32_t set, uint32_t *deepest);
bool mn_gset_calls(mn_grammar *g, mn_gset *s); /* fills call */
void mn_gsets_sweep(mn_grammar *g);            /* frees what no state holds */
void mn_gmask_free(mn_grammar *g, mn_gset *s);

/* ---- stack.c --------------------------------------------------------------------------------- */
typedef struct {
    mn_grammar *g;
    mn_gstack *stack;
    uint32_t first_head, first_frame; /* of this closure */
    uint32_t stamp;                   /* its own in the tables; 0: it is small so far */
    uint32_t deepest;
    bool popped; /* the bottom was reached */
} mn_gclose;
bool mn_gstack_copy(mn_gstack *to, const mn_gstack *from);
void mn_gstack_free(mn_gstack *s);
void mn_gclose_begin(mn_gclose *c); /* behind all heads and frames */
/* Adds a head, and all that follow from it without a byte. */
void mn_gclose_add(mn_gclose *c, uint32_t set, uint32_t frame);
/* Drops the heads that no byte continues. */
void mn_gclose_finish(mn_gclose *c);
/* Heads [from, from + n) by one byte, as new heads behind all others; returns their number. */
uint32_t mn_gstack_step(mn_gclose *c, uint32_t from, uint32_t n, uint8_t byte);
#endif
