/* model_facts.h -- what lists of models say of one that is open. */
#ifndef MINERVA_MODEL_FACTS_H
#define MINERVA_MODEL_FACTS_H
#include <minerva/minerva.h>

/* The type that most bytes of the tensors have: "q4_k"; "" = there are no tensors. */
void model_main_type(const mn_model *m, char dst[32]);
/* The model's value of a key that is a text or a number, as JSON does not need it: an integer.
 * `otherwise` where the key is absent or something else. */
int64_t model_int(const mn_model *m, const char *key, int64_t otherwise);
#endif
