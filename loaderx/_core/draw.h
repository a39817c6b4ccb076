/* Index draws: what index stands at a position of an endless sequence, as a pure function of keys and the position.

   Three modes. Sequential: the position modulo the length. IID: a word of a counter-based generator, the position being
   the counter, brought into range without bias. Cyclic: cycle after cycle, each a permutation of its own. Here are the
   plan of a sequence and the way from a step to its batch; draw_word.h has the words and keys, draw_iid.h and
   draw_cycle.h the draws, one at a time, and draw_lanes.h many at a time, compiled once for each instruction set. All
   give the same. */

#ifndef LOADERX_DRAW_H
#define LOADERX_DRAW_H

#include "draw_word.h"
#include "draw_iid.h"
#include "draw_cycle.h"

enum { LX_SEQUENTIAL, LX_IID, LX_CYCLIC };

/* Up to this length draws are made of 32-bit words (IID) and of 16-bit numbers (cyclic), above of twice as many bits. */
#define LX_NARROW_LENGTH ((uint64_t)1 << 24)

/* One way to draw n indices from position `at` on: of the whole sequence (IID), or of a cycle. */
typedef struct {
    const char* name;
    void (*iid_narrow)(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at);
    void (*iid_wide)(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at);
    void (*cycle_narrow)(uint64_t* out, size_t n, const lx_cycle* cycle, uint64_t at);
    void (*cycle_wide)(uint64_t* out, size_t n, const lx_cycle* cycle, uint64_t at);
    int (*works)(void);         /* whether this processor has the instructions */
} lx_drawer;


/* ---- One at a time -------------------------------------------------------------------------------------------------- */

static void lx_iid_narrow_portable(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at) {
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = lx_draw_narrow(iid, at + i);
}

static void lx_iid_wide_portable(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at) {
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = lx_draw_wide(iid, at + i);
}

/* Round by round for a block of places: loops in which compilers find what instructions there are. */
enum { LX_BLOCK = 64 };

#define LX_CYCLE_PORTABLE(WIDTH, INTEGER) \
    static void LX_JOIN(lx_cycle_, LX_JOIN(WIDTH, _portable))(uint64_t* out, size_t n, const lx_cycle* cycle, \
                                                              uint64_t at) { \
        const INTEGER rows = (INTEGER)cycle->grid->rows, columns = (INTEGER)cycle->grid->columns; \
        uint64_t row = at / columns, column = at % columns; \
        size_t i, k; \
        for (i = 0; i < n; i += LX_BLOCK) { \
            const size_t here = n - i < LX_BLOCK ? n - i : LX_BLOCK; \
            INTEGER x[LX_BLOCK], y[LX_BLOCK]; \
            int round; \
            for (k = 0; k < LX_BLOCK; k++) { \
                x[k] = (INTEGER)row; \
                y[k] = (INTEGER)column; \
                if (++column == columns) { \
                    column = 0; \
                    row++; \
                } \
            } \
            for (round = 0; round < cycle->grid->n_rounds; round += 2) { \
                const uint32_t *to_rows = cycle->keys[round], *to_columns = cycle->keys[round + 1]; \
                for (k = 0; k < LX_BLOCK; k++) \
                    x[k] = (INTEGER)lx_wrap((uint64_t)x[k] + LX_JOIN(lx_move_, WIDTH)(y[k], to_rows, rows), rows); \
                for (k = 0; k < LX_BLOCK; k++) \
                    y[k] = (INTEGER)lx_wrap((uint64_t)y[k] + LX_JOIN(lx_move_, WIDTH)(x[k], to_columns, columns), \
                                            columns); \
            } \
            for (k = 0; k < here; k++) { \
                const uint64_t number = (uint64_t)x[k] * columns + y[k]; \
                out[i + k] = number < cycle->grid->length ? number : LX_JOIN(lx_place_, WIDTH)(cycle, number); \
            } \
        } \
    }

LX_CYCLE_PORTABLE(narrow, uint16_t)
LX_CYCLE_PORTABLE(wide, uint32_t)

static int lx_draws_portable(void) { return 1; }


/* ---- Many at a time ------------------------------------------------------------------------------------------------- */

#ifdef LX_X86

