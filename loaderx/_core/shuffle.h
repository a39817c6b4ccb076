/* Byte shuffling of records: the first bytes of all items, then their second bytes, and so on, block by block.

   A kernel shuffles one block of n items; there is one for each instruction set, and all give the same bytes. Items of 2,
   4, 8 and 16 bytes go through shuffle_tiles.h, which is compiled once for each. Nothing here reads or writes a byte
   outside of what it is given. */

#ifndef LOADERX_SHUFFLE_H
#define LOADERX_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

enum {
    LX_SHUFFLE_BLOCK = 32768,   /* a block has as many whole items as fit in here */
    LX_LANE = 16,               /* the bytes among which one instruction interleaves */
    LX_LANE_BITS = 4
};

/* One way to shuffle a block of n items, and to undo it. */
typedef struct {
    const char* name;
    void (*shuffle)(uint8_t* dst, const uint8_t* src, size_t n, size_t item);
    void (*unshuffle)(uint8_t* dst, const uint8_t* src, size_t n, size_t item);
    int (*works)(void);         /* whether this processor has the instructions */
} lx_shuffler;


/* ---- Byte by byte ------------------------------------------------------------------------------------------------- */

/* The items of a block from `first` on. */
LX_INLINE void lx_shuffle_bytes(uint8_t* restrict dst, const uint8_t* restrict src, size_t n, size_t item, size_t first) {
    size_t i, j;
    for (i = first; i < n; i++)
        for (j = 0; j < item; j++)
            dst[j * n + i] = src[i * item + j];
}

LX_INLINE void lx_unshuffle_bytes(uint8_t* restrict dst, const uint8_t* restrict src, size_t n, size_t item,
                                  size_t first) {
    size_t i, j;
    for (i = first; i < n; i++)
        for (j = 0; j < item; j++)
            dst[i * item + j] = src[j * n + i];
}

/* With the usual sizes as constants, compilers find what instructions there are. */
static void lx_shuffle_portable(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    switch (item) {
        case 2: lx_shuffle_bytes(dst, src, n, 2, 0); break;
        case 4: lx_shuffle_bytes(dst, src, n, 4, 0); break;
        case 8: lx_shuffle_bytes(dst, src, n, 8, 0); break;
        default: lx_shuffle_bytes(dst, src, n, item, 0);
    }
}

static void lx_unshuffle_portable(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    switch (item) {
        case 2: lx_unshuffle_bytes(dst, src, n, 2, 0); break;
        case 4: lx_unshuffle_bytes(dst, src, n, 4, 0); break;
        case 8: lx_unshuffle_bytes(dst, src, n, 8, 0); break;
        default: lx_unshuffle_bytes(dst, src, n, item, 0);
    }
}

static int lx_shuffles_portable(void) { return 1; }


/* ---- Any size, 16 items at a time ---------------------------------------------------------------------------------- */

#ifdef LX_X86

#define LXT_KERNEL sse2
#define LXT_TARGET
#define LXT_WORKS 1
#define LXT __m128i
#define LXT_LOAD(at) _mm_loadu_si128((const __m128i*)(at))
#define LXT_STORE(at, v) _mm_storeu_si128((__m128i*)(at), v)
#define LXT_LOW(a, b) _mm_unpacklo_epi8(a, b)
#define LXT_HIGH(a, b) _mm_unpackhi_epi8(a, b)
#define LXT_LOAD_PAIR(at, step, low, high) do { \
        low = LXT_LOAD(at); \
        high = LXT_LOAD((at) + LX_LANE); \
    } while (0)
#define LXT_LOAD_PLANE(at, item) LXT_LOAD(at)
#define LXT_PART(v, item, place) v[place]
#define LXT_KEEP 1
#include "shuffle_tiles.h"

LX_INLINE uint32_t lx_read_word(const uint8_t* at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The row of an item: `row` bytes from some byte of it on, 4, 8 or 16. Item k of a tile lies in vector k * row / 16. */
LX_INLINE void lx_load_rows(__m128i* v, const uint8_t* src, size_t item, int row) {
    int k;
    #pragma GCC unroll 16
    for (k = 0; k < row; k++) {
        const uint8_t* at = src + (size_t)(k * (LX_LANE / row)) * item;
        if (row == 16)
            v[k] = _mm_loadu_si128((const __m128i*)at);
        else if (row == 8)
            v[k] = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i*)at), _mm_loadl_epi64((const __m128i*)(at + item)));
        else
            v[k] = _mm_set_epi32((int)lx_read_word(at + 3 * item), (int)lx_read_word(at + 2 * item),
                                 (int)lx_read_word(at + item), (int)lx_read_word(at));
    }
}

LX_INLINE void lx_store_rows(uint8_t* dst, const __m128i* v, size_t item, int row) {
    int k, part;
    #pragma GCC unroll 16
    for (k = 0; k < row; k++) {
        uint8_t* at = dst + (size_t)(k * (LX_LANE / row)) * item;
        if (row == 16) {
            _mm_storeu_si128((__m128i*)at, v[k]);
        } else if (row == 8) {
            _mm_storel_epi64((__m128i*)at, v[k]);
            _mm_storel_epi64((__m128i*)(at + item), _mm_unpackhi_epi64(v[k], v[k]));
        } else {
            __m128i rest = v[k];
            for (part = 0; part < 4; part++, rest = _mm_srli_si128(rest, 4)) {
                const uint32_t word = (uint32_t)_mm_cvtsi128_si32(rest);
                memcpy(at + (size_t)part * item, &word, sizeof word);
            }
        }
    }
}

