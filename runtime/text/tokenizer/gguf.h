/* gguf.h -- shared by the two files that read GGUF's tokenizer.ggml.* keys: gguf.c has what every
 * kind of tokeniser needs, gguf_models.c the kinds. Functions return MN_OK where a key is
 * absent. */
#ifndef MN_TOKENIZER_GGUF_H
#define MN_TOKENIZER_GGUF_H
#include "text/tokenizer/tokenizer_impl.h"

#define KEY(name) "tokenizer.ggml." name

/* Makes model, stages, decoder and other parts of one kind of tokeniser, after tokens and ids are
 * read. *add_bos: whether texts begin with BOS if no key says so. */
typedef mn_status (*mn_gguf_model_fn)(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos,
                                      mn_error *err);
mn_gguf_model_fn mn_gguf_model(mn_str name); /* of tokenizer.ggml.model; NULL = unknown */

/* One type per token; *types stays NULL without. n: of tokens. */
mn_status mn_gguf_types(const mn_meta *meta, uint64_t n, const int64_t **types, mn_error *err);
/* MN_BAD_FILE if a list has not one entry per token. */
mn_status mn_gguf_same_length(const char *key, uint64_t found, uint64_t expected, mn_error *err);
/* *id stays where the key is absent or says "none". */
mn_status mn_gguf_id(mn_tokenizer *tok, const mn_meta *meta, const char *key, int32_t *id,
                     mn_error *err);
/* As above; if no key states the id, it is found by the spelling that the token has in all files of
 * its kind. */
mn_status mn_gguf_spelled_id(mn_tokenizer *tok, const mn_meta *meta, const char *key,
                             const char *spelling, int32_t *id, mn_error *err);
/* The tokens of users are SentencePiece's symbols: parts of the normalised text, not what stands
 * between texts. */
bool mn_gguf_has_symbols(const mn_meta *meta);
#endif
