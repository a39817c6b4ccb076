/* The numbers that draws are made of: words of a counter-based generator, and its keys. */

#ifndef LOADERX_DRAW_WORD_H
#define LOADERX_DRAW_WORD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

/* The steps and multipliers of SplitMix64 (Steele, Lea and Flood, 2014; the multipliers are Stafford's Mix13), and the
   step from one attempt to the next. */
#define LX_STEP UINT64_C(0x9E3779B97F4A7C15)
#define LX_MULTIPLIER_1 UINT64_C(0xBF58476D1CE4E5B9)
#define LX_MULTIPLIER_2 UINT64_C(0x94D049BB133111EB)
#define LX_ATTEMPT UINT64_C(0xD1B54A32D192ED03)

typedef struct {
    uint64_t first, second;
} lx_key;

/* SplitMix64's finaliser: every bit of the result depends on every bit of z. */
LX_INLINE uint64_t lx_mix(uint64_t z) {
    z = (z ^ z >> 30) * LX_MULTIPLIER_1;
    z = (z ^ z >> 27) * LX_MULTIPLIER_2;
    return z ^ z >> 31;
}

/* Word number `at` of a key's generator: SplitMix64 that begins at `first`, with a second key half-way, so that two keys
   are not windows of one sequence. Both halves of the word are used by themselves: hence the last shift. */
LX_INLINE uint64_t lx_word(lx_key key, uint64_t at) {
    uint64_t z = key.first + at * LX_STEP;
    z = (z ^ z >> 30) * LX_MULTIPLIER_1;
    z = (z ^ z >> 27 ^ key.second) * LX_MULTIPLIER_2;
    return z ^ z >> 32;
}

#endif