/* How many items a tile must stay away from the end, for rows that are longer than the items. */
LX_INLINE size_t lx_margin(size_t item, int row) {
    return item < (size_t)row ? ((size_t)row - 1) / item : 0;
}

/* Both take tiles of 16 items and 16 of their bytes, or all where the items are shorter: a row then holds the first
   bytes of the next item too, which are not stored, or stored over by that item, later. Of items that are longer and no
   multiple of 16, the last tile takes some bytes again. */
LX_INLINE void lx_shuffle_rows(uint8_t* dst, const uint8_t* src, size_t n, size_t item, int row) {
    const size_t end = n - lx_margin(item, row), planes = item < LX_LANE ? item : LX_LANE;
    size_t i, j, k;
    for (i = 0; i + LX_LANE <= end; i += LX_LANE)
        for (j = 0; j < item; j += LX_LANE) {
            const size_t at = j + planes > item ? item - planes : j;
            __m128i v[LX_LANE];
            lx_load_rows(v, src + i * item + at, item, row);
            lx_turn_sse2(v, row, LX_LANE_BITS);
            #pragma GCC unroll 16
            for (k = 0; k < (size_t)row; k++)
                if (k < planes)
                    _mm_storeu_si128((__m128i*)(dst + (at + k) * n + i), v[k]);
        }
    lx_shuffle_bytes(dst, src, n, item, i);
}

LX_INLINE void lx_unshuffle_rows(uint8_t* dst, const uint8_t* src, size_t n, size_t item, int row, int bits) {
    const size_t end = n - lx_margin(item, row), planes = item < LX_LANE ? item : LX_LANE;
    size_t i, j, k;
    for (i = 0; i + LX_LANE <= end; i += LX_LANE)
        for (j = 0; j < item; j += LX_LANE) {
            const size_t at = j + planes > item ? item - planes : j;
            __m128i v[LX_LANE];
            #pragma GCC unroll 16
            for (k = 0; k < (size_t)row; k++)
                v[k] = _mm_loadu_si128((const __m128i*)(src + (at + (k < planes ? k : 0)) * n + i));
            lx_turn_sse2(v, row, bits);
            lx_store_rows(dst + i * item + at, v, item, row);
        }
    lx_unshuffle_bytes(dst, src, n, item, i);
}

static void lx_shuffle_sse2(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (n < 2 * LX_LANE)
        lx_shuffle_bytes(dst, src, n, item, 0);
    else if (lx_shuffle_tiles_sse2(dst, src, n, item))
        return;
    else if (item < 4)
        lx_shuffle_rows(dst, src, n, item, 4);
    else if (item < 8)
        lx_shuffle_rows(dst, src, n, item, 8);
    else
        lx_shuffle_rows(dst, src, n, item, 16);
}

static void lx_unshuffle_sse2(uint8_t* dst, const uint8_t* src, size_t n, size_t item) {
    if (n < 2 * LX_LANE)
        lx_unshuffle_bytes(dst, src, n, item, 0);
    else if (lx_unshuffle_tiles_sse2(dst, src, n, item))
        return;
    else if (item < 4)
        lx_unshuffle_rows(dst, src, n, item, 4, 2);
    else if (item < 8)
        lx_unshuffle_rows(dst, src, n, item, 8, 3);
    else
        lx_unshuffle_rows(dst, src, n, item, 16, 4);
}


/* ---- Items of 2, 4, 8 and 16 bytes ---------------------------------------------------------------------------------- */

/* The other kernels: what shuffle_tiles.h needs for each. LXT_LOW and LXT_HIGH interleave the lower or the upper bytes of
   each lane. Lanes have items of their own, so what is one vector in memory are lanes of several here, and the other way:
   LXT_LOAD_PAIR loads two vectors whose lanes lie behind each other, the next lanes of both `step` further, and LXT_PART
   is what comes to a place in memory. Where LXT_LOAD_PLANE mixes the items of a plane, the lanes come out in place. */
#define LXT_KERNEL avx2
#define LXT_TARGET __attribute__((target("avx2")))
#define LXT_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx2"))
#define LXT __m256i
#define LXT_LOAD(at) _mm256_loadu_si256((const __m256i*)(at))
#define LXT_STORE(at, v) _mm256_storeu_si256((__m256i*)(at), v)
#define LXT_LOW(a, b) _mm256_unpacklo_epi8(a, b)
#define LXT_HIGH(a, b) _mm256_unpackhi_epi8(a, b)
#define LXT_LOAD_PAIR(at, step, low, high) do { \
        const __m256i first = LXT_LOAD(at), second = LXT_LOAD((at) + (step)); \
        low = _mm256_permute2x128_si256(first, second, 0x20); \
        high = _mm256_permute2x128_si256(first, second, 0x31); \
    } while (0)
