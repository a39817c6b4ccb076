/* Byte shuffling in memory, without Python around each record: the kernels of loaderx/_core/shuffle.h, and memcpy.
 *
 * Compiled when the benchmark starts: cc -O3 -shared -fPIC -I loaderx/_core.
 */
#include "shuffle.h"

int64_t shuffle_kernels(void) { return LX_SHUFFLERS; }

/* The name of a kernel, NULL where this processor lacks the instructions. */
const char *shuffle_kernel(int64_t kernel) { return lx_shufflers[kernel].works() ? lx_shufflers[kernel].name : NULL; }

/* Go `rounds` times over n records of src and shuffle each into dst, or undo it; without a kernel (-1) copy it. */
void shuffle_run(int64_t kernel, int64_t undo, uint8_t *dst, const uint8_t *src, int64_t record_bytes, int64_t item_size,
                 int64_t n, int64_t rounds)
{
    for (int64_t round = 0; round < rounds; round++)
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *record = src + i * record_bytes;
            if (kernel < 0)
                memcpy(dst, record, (size_t)record_bytes);
            else
                lx_shuffle_record(&lx_shufflers[kernel], (int)undo, dst, record, (size_t)record_bytes, (size_t)item_size);
            __asm__ volatile("" : : "r"(dst) : "memory");  /* somebody may look at every record */
        }
}
