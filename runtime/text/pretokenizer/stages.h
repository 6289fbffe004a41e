/* stages.h -- the stages that turn a text into the pieces that a model sees: normalisers, which
 * rewrite it, and pre-tokenisers, which cut it. Both are lists of the same few primitive stages. */
#ifndef MN_STAGES_H
#define MN_STAGES_H
#include "base/base.h"

#define MN_BLOCK "\xe2\x96\x81" /* U+2581: a space, as SentencePiece writes it in pieces */

/* Regular expression or literal string; immutable after make: any thread. */
typedef struct {
    void *code;
    char *literal;
    size_t len;
} mn_regex; /* code: pcre2_code, or NULL for a literal */

/* where: the name of the pattern in messages. The expression is Oniguruma's, rewritten for PCRE2
 * (regex_syntax.h); MN_UNSUPPORTED for what has no counterpart there. */
mn_status mn_regex_compile(mn_regex *out, mn_str expression, const char *where, mn_error *err);
mn_status mn_regex_literal(mn_regex *out, mn_str text, mn_error *err);
void mn_regex_free(mn_regex *p);

/* One search at a time may use it; made for one pattern, freed with mn_matcher_free. */
typedef struct {
    const mn_regex *pattern;
    void *data;
} mn_matcher;
mn_status mn_matcher_init(mn_matcher *m, const mn_regex *p, mn_error *err);
void mn_matcher_free(mn_matcher *m);
/* The first match in text[from..n), text valid UTF-8: MN_OK with its bounds (it may be empty),
 * MN_END if none. */
mn_status mn_matcher_next(mn_matcher *m, const char *text, size_t n, size_t from, size_t *lo,
                          size_t *hi, mn_error *err);

typedef enum {
    MN_SPLIT_ISOLATED,
    MN_SPLIT_REMOVED,
    MN_SPLIT_WITH_PREVIOUS,
    MN_SPLIT_WITH_NEXT,
    MN_SPLIT_CONTIGUOUS
} mn_split_behavior;

typedef enum {
    MN_STAGE_SPLIT,   /* cuts at the pattern's matches */
    MN_STAGE_REPLACE, /* the pattern's matches become content */
    MN_STAGE_PREPEND, /* content in front of each piece */
    MN_STAGE_FORM,    /* a Unicode normalisation form; form: utf8proc's options */
    MN_STAGE_LOWER,
    MN_STAGE_STRIP,  /* white space at the ends */
    MN_STAGE_UNMARK, /* drops marks */
    MN_STAGE_CHARSMAP,
    MN_STAGE_BYTES /* each byte becomes the visible character that byte-level BPE writes for it */
} mn_stage_kind;

typedef struct mn_charsmap mn_charsmap; /* immutable */
/* graphemes: as tokenizer.json's "Precompiled" uses the table, else as SentencePiece does.
 * MN_BAD_FILE if damaged. */
mn_status mn_charsmap_create(mn_str blob, bool graphemes, const char *where, mn_charsmap **out,
                             mn_error *err);
/* Texts that stay as they are, the longest of those that begin at a character; once; not for
 * graphemes. Copied. */
mn_status mn_charsmap_keep(mn_charsmap *m, const mn_str *symbol, size_t n, mn_error *err);
void mn_charsmap_blob(const mn_charsmap *m, mn_text *out); /* appends what it was made of */
bool mn_charsmap_graphemes(const mn_charsmap *m);
/* NULL is fine */
void mn_charsmap_free(mn_charsmap *m);
/* appends what s becomes */
void mn_charsmap_put(const mn_charsmap *m, mn_text *out, const char *s, size_t n);

typedef struct {
    mn_stage_kind kind;
    mn_regex pattern;
    mn_split_behavior behavior;
    bool invert; /* SPLIT: what does not match counts as the match */
    /* STRIP; REPLACE: the match stays, content goes on its left and right */
    bool left, right;
    bool nonspacing; /* UNMARK: these alone */
    /* PREPEND: not twice; only to what stems from the text's first character */
    bool unless_present, only_first;
    char *content;
    size_t content_len;
    int form;
    mn_charsmap *charsmap;
} mn_stage;
typedef struct {
    mn_stage *stage;
    size_t n, cap;
} mn_stages;

