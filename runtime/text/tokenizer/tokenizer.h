/* tokenizer.h -- text to token ids and back, by the model's own rules.
 * BPE by merges, BPE by scores in the way of SentencePiece, Unigram, WordPiece and plain words,
 * from tokenizer.json, tokenizer.model or GGUF. A component that this code does not know is an
 * error that names it: ids that only look right are worse than none. */
#ifndef MN_TOKENIZER_H
#define MN_TOKENIZER_H
#include "base/base.h"
#include "model/meta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mn_tokenizer mn_tokenizer; /* immutable after create: any thread */

/* From metadata (tokenizer.ggml.*; tokenizer.huggingface.json as text) or companion files
 * (tokenizer.json, with tokenizer_config.json, special_tokens_map.json,
 * generation_config.json, config.json). GGUF's keys win over files. meta and files may be
 * freed once this returns. MN_END (no error filled): the model has no tokeniser. MN_BAD_FILE:
 * damaged or contradictory, naming file and key. MN_UNSUPPORTED: a component unknown here,
 * naming its type. */
mn_status mn_tokenizer_create(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                              mn_tokenizer **out, mn_error *err);
void mn_tokenizer_free(mn_tokenizer *tok); /* NULL is fine */

/* what the tokeniser itself adds: BOS, the post-processor's template, EOS */
#define MN_TOKENIZE_ADD_SPECIAL 1u
#define MN_TOKENIZE_PARSE_SPECIAL 2u /* special tokens written in the text become ids */

/* text: valid UTF-8 (else MN_BAD_INPUT with the byte's offset). plain: NULL or text.len bytes; a
 * special token that covers a byte with plain[i] != 0 is never recognised, even with PARSE_SPECIAL:
 * text that a user typed. Tokens that the vocabulary adds but does not call special are matched
 * always.
 * ids: *n of them, mn_free'd by the caller; never NULL on MN_OK. Nothing is set on error. */
mn_status mn_tokenizer_encode(const mn_tokenizer *tok, mn_str text, const uint8_t *plain,
                              uint32_t flags, int32_t **ids, size_t *n, mn_error *err);

/* Two texts as the post-processor's template of a pair has them, or the usual one of the kind of
 * tokeniser: first, second: the texts; *n_first: ids that belong to the first one by their type.
 * Nothing in them is a special token. MN_UNSUPPORTED: there is no template. Else as
 * mn_tokenizer_encode. */
mn_status mn_tokenizer_encode_pair(const mn_tokenizer *tok, mn_str first, mn_str second,
                                   int32_t **ids, size_t *n, size_t *n_first, mn_error *err);

/* highest id + 1; the model may have more rows */
uint32_t mn_tokenizer_n_vocab(const mn_tokenizer *tok);
/* the vocabulary's own spelling; empty = no such id */
mn_str mn_tokenizer_piece(const mn_tokenizer *tok, int32_t id);
/* control token: not shown in text */
bool mn_tokenizer_is_special(const mn_tokenizer *tok, int32_t id);
/* id of exactly this spelling; -1 = none */
int32_t mn_tokenizer_find(const mn_tokenizer *tok, mn_str piece);
bool mn_tokenizer_adds_bos(const mn_tokenizer *tok); /* ADD_SPECIAL begins with bos */

/* -1 = none. */
int32_t mn_tokenizer_bos(const mn_tokenizer *tok);
int32_t mn_tokenizer_eos(const mn_tokenizer *tok);
int32_t mn_tokenizer_pad(const mn_tokenizer *tok);

/* Every id that ends a generation, without repetition: generation_config.json's eos_token_id (one
 * or a list), else config.json's, else the tokeniser's eos; GGUF's eos, eot and eom ids, and
 * control tokens whose spelling is a well-known end of turn. Lives as long as tok. */
const int32_t *mn_tokenizer_stop_ids(const mn_tokenizer *tok, uint32_t *n);

/* ---- ids to text, as they come. One thread at a time. ---------------------------------------- */
typedef struct mn_detokenizer mn_detokenizer;
/* special tokens are shown by their spelling; else they give nothing */
#define MN_DETOKENIZE_SPECIAL 1u
/* the ids continue a text: the space that encoding puts in front of one stays */
#define MN_DETOKENIZE_CONTINUE 2u

/* tok outlives it. */
mn_status mn_detokenizer_create(const mn_tokenizer *tok, uint32_t flags, mn_detokenizer **out,
                                mn_error *err);
void mn_detokenizer_free(mn_detokenizer *d); /* NULL is fine */

/* Appends to out the characters that id completes: always whole, valid UTF-8; bytes that can belong
 * to no character become U+FFFD, an unfinished character waits for the next id, and so do tokens
 * whose text differs at the end of an output. An id that the vocabulary does not name gives
 * nothing; a negative one is MN_INVALID. Memory: out->failed, or MN_OUT_OF_MEMORY. */
mn_status mn_detokenizer_push(mn_detokenizer *d, int32_t id, mn_text *out);
/* Appends the bytes of each id from 0 to n_vocab - 1, alone and inside a text, which need not be
 * whole characters; offset: [n_vocab + 1] in out. Memory: as above. */
mn_status mn_detokenizer_table(const mn_tokenizer *tok, mn_text *out, uint64_t *offset);
/* bytes that still wait become U+FFFD; d starts again */
mn_status mn_detokenizer_finish(mn_detokenizer *d, mn_text *out);

#ifdef __cplusplus
}
#endif
#endif
