"""Batch compress for the write path, and dictionary training."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

from loaderx._core.checksum cimport checksum_of, copy_checksummed
from loaderx._core.layout cimport (
    CODEC_RAW,
    CODEC_ZSTD_DICT,
    CODEC_ZSTD_SHUFFLE,
    CODEC_ZSTD_SHUFFLE_DICT,
    MAX_ITEM_SIZE,
    MIN_ITEM_SIZE,
)
from loaderx._core.pool cimport Pool, pool_put, pool_take
from loaderx._core.scratch cimport KEPT_IN_ALL, KEPT_SCRATCH, Scratch, grow, shrink
from loaderx._core.shuffle cimport shuffle_record
from loaderx._core.threads cimport team_size
from loaderx._core.views cimport Views, release, take
from loaderx._core.zdict cimport ZDICT_getErrorName, ZDICT_isError, ZDICT_trainFromBuffer
from loaderx._core.zstd cimport (
    ZSTD_CCtx,
    ZSTD_CDict,
    ZSTD_compress_usingCDict,
    ZSTD_compressBound,
    ZSTD_compressCCtx,
    ZSTD_createCCtx,
    ZSTD_createCDict,
    ZSTD_freeCCtx,
    ZSTD_freeCDict,
    ZSTD_getErrorName,
    ZSTD_isError,
    ZSTD_maxCLevel,
    ZSTD_minCLevel,
    ZSTD_sizeof_CCtx,
)

cdef enum:
    # Compressing a byte takes about this much longer than copying it: how much work a batch is, told to `team_size`.
    COPIES_PER_BYTE = 16
    # A thread takes at most this many records at a time.
    MAX_SHARE = 4
    # zstd makes no dictionary below this size. Its trainer learns from the first three quarters of the samples and tries
    # the result on the rest, and crashes where it has a few bytes to learn from (1.5.4 and 1.5.7: up to 10).
    LEAST_SAMPLE_BYTES = 256


cdef struct Compressor:
    # What one thread of a call owns. Compressors are reused from call to call: a zstd context costs more than a record.
    ZSTD_CCtx* context
    Scratch shuffled        # a record as zstd gets it, where that is not the record itself
    bint starved            # whether memory for that ran out,
    size_t fault            # and what zstd refused: 0, or its error code


cdef struct Job:
    const uint8_t* src
    const int64_t* starts
    const uint32_t* lens
    int64_t n
    uint8_t* out
    const int64_t* slots        # where in `out` each record may write
    uint32_t* phys
    uint8_t* codecs
    uint32_t* sums              # NULL: none are wanted
    int codec
    int level
    int item_size               # of a shuffled codec
    const ZSTD_CDict* dictionary    # NULL: of a codec without one


cdef class CompressionDictionary:
    """A zstd dictionary made ready for compression at one level; immutable, shared by any number of threads.

    Parameters
    ----------
    content : bytes
        The dictionary, as ZDICT training gives it.
    level : int
    """

    cdef ZSTD_CDict* dictionary

    def __cinit__(self, bytes content not None, int level):
        cdef const uint8_t* content_ptr = content
        self.dictionary = ZSTD_createCDict(content_ptr, len(content), level)
        if self.dictionary == NULL:
            raise MemoryError("no memory for a zstd dictionary")

    def __dealloc__(self):
        ZSTD_freeCDict(self.dictionary)


cdef Pool idle_compressors


cdef Py_ssize_t bytes_of(const Compressor* compressor) noexcept:
    return compressor.shuffled.n_bytes + ZSTD_sizeof_CCtx(compressor.context)


cdef void end_compressor(Compressor* compressor) noexcept:
    ZSTD_freeCCtx(compressor.context)
    shrink(&compressor.shuffled, 0)
    free(compressor)


cdef void give_back(Compressor** taken, int n) noexcept:
    cdef int i
    cdef Py_ssize_t n_bytes
    for i in range(n):
        shrink(&taken[i].shuffled, KEPT_SCRATCH)
        if idle_compressors.idle_bytes + bytes_of(taken[i]) > KEPT_IN_ALL:
            shrink(&taken[i].shuffled, 0)
        n_bytes = bytes_of(taken[i])
        if idle_compressors.idle_bytes + n_bytes > KEPT_IN_ALL or not pool_put(&idle_compressors, taken[i]):
            end_compressor(taken[i])
        else:
            idle_compressors.idle_bytes += n_bytes
    free(taken)


cdef Compressor** take_compressors(int n) except NULL:
    """Return an array of `n` compressors; `give_back` takes it."""
    cdef Compressor** taken = <Compressor**>calloc(n, sizeof(Compressor*))
    cdef int i
    if taken == NULL:
        raise MemoryError("no memory for compression")
    for i in range(n):
        taken[i] = <Compressor*>pool_take(&idle_compressors)
        if taken[i] == NULL:
            taken[i] = <Compressor*>calloc(1, sizeof(Compressor))
        else:
            idle_compressors.idle_bytes -= bytes_of(taken[i])
        if taken[i] == NULL:
            give_back(taken, i)
            raise MemoryError("no memory for compression")
        taken[i].starved = False
        taken[i].fault = 0
        if taken[i].context == NULL:
            taken[i].context = ZSTD_createCCtx()
        if taken[i].context == NULL:
            give_back(taken, i + 1)
            raise MemoryError("no memory for a zstd context")
    return taken


cdef void compress_one(const Job* job, Compressor* compressor, int64_t i) noexcept nogil:
    """Put record `i` into its slot, unless something failed before on this compressor."""
    cdef const uint8_t* src = job.src + job.starts[i]
    cdef const uint8_t* plain = src
    cdef uint8_t* dst = job.out + job.slots[i]
    cdef size_t n_bytes = job.lens[i]
    cdef size_t got = n_bytes
    if compressor.fault or compressor.starved:
        return
    if job.codec != CODEC_RAW and n_bytes > 0:
        if job.codec >= CODEC_ZSTD_SHUFFLE:
            if grow(&compressor.shuffled, n_bytes) != 0:
                compressor.starved = True
                return
            plain = compressor.shuffled.base
            shuffle_record(compressor.shuffled.base, src, n_bytes, job.item_size)
        if job.dictionary != NULL:
            got = ZSTD_compress_usingCDict(compressor.context, dst, job.slots[i + 1] - job.slots[i], plain, n_bytes,
                                           job.dictionary)
        else:
            got = ZSTD_compressCCtx(compressor.context, dst, job.slots[i + 1] - job.slots[i], plain, n_bytes,
                                    job.level)
        if ZSTD_isError(got):
            compressor.fault = got
            return
    if got < n_bytes:
        job.phys[i] = <uint32_t>got
        job.codecs[i] = <uint8_t>job.codec
        if job.sums != NULL:
            job.sums[i] = checksum_of(dst, got)
    else:
        # What does not shrink is stored as it is: reading it then costs a copy.
        if job.sums != NULL:
            job.sums[i] = copy_checksummed(dst, src, n_bytes)
        else:
            memcpy(dst, src, n_bytes)
        job.phys[i] = <uint32_t>n_bytes
        job.codecs[i] = CODEC_RAW


def compress_bound(lens):
    """Return how many bytes `compress` may need for records of these lengths (buffer of uint32)."""
    cdef Views views
    cdef Py_buffer* lens_view
    cdef const uint32_t* lens_ptr
    cdef int64_t total = 0
    cdef Py_ssize_t i
    views.n = 0
    try:
        lens_view = take(&views, lens, PyBUF_C_CONTIGUOUS)
        lens_ptr = <const uint32_t*>lens_view.buf
        for i in range(lens_view.len // 4):
            total += ZSTD_compressBound(lens_ptr[i])
        return total
    finally:
        release(&views)


def compress(src, starts, lens, out, phys, codecs, int codec, int level, CompressionDictionary dictionary,
             int threads, sums=None, int item_size=0):
    """Compress records of `src`, each by itself, and lay the results densely into `out`, in order.

    Parameters
    ----------
    src : contiguous buffer
    starts : buffer of int64, shape (n,)
        First byte of each record in `src`; records may overlap.
    lens : buffer of uint32, shape (n,)
        Length of each record in bytes.
    out : writable buffer of at least `compress_bound(lens)` bytes
    phys : writable buffer of uint32, shape (n,)
        Receives the stored length of each.
    codecs : writable buffer of uint8, shape (n,)
        Receives the codec of each: a record that does not shrink is stored raw.
    codec : int
        0 raw, 1 zstd, 2 zstd with `dictionary`; 3 and 4 the same as 1 and 2, of the record byte-shuffled.
    level : int
        zstd's level; ignored with a dictionary, which has its own.
    dictionary : CompressionDictionary or None
    threads : int
        The most threads to use, at least 1.
    sums : writable buffer of uint32, shape (n,), or None
        Receives the checksum of the stored bytes of each.
    item_size : int
        Bytes of an item for codecs 3 and 4, 2 to 255, which goes into the `reserved` byte of their table entries; other
        codecs ignore it.

    Returns
    -------
    int
        Bytes laid into `out`.

    Raises
    ------
    ValueError
        A buffer does not fit the others, there is no such codec, or none such with this dictionary or item size.
    MemoryError
    RuntimeError
        libzstd failed.
    """
    cdef Job job
    cdef Views views
    cdef Py_buffer* src_view
    cdef Py_buffer* out_view
    cdef Py_buffer* sums_view
    cdef int64_t* slots = NULL
    cdef Compressor** compressors = NULL
    cdef int64_t n
    cdef int64_t i
    cdef int64_t total = 0
    cdef int64_t share
    cdef int n_threads = 0
    cdef int t
    cdef bint with_dictionary = codec == CODEC_ZSTD_DICT or codec == CODEC_ZSTD_SHUFFLE_DICT
    if codec < CODEC_RAW or codec > CODEC_ZSTD_SHUFFLE_DICT:
        raise ValueError(f"no codec {codec}")
    if with_dictionary and dictionary is None:
        raise ValueError(f"codec {codec} needs a dictionary")
    if codec >= CODEC_ZSTD_SHUFFLE and not MIN_ITEM_SIZE <= item_size <= MAX_ITEM_SIZE:
        raise ValueError(f"items have {MIN_ITEM_SIZE} to {MAX_ITEM_SIZE} bytes, not {item_size}")
    views.n = 0
    try:
        src_view = take(&views, src, PyBUF_SIMPLE)
        out_view = take(&views, out, PyBUF_SIMPLE | PyBUF_WRITABLE)
        n = take(&views, starts, PyBUF_C_CONTIGUOUS).len // 8
        job.starts = <const int64_t*>views.view[2].buf
        if (
            take(&views, lens, PyBUF_C_CONTIGUOUS).len != n * 4
            or take(&views, phys, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE).len != n * 4
            or take(&views, codecs, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE).len != n
        ):
            raise ValueError("starts, lens, phys and codecs must have one item for each record")
        job.lens = <const uint32_t*>views.view[3].buf
        job.phys = <uint32_t*>views.view[4].buf
        job.codecs = <uint8_t*>views.view[5].buf
        job.sums = NULL
        if sums is not None:
            sums_view = take(&views, sums, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if sums_view.len != n * 4:
                raise ValueError("sums must have one uint32 for each record")
            job.sums = <uint32_t*>sums_view.buf
        job.src = <const uint8_t*>src_view.buf
        job.out = <uint8_t*>out_view.buf
        job.n = n
        job.codec = codec
        job.level = level
        job.item_size = item_size
        job.dictionary = dictionary.dictionary if with_dictionary else NULL

        slots = <int64_t*>malloc((n + 1) * sizeof(int64_t))
        if slots == NULL:
            raise MemoryError("no memory for compression")
        slots[0] = 0
        for i in range(n):
            if job.starts[i] < 0 or job.starts[i] > src_view.len - <int64_t>job.lens[i]:
                raise ValueError(f"record {i} lies outside the source buffer")
            slots[i + 1] = slots[i] + (
                <int64_t>job.lens[i] if codec == CODEC_RAW else <int64_t>ZSTD_compressBound(job.lens[i])
            )
            total += job.lens[i]
        if slots[n] > out_view.len:
            raise ValueError("out is shorter than compress_bound(lens)")
        job.slots = slots

        n_threads = team_size(threads, total if codec == CODEC_RAW else total * COPIES_PER_BYTE, n)
        compressors = take_compressors(n_threads)
        share = max(1, min(<int64_t>MAX_SHARE, n // (4 * n_threads)))
        with nogil:
            if n_threads == 1:
                for i in range(n):
                    compress_one(&job, compressors[0], i)
            else:
                for i in prange(n, schedule="dynamic", chunksize=share, num_threads=n_threads):
                    compress_one(&job, compressors[threadid()], i)
        for t in range(n_threads):
            if compressors[t].starved:
                raise MemoryError("no memory for compression")
            if compressors[t].fault:
                reason = (<bytes>ZSTD_getErrorName(compressors[t].fault)).decode()
                raise RuntimeError(f"libzstd could not compress: {reason}")
        total = 0
        with nogil:
            for i in range(n):
                if total != slots[i]:
                    memmove(job.out + total, job.out + slots[i], job.phys[i])
                total += job.phys[i]
        return total
    finally:
        free(slots)
        if compressors != NULL:
            give_back(compressors, n_threads)
        release(&views)


def train(samples, sizes, size_t target_bytes):
    """Train a dictionary with ZDICT_trainFromBuffer.

    Parameters
    ----------
    samples : contiguous buffer
        The samples, one after the other.
    sizes : buffer of uint64, shape (n,)
        Length of each in bytes; their sum is at most the length of `samples`.
    target_bytes : int
        The most bytes the dictionary may have.

    Returns
    -------
    bytes or str
        The dictionary, or libzstd's reason why there is none.

    Raises
    ------
    ValueError
        The sizes reach beyond the samples.
    """
    cdef Views views
    cdef Py_buffer* samples_view
    cdef Py_buffer* sizes_view
    cdef const size_t* sizes_ptr
    cdef bytearray dictionary = bytearray(target_bytes)
    cdef uint8_t* dictionary_ptr = dictionary
    cdef Py_ssize_t rest
    cdef Py_ssize_t i
    cdef Py_ssize_t to_learn_from = 0
    cdef unsigned n
    cdef size_t got
    views.n = 0
    try:
        samples_view = take(&views, samples, PyBUF_SIMPLE)
        sizes_view = take(&views, sizes, PyBUF_C_CONTIGUOUS)
        sizes_ptr = <const size_t*>sizes_view.buf
        n = <unsigned>(sizes_view.len // <Py_ssize_t>sizeof(size_t))
        rest = samples_view.len
        for i in range(n):
            if sizes_ptr[i] > <size_t>rest:
                raise ValueError(f"sample {i} reaches beyond the sample buffer")
            rest -= sizes_ptr[i]
            if i < n * 3 // 4:
                to_learn_from += sizes_ptr[i]
        if to_learn_from < LEAST_SAMPLE_BYTES:
            return f"zstd needs at least {LEAST_SAMPLE_BYTES} bytes in the first three quarters of the samples"
        if target_bytes < LEAST_SAMPLE_BYTES:
            return f"a dictionary has at least {LEAST_SAMPLE_BYTES} bytes, not {target_bytes}"
        with nogil:
            got = ZDICT_trainFromBuffer(dictionary_ptr, target_bytes, samples_view.buf, sizes_ptr, n)
        if ZDICT_isError(got):
            return (<bytes>ZDICT_getErrorName(got)).decode()
        return bytes(dictionary[:got])
    finally:
        release(&views)


def trim_compressors():
    """Give the memory of idle compressors back, and return how many bytes they had."""
    cdef Py_ssize_t n_bytes = idle_compressors.idle_bytes
    while idle_compressors.n:
        end_compressor(<Compressor*>pool_take(&idle_compressors))
    idle_compressors.idle_bytes = 0
    return n_bytes


def level_range():
    """Return the lowest and the highest level libzstd takes."""
    return ZSTD_minCLevel(), ZSTD_maxCLevel()
