/* What the device itself gives: reads past the page cache, by as many threads as there are to be requests at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 256

typedef struct {
    int fd;
    const int64_t *offsets;
    int64_t count, n_bytes, next;
    int failed;
} Reads;

static void *read_some(void *argument) {
    Reads *reads = argument;
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, (size_t)reads->n_bytes) != 0) {
        reads->failed = 1;
        return NULL;
    }
    for (;;) {
        int64_t i = __atomic_fetch_add(&reads->next, 1, __ATOMIC_RELAXED);
        if (i >= reads->count) break;
        if (pread(reads->fd, buffer, (size_t)reads->n_bytes, (off_t)reads->offsets[i]) != reads->n_bytes) {
            reads->failed = 1;
            break;
        }
    }
    free(buffer);
    return NULL;
}

/* Read n_bytes at each offset, `depth` at a time; seconds, or -1 where the file cannot be read so. */
double cold_read(const char *path, const int64_t *offsets, int64_t count, int64_t n_bytes, int depth) {
    pthread_t threads[MOST_THREADS];
    struct timespec begin, end;
    Reads reads = {open(path, O_RDONLY | O_DIRECT), offsets, count, n_bytes, 0, 0};
    int started = 0;
    if (reads.fd < 0) return -1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (started < depth && started < MOST_THREADS) {
        if (pthread_create(&threads[started], NULL, read_some, &reads) != 0) break;
        started++;
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    close(reads.fd);
    if (reads.failed || started == 0) return -1;
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}