/* What draw_lanes.h needs for each. LXD_LANES are lanes of 64 bits. LXD_WRAP brings numbers below twice the limit below
   the limit, by subtracting it; LXD_SIGN is all ones where a lane is negative, else zero. LXD_ANY_BELOW: whether the lower
   32 bits of a lane of two vectors are below a bound; LXD_ANY_NEGATIVE: whether a lane is negative. LXD_STORE_HIGH stores
   the upper 32 bits of the lanes of two vectors in turn, each as a number of 64 bits. */
#define LXD_KERNEL sse2
#define LXD_TARGET
#define LXD_WORKS 1
#define LXD __m128i
#define LXD_LANES 2
#define LXD_LOAD(at) _mm_loadu_si128((const __m128i*)(at))
#define LXD_STORE(at, v) _mm_storeu_si128((__m128i*)(at), v)
#define LXD_SET64(x) _mm_set1_epi64x((long long)(x))
#define LXD_SET32(x) _mm_set1_epi32((int)(x))
#define LXD_SET16(x) _mm_set1_epi16((short)(x))
#define LXD_ADD64(a, b) _mm_add_epi64(a, b)
#define LXD_SUB64(a, b) _mm_sub_epi64(a, b)
#define LXD_ADD32(a, b) _mm_add_epi32(a, b)
#define LXD_SUB32(a, b) _mm_sub_epi32(a, b)
#define LXD_ADD16(a, b) _mm_add_epi16(a, b)
#define LXD_SUB16(a, b) _mm_sub_epi16(a, b)
#define LXD_AND(a, b) _mm_and_si128(a, b)
#define LXD_XOR(a, b) _mm_xor_si128(a, b)
#define LXD_XOR3(a, b, c) _mm_xor_si128(_mm_xor_si128(a, b), c)
#define LXD_RIGHT(a, bits) _mm_srli_epi64(a, bits)
#define LXD_LEFT(a, bits) _mm_slli_epi64(a, bits)
#define LXD_MUL32(a, b) _mm_mul_epu32(a, b)
#define LXD_SIGN16(a) _mm_srai_epi16(a, 15)
#define LXD_SIGN64(a) _mm_shuffle_epi32(_mm_srai_epi32(a, 31), 0xF5)
#define LXD_LOW16(a, b) _mm_mullo_epi16(a, b)
#define LXD_HIGH16(a, b) _mm_mulhi_epu16(a, b)
#define LXD_WRAP16(v, limit) _mm_sub_epi16(v, _mm_andnot_si128(_mm_cmpgt_epi16(limit, v), limit))
#define LXD_WRAP64(v, limit) lx_wrap_sse2(v, limit)
#define LXD_ZIP_LOW16(a, b) _mm_unpacklo_epi16(a, b)
#define LXD_ZIP_HIGH16(a, b) _mm_unpackhi_epi16(a, b)
#define LXD_ZIP_LOW32(a, b) _mm_unpacklo_epi32(a, b)
#define LXD_ZIP_HIGH32(a, b) _mm_unpackhi_epi32(a, b)
#define LXD_ANY_NEGATIVE(v) (_mm_movemask_pd(_mm_castsi128_pd(v)) != 0)
#define LXD_ANY_NEGATIVE32(v) (_mm_movemask_ps(_mm_castsi128_ps(v)) != 0)
#define LXD_ANY_BELOW(a, b, bound) LXD_ANY_NEGATIVE(LXD_OR( \
        LXD_SUB64(LXD_AND(a, LXD_SET64(0xFFFFFFFF)), bound), LXD_SUB64(LXD_AND(b, LXD_SET64(0xFFFFFFFF)), bound)))
#define LXD_OR(a, b) _mm_or_si128(a, b)
#define LXD_STORE_HIGH(at, a, b) do { \
        const __m128i upper_a = _mm_srli_epi64(a, 32), upper_b = _mm_srli_epi64(b, 32); \
        LXD_STORE(at, _mm_unpacklo_epi64(upper_a, upper_b)); \
        LXD_STORE((at) + 2, _mm_unpackhi_epi64(upper_a, upper_b)); \
    } while (0)

LX_INLINE __m128i lx_wrap_sse2(__m128i v, __m128i limit) {
    const __m128i less = _mm_sub_epi64(v, limit);
    const __m128i negative = _mm_shuffle_epi32(_mm_srai_epi32(less, 31), 0xF5);
    return _mm_add_epi64(less, _mm_and_si128(negative, limit));
}

