/* step_text.c -- the text of step.cl for the weight types and head sizes of a model, its variant.
 * Holds nothing. */
#include "step_text.h"
#include <stdarg.h>

/* Whether products of type i of the types' table are on tensor cores. */
static bool is_on_tiles(uint32_t variant, uint32_t i) {
    return variant & OCL_STEP_TILES && ocl_has_halves(ocl_type_at(i));
}

/* Whether the model's types make two programs. */
bool ocl_step_has_tiles(const mn_device *d, uint32_t variant) {
    for (uint32_t i = 0; i < OCL_STEP_TYPES; i++)
        if (variant >> i & 1 && is_on_tiles(OCL_STEP_TILES, i))
            return d->mma;
    return false;
}

/* Whether products of one row are on tensor cores (row.cl), or as if there were some, on a device
 * that is no NVIDIA GPU: in programs with experts, whose groups have many outputs of a product. */
bool ocl_step_has_fragments(const mn_device *d, uint32_t variant, const mng_type *type) {
    const bool could = strstr(type->options, "HAS_FRAGMENTS");
    return could && variant & OCL_STEP_EXPERTS && (d->mma || !d->ptx);
}

/* Buffers of a kernel: every device takes 1,024 bytes of arguments, NVIDIA's more than 4,000. */
uint32_t ocl_step_mems(const mn_device *d) {
    return d->ptx ? OCL_STEP_MEMS : OCL_STEP_MEMS_ANY;
}

/* A text behind what `own` of the source has, which stays there. */
static void write_text(ocl_source *to, size_t *used, const char *format, ...) MNP_FORMAT(3, 4);
static void write_text(ocl_source *to, size_t *used, const char *format, ...) {
    char *text = to->own + *used;
    const size_t room = sizeof to->own - *used;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, room, format, args);
    va_end(args);
    to->texts[to->n_texts++] = text;
    if (n > 0 && (size_t)n < room)
        *used += (size_t)n + 1;
}

/* X(row, type) of each type of the variant that is on tensor cores, or of the others. */
static void write_list(uint32_t variant, const char *name, bool tiles, ocl_source *to,
                       size_t *used) {
    write_text(to, used, "\n#define %s(X)", name);
    for (uint32_t i = 0; i < OCL_STEP_TYPES; i++)
        if ((variant >> i & 1) && is_on_tiles(variant, i) == tiles)
            write_text(to, used, " X(%u, %s)", i, ocl_type_at(i)->name);
    to->texts[to->n_texts++] = "\n";
}

void ocl_step_texts(const mn_device *d, uint32_t variant, ocl_source *to) {
    const uint32_t per = variant >> OCL_STEP_TYPES & OCL_STEP_PER;
    size_t used = 0;
    write_text(to, &used,
               "#undef LANES\n#define LANES %u\n#define STEP_WARPS %u\n"
               "#define STEP_PER %u\n#define STEP_AHEAD %u\n",
               32 * d->step_warps, d->step_warps, per, per > 4 ? 1u : 4u);
    to->texts[to->n_texts++] = ocl_text_args;
    to->texts[to->n_texts++] = ocl_text_common;
    to->texts[to->n_texts++] = ocl_text_rows;
    to->texts[to->n_texts++] = ocl_text_cache;
    if (variant & OCL_STEP_TILES)
        to->texts[to->n_texts++] = "\n#define STEP_TILES\n";
    if (variant & OCL_STEP_EXPERTS) {
        to->texts[to->n_texts++] = "\n#define STEP_EXPERTS\n";
        to->texts[to->n_texts++] = ocl_text_moe;
    }
    for (uint32_t i = 0; i < OCL_STEP_TYPES; i++) {
        const mng_type *type = ocl_type_at(i);
        if (!(variant >> i & 1))
            continue;
        write_text(to, &used,
                   "\n#undef TYPE\n#define TYPE %s\n#undef HEAD\n#define HEAD %u\n"
                   "#undef HAS_HALVES\n%s\n#undef HAS_WORDS\n%s\n#undef HAS_FRAGMENTS\n%s\n",
                   type->name, type->head ? type->head : 4,
                   is_on_tiles(variant, i) ? "#define HAS_HALVES" : "",
                   strstr(type->options, "HAS_WORDS") ? "#define HAS_WORDS" : "",
                   ocl_step_has_fragments(d, variant, type) ? "#define HAS_FRAGMENTS" : "");
        to->texts[to->n_texts++] = type->text;
        to->texts[to->n_texts++] = ocl_text_warps;
        to->texts[to->n_texts++] = ocl_text_mma;
        to->texts[to->n_texts++] = ocl_text_row;
    }
    write_list(variant, "EACH_TYPE", false, to, &used);
    write_list(variant, "EACH_TILE", true, to, &used);
    write_text(to, &used, "\n#define STEP_MEMS %u\n#define EACH_8(X)", ocl_step_mems(d));
    for (uint32_t i = 0; i < ocl_step_mems(d) / 8; i++)
        write_text(to, &used, " X(%u)", i);
    to->texts[to->n_texts++] = "\n";
    to->texts[to->n_texts++] = ocl_text_step;
}
