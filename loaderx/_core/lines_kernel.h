/* A kernel of lines.h, which includes this once for each instruction set, with the LXN macros set; they end here. */

#define LXN_NAME(prefix) LX_JOIN(prefix, LXN_KERNEL)

LXN_TARGET static void LXN_NAME(lx_scan_lines_)(lx_lines* lines, const uint8_t* src, size_t n, uint64_t at) {
    uint8_t rest[LX_LINE_STEP];
    const uint8_t* from = src;  /* first byte here of the line that has not ended */
    size_t i;
    for (i = 0; i < n; i += LX_LINE_STEP) {
        uint64_t bits;
        if (n - i >= LX_LINE_STEP) {
            bits = LXN_NEWLINES(src + i);
        } else {
            memset(rest, 0, sizeof rest);
            memcpy(rest, src + i, n - i);
            bits = LXN_NEWLINES(rest);
        }
        for (; bits != 0; bits &= bits - 1) {
            const uint8_t* end = src + i + lx_lowest_bit(bits);
            lx_end_line(lines, from, end, at + (uint64_t)(end - src) + 1);
            from = end + 1;
        }
    }
    if (!lines->has_text)
        lines->has_text = lx_has_text(from, src + n);
}

static int LXN_NAME(lx_scans_)(void) { return LXN_WORKS; }

#undef LXN_NAME
#undef LXN_KERNEL
#undef LXN_TARGET
#undef LXN_WORKS
#undef LXN_NEWLINES
