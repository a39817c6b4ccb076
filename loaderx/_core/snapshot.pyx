"""What a handle knew of its store at one moment: the maps a gather reads through."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from loaderx._core.layout cimport CODEC_ZSTD_DICT, CODEC_ZSTD_SHUFFLE_DICT
from loaderx._core.maps cimport FileMap, MapSlot
from loaderx._core.watch cimport start_watch
from loaderx._core.zstd cimport ZSTD_createDDict, ZSTD_freeDDict


cdef class DecompressionDictionary:
    """A zstd dictionary made ready for decompression; immutable, shared by any number of threads.

    Parameters
    ----------
    content : bytes
        The dictionary, as ZDICT training gives it.

    Raises
    ------
    ValueError
        It is damaged (or, which libzstd does not tell apart, there is no memory for it).
    """

    def __cinit__(self, bytes content not None):
        cdef const uint8_t* content_ptr = content
        self.dictionary = ZSTD_createDDict(content_ptr, len(content))
        if self.dictionary == NULL:
            raise ValueError("libzstd takes these bytes for no dictionary")

    def __dealloc__(self):
        ZSTD_freeDDict(self.dictionary)


cdef class Gate:
    """Counts the calls that read through the snapshots of one handle, so that a change can wait until there are none.

    Its fields are read and written with the GIL held only. `hold` is whatever has to live as long as a call reads: a
    call keeps its snapshot alive, and that its gate. It also keeps what the handle's calls learn about the disk, and
    about what its records cost.
    """

    def __cinit__(self):
        start_watch(&self.watch)

    def close(self):
        """Turn every further call away with `Fault.GATE_CLOSED`; calls that run go on (`active` counts them)."""
        self.closed = True

    def forget(self):
        """Count no running calls: in a forked child, the threads that made them do not exist."""
        self.active = 0


cdef class Snapshot:
    """An immutable set of maps: what a handle knew of its store at one moment.

    A call holds a reference to it, so whatever else happens to the handle, nothing is unmapped under the call.

    Parameters
    ----------
    table : FileMap
        `meta.zr`.
    chunks : tuple of FileMap
        The chunk files, in order.
    length : int
        Number of records to show, at most 2**32 - 1.
    dictionary : DecompressionDictionary or None
    gate : Gate
    max_record_bytes : int
        The largest record the store's version may hold; an entry above it is damaged.
    sums : FileMap or None
        `sums.zr`: whatever is read is compared with what it says of it. None: nothing is.
    max_codec : int
        The highest codec the store's version allows, 2 to 4; an entry above it is damaged.
    dictionary_is_damaged : bool
        There is one, and `dictionary` is None because it is not the one that the records need.
    tail : tuple of int or None
        The last chunk, and how many of its bytes were in use. Nothing is read by it.

    Raises
    ------
    ValueError
        `max_codec` is no such number.
    """

    def __cinit__(self, FileMap table not None, tuple chunks not None, int64_t length,
                  DecompressionDictionary dictionary, Gate gate not None, int64_t max_record_bytes,
                  FileMap sums=None, int max_codec=CODEC_ZSTD_DICT, bint dictionary_is_damaged=False, tuple tail=None):
        cdef FileMap chunk
        cdef Py_ssize_t i
        if max_codec < CODEC_ZSTD_DICT or max_codec > CODEC_ZSTD_SHUFFLE_DICT:
            raise ValueError(f"max_codec is {CODEC_ZSTD_DICT} to {CODEC_ZSTD_SHUFFLE_DICT}, not {max_codec}")
        self.table = table
        self.table_slot = &table.slot
        self.chunks = chunks
        self.length = length
        self.dictionary = dictionary
        self.gate = gate
        self.max_record_bytes = max_record_bytes
        self.max_codec = max_codec
        self.dictionary_is_damaged = dictionary_is_damaged
        self.tail = tail
        self.sums = sums
        self.sums_slot = &sums.slot if sums is not None else NULL
        self.n_chunks = <uint32_t>len(chunks)
        self.chunk_slots = <MapSlot**>malloc(max(self.n_chunks, 1) * sizeof(MapSlot*))
        if self.chunk_slots == NULL:
            raise MemoryError("no memory for a list of chunks")
        for i in range(len(chunks)):
            chunk = chunks[i]
            self.chunk_slots[i] = &chunk.slot

    def __dealloc__(self):
        free(self.chunk_slots)
