/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded orders.  Both functions are pure: the same arguments give the same result on every machine, whatever the
 * number of threads and whatever was drawn before. */
#ifndef BL_DATA_ORDER_H
#define BL_DATA_ORDER_H

#include <stdint.h>

/* Ordinals of the two draws: the last ones of a micro-batch, which no op reaches. */
enum { BL_DATA_ORDINAL_SHUFFLE = 0xFFFF, BL_DATA_ORDINAL_SPLIT = 0xFFFE };

/* Fills order with 0 .. n - 1, shuffled (Fisher and Yates; Durstenfeld, CACM 1964) by (seed, epoch). */
void bl_data_order_shuffle(int64_t *order, int64_t n, uint64_t seed, uint32_t epoch);

/* Marks exactly n_chosen of n places in is_chosen by selection sampling (Knuth, TAOCP 2, 3.4.2, algorithm S); the rest
 * is set to 0. */
void bl_data_order_choose(uint8_t *is_chosen, int64_t n, int64_t n_chosen, uint64_t seed);

#endif
