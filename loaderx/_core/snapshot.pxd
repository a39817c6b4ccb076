from libc.stdint cimport int64_t, uint8_t, uint32_t

from loaderx._core.maps cimport FileMap, MapSlot
from loaderx._core.watch cimport Watch
from loaderx._core.zstd cimport ZSTD_DDict


cdef class DecompressionDictionary:
    cdef ZSTD_DDict* dictionary


cdef class Gate:
    cdef readonly Py_ssize_t active
    cdef readonly bint closed
    cdef public object hold
    cdef Watch watch
    cdef double byte_ns             # what a byte of a batch takes one thread, by what calls have shown; 0: unknown


cdef class Snapshot:
    cdef readonly FileMap table
    cdef readonly tuple chunks
    cdef readonly int64_t length
    cdef readonly DecompressionDictionary dictionary
    cdef readonly Gate gate
    cdef readonly int64_t max_record_bytes
    cdef readonly FileMap sums
    cdef readonly int max_codec
    cdef readonly bint dictionary_is_damaged
    cdef readonly tuple tail
    cdef MapSlot* table_slot
    cdef MapSlot* sums_slot         # NULL: nothing is verified
    cdef MapSlot** chunk_slots
    cdef uint32_t n_chunks
