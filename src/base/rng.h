/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
 * 1, 2, 3" (SC 2011).  A number is a pure function of its key and counter, so bits depend neither on threads nor on the
 * order of calls.  Shared text: compiled by gcc and by nvcc, so it stays in the common subset of C17 and CUDA C++. */
#ifndef BL_BASE_RNG_H
#define BL_BASE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define BL_RNG_FN static __host__ __device__ inline
#else
#define BL_RNG_FN static inline
#endif

/* What a draw is keyed by: seed, epoch, batch position, ordinal of the op in its micro-batch. */
typedef struct bl_rng_key {
    uint64_t seed;
    uint32_t epoch;
    uint32_t position;
    uint32_t ordinal;
} bl_rng_key;

typedef struct bl_rng_block {
    uint32_t word[4];
} bl_rng_block;

/* One round: two 32 x 32 -> 64 bit products, xored with the key. */
BL_RNG_FN bl_rng_block bl_rng_round(bl_rng_block c, uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c.word[2];
    bl_rng_block r;
    r.word[0] = (uint32_t)(p1 >> 32) ^ c.word[1] ^ k0;
    r.word[1] = (uint32_t)p1;
    r.word[2] = (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1;
    r.word[3] = (uint32_t)p0;
    return r;
}

/* Ten rounds of Philox4x32 over a counter and a 64-bit key. */
BL_RNG_FN bl_rng_block bl_rng_philox(bl_rng_block counter, uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        counter = bl_rng_round(counter, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return counter;
}

/* The four words for elements 4b .. 4b + 3 of a draw.  The counter holds the block number in its low 64 bits, position,
 * ordinal and epoch in its high ones; what does not fit there lies above the block number's 32 bits.  The seed is the
 * key.  Two draws never share a counter while ordinals are below 2^24 and a draw has at most 2^34 elements. */
BL_RNG_FN bl_rng_block bl_rng_at(const bl_rng_key *key, uint64_t block)
{
    bl_rng_block counter;
    counter.word[0] = (uint32_t)block;
    counter.word[1] = (uint32_t)(block >> 32) ^ (key->epoch >> 16 << 8) ^ (key->ordinal >> 16);
    counter.word[2] = key->position;
    counter.word[3] = (key->ordinal & 0xFFFFu) | (key->epoch << 16);
    return bl_rng_philox(counter, key->seed);
}

/* Word number `element` of a draw. */
BL_RNG_FN uint32_t bl_rng_word(const bl_rng_key *key, uint64_t element)
{
    return bl_rng_at(key, element >> 2).word[element & 3];
}

/* Words `first` .. `first + n - 1` of a draw, in whole blocks: `out` has room for n + BL_RNG_SPARE.  Returns where in it
 * they begin. */
#define BL_RNG_SPARE 6
BL_RNG_FN const uint32_t *bl_rng_words(const bl_rng_key *key, uint64_t first, int64_t n, uint32_t *out)
{
    const bl_rng_key k = *key;
    const int64_t lead = (int64_t)(first & 3), blocks = (lead + n + 3) / 4;
    for (int64_t b = 0; b < blocks; b++) {
        bl_rng_block block = bl_rng_at(&k, (first >> 2) + (uint64_t)b);
        for (int w = 0; w < 4; w++)
            out[4 * b + w] = block.word[w];
    }
    return out + lead;
}

/* Uniform in [0, 1): 24 bits, every value exact in f32. */
BL_RNG_FN float bl_rng_uniform(uint32_t word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

/* Uniform in [0, n) for n > 0 by multiply-shift of 64 bits: bias below n / 2^64. */
BL_RNG_FN uint64_t bl_rng_below(const bl_rng_key *key, uint64_t element, uint64_t n)
{
    bl_rng_block b = bl_rng_at(key, element);
    uint64_t x = (uint64_t)b.word[0] << 32 | b.word[1];
    uint64_t hi = (x >> 32) * (n >> 32);
    uint64_t mid1 = (x >> 32) * (n & 0xFFFFFFFFu);
    uint64_t mid2 = (x & 0xFFFFFFFFu) * (n >> 32);
    uint64_t low = (x & 0xFFFFFFFFu) * (n & 0xFFFFFFFFu);
    uint64_t carry = (low >> 32) + (mid1 & 0xFFFFFFFFu) + (mid2 & 0xFFFFFFFFu);
    return hi + (mid1 >> 32) + (mid2 >> 32) + (carry >> 32);
}

#endif
