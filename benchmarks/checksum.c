/* Checksums and copies of memory, without Python around each: the kernels of loaderx/_core/xxh3.h, and memcpy.
 *
 * Compiled when the benchmark starts: cc -O3 -shared -fPIC -I loaderx/_core.
 */
#include "xxh3.h"

int64_t checksum_kernels(void) { return LX_KERNELS; }

/* The name of a kernel, NULL where this processor lacks the instructions. */
const char *checksum_kernel(int64_t kernel) { return lx_kernels[kernel].works() ? lx_kernels[kernel].name : NULL; }

/* Go `rounds` times over n records of src: copy each to dst, which moves on by `dst_step` from one to the next, and take
 * its checksum with a kernel; without a dst the checksum alone, and without a kernel (-1) the copy alone. */
uint64_t checksum_run(int64_t kernel, uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t record_bytes,
                      int64_t n, int64_t rounds)
{
    uint64_t sum = 0;
    for (int64_t round = 0; round < rounds; round++)
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *record = src + i * record_bytes;
            if (kernel < 0) {
                memcpy(dst + i * dst_step, record, (size_t)record_bytes);
                __asm__ volatile("" : : "r"(dst) : "memory");  /* somebody may look at every copy */
            } else if (dst) {
                sum += lx_xxh3_copy(&lx_kernels[kernel], dst + i * dst_step, record, (size_t)record_bytes);
            } else {
                sum += lx_xxh3(&lx_kernels[kernel], record, (size_t)record_bytes);
            }
        }
    return sum;
}
