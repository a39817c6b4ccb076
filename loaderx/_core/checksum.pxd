from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef uint64_t hash_of(const uint8_t* src, size_t n_bytes) noexcept nogil
cdef uint32_t checksum_of(const uint8_t* src, size_t n_bytes) noexcept nogil
cdef uint32_t copy_checksummed(uint8_t* dst, const uint8_t* src, size_t n_bytes) noexcept nogil
cdef uint32_t tag_of(const uint8_t* entry) noexcept nogil
