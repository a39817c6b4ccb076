/* Independent draws below a length, without bias: D. Lemire, "Fast random integer generation in an interval" (2019).

   A word times the length: the upper half is the index, unless the lower half is below `least`, of which there is one
   too many for some indices; then another word decides. */

#ifndef LOADERX_DRAW_IID_H
#define LOADERX_DRAW_IID_H

#include "draw_word.h"

typedef struct {
    uint64_t length;
    uint64_t least;             /* 2^64 modulo the length */
    uint32_t least_narrow;      /* 2^32 modulo the length */
    lx_key key;
} lx_iid;

#ifdef __SIZEOF_INT128__
LX_INLINE uint64_t lx_multiply(uint64_t a, uint64_t b, uint64_t* low) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
}
#else
LX_INLINE uint64_t lx_multiply(uint64_t a, uint64_t b, uint64_t* low) {
    const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    const uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
    const uint64_t other = a_low * b_high + (uint32_t)middle;
    *low = a * b;
    return a_high * b_high + (middle >> 32) + (other >> 32);
}
#endif

/* Attempt number `attempt` at place `at`, and those after it. Each attempt has words of its own for all places. */
static uint64_t lx_draw_from(lx_key key, uint64_t length, uint64_t least, uint64_t at, uint64_t attempt) {
    for (key.first += attempt * LX_ATTEMPT;; key.first += LX_ATTEMPT) {
        uint64_t low;
        const uint64_t index = lx_multiply(lx_word(key, at), length, &low);
        if (low >= least)
            return index;
    }
}

LX_INLINE uint64_t lx_draw_wide(const lx_iid* iid, uint64_t at) {
    return lx_draw_from(iid->key, iid->length, iid->least, at, 0);
}

/* Half a word at first, the lower one at even places. Further attempts take a whole one. */
LX_INLINE uint64_t lx_draw_narrow(const lx_iid* iid, uint64_t at) {
    const uint64_t word = lx_word(iid->key, at >> 1);
    const uint64_t product = (uint64_t)(uint32_t)(at & 1 ? word >> 32 : word) * iid->length;
    if ((uint32_t)product >= iid->least_narrow)
        return product >> 32;
    return lx_draw_from(iid->key, iid->length, iid->least, at, 1);
}

#endif
