/* fuzz.h -- what the fuzz targets share. A target is LLVMFuzzerTestOneInput of one file; libFuzzer
 * drives it where the build is made for fuzzing (build.sh), replay.c in every other build: the same
 * seeds and past findings, as tests.
 *
 * Inputs of several parts are text with a line before each part:
 *   === config.json
 *   {...}
 *   === model.safetensors
 * The line break before such a line is not part of what precedes it. An input that does not begin
 * with such a line is one part. */
#ifndef FUZZ_H
#define FUZZ_H
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t cap);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed);

enum { FUZZ_PARTS = 24 };
typedef struct {
    /* each a copy of exactly its size, so that a read beyond it is seen; names point into the
         * input */
    mn_file file[FUZZ_PARTS];
    uint32_t n;
} fuzz_parts;
/* alone: the name of an input's only part. Parts beyond FUZZ_PARTS and those of no name are left
 * out. */
void fuzz_split(const uint8_t *data, size_t n, const char *alone, fuzz_parts *out);
void fuzz_free(fuzz_parts *parts);
const mn_file *fuzz_part(const fuzz_parts *parts, const char *name); /* NULL = absent */
mn_str fuzz_text(const fuzz_parts *parts, const char *name, const char *otherwise);

/* Ends the process with a line if what must hold does not. Once an allocation was made to fail
 * (replay.c) answers may be missing: then it only has to end without a leak, and its statuses must
 * say why. */
#define FUZZ_CHECK(holds)                                                                          \
    do {                                                                                           \
        if (!(holds) && !mn_alloc_failed())                                                        \
            fuzz_broken(__FILE__, __LINE__, #holds);                                               \
    } while (0)
_Noreturn void fuzz_broken(const char *file, int line, const char *what);
/* A failure has a message; MN_END needs none. Returns whether status is MN_OK. */
bool fuzz_ok(mn_status status, const mn_error *err);
bool fuzz_well(mn_status status); /* the same of a call that fills no error */
/* What came out, in order: calls without memory either say so or give the same (replay.c). */
void fuzz_answered(const void *bytes, size_t n);
extern uint64_t fuzz_answer;
extern uint32_t fuzz_refused; /* how often it was not */
/* all would be well but for memory: a failure that says something else is wrong */
extern bool fuzz_only_memory;
/* Set by a target when an input went all the way; replay.c asks it of the seeds called ok-*. */
extern bool fuzz_accepted;
extern char fuzz_said[]; /* the last failure's message */

/* A folder of this process in memory, removed when it ends: where the user's minerva.ini is looked
 * for. fuzz_file writes into it; zeros: bytes that follow, as a hole. */
const char *fuzz_folder(void);
void fuzz_file(const char *name, mn_str content, uint64_t zeros);
void fuzz_files_remove(void);
/* The folder of plugins: an absolute path, or a name beside the program. */
void fuzz_plugins(const char *given, char *path, size_t n);
/* Messages of the log are thrown away; no file or variable of the user counts. */
void fuzz_quiet(void);
#endif
