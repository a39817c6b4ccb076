/* XXH3-64 with seed 0 and the default secret, written from its public specification
   (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), alone or in the same pass as a copy.

   Inputs of up to 240 bytes are hashed by one piece of portable C, with mix_* after the specification's names. Longer
   ones go through a kernel, of which there is one for each instruction set: xxh3_long.h is compiled once for each.
   Nothing here reads a byte outside the input. Little-endian machines only, as the whole core. */

#ifndef LOADERX_XXH3_H
#define LOADERX_XXH3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

#if defined(__GNUC__) || defined(__clang__)
  #define LX_ALIGNED __attribute__((aligned(64)))
  #define LX_PIN(word) __asm__("" : "+r"(word))
#else
  #define LX_ALIGNED
  #define LX_PIN(word) ((void)0)
#endif

#define LX_PRIME32_1 0x9E3779B1u
#define LX_PRIME32_2 0x85EBCA77u
#define LX_PRIME32_3 0xC2B2AE3Du
#define LX_PRIME64_1 0x9E3779B185EBCA87u
#define LX_PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define LX_PRIME64_3 0x165667B19E3779F9u
#define LX_PRIME64_4 0x85EBCA77C2B2AE63u
#define LX_PRIME64_5 0x27D4EB2F165667C5u
#define LX_PRIME_MX1 0x165667919E3779F9u
#define LX_PRIME_MX2 0x9FB21C651E98DF25u

enum {
    LX_SHORT = 240,             /* the longest input that goes through no kernel */
    LX_STRIPE = 64,             /* what a kernel takes at a time: eight lanes of eight bytes */
    LX_LANES = 8,
    LX_BLOCK_STRIPES = 16,      /* after so many the lanes are scrambled */
    LX_BLOCK = LX_STRIPE * LX_BLOCK_STRIPES,
    LX_KEY_STEP = 8,            /* by so much the secret moves on from stripe to stripe */
    LX_SCRAMBLE_KEY = 128,
    LX_LAST_KEY = 121,
    LX_MERGE_KEY = 11
};

LX_ALIGNED static const uint8_t lx_secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

LX_ALIGNED static const uint64_t lx_first_lanes[LX_LANES] = {
    LX_PRIME32_3, LX_PRIME64_1, LX_PRIME64_2, LX_PRIME64_3, LX_PRIME64_4, LX_PRIME32_2, LX_PRIME64_5, LX_PRIME32_1,
};


/* ---- Words ---------------------------------------------------------------------------------------------------- */

