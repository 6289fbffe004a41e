/* tokenizer_impl.h -- what the files of the tokeniser share. */
#ifndef MN_TOKENIZER_IMPL_H
#define MN_TOKENIZER_IMPL_H
#include "text/json/json.h"
#include "text/pretokenizer/stages.h"
#include "text/tokenizer/tokenizer.h"

#define MN_MAX_WORD 100 /* characters that WordPiece takes apart, unless a file says so */

/* Types of tokens in SentencePiece's files, and in GGUF's, which add the first. */
enum {
    MN_TYPE_UNDEFINED,
    MN_TYPE_NORMAL,
    MN_TYPE_UNKNOWN,
    MN_TYPE_CONTROL,
    MN_TYPE_USER,
    MN_TYPE_UNUSED,
    MN_TYPE_BYTE
};

/* ---- vocabulary: vocab.c ----------------------------------------------------------- */
#define MN_TOKEN_SPECIAL 1u /* control or unknown: never comes out of plain text, not shown */
/* matched in the text as it stands; its spelling is not byte-coded */
#define MN_TOKEN_ADDED 2u
/* ADDED, and the normaliser spells it in another way: it is shown so */
#define MN_TOKEN_NORMALIZED 8u
#define MN_TOKEN_OUTSIDE 16u /* ADDED, and the model itself does not know it */
/* <0xXX>: stands for one byte, never comes out of text that spells it */
#define MN_TOKEN_BYTE 4u

typedef struct {
    mn_str piece;
    float score;
    uint32_t flags;
} mn_vocab_token; /* piece.len 0: a hole */
typedef struct {
    /* other bits of the hash, and the length (cut): most misses cost no look at the piece */
    uint16_t tag, len;
    int32_t id; /* -1 = free */
    /* here too: one look less at memory for each search, of which loading makes a million */
    const char *piece;
} mn_vocab_slot;
typedef struct {
    uint64_t pair;
    int32_t rank, id;
} mn_merge; /* pair: left << 32 | right; id < 0: free slot */

typedef struct {
    mn_arena arena; /* the pieces' bytes */
    mn_vocab_token *token;
    uint32_t n;
    mn_vocab_slot *slot; /* [n_slot] by hash of the piece */
    size_t n_slot, max_len;
    int32_t byte_id[256]; /* <0xXX>, -1 = none */
    int32_t char_id[512]; /* of one-character pieces, by code point; -1 = none */
    mn_merge *merge;      /* [n_merge_slot] */
    size_t n_merge_slot;
} mn_vocab;

size_t mn_vocab_slots(uint64_t n); /* of a table for n: a power of two, twice as many or more */
mn_status mn_vocab_init(mn_vocab *v, uint64_t n, const char *where, mn_error *err); /* n holes */
uint32_t mn_type_flags(int64_t type); /* MN_TOKEN_* of a token that a file gives this MN_TYPE_* */
void mn_vocab_free(mn_vocab *v);
/* Gives id its spelling (copied) and enters it; MN_BAD_FILE if the id or the spelling is taken. */
mn_status mn_vocab_set(mn_vocab *v, int32_t id, mn_str piece, uint32_t flags, const char *where,
                       mn_error *err);
/* Gives the spelling of another id to this one: the other id is still shown so, but text no longer
 * becomes it. */
mn_status mn_vocab_set_last(mn_vocab *v, int32_t id, mn_str piece, const char *where,
                            mn_error *err);
int32_t mn_vocab_find(const mn_vocab *v, mn_str s); /* any token; -1 = none */
/* The same in three calls, for many at a time: the first prefetches the slot, the second the piece
 * there, and the third searches with both in the cache. */
uint64_t mn_vocab_ask(const mn_vocab *v, mn_str s); /* the hash */
void mn_vocab_ask_piece(const mn_vocab *v, uint64_t hash);
int32_t mn_vocab_find_hashed(const mn_vocab *v, mn_str s, uint64_t hash);
/* one that plain text may become; -1 = none */
int32_t mn_vocab_plain(const mn_vocab *v, mn_str s);
void mn_vocab_finish(mn_vocab *v); /* fills byte_id, char_id */
const mn_merge *mn_vocab_merge(const mn_vocab *v, int32_t left, int32_t right); /* NULL = none */