#define LXT_LOAD_PLANE(at, item) LXT_LOAD(at)
#define LXT_PART(v, item, place) ((place) < (item) / 2 \
        ? _mm256_permute2x128_si256(v[2 * (place)], v[2 * (place) + 1], 0x20) \
        : _mm256_permute2x128_si256(v[2 * (place) - (item)], v[2 * (place) - (item) + 1], 0x31))
#include "shuffle_tiles.h"

/* Unit number u of a plane, as many items as come into one lane of the result, goes to place u / 4 of lane u % 4. */
static const uint64_t lx_spread64[8] = {0, 4, 1, 5, 2, 6, 3, 7};
static const uint32_t lx_spread32[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
static const uint16_t lx_spread16[32] = {0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29,
                                         2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};

/* One lane of each of four vectors. */
__attribute__((target("avx512f"))) LX_INLINE __m512i lx_lanes_of(const __m512i* v, int lane) {
    const __m512i a = lane < 2 ? _mm512_shuffle_i64x2(v[0], v[1], 0x44) : _mm512_shuffle_i64x2(v[0], v[1], 0xEE);
    const __m512i b = lane < 2 ? _mm512_shuffle_i64x2(v[2], v[3], 0x44) : _mm512_shuffle_i64x2(v[2], v[3], 0xEE);
    return lane % 2 ? _mm512_shuffle_i64x2(a, b, 0xDD) : _mm512_shuffle_i64x2(a, b, 0x88);
}

#define LXT_KERNEL avx512
#define LXT_TARGET __attribute__((target("avx512f,avx512bw")))
#define LXT_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
#define LXT __m512i
#define LXT_LOAD(at) _mm512_loadu_si512(at)
#define LXT_STORE(at, v) _mm512_storeu_si512(at, v)
#define LXT_LOW(a, b) _mm512_unpacklo_epi8(a, b)
#define LXT_HIGH(a, b) _mm512_unpackhi_epi8(a, b)
#define LXT_HALF(at) _mm256_loadu_si256((const __m256i*)(at))
#define LXT_LOAD_PAIR(at, step, low, high) do { \
        const __m512i first = _mm512_inserti64x4(_mm512_castsi256_si512(LXT_HALF(at)), LXT_HALF((at) + (step)), 1); \
        const __m512i second = _mm512_inserti64x4( \
            _mm512_castsi256_si512(LXT_HALF((at) + 2 * (step))), LXT_HALF((at) + 3 * (step)), 1); \
        low = _mm512_permutex2var_epi64(first, _mm512_set_epi64(13, 12, 9, 8, 5, 4, 1, 0), second); \
        high = _mm512_permutex2var_epi64(first, _mm512_set_epi64(15, 14, 11, 10, 7, 6, 3, 2), second); \
    } while (0)
#define LXT_LOAD_PLANE(at, item) ( \
        (item) == 2 ? _mm512_permutexvar_epi64(_mm512_loadu_si512(lx_spread64), LXT_LOAD(at)) : \
        (item) == 4 ? _mm512_permutexvar_epi32(_mm512_loadu_si512(lx_spread32), LXT_LOAD(at)) : \
        (item) == 8 ? _mm512_permutexvar_epi16(_mm512_loadu_si512(lx_spread16), LXT_LOAD(at)) : LXT_LOAD(at))
#define LXT_PART(v, item, place) ((item) < 16 ? v[place] : lx_lanes_of(v + 4 * ((place) % 4), (place) / 4))
#include "shuffle_tiles.h"
#undef LXT_HALF

#endif

/* Best first. The last works everywhere. */
static const lx_shuffler lx_shufflers[] = {
#ifdef LX_X86
    {"avx512", lx_shuffle_avx512, lx_unshuffle_avx512, lx_shuffles_avx512},
    {"avx2", lx_shuffle_avx2, lx_unshuffle_avx2, lx_shuffles_avx2},
    {"sse2", lx_shuffle_sse2, lx_unshuffle_sse2, lx_shuffles_sse2},
#endif
    {"portable", lx_shuffle_portable, lx_unshuffle_portable, lx_shuffles_portable},
};

enum { LX_SHUFFLERS = sizeof lx_shufflers / sizeof lx_shufflers[0] };


/* ---- Records ------------------------------------------------------------------------------------------------------- */

/* Shuffle a record, or undo it. The last block has what whole items are left, and the bytes behind them stay as they
   are, at the end. dst and src share no memory. */
static inline void lx_shuffle_record(const lx_shuffler* kernel, int undo, uint8_t* dst, const uint8_t* src,
                                     size_t n_bytes, size_t item) {
    const size_t per_block = LX_SHUFFLE_BLOCK / item, n = n_bytes / item;
    size_t i, at;
    for (i = 0; i < n; i += per_block) {
        at = i * item;
        (undo ? kernel->unshuffle : kernel->shuffle)(dst + at, src + at, n - i < per_block ? n - i : per_block, item);
    }
    at = n * item;
    if (at < n_bytes)
        memcpy(dst + at, src + at, n_bytes - at);
}

#endif
