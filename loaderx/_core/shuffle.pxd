from libc.stdint cimport uint8_t

cdef void shuffle_record(uint8_t* dst, const uint8_t* src, size_t n_bytes, size_t item_size) noexcept nogil
cdef void unshuffle_record(uint8_t* dst, const uint8_t* src, size_t n_bytes, size_t item_size) noexcept nogil