/* ---- merges on their way in: vocab.c ---------------------------------------------------------
 * Each merge needs four searches in tables larger than the caches. Merges are entered by the dozen,
 * so that their accesses to memory overlap; an error in a merge is reported up to that many merges
 * later. begin, add in the order of rank, end. */
typedef struct {
    char text[96]; /* left and right, which together are their union */
    mn_str piece[3];
    uint64_t hash[3];
} mn_merge_entry;
typedef struct {
    /* Set before begin: */
    mn_vocab *vocab;
    const char *where; /* for messages */
    bool last_wins;    /* which of two merges of the same pair counts */
    bool pass_over;    /* merges of pieces that are no tokens: counted, no error */
    /* Read after end: */
    uint64_t n_idle;
    mn_error first_idle;

    mn_merge_entry entry[16];
    uint32_t n_entry;
    int32_t rank; /* of entry[0] */
} mn_merges;

/* "left right", cut at the first blank from byte `from` on; false: there is none */
bool mn_merge_halves(mn_str pair, size_t from, mn_str *left, mn_str *right);
/* n: how many at most */
mn_status mn_merges_begin(mn_merges *m, uint64_t n, mn_error *err);
/* both are copied */
mn_status mn_merges_add(mn_merges *m, mn_str left, mn_str right, mn_error *err);
mn_status mn_merges_end(mn_merges *m, mn_error *err);

/* ---- added tokens: added_tokens.c --------------------------------------------------------- */
typedef struct {
    mn_str text;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} mn_added;
typedef struct {
    mn_added *item;
    size_t n, cap;
    uint32_t *slot; /* [n_slot] index + 1 by hash of the text, 0 = free */
    size_t n_slot;
    size_t *len; /* distinct lengths, longest first */
    size_t n_len;
    bool first[256]; /* some text begins with this byte */
} mn_added_set;
typedef struct {
    size_t lo, hi, end; /* with the white space that it takes; end: without */
    const mn_added *item;
} mn_added_match;

/* text stays the caller's */
mn_status mn_added_put(mn_added_set *s, const mn_added *item, mn_error *err);
/* after the last put */
mn_status mn_added_index(mn_added_set *s, const char *where, mn_error *err);
void mn_added_free(mn_added_set *s);
/* The first, then longest, match at or after at; false = none. from: where the text begins that no
 * token has taken. It is behind `at` if the last token took white space; another token may still
 * match that white space. plain: as in mn_tokenizer_encode, or NULL. */
bool mn_added_next(const mn_added_set *s, mn_str text, size_t from, size_t at, const uint8_t *plain,
                   bool parse_special, mn_added_match *out);

/* ---- Unigram: unigram.c ------------------------------------------------------------ */
/* Of a user's symbol of n bytes, by SentencePiece 0.2.3: it beats all that is not one, and a longer
 * one beats several. */
static inline double mn_symbol_log_prob(uint64_t n) {
    return (double)((float)n * 0.1f - 0.1f);
}
typedef struct {
    double *log_prob; /* [n_vocab]; NAN: no piece that text may become */
    int32_t *sorted;  /* ids of those pieces, by spelling */
    size_t n;
    uint32_t first[257]; /* sorted[first[b]..first[b + 1]) begin with byte b */
    double unknown;      /* log probability of a character without a piece */
    bool single;         /* sums are rounded to float, as SentencePiece does */
} mn_unigram;

/* ---- decoding: decoder.c ------------------------------------------------------------ */
typedef enum {
    MN_DECODE_BYTES,     /* visible characters are bytes; from here on all tokens are one */
    MN_DECODE_FALLBACK,  /* <0xXX> is a byte */
    MN_DECODE_FUSE,      /* from here on all tokens are one */
    MN_DECODE_REPLACE,   /* the pattern's matches become content */
    MN_DECODE_STRIP,     /* content goes, at most left and right times at a token's ends */
    MN_DECODE_METASPACE, /* content becomes a space, in the first token nothing */
    /* tokens but the first begin with content, which goes, or else get a space in front */
    MN_DECODE_WORDPIECE
} mn_decode_kind;
typedef struct {
    mn_decode_kind kind;
    mn_regex pattern;
    char *content;
    size_t content_len;
    uint32_t left, right;
    bool cleanup; /* WORDPIECE: spaces that English has not go */
    bool fused;   /* stands behind BYTES or FUSE */
} mn_decode_stage;
typedef struct {
    mn_decode_stage *stage;
    size_t n, cap;
    bool fused; /* the last stage is BYTES or FUSE, or behind one */
} mn_decode_stages;

