/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/rng.h"

void bl_data_order_shuffle(int64_t *order, int64_t n, uint64_t seed, uint32_t epoch)
{
    bl_rng_key key = {.seed = seed, .epoch = epoch, .position = UINT32_MAX, .ordinal = BL_DATA_ORDINAL_SHUFFLE};
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)bl_rng_below(&key, (uint64_t)i, (uint64_t)i + 1);
        int64_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

void bl_data_order_choose(uint8_t *is_chosen, int64_t n, int64_t n_chosen, uint64_t seed)
{
    bl_rng_key key = {.seed = seed, .position = UINT32_MAX, .ordinal = BL_DATA_ORDINAL_SPLIT};
    int64_t needed = n_chosen;
    for (int64_t i = 0; i < n; i++) {
        is_chosen[i] = (int64_t)bl_rng_below(&key, (uint64_t)i, (uint64_t)(n - i)) < needed;
        needed -= is_chosen[i];
    }
}