#include "draw_lanes.h"

#define LXD_KERNEL avx2
#define LXD_TARGET __attribute__((target("avx2")))
#define LXD_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx2"))
#define LXD __m256i
#define LXD_LANES 4
#define LXD_LOAD(at) _mm256_loadu_si256((const __m256i*)(at))
#define LXD_STORE(at, v) _mm256_storeu_si256((__m256i*)(at), v)
#define LXD_SET64(x) _mm256_set1_epi64x((long long)(x))
#define LXD_SET32(x) _mm256_set1_epi32((int)(x))
#define LXD_SET16(x) _mm256_set1_epi16((short)(x))
#define LXD_ADD64(a, b) _mm256_add_epi64(a, b)
#define LXD_SUB64(a, b) _mm256_sub_epi64(a, b)
#define LXD_ADD32(a, b) _mm256_add_epi32(a, b)
#define LXD_SUB32(a, b) _mm256_sub_epi32(a, b)
#define LXD_ADD16(a, b) _mm256_add_epi16(a, b)
#define LXD_SUB16(a, b) _mm256_sub_epi16(a, b)
#define LXD_AND(a, b) _mm256_and_si256(a, b)
#define LXD_XOR(a, b) _mm256_xor_si256(a, b)
#define LXD_XOR3(a, b, c) _mm256_xor_si256(_mm256_xor_si256(a, b), c)
#define LXD_RIGHT(a, bits) _mm256_srli_epi64(a, bits)
#define LXD_LEFT(a, bits) _mm256_slli_epi64(a, bits)
#define LXD_MUL32(a, b) _mm256_mul_epu32(a, b)
#define LXD_SIGN16(a) _mm256_srai_epi16(a, 15)
#define LXD_SIGN64(a) _mm256_shuffle_epi32(_mm256_srai_epi32(a, 31), 0xF5)
#define LXD_LOW16(a, b) _mm256_mullo_epi16(a, b)
#define LXD_HIGH16(a, b) _mm256_mulhi_epu16(a, b)
#define LXD_WRAP16(v, limit) _mm256_min_epu16(v, _mm256_sub_epi16(v, limit))
#define LXD_WRAP64(v, limit) lx_wrap_avx2(v, limit)
#define LXD_ZIP_LOW16(a, b) _mm256_unpacklo_epi16(a, b)
#define LXD_ZIP_HIGH16(a, b) _mm256_unpackhi_epi16(a, b)
#define LXD_ZIP_LOW32(a, b) _mm256_unpacklo_epi32(a, b)
#define LXD_ZIP_HIGH32(a, b) _mm256_unpackhi_epi32(a, b)
#define LXD_ANY_NEGATIVE(v) (_mm256_movemask_pd(_mm256_castsi256_pd(v)) != 0)
#define LXD_ANY_NEGATIVE32(v) (_mm256_movemask_ps(_mm256_castsi256_ps(v)) != 0)
#define LXD_ANY_BELOW(a, b, bound) lx_any_below_avx2(_mm256_min_epu32(a, b), bound)
#define LXD_OR(a, b) _mm256_or_si256(a, b)
#define LXD_STORE_HIGH(at, a, b) do { \
        const __m256i upper_a = _mm256_srli_epi64(a, 32), upper_b = _mm256_srli_epi64(b, 32); \
        const __m256i low = _mm256_unpacklo_epi64(upper_a, upper_b), high = _mm256_unpackhi_epi64(upper_a, upper_b); \
        LXD_STORE(at, _mm256_permute2x128_si256(low, high, 0x20)); \
        LXD_STORE((at) + 4, _mm256_permute2x128_si256(low, high, 0x31)); \
    } while (0)

__attribute__((target("avx2"))) LX_INLINE __m256i lx_wrap_avx2(__m256i v, __m256i limit) {
    const __m256i less = _mm256_sub_epi64(v, limit);
    const __m256i negative = _mm256_shuffle_epi32(_mm256_srai_epi32(less, 31), 0xF5);
    return _mm256_add_epi64(less, _mm256_and_si256(negative, limit));
}

__attribute__((target("avx2"))) LX_INLINE int lx_any_below_avx2(__m256i v, __m256i bound) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_max_epu32(v, bound), v)) != -1;
}

#include "draw_lanes.h"