/* content is copied; *out, unless NULL, is the new stage until the next is added. */
mn_status mn_decode_add(mn_decode_stages *s, mn_decode_kind kind, mn_str content,
                        mn_decode_stage **out, mn_error *err);
mn_status mn_decode_add_replace(mn_decode_stages *s, mn_str from, mn_str to, mn_error *err);
mn_status mn_decode_add_strip(mn_decode_stages *s, mn_str what, uint32_t left, uint32_t right,
                              mn_error *err);
void mn_decode_free(mn_decode_stages *s);

typedef struct {
    mn_str text;
    bool verbatim, plain; /* no marks for spaces in it; no visible bytes */
    int byte;             /* that FALLBACK makes of it, -1 = none */
} mn_decode_piece;
typedef struct {
    /* what waits for the next token; what the last one became */
    mn_text held, made;
    bool started;  /* a token has come */
    uint32_t left; /* STRIP: how often content may still go in front */
} mn_decode_state;
typedef struct {
    const mn_decode_stages *stages;
    mn_decode_state *state; /* [stages->n] */
} mn_decoder;
/* false = out of memory, as below; then start */
bool mn_decoder_init(mn_decoder *d, const mn_decode_stages *stages);
/* goes_on: what comes is not the text's beginning */
void mn_decoder_start(mn_decoder *d, bool goes_on);
bool mn_decoder_push(mn_decoder *d, mn_decode_piece p, mn_text *out); /* appends what p completes */
/* appends what still waits; then start */
bool mn_decoder_finish(mn_decoder *d, mn_text *out);
void mn_decoder_free(mn_decoder *d);

/* ---- the tokeniser --------------------------------------------------------------------------- */
typedef enum {
    MN_TOKENIZER_BPE,       /* merges by rank */
    MN_TOKENIZER_SPM_BPE,   /* SentencePiece's: merges by the score of the union */
    MN_TOKENIZER_UNIGRAM,   /* the most probable path */
    MN_TOKENIZER_WORDPIECE, /* the longest piece first */
} mn_tokenizer_model;
typedef struct {
    int32_t *id;
    size_t n, cap;
} mn_id_list;

struct mn_tokenizer {
    mn_vocab vocab;
    mn_added_set raw, normalized; /* matched before, and after, the normaliser */
    mn_stages normalizer, splitter;
    mn_tokenizer_model model;
    mn_unigram unigram;
    /* WORDPIECE: what a piece inside a word begins with; in the vocabulary's arena */
    mn_str continuing;
    uint32_t max_word; /* WORDPIECE: characters; longer words are unknown */
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t bos, eos, unk, pad;
    int32_t model_unk; /* what an unknown character becomes; -1 = nothing */
    mn_id_list prefix, suffix, stop;
    /* Of a pair of texts: ids before, between and behind them, of which the first n_between of
     * those between have the type of the first text. is_set false: as prefix and suffix say, with
     * the suffix `seps` times between them; 0: no pairs. */
    struct {
        mn_id_list before, between, behind;
        size_t n_between, seps;
        bool is_set;
    } pair;
    mn_decode_stages decoder;
    bool byte_level; /* pieces are written in visible bytes: the decoder has BYTES */
};

/* Each puts ids at the end; an id of -1, which is no token, is passed over. */
mn_status mn_ids_put(mn_id_list *l, int32_t id, mn_error *err);
mn_status mn_ids_put_once(mn_id_list *l, int32_t id, mn_error *err); /* unless it is there */
mn_status mn_ids_put_all(mn_id_list *l, const mn_id_list *from, mn_error *err);

/* Scratch of one encoding. */
typedef struct {
    int32_t prev, next, id;
    uint32_t off, len;
} mn_symbol_run;
typedef struct {
    float score;
    int32_t rank, left, id;
    uint32_t len;
} mn_candidate;
typedef struct {
    double score;
    int32_t id;
    uint32_t from;
} mn_best; /* UNIGRAM: the best way to a byte of the piece: its last token and where that begins */
#define MN_CACHED_IDS 5
#define MN_CACHED_BYTES 26
typedef struct {
    uint8_t len, n;
    char key[MN_CACHED_BYTES];
    int32_t id[MN_CACHED_IDS];
} mn_cached; /* a piece and its ids; len 0: free */
typedef struct {
    mn_symbol_run *sym;
    mn_candidate *heap;
    size_t n_sym, cap_sym, n_heap, cap_heap;
    mn_best *best;
    size_t cap_best;
    mn_cached *cache; /* the last word of each hash; NULL for short texts */
    mn_pieces pieces;
    mn_id_list ids;
} mn_encoder;

