/* Finding the lines of a text: where each begins, how many bytes it has, and which hold nothing but blanks.

   A line ends behind "\n", and behind nothing else. It is blank if it has no byte but spaces, tabs, "\r" and its end.
   A kernel takes a block of bytes and appends a row for each line that ends in it and is not blank; what a line has in
   earlier blocks is in the state. There is one for each instruction set: lines_kernel.h is compiled once for each, and
   all give the same rows. Nothing here reads a byte outside the block. */

#ifndef LOADERX_LINES_H
#define LOADERX_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

enum { LX_LINE_STEP = 64 };     /* the bytes that a kernel looks at at a time: one bit each in a word */

/* Where a scan stands. Positions are those in the file. */
typedef struct {
    uint64_t file;              /* the number that goes into each row */
    uint64_t line_start;        /* first byte of the line that has not ended yet */
    int has_text;               /* whether that line is known not to be blank */
    uint64_t* rows;             /* three words for each line: file, first byte, number of bytes with its "\n" */
    int64_t n_rows;             /* there must be room for one line more with every two bytes of a block */
} lx_lines;

/* One way to scan a block of n bytes, the first of which is byte `at` of the file. */
typedef struct {
    const char* name;
    void (*scan)(lx_lines* lines, const uint8_t* src, size_t n, uint64_t at);
    int (*works)(void);         /* whether this processor has the instructions */
} lx_line_scanner;

LX_INLINE int lx_is_blank(uint8_t byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* Whether there is a byte from src to end that is not blank. Nearly always the first one is. */
LX_INLINE int lx_has_text(const uint8_t* src, const uint8_t* end) {
    while (src < end && lx_is_blank(*src))
        src++;
    return src < end;
}

/* Take the line end at `end`; `from` is the first byte of its line, or of the block where the line began earlier. */
LX_INLINE void lx_end_line(lx_lines* lines, const uint8_t* from, const uint8_t* end, uint64_t next_start) {
    if (lines->has_text || lx_has_text(from, end)) {
        uint64_t* row = lines->rows + 3 * lines->n_rows++;
        row[0] = lines->file;
        row[1] = lines->line_start;
        row[2] = next_start - lines->line_start;
    }
    lines->line_start = next_start;
    lines->has_text = 0;
}

/* The bits of the bytes of a word that are "\n". Exact: a sum of seven bits carries into no other byte. */
LX_INLINE uint64_t lx_newlines_of_word(const uint8_t* at) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word ^= 0x0a0a0a0a0a0a0a0au;
    word = ~(((word & low) + low) | word | low) >> 7;
    return word * 0x0102040810204080u >> 56;
}

LX_INLINE uint64_t lx_newlines_portable(const uint8_t* at) {
    uint64_t bits = 0;
    int i;
    for (i = 0; i < LX_LINE_STEP; i += 8)
        bits |= lx_newlines_of_word(at + i) << i;
    return bits;
}

/* The number of the lowest bit that is set; there is one. */
LX_INLINE int lx_lowest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(bits);
#else
    int n = 0;
    while (!(bits & 1)) {
        bits >>= 1;
        n++;
    }
    return n;
#endif
}

/* What lines_kernel.h needs for each: a name, and the bits of those of 64 bytes that are "\n". */
#ifdef LX_X86
  #define LXN_KERNEL avx512
  #define LXN_TARGET __attribute__((target("avx512bw")))
  #define LXN_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx512bw"))
  #define LXN_NEWLINES(at) _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(at), _mm512_set1_epi8('\n'))
  #include "lines_kernel.h"

  #define LX_NEWLINES_256(at) ((uint32_t)_mm256_movemask_epi8( \
      _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i*)(at)), _mm256_set1_epi8('\n'))))
  #define LXN_KERNEL avx2
  #define LXN_TARGET __attribute__((target("avx2")))
  #define LXN_WORKS (__builtin_cpu_init(), __builtin_cpu_supports("avx2"))
  #define LXN_NEWLINES(at) (LX_NEWLINES_256(at) | (uint64_t)LX_NEWLINES_256((at) + 32) << 32)
  #include "lines_kernel.h"

  #define LX_NEWLINES_128(at) ((uint64_t)(uint32_t)_mm_movemask_epi8( \
      _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i*)(at)), _mm_set1_epi8('\n'))))
  #define LXN_KERNEL sse2
  #define LXN_TARGET
  #define LXN_WORKS 1
  #define LXN_NEWLINES(at) (LX_NEWLINES_128(at) | LX_NEWLINES_128((at) + 16) << 16 | \
                            LX_NEWLINES_128((at) + 32) << 32 | LX_NEWLINES_128((at) + 48) << 48)
  #include "lines_kernel.h"
#endif

#define LXN_KERNEL portable
#define LXN_TARGET
#define LXN_WORKS 1
#define LXN_NEWLINES(at) lx_newlines_portable(at)
#include "lines_kernel.h"

/* Best first. The last works everywhere. */
static const lx_line_scanner lx_line_scanners[] = {
#ifdef LX_X86
    {"avx512", lx_scan_lines_avx512, lx_scans_avx512},
    {"avx2", lx_scan_lines_avx2, lx_scans_avx2},
    {"sse2", lx_scan_lines_sse2, lx_scans_sse2},
#endif
    {"portable", lx_scan_lines_portable, lx_scans_portable},
};

enum { LX_LINE_SCANNERS = sizeof lx_line_scanners / sizeof lx_line_scanners[0] };

#endif
