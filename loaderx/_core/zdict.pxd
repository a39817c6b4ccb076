# libzstd's dictionary trainer, apart from zstd.pxd because only the write path links it.

cdef extern from "zdict.h" nogil:
    size_t ZDICT_trainFromBuffer(void* dictionary, size_t dictionary_capacity, const void* samples,
                                 const size_t* sample_bytes, unsigned n_samples)
    unsigned ZDICT_isError(size_t code)
    const char* ZDICT_getErrorName(size_t code)
