/* A kernel of shuffle.h, which includes this once for each instruction set, with the LXT macros set; they end here.

   A tile is 16 items for each lane of a vector. Of one lane's items, `item` vectors hold all bytes, in the order of their
   addresses. One round of interleaving the first half of the vectors with the second moves the highest bit of every
   byte's address to the lowest place. An item's number in its lane has four bits, the place of a byte in its item `bits`:
   four rounds bring the former up, `bits` rounds the latter down, and those are shuffling and its reverse. */

#define LXT_NAME(prefix) LX_JOIN(prefix, LXT_KERNEL)
#define LXT_ITEMS sizeof(LXT)

LXT_TARGET LX_INLINE void LXT_NAME(lx_turn_)(LXT* v, int item, int rounds) {
    LXT turned[16];
    int round, k;
    #pragma GCC unroll 4
    for (round = 0; round < rounds; round++) {
        #pragma GCC unroll 8
        for (k = 0; k < item / 2; k++) {
            turned[2 * k] = LXT_LOW(v[k], v[k + item / 2]);
            turned[2 * k + 1] = LXT_HIGH(v[k], v[k + item / 2]);
        }
        #pragma GCC unroll 16
        for (k = 0; k < item; k++)
            v[k] = turned[k];
    }
}

/* Each caller gives a constant for `item`. The last of the tiles takes some items again, where they do not come out even. */
LXT_TARGET LX_INLINE void LXT_NAME(lx_shuffle_each_)(uint8_t* dst, const uint8_t* src, size_t n, int item) {
    size_t tile, i;
    int k;
    for (tile = 0; tile < n; tile += LXT_ITEMS) {
        LXT v[16];
        i = tile + LXT_ITEMS <= n ? tile : n - LXT_ITEMS;
        #pragma GCC unroll 8
        for (k = 0; k < item; k += 2)
            LXT_LOAD_PAIR(src + i * item + k * LX_LANE, item * LX_LANE, v[k], v[k + 1]);
        LXT_NAME(lx_turn_)(v, item, LX_LANE_BITS);
        #pragma GCC unroll 16
        for (k = 0; k < item; k++)
            LXT_STORE(dst + k * n + i, v[k]);
    }
}

/* The second tile too may take items again: it begins where a vector is stored to one cache line, and not to two. */
LXT_TARGET LX_INLINE void LXT_NAME(lx_unshuffle_each_)(uint8_t* dst, const uint8_t* src, size_t n, int item, int bits) {
    const size_t last = n - LXT_ITEMS, ahead = (size_t)(-(uintptr_t)dst % sizeof(LXT)) / item;
    size_t next = 0, i;
    int k;
    do {
        LXT v[16];
        i = next < last ? next : last;
        #pragma GCC unroll 16
        for (k = 0; k < item; k++)
            v[k] = LXT_LOAD_PLANE(src + k * n + i, item);
        LXT_NAME(lx_turn_)(v, item, bits);
        #pragma GCC unroll 16
        for (k = 0; k < item; k++)
            LXT_STORE(dst + i * item + k * sizeof(LXT), LXT_PART(v, item, k));
        next = i == 0 && ahead ? ahead : i + LXT_ITEMS;
    } while (i < last);
}

/* Returns 0, with nothing done, where there is not one whole tile, or no tile for items of this size. */
LXT_TARGET static int LXT_NAME(lx_shuffle_tiles_)(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (n < LXT_ITEMS)
        return 0;
    switch (item) {
        case 2: LXT_NAME(lx_shuffle_each_)(dst, src, n, 2); return 1;
        case 4: LXT_NAME(lx_shuffle_each_)(dst, src, n, 4); return 1;
        case 8: LXT_NAME(lx_shuffle_each_)(dst, src, n, 8); return 1;
        case 16: LXT_NAME(lx_shuffle_each_)(dst, src, n, 16); return 1;
        default: return 0;
    }
}

LXT_TARGET static int LXT_NAME(lx_unshuffle_tiles_)(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (n < LXT_ITEMS)
        return 0;
    switch (item) {
        case 2: LXT_NAME(lx_unshuffle_each_)(dst, src, n, 2, 1); return 1;
        case 4: LXT_NAME(lx_unshuffle_each_)(dst, src, n, 4, 2); return 1;
        case 8: LXT_NAME(lx_unshuffle_each_)(dst, src, n, 8, 3); return 1;
        case 16: LXT_NAME(lx_unshuffle_each_)(dst, src, n, 16, 4); return 1;
        default: return 0;
    }
}

#ifndef LXT_KEEP
static void LXT_NAME(lx_shuffle_)(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (!LXT_NAME(lx_shuffle_tiles_)(dst, src, n, item))
        lx_shuffle_sse2(dst, src, n, item);
}

static void LXT_NAME(lx_unshuffle_)(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (!LXT_NAME(lx_unshuffle_tiles_)(dst, src, n, item))
        lx_unshuffle_sse2(dst, src, n, item);
}
#endif

static int LXT_NAME(lx_shuffles_)(void) { return LXT_WORKS; }

#undef LXT_NAME
#undef LXT_ITEMS
#undef LXT_KERNEL
#undef LXT_TARGET
#undef LXT_WORKS
#undef LXT
#undef LXT_LOAD
#undef LXT_STORE
#undef LXT_LOW
#undef LXT_HIGH
#undef LXT_LOAD_PAIR
#undef LXT_LOAD_PLANE
#undef LXT_PART
#undef LXT_KEEP