/* A zeroed stage at the end, NULL = out of memory. The list owns what is put into it. */
mn_stage *mn_stages_add(mn_stages *s, mn_stage_kind kind);
/* The same with a content, copied; err is filled. */
mn_stage *mn_stages_add_content(mn_stages *s, mn_stage_kind kind, mn_str content, mn_error *err);
mn_status mn_stages_add_split(mn_stages *s, const char *regex, mn_split_behavior behavior,
                              bool invert, const char *where, mn_error *err);
mn_status mn_stages_add_replace(mn_stages *s, mn_str literal, mn_str content, mn_error *err);
/* around: the match stays, between two contents. */
mn_status mn_stages_add_rewrite(mn_stages *s, const char *regex, const char *content, bool around,
                                const char *where, mn_error *err);
mn_status mn_stages_add_prepend(mn_stages *s, mn_str content, bool unless_present, bool only_first,
                                mn_error *err);
void mn_stages_free(mn_stages *s);

/* Pieces of one text: spans of text, in order, none of them empty after a run. {0} is empty. */
typedef struct {
    size_t off, len;
    bool match;
} mn_span;
typedef struct {
    mn_text text, spare;
    mn_span *span, *spare_span;
    size_t n, cap, spare_n, spare_cap;
    /* bytes at the start of text that stem from the first character of the user's text */
    size_t lead;
} mn_pieces;
/* One span (none if n == 0), and lead as the text stands. */
mn_status mn_pieces_set(mn_pieces *p, const char *text, size_t n, size_t lead, mn_error *err);
void mn_pieces_free(mn_pieces *p);
mn_status mn_stages_run(const mn_stages *s, mn_pieces *p, mn_error *err);
size_t mn_char_length(const char *s, size_t n); /* of the character at s, at most n; 0 if n == 0 */

bool mn_is_space(uint32_t code); /* Unicode's White_Space */

/* The visible character (code point < 0x180) that byte-level BPE writes for a byte, and back (-1 =
 * none). */
uint32_t mn_byte_char(uint8_t byte);
int mn_byte_of_char(uint32_t code);

#define MN_REGEX_GPT2                                                                              \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- from tokenizer.json, and BERT's: json_stages.c ------------------------------------------ */
struct cJSON;
/* json: the value of "normalizer", "pre_tokenizer"; NULL or null: no stages. MN_UNSUPPORTED names a
 * type that is unknown here. */
mn_status mn_json_normalizer(mn_stages *out, const struct cJSON *json, mn_error *err);
mn_status mn_json_pre_tokenizer(mn_stages *out, const struct cJSON *json, mn_error *err);
/* What an object says under "pattern": {"String": "x"} or {"Regex": "x"}. where: for messages. */
mn_status mn_json_pattern(mn_regex *out, const struct cJSON *json, const char *where,
                          mn_error *err);
/* Metaspace's: "always", "first" or "never", as new files or old ones say it. */
const char *mn_json_prepend_scheme(const struct cJSON *json);

/* BASE64 of RFC 4648, padded or not; false: it is none. */
bool mn_decode_base64(mn_str s, mn_text *out);

/* "NFC", "NFD", "NFKC", "NFKD"; MN_END (no error filled): no such form. */
mn_status mn_stages_add_form(mn_stages *out, mn_str name, mn_error *err);
const char *mn_stage_form(const mn_stage *stage); /* its name; NULL = another kind of stage */
/* BERT's normaliser and pre-tokeniser. */
mn_status mn_stages_add_bert_normalizer(mn_stages *out, bool clean, bool chinese, bool strip,
                                        bool lower, mn_error *err);
mn_status mn_stages_add_bert_split(mn_stages *out, mn_error *err);

/* ---- GGUF's names of pre-tokenisers: gguf_names.c -------------------------------------------- */
#define MN_PRE_IGNORE_MERGES 1u
#define MN_PRE_ADD_BOS 2u
#define MN_PRE_RAW 4u /* pieces are plain UTF-8 with U+2581 for spaces, not visible bytes */
typedef struct {
    const char *names; /* blank-separated */
    uint32_t flags;
    const char *split[6];
} mn_pre_row;
const mn_pre_row *mn_pre_find(mn_str name); /* NULL = unknown */
void mn_pre_list(mn_text *out);             /* all names, for messages */
/* The row's cuts, at the end of the list. */
mn_status mn_pre_add(mn_stages *out, const mn_pre_row *row, const char *where, mn_error *err);
#endif
