/* step_text.h -- variants of step.cl: what a program of it is specialised by, in one number: a bit
 * for each weight type, elements of a head for each lane, whether there are experts, whether
 * products of types with halves are those on tensor cores. A program has one kind of such products:
 * with both its registers do not suffice. */
#ifndef OCL_STEP_TEXT_H
#define OCL_STEP_TEXT_H
#include "types.h"

enum {
    OCL_STEP_TYPES = OCL_TYPE_iq4_xs + 1, /* those behind it are no text of their own */
    OCL_STEP_EXPERTS = 1u << 24,
    OCL_STEP_TILES = 1u << 25,
    OCL_STEP_PER = 255 /* mask of elements of a head for each lane, shifted by OCL_STEP_TYPES */
};
/* Whether the model's types make two programs. */
bool ocl_step_has_tiles(const mn_device *d, uint32_t variant);
/* Whether products of one row are on tensor cores (row.cl), or as if there were some. */
bool ocl_step_has_fragments(const mn_device *d, uint32_t variant, const mng_type *type);
/* Buffers of a kernel. */
uint32_t ocl_step_mems(const mn_device *d);
/* The texts of the variant. */
void ocl_step_texts(const mn_device *d, uint32_t variant, ocl_source *to);
#endif
