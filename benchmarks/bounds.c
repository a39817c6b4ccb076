/* The bounds a record store is measured against: the same work with no store around it.
 *
 * Compiled when a benchmark starts: cc -O3 -fopenmp -shared -fPIC, linked to the libzstd that pkg-config names.
 * Every function uses exactly `threads` threads, and its callers check every index first.
 */
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MAX_THREADS 64

static ZSTD_DCtx *decompressors[MAX_THREADS];
static ZSTD_CCtx *compressors[MAX_THREADS];

const char *bounds_zstd_version(void) { return ZSTD_versionString(); }

/* One context a thread, made once and kept; 0, or -1 when there is no memory or there are too many threads. */
int bounds_prepare(int threads)
{
    if (threads < 1 || threads > MAX_THREADS) return -1;
    for (int t = 0; t < threads; t++) {
        if (!decompressors[t]) decompressors[t] = ZSTD_createDCtx();
        if (!compressors[t]) compressors[t] = ZSTD_createCCtx();
        if (!decompressors[t] || !compressors[t]) return -1;
    }
    return 0;
}

/* Copy n records of an array to dst. */
void bounds_copy(const uint8_t *array, const int64_t *idxs, int64_t n, int64_t record_bytes, uint8_t *dst, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + i * record_bytes, array + idxs[i] * record_bytes, (size_t)record_bytes);
}

/* Decompress n frames to dst; frame k is at offsets[k] to offsets[k + 1]. Returns the number of frames that failed. */
int64_t bounds_decompress(const uint8_t *frames, const int64_t *offsets, const int64_t *idxs, int64_t n,
                          int64_t record_bytes, uint8_t *dst, int threads)
{
    int64_t failed = 0;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) reduction(+ : failed)
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *frame = frames + offsets[idxs[i]];
        size_t frame_bytes = (size_t)(offsets[idxs[i] + 1] - offsets[idxs[i]]);
        size_t written = ZSTD_decompressDCtx(decompressors[omp_get_thread_num()], dst + i * record_bytes,
                                             (size_t)record_bytes, frame, frame_bytes);
        failed += written != (size_t)record_bytes;
    }
    return failed;
}

/* Compress n records one by one and keep only their sizes; returns the sum of the frames' bytes, or -1. */
int64_t bounds_compress(const uint8_t *array, int64_t n, int64_t record_bytes, int level, int threads)
{
    size_t capacity = ZSTD_compressBound((size_t)record_bytes);
    uint8_t *scratch = malloc(capacity * (size_t)threads);
    int64_t total = 0, failed = 0;
    if (!scratch) return -1;
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads) reduction(+ : total, failed)
    for (int64_t i = 0; i < n; i++) {
        int t = omp_get_thread_num();
        size_t written = ZSTD_compressCCtx(compressors[t], scratch + (size_t)t * capacity, capacity,
                                           array + i * record_bytes, (size_t)record_bytes, level);
        if (ZSTD_isError(written)) failed++;
        else total += (int64_t)written;
    }
    free(scratch);
    return failed ? -1 : total;
}

/* Write n frames one behind the other, offsets[n + 1] with them, and return their bytes; -1 when dst is too small. */
int64_t bounds_build_frames(const uint8_t *array, int64_t n, int64_t record_bytes, int level, uint8_t *dst,
                            int64_t capacity, int64_t *offsets)
{
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t written = ZSTD_compressCCtx(compressors[0], dst + offsets[i], (size_t)(capacity - offsets[i]),
                                           array + i * record_bytes, (size_t)record_bytes, level);
        if (ZSTD_isError(written)) return -1;
        offsets[i + 1] = offsets[i] + (int64_t)written;
    }
    return offsets[n];
}
