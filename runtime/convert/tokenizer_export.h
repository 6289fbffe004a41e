/* tokenizer_export.h -- a tokeniser of any origin as GGUF's tokenizer.* keys. */
#ifndef MN_TOKENIZER_EXPORT_H
#define MN_TOKENIZER_EXPORT_H
#include "text/tokenizer/tokenizer.h"

/* The keys that make tok: as "gpt2", "llama", "t5" or "bert", chosen by its kind and by trial: the
 * keys are read back and must give the same ids for many texts. If no form of GGUF does,
 * tokenizer.json itself becomes the key tokenizer.huggingface.json, with a warning, or without such
 * a file MN_UNSUPPORTED. base: keys of the file so far (readers look at general.name). n_rows: of
 * the embedding; ids beyond the vocabulary are named [PADn] and unused. out->entries is mn_free'd
 * by the caller; what they point to lives in arena, pieces in tok. */
mn_status mn_tokenizer_export(const mn_tokenizer *tok, const mn_meta *base, const mn_file *files,
                              uint32_t n_files, uint32_t n_rows, mn_arena *arena, mn_meta *out,
                              mn_error *err);
#endif
