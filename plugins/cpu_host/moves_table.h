/* moves_table.h -- mn.kv/1 of CPU plugins: moves.c. */
#ifndef MNC_MOVES_TABLE_H
#define MNC_MOVES_TABLE_H
#include "common.h"

extern const mn_kv_moves mnc_moves;
#endif
