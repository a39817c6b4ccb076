/* What the headers with a kernel for each instruction set have in common. */

#ifndef LOADERX_SIMD_H
#define LOADERX_SIMD_H

#if defined(__GNUC__) || defined(__clang__)
  #define LX_INLINE static inline __attribute__((always_inline))
#else
  #define LX_INLINE static inline
#endif

#define LX_JOIN(a, b) LX_JOIN_EXPANDED(a, b)
#define LX_JOIN_EXPANDED(a, b) a##b

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  #define LX_X86 1
  #include <immintrin.h>
#endif

#endif