LX_INLINE uint32_t lx_read32(const uint8_t* at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

LX_INLINE uint64_t lx_read64(const uint8_t* at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

LX_INLINE uint64_t lx_rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

LX_INLINE uint64_t lx_swap_bytes(uint64_t x) {
    x = (x & 0x00FF00FF00FF00FFu) << 8 | (x >> 8 & 0x00FF00FF00FF00FFu);
    x = (x & 0x0000FFFF0000FFFFu) << 16 | (x >> 16 & 0x0000FFFF0000FFFFu);
    return x << 32 | x >> 32;
}

/* Both halves of the 128-bit product, xored. */
LX_INLINE uint64_t lx_fold(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    const uint64_t low = (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
    const uint64_t cross = (a >> 32) * (b & 0xFFFFFFFFu) + (low >> 32);
    const uint64_t middle = (a & 0xFFFFFFFFu) * (b >> 32) + (cross & 0xFFFFFFFFu);
    return (middle << 32 | (low & 0xFFFFFFFFu)) ^ ((a >> 32) * (b >> 32) + (cross >> 32) + (middle >> 32));
#endif
}

LX_INLINE uint64_t lx_avalanche(uint64_t x) {
    x = (x ^ x >> 37) * LX_PRIME_MX1;
    return x ^ x >> 32;
}

LX_INLINE uint64_t lx_avalanche_xxh64(uint64_t x) {
    x = (x ^ x >> 33) * LX_PRIME64_2;
    x = (x ^ x >> 29) * LX_PRIME64_3;
    return x ^ x >> 32;
}

/* Two words of the secret, xored. */
LX_INLINE uint64_t lx_key(int at) { return lx_read64(lx_secret + at) ^ lx_read64(lx_secret + at + 8); }


/* ---- Up to 240 bytes -------------------------------------------------------------------------------------------- */

LX_INLINE uint64_t lx_mix16(const uint8_t* at, const uint8_t* secret) {
    return lx_fold(lx_read64(at) ^ lx_read64(secret), lx_read64(at + 8) ^ lx_read64(secret + 8));
}

LX_INLINE uint64_t lx_hash_9_to_16(const uint8_t* src, size_t n) {
    const uint64_t low = lx_key(24) ^ lx_read64(src);
    const uint64_t high = lx_key(40) ^ lx_read64(src + n - 8);
    return lx_avalanche(n + lx_swap_bytes(low) + high + lx_fold(low, high));
}

static inline uint64_t lx_hash_short(const uint8_t* src, size_t n) {
    uint64_t x;
    size_t i;
    if (n == 0)
        return lx_avalanche_xxh64(lx_key(56));
    if (n <= 3) {
        x = (uint32_t)src[n - 1] | (uint32_t)n << 8 | (uint32_t)src[0] << 16 | (uint32_t)src[n >> 1] << 24;
        return lx_avalanche_xxh64(x ^ lx_read32(lx_secret) ^ lx_read32(lx_secret + 4));
    }
    if (n <= 8) {
        x = lx_key(8) ^ (lx_read32(src + n - 4) | (uint64_t)lx_read32(src) << 32);
        x = (x ^ lx_rotate(x, 49) ^ lx_rotate(x, 24)) * LX_PRIME_MX2;
        x = (x ^ ((x >> 35) + n)) * LX_PRIME_MX2;
        return x ^ x >> 28;
    }
    if (n <= 16)
        return lx_hash_9_to_16(src, n);
    x = n * LX_PRIME64_1;
    if (n <= 128) {
        for (i = 0; 32 * i < n; i++) {
            x += lx_mix16(src + 16 * i, lx_secret + 32 * i);
            x += lx_mix16(src + n - 16 * (i + 1), lx_secret + 32 * i + 16);
        }
        return lx_avalanche(x);
    }
    for (i = 0; i < 8; i++)
        x += lx_mix16(src + 16 * i, lx_secret + 16 * i);
    x = lx_avalanche(x);
    for (; i < n / 16; i++)
        x += lx_mix16(src + 16 * i, lx_secret + 16 * (i - 8) + 3);
    x += lx_mix16(src + n - 16, lx_secret + 119);
    return lx_avalanche(x);
}


/* ---- Longer: the kernels ------------------------------------------------------------------------------------------ */

LX_INLINE uint64_t lx_merge(const uint64_t* lanes, uint64_t n) {
    const uint8_t* key = lx_secret + LX_MERGE_KEY;
    uint64_t x = n * LX_PRIME64_1;
    int i;
    for (i = 0; i < LX_LANES; i += 2)
        x += lx_fold(lanes[i] ^ lx_read64(key + 8 * i), lanes[i + 1] ^ lx_read64(key + 8 * i + 8));
    return lx_avalanche(x);
}

/* One way to hash more than 240 bytes. */
typedef struct {
    const char* name;
    uint64_t (*hash)(const uint8_t* src, size_t n);
    uint64_t (*copy)(uint8_t* dst, const uint8_t* src, size_t n);  /* the hash of what arrived in dst */
    int (*works)(void);                                            /* whether this processor has the instructions */
} lx_kernel;

/* What xxh3_long.h needs for each: a name, the vector, and its operations on lanes of 64 bits. LXV_MULTIPLY multiplies the
   lower halves of the lanes, and LXV_SWAP exchanges the two of each pair. LXV_PIN has the compiler keep a vector where
   it is: otherwise it loads inputs twice, and regroups the sums until it runs out of registers (a third of the speed). */
#ifdef LX_X86
  #define LXV_KERNEL avx512
  #define LXV_TARGET __attribute__((target("avx512f")))
  #define LXV_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx512f"))
  #define LXV __m512i
  #define LXV_PIN(v) __asm__("" : "+v"(v))
  #define LXV_APART 1
  #define LXV_LOAD(at) _mm512_loadu_si512(at)
  #define LXV_STORE(at, v) _mm512_storeu_si512(at, v)
  #define LXV_SET(x) _mm512_set1_epi64((long long)(x))
  #define LXV_ADD(a, b) _mm512_add_epi64(a, b)
  #define LXV_XOR(a, b) _mm512_xor_si512(a, b)
  #define LXV_RIGHT(v, by) _mm512_srli_epi64(v, by)
  #define LXV_LEFT(v, by) _mm512_slli_epi64(v, by)
  #define LXV_MULTIPLY(a, b) _mm512_mul_epu32(a, b)
  #define LXV_SWAP(v) _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)_MM_SHUFFLE(1, 0, 3, 2))
  #include "xxh3_long.h"

  #define LXV_KERNEL avx2
  #define LXV_TARGET __attribute__((target("avx2")))
  #define LXV_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx2"))
  #define LXV __m256i
  #define LXV_PIN(v) __asm__("" : "+x"(v))
  #define LXV_APART 1
  #define LXV_LOAD(at) _mm256_loadu_si256((const __m256i*)(at))
  #define LXV_STORE(at, v) _mm256_storeu_si256((__m256i*)(at), v)
  #define LXV_SET(x) _mm256_set1_epi64x((long long)(x))
  #define LXV_ADD(a, b) _mm256_add_epi64(a, b)
  #define LXV_XOR(a, b) _mm256_xor_si256(a, b)
  #define LXV_RIGHT(v, by) _mm256_srli_epi64(v, by)
  #define LXV_LEFT(v, by) _mm256_slli_epi64(v, by)
  #define LXV_MULTIPLY(a, b) _mm256_mul_epu32(a, b)
  #define LXV_SWAP(v) _mm256_shuffle_epi32(v, _MM_SHUFFLE(1, 0, 3, 2))
  #include "xxh3_long.h"

  #define LXV_KERNEL sse2
  #define LXV_TARGET
  #define LXV_WORKS 1
  #define LXV __m128i
  #define LXV_PIN(v) __asm__("" : "+x"(v))
  #define LXV_APART 1
  #define LXV_LOAD(at) _mm_loadu_si128((const __m128i*)(at))
  #define LXV_STORE(at, v) _mm_storeu_si128((__m128i*)(at), v)
  #define LXV_SET(x) _mm_set1_epi64x((long long)(x))
  #define LXV_ADD(a, b) _mm_add_epi64(a, b)
  #define LXV_XOR(a, b) _mm_xor_si128(a, b)
  #define LXV_RIGHT(v, by) _mm_srli_epi64(v, by)
  #define LXV_LEFT(v, by) _mm_slli_epi64(v, by)
  #define LXV_MULTIPLY(a, b) _mm_mul_epu32(a, b)
  #define LXV_SWAP(v) _mm_shuffle_epi32(v, _MM_SHUFFLE(1, 0, 3, 2))
  #include "xxh3_long.h"
#endif

/* Two lanes at a time, as the smallest vector has them. */
typedef struct {
    uint64_t lane[2];
} lx_pair;

LX_INLINE void lx_write_pair(uint8_t* at, lx_pair pair) {
    memcpy(at, &pair.lane[0], 8);
    memcpy(at + 8, &pair.lane[1], 8);
}

LX_INLINE lx_pair lx_pair_of(uint64_t a, uint64_t b) {
    const lx_pair pair = {{a, b}};
    return pair;
}

#define LXV_KERNEL portable
#define LXV_TARGET
#define LXV_WORKS 1
#define LXV lx_pair
#define LXV_PIN(v) LX_PIN((v).lane[0]); LX_PIN((v).lane[1])
#define LXV_APART 0
#define LXV_LOAD(at) lx_pair_of(lx_read64((const uint8_t*)(at)), lx_read64((const uint8_t*)(at) + 8))
#define LXV_STORE(at, v) lx_write_pair(at, v)
#define LXV_SET(x) lx_pair_of(x, x)
#define LXV_ADD(a, b) lx_pair_of((a).lane[0] + (b).lane[0], (a).lane[1] + (b).lane[1])
#define LXV_XOR(a, b) lx_pair_of((a).lane[0] ^ (b).lane[0], (a).lane[1] ^ (b).lane[1])
#define LXV_RIGHT(v, by) lx_pair_of((v).lane[0] >> (by), (v).lane[1] >> (by))
#define LXV_LEFT(v, by) lx_pair_of((v).lane[0] << (by), (v).lane[1] << (by))
#define LXV_MULTIPLY(a, b) lx_pair_of((uint64_t)(uint32_t)(a).lane[0] * (uint32_t)(b).lane[0], \
                                      (uint64_t)(uint32_t)(a).lane[1] * (uint32_t)(b).lane[1])
#define LXV_SWAP(v) lx_pair_of((v).lane[1], (v).lane[0])
#include "xxh3_long.h"

/* Best first. The last works everywhere. */
static const lx_kernel lx_kernels[] = {
#ifdef LX_X86
    {"avx512", lx_hash_avx512, lx_copy_avx512, lx_works_avx512},
    {"avx2", lx_hash_avx2, lx_copy_avx2, lx_works_avx2},
    {"sse2", lx_hash_sse2, lx_copy_sse2, lx_works_sse2},
#endif
    {"portable", lx_hash_portable, lx_copy_portable, lx_works_portable},
};

enum { LX_KERNELS = sizeof lx_kernels / sizeof lx_kernels[0] };


/* ---- Any length --------------------------------------------------------------------------------------------------- */

static inline uint64_t lx_xxh3(const lx_kernel* kernel, const uint8_t* src, size_t n) {
    return n <= LX_SHORT ? lx_hash_short(src, n) : kernel->hash(src, n);
}

/* Copies too. The hash is that of the bytes in dst, also where somebody changes src meanwhile. */
static inline uint64_t lx_xxh3_copy(const lx_kernel* kernel, uint8_t* dst, const uint8_t* src, size_t n) {
    if (n > LX_SHORT)
        return kernel->copy(dst, src, n);
    if (n > 0)
        memcpy(dst, src, n);
    return lx_hash_short(dst, n);
}

#endif