#define LXD_KERNEL avx512
#define LXD_TARGET __attribute__((target("avx512f,avx512bw,avx512dq")))
#define LXD_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") \
        && __builtin_cpu_supports("avx512dq"))
#define LXD __m512i
#define LXD_LANES 8
#define LXD_LOAD(at) _mm512_loadu_si512(at)
#define LXD_STORE(at, v) _mm512_storeu_si512(at, v)
#define LXD_SET64(x) _mm512_set1_epi64((long long)(x))
#define LXD_SET32(x) _mm512_set1_epi32((int)(x))
#define LXD_SET16(x) _mm512_set1_epi16((short)(x))
#define LXD_ADD64(a, b) _mm512_add_epi64(a, b)
#define LXD_SUB64(a, b) _mm512_sub_epi64(a, b)
#define LXD_ADD32(a, b) _mm512_add_epi32(a, b)
#define LXD_SUB32(a, b) _mm512_sub_epi32(a, b)
#define LXD_ADD16(a, b) _mm512_add_epi16(a, b)
#define LXD_SUB16(a, b) _mm512_sub_epi16(a, b)
#define LXD_AND(a, b) _mm512_and_si512(a, b)
#define LXD_XOR(a, b) _mm512_xor_si512(a, b)
#define LXD_XOR3(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define LXD_RIGHT(a, bits) _mm512_srli_epi64(a, bits)
#define LXD_LEFT(a, bits) _mm512_slli_epi64(a, bits)
#define LXD_MUL32(a, b) _mm512_mul_epu32(a, b)
#define LXD_MUL64(a, b, b_high) _mm512_mullo_epi64(a, b)
#define LXD_SIGN16(a) _mm512_srai_epi16(a, 15)
#define LXD_SIGN64(a) _mm512_srai_epi64(a, 63)
#define LXD_LOW16(a, b) _mm512_mullo_epi16(a, b)
#define LXD_HIGH16(a, b) _mm512_mulhi_epu16(a, b)
#define LXD_WRAP16(v, limit) _mm512_min_epu16(v, _mm512_sub_epi16(v, limit))
#define LXD_WRAP64(v, limit) _mm512_min_epu64(v, _mm512_sub_epi64(v, limit))
#define LXD_ZIP_LOW16(a, b) _mm512_unpacklo_epi16(a, b)
#define LXD_ZIP_HIGH16(a, b) _mm512_unpackhi_epi16(a, b)
#define LXD_ZIP_LOW32(a, b) _mm512_unpacklo_epi32(a, b)
#define LXD_ZIP_HIGH32(a, b) _mm512_unpackhi_epi32(a, b)
#define LXD_ANY_NEGATIVE(v) (_mm512_movepi64_mask(v) != 0)
#define LXD_ANY_NEGATIVE32(v) (_mm512_movepi32_mask(v) != 0)
#define LXD_ANY_BELOW(a, b, bound) (_mm512_cmplt_epu32_mask(_mm512_min_epu32(a, b), bound) != 0)
#define LXD_OR(a, b) _mm512_or_si512(a, b)
#define LXD_STORE_HIGH(at, a, b) do { \
        LXD_STORE(at, _mm512_maskz_permutex2var_epi32(0x5555, a, _mm512_loadu_si512(lx_upper_first), b)); \
        LXD_STORE((at) + 8, _mm512_maskz_permutex2var_epi32(0x5555, a, _mm512_loadu_si512(lx_upper_second), b)); \
    } while (0)

/* The upper halves of lanes 0 to 3 (then 4 to 7) of two vectors in turn; what comes between is set to zero. */
static const uint32_t lx_upper_first[16] = {1, 0, 17, 0, 3, 0, 19, 0, 5, 0, 21, 0, 7, 0, 23, 0};
static const uint32_t lx_upper_second[16] = {9, 0, 25, 0, 11, 0, 27, 0, 13, 0, 29, 0, 15, 0, 31, 0};

#include "draw_lanes.h"

#endif