/* Each appends the ids of one piece to e->ids. */
mn_status mn_bpe_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err);
mn_status mn_unigram_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err);
mn_status mn_wordpiece_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err);
/* Text that has no token of its own: its bytes, else the unknown token; MN_BAD_INPUT without
 * one. */
mn_status mn_put_unknown(const mn_tokenizer *tok, mn_encoder *e, mn_str s, bool as_bytes,
                         mn_error *err);
mn_status mn_vocab_keep(mn_vocab *v, mn_str s, mn_str *copy, mn_error *err); /* in its arena */
/* continuing: copied. wordpiece.c */
mn_status mn_wordpiece_init(mn_tokenizer *tok, mn_str continuing, uint32_t max_word, mn_error *err);
/* The bytes of s have tokens of their own. */
bool mn_vocab_has_bytes(const mn_vocab *v, mn_str s);

mn_status mn_unigram_init(mn_tokenizer *tok, mn_error *err); /* log_prob, all NAN */
/* Once vocabulary, flags and log_prob stand. */
mn_status mn_unigram_finish(mn_tokenizer *tok, const char *where, mn_error *err);
void mn_unigram_free(mn_unigram *u);

/* gguf.c, tokenizer_json.c, sentencepiece.c, tiktoken.c, config.c */
bool mn_tokenizer_gguf_knows(mn_str model);
mn_status mn_tokenizer_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err);
mn_status mn_tokenizer_from_json(mn_tokenizer *tok, mn_str json, const char *name,
                                 const mn_file *files, uint32_t n_files, mn_error *err);
/* The white-space rules of SentencePiece, and how pieces are decoded. squeeze: runs of spaces
 * become one, none at the ends, or with keep_end one at the end, too; graphemes: as for
 * mn_charsmap_create; symbols: added tokens of the vocabulary that are not special are the user's,
 * and the charsmap leaves them alone. */
typedef struct {
    mn_str charsmap;
    bool graphemes, symbols, dummy_prefix, squeeze, keep_end, escape;
} mn_sentencepiece;
mn_status mn_sentencepiece_stages(mn_tokenizer *tok, const mn_sentencepiece *how, const char *where,
                                  mn_error *err);
/* Cuts texts at words where that cannot change the ids: no piece has a space behind other
 * characters. */
mn_status mn_split_words(mn_tokenizer *tok, const char *where, mn_error *err);
mn_status mn_tokenizer_from_sentencepiece(mn_tokenizer *tok, mn_str model, const char *name,
                                          const mn_file *files, uint32_t n_files, mn_error *err);
/* file: a tiktoken.model */
mn_status mn_tokenizer_from_tiktoken(mn_tokenizer *tok, mn_str file, const mn_file *files,
                                     uint32_t n_files, mn_error *err);
/* How pieces as SentencePiece writes them become text: U+2581 is a space, <0xXX> a byte, and of the
 * spaces at the start strip go. */
mn_status mn_decode_sentencepiece(mn_decode_stages *s, uint32_t strip, mn_error *err);
/* ids: from GGUF's keys or the companion files. */
mn_status mn_tokenizer_ids_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err);
mn_status mn_tokenizer_stop_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err);
mn_status mn_tokenizer_stop_from_files(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                                       mn_error *err);

/* The flags of an added token as an object says them; id and text are the caller's to fill. */
mn_added mn_json_added(const struct cJSON *item);
/* json_vocab.c. vocab, merges: the JSON text of the two. listed: pieces with log
 * probabilities, in the order of their ids (UNIGRAM). */
mn_status mn_json_vocab(mn_tokenizer *tok, mn_str vocab, bool listed, const struct cJSON *added,
                        mn_error *err);
mn_status mn_json_merges(mn_tokenizer *tok, mn_str merges, mn_error *err);
/* json_decoder.c */
mn_status mn_json_decoder(mn_tokenizer *tok, const struct cJSON *json, mn_error *err);
#endif
