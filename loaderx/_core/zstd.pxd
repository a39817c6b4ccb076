# libzstd, declared once. Only functions of its stable API, all callable without the GIL.

cdef extern from "zstd.h" nogil:
    ctypedef struct ZSTD_DCtx:
        pass
    ctypedef struct ZSTD_CCtx:
        pass
    ctypedef struct ZSTD_DDict:
        pass
    ctypedef struct ZSTD_CDict:
        pass

    unsigned long long ZSTD_CONTENTSIZE_UNKNOWN
    unsigned long long ZSTD_CONTENTSIZE_ERROR

    const char* ZSTD_versionString()
    unsigned ZSTD_isError(size_t code)
    const char* ZSTD_getErrorName(size_t code)
    unsigned long long ZSTD_getFrameContentSize(const void* src, size_t src_bytes)
    size_t ZSTD_compressBound(size_t src_bytes)
    int ZSTD_minCLevel()
    int ZSTD_maxCLevel()

    ZSTD_DCtx* ZSTD_createDCtx()
    size_t ZSTD_freeDCtx(ZSTD_DCtx* context)
    size_t ZSTD_sizeof_DCtx(const ZSTD_DCtx* context)
    size_t ZSTD_decompressDCtx(ZSTD_DCtx* context, void* dst, size_t dst_bytes, const void* src, size_t src_bytes)
    size_t ZSTD_decompress_usingDDict(ZSTD_DCtx* context, void* dst, size_t dst_bytes, const void* src,
                                      size_t src_bytes, const ZSTD_DDict* dictionary)
    ZSTD_DDict* ZSTD_createDDict(const void* dictionary, size_t dictionary_bytes)
    size_t ZSTD_freeDDict(ZSTD_DDict* dictionary)

    ZSTD_CCtx* ZSTD_createCCtx()
    size_t ZSTD_freeCCtx(ZSTD_CCtx* context)
    size_t ZSTD_sizeof_CCtx(const ZSTD_CCtx* context)
    size_t ZSTD_compressCCtx(ZSTD_CCtx* context, void* dst, size_t dst_bytes, const void* src, size_t src_bytes,
                             int level)
    size_t ZSTD_compress_usingCDict(ZSTD_CCtx* context, void* dst, size_t dst_bytes, const void* src,
                                    size_t src_bytes, const ZSTD_CDict* dictionary)
    ZSTD_CDict* ZSTD_createCDict(const void* dictionary, size_t dictionary_bytes, int level)
    size_t ZSTD_freeCDict(ZSTD_CDict* dictionary)
