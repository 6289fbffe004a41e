/* Input: one GGUF file; with a first byte of 'S', two halves as the parts of a split model. */
#include "fuzz_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    mn_file whole = {{"m.gguf", 6}, data, n};
    if (n && data[0] == 'S') {
        size_t half = (n - 1) / 2;
        mn_file parts[2] = {{{"m-00001-of-00002.gguf", 21}, data + 1, half},
                            {{"m-00002-of-00002.gguf", 21}, data + 1 + half, n - 1 - half}};
        fuzz_model(parts, 2);
    } else
        fuzz_model(&whole, 1);
    return 0;
}