/* Best first. The last works everywhere. */
static const lx_drawer lx_drawers[] = {
#ifdef LX_X86
    {"avx512", lx_iid_narrow_avx512, lx_iid_wide_avx512, lx_cycle_narrow_avx512, lx_cycle_wide_avx512, lx_draws_avx512},
    {"avx2", lx_iid_narrow_avx2, lx_iid_wide_avx2, lx_cycle_narrow_avx2, lx_cycle_wide_avx2, lx_draws_avx2},
    {"sse2", lx_iid_narrow_sse2, lx_iid_wide_sse2, lx_cycle_narrow_sse2, lx_cycle_wide_sse2, lx_draws_sse2},
#endif
    {"portable", lx_iid_narrow_portable, lx_iid_wide_portable, lx_cycle_narrow_portable, lx_cycle_wide_portable,
     lx_draws_portable},
};

enum { LX_DRAWERS = sizeof lx_drawers / sizeof lx_drawers[0] };


/* ---- Batches -------------------------------------------------------------------------------------------------------- */

/* A sequence, and which part of each batch is drawn here. Positions are below 2^63: who asks has seen to that. */
typedef struct {
    int mode;
    uint64_t length;
    uint64_t global_batch;      /* positions from one step to the next */
    uint64_t first;             /* where in them the part begins */
    uint64_t steps_per_cycle;   /* 0: cycles follow each other without a gap */
    lx_iid iid;
    lx_grid grid;
    lx_key cycles;              /* its words are the first keys of the cycles ... */
    uint64_t within;            /* ... and this is their second */
} lx_plan;

static void lx_set_plan(lx_plan* plan, int mode, uint64_t length, uint64_t seed) {
    const uint64_t base = lx_mix(seed + LX_STEP);
    plan->mode = mode;
    plan->length = length;
    plan->iid.length = length;
    plan->iid.least = (0 - length) % length;
    plan->iid.least_narrow = (uint32_t)((0 - (uint32_t)length) % length);
    plan->iid.key.first = lx_mix(base + 1 * LX_STEP);
    plan->iid.key.second = lx_mix(base + 2 * LX_STEP);
    plan->cycles.first = lx_mix(base + 3 * LX_STEP);
    plan->cycles.second = lx_mix(base + 4 * LX_STEP);
    plan->within = lx_mix(base + 5 * LX_STEP);
    lx_set_grid(&plan->grid, length);
}

static void lx_fill_sequential(uint64_t* out, size_t n, uint64_t length, uint64_t at) {
    size_t i = 0, k;
    uint64_t first = at % length;
    for (; i < n; first = 0) {
        const size_t run = length - first < n - i ? (size_t)(length - first) : n - i;
        for (k = 0; k < run; k++)
            out[i + k] = first + k;
        i += run;
    }
}

/* n places from `at` on of one cycle. */
static void lx_fill_cycle(const lx_drawer* kernel, const lx_plan* plan, uint64_t* out, size_t n, uint64_t number,
                          uint64_t at) {
    lx_cycle cycle;
    lx_key key;
    key.first = lx_word(plan->cycles, number);
    key.second = plan->within;
    if (plan->length <= LX_SHUFFLED_LENGTH) {
        lx_shuffle_cycle(out, n, key, (size_t)plan->length, (size_t)at);
    } else if (plan->length <= LX_NARROW_LENGTH) {
        lx_set_cycle_narrow(&cycle, &plan->grid, key);
        kernel->cycle_narrow(out, n, &cycle, at);
    } else {
        lx_set_cycle_wide(&cycle, &plan->grid, key);
        kernel->cycle_wide(out, n, &cycle, at);
    }
}

/* The n indices of this part of a step's batch. */
static void lx_fill_batch(const lx_drawer* kernel, const lx_plan* plan, uint64_t* out, size_t n, uint64_t step) {
    uint64_t at = step * plan->global_batch + plan->first, number;
    if (plan->mode == LX_SEQUENTIAL) {
        lx_fill_sequential(out, n, plan->length, at);
    } else if (plan->mode == LX_IID) {
        (plan->length <= LX_NARROW_LENGTH ? kernel->iid_narrow : kernel->iid_wide)(out, n, &plan->iid, at);
    } else if (plan->steps_per_cycle) {
        number = step / plan->steps_per_cycle;
        at = step % plan->steps_per_cycle * plan->global_batch + plan->first;
        lx_fill_cycle(kernel, plan, out, n, number, at);
    } else {
        for (number = at / plan->length, at %= plan->length; n; number++, at = 0) {
            const size_t run = plan->length - at < n ? (size_t)(plan->length - at) : n;
            lx_fill_cycle(kernel, plan, out, run, number, at);
            out += run;
            n -= run;
        }
    }
}

#endif
