"""Index draws for the sampler: batches of an endless sequence, each a pure function of options and step.

docs/sampler.md says what each mode's sequence is, number by number. The kernels are in C: draw.h.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t, uintptr_t

cdef extern from "Python.h":
    object PyObject_Call(object function, object arguments, PyObject* keywords)  # which may be none at all
    bint PyLong_CheckExact(object value)
    unsigned long long PyLong_AsUnsignedLongLong(object value) except? <unsigned long long>-1

cdef extern from "draw.h" nogil:
    ctypedef struct lx_drawer:
        const char* name
        int (*works)()

    ctypedef struct lx_plan:
        uint64_t global_batch
        uint64_t first
        uint64_t steps_per_cycle

    const lx_drawer* lx_drawers
    int LX_DRAWERS
    int LX_CYCLIC
    void lx_set_plan(lx_plan* plan, int mode, uint64_t length, uint64_t seed)
    void lx_fill_batch(const lx_drawer* kernel, const lx_plan* plan, uint64_t* out, size_t n, uint64_t step)

# From this size on other threads may run meanwhile. Below, a batch takes less time than getting the GIL back may.
cdef size_t LARGE_BATCH = 32768


cdef const lx_drawer* find_kernel(object name) except NULL:
    """Return the kernel of this name, of those that work here; None: the best."""
    cdef int i
    for i in range(LX_DRAWERS):
        if lx_drawers[i].works() and (name is None or lx_drawers[i].name == name.encode()):
            return &lx_drawers[i]
    raise ValueError(f"no kernel {name!r}: here work {', '.join(kernels())}")


cdef const lx_drawer* in_use = find_kernel(None)


cdef bint holds_uint64(const Py_buffer* view) noexcept:
    """Return whether a buffer's items are uint64 in the machine's byte order, which is little-endian."""
    cdef const char* form = view.format
    if form == NULL or view.itemsize != sizeof(uint64_t):
        return False
    if form[0] == c"<" or form[0] == c"=" or form[0] == c"@":
        form += 1
    return (form[0] == c"L" or form[0] == c"Q") and form[1] == 0


@cython.final
cdef class Draws:
    """The batches of a sequence, and which of them comes next.

    `loaderx.loader.sampler.Sampler` has checked all numbers; here is only what keeps memory safe.

    Parameters
    ----------
    empty : callable
        Returns an uninitialised array of uint64, C-contiguous, when it is called with `empty_arguments`.
    empty_arguments : tuple
    as_step, refuse : callable
        For what the quick way does not take: ``as_step(step)`` returns a step there is, or raises;
        ``refuse(out)`` raises.
    mode : int
        0 sequential, 1 IID, 2 cyclic.
    length : int
        Of what the indices are for, 1 to 2**63.
    seed : int
        0 to 2**64 - 1.
    batch_length : int
        Number of indices in a batch.
    global_batch, first : int
        How many positions a step takes, and with which of them this batch begins.
    steps_per_cycle : int
        Cyclic: steps that one permutation lasts; 0: permutations follow each other without a gap.
    num_steps : int
        How many steps there are: ``num_steps * global_batch`` is at most 2**63.

    Raises
    ------
    ValueError
        `length`, `batch_length`, `global_batch` or `num_steps` is 0.

    Notes
    -----
    `next` and `seek` are done one after the other when several threads call them, so that each `next` gives another
    step; `indices` changes nothing.
    """

    cdef lx_plan plan
    cdef size_t n
    cdef uint64_t num_steps
    cdef uint64_t upcoming
    cdef object empty
    cdef tuple empty_arguments
    cdef object as_step
    cdef object refuse

    def __cinit__(self, empty, tuple empty_arguments, as_step, refuse, *, int mode, uint64_t length, uint64_t seed,
                  size_t batch_length, uint64_t global_batch, uint64_t first, uint64_t steps_per_cycle,
                  uint64_t num_steps):
        if not (length and batch_length and global_batch and num_steps):
            raise ValueError("there is nothing to draw")
        lx_set_plan(&self.plan, mode, length, seed)
        self.plan.global_batch = global_batch
        self.plan.first = first
        self.plan.steps_per_cycle = steps_per_cycle
        self.n = batch_length
        self.num_steps = num_steps
        self.empty = empty
        self.empty_arguments = empty_arguments
        self.as_step = as_step
        self.refuse = refuse

    cdef uint64_t checked(self, step) except? <uint64_t>-1:
        cdef uint64_t number
        if PyLong_CheckExact(step):
            try:
                number = PyLong_AsUnsignedLongLong(step)
            except OverflowError:
                number = self.num_steps
            if number < self.num_steps:
                return number
        return self.as_step(step)

    cdef int fill(self, out, uint64_t step, bint is_fresh) except -1:
        cdef Py_buffer view
        cdef bint fits = is_fresh
        if is_fresh:
            PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        else:
            try:
                PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT)
            except (BufferError, TypeError, ValueError):
                self.refuse(out)
                raise
            fits = view.ndim == 1 and holds_uint64(&view) and <uintptr_t>view.buf % sizeof(uint64_t) == 0
        if not fits or <size_t>view.len != self.n * sizeof(uint64_t):
            PyBuffer_Release(&view)
            self.refuse(out)
            raise ValueError("out does not fit")
        if self.n < LARGE_BATCH:
            lx_fill_batch(in_use, &self.plan, <uint64_t*>view.buf, self.n, step)
        else:
            with nogil:
                lx_fill_batch(in_use, &self.plan, <uint64_t*>view.buf, self.n, step)
        PyBuffer_Release(&view)
        return 0

    def next(self):
        """Return the next batch, in a fresh array."""
        cdef uint64_t step
        out = PyObject_Call(self.empty, self.empty_arguments, NULL)
        if self.upcoming + 1 >= self.num_steps:
            self.as_step(self.num_steps)  # so that `step` always is one there is
        # No other thread runs from the test to the new step.
        step = self.upcoming
        self.upcoming = step + 1
        self.fill(out, step, True)
        return out

    def indices(self, step, out=None):
        """Return the batch of a step, in a fresh array or in `out`."""
        cdef uint64_t number = self.checked(step)
        if out is None:
            out = PyObject_Call(self.empty, self.empty_arguments, NULL)
            self.fill(out, number, True)
        else:
            self.fill(out, number, False)
        return out

    def seek(self, step):
        """Have `next` go on with this step."""
        self.upcoming = self.checked(step)

    @property
    def step(self):
        """The step whose batch `next` gives."""
        return self.upcoming


def kernels():
    """Return the names of the kernels that work on this machine, the best first."""
    return tuple([(<bytes>lx_drawers[i].name).decode() for i in range(LX_DRAWERS) if lx_drawers[i].works()])


def kernel():
    """Return the name of the kernel in use."""
    return (<bytes>in_use.name).decode()


def use_kernel(name):
    """Use this kernel from now on; None: the best. For tests and measurements: all give the same numbers.

    Parameters
    ----------
    name : str or None

    Raises
    ------
    ValueError
        There is none of this name, or it does not work on this machine.
    """
    global in_use
    in_use = find_kernel(name)
