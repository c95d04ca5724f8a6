# SPDX-License-Identifier: Apache-2.0
"""Tensors exchanged with NumPy and PyTorch by DLPack, through the shared library and ctypes.

usage: dlpack.py LIBBELAY_SO
Status 77: NumPy is not there.  PyTorch is used where it can be imported.
"""
import ctypes
import gc
import sys

try:
    import numpy
except ImportError:
    print("skipped: NumPy cannot be imported")
    sys.exit(77)
try:
    import torch
    import torch.utils.dlpack
except ImportError:
    torch = None

F32, F64, I64, U8 = 0, 1, 4, 7


class Tensor(ctypes.Structure):
    _fields_ = [("context", ctypes.c_uint32), ("slot", ctypes.c_uint32), ("generation", ctypes.c_uint32)]


class Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("size", ctypes.c_int64 * 8)]


class Scope(ctypes.Structure):
    _fields_ = [("context", ctypes.c_uint32), ("depth", ctypes.c_uint32), ("serial", ctypes.c_uint32)]


def declare(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


library = ctypes.CDLL(sys.argv[1])
pointer = ctypes.c_void_p
belay_open = declare(library, "belay_open", pointer, pointer)
belay_close = declare(library, "belay_close", ctypes.c_int, pointer)
n_faults = declare(library, "belay_n_faults", ctypes.c_int64, pointer)
scope_open = declare(library, "belay_scope_open", Scope, pointer)
scope_close = declare(library, "belay_scope_close", None, Scope)
tensor_from = declare(
    library, "belay_tensor_from", Tensor, pointer, ctypes.c_int, Shape, pointer, ctypes.c_int64)
tensor_read = declare(library, "belay_tensor_read", ctypes.c_int, Tensor, pointer, ctypes.c_int64)
tensor_shape = declare(library, "belay_tensor_shape", Shape, Tensor)
tensor_dtype = declare(library, "belay_tensor_dtype", ctypes.c_int, Tensor)
transpose = declare(library, "belay_transpose", Tensor, Tensor, ctypes.c_int, ctypes.c_int)
add = declare(library, "belay_add", Tensor, Tensor, Tensor)
to_dlpack = declare(library, "belay_tensor_to_dlpack", pointer, Tensor)
from_dlpack = declare(library, "belay_tensor_from_dlpack", Tensor, pointer, pointer)

python = ctypes.pythonapi
capsule_new = declare(python, "PyCapsule_New", ctypes.py_object, pointer, ctypes.c_char_p, pointer)
capsule_get = declare(python, "PyCapsule_GetPointer", pointer, ctypes.py_object, ctypes.c_char_p)
capsule_name = declare(python, "PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
DLTENSOR, USED = b"dltensor", b"used_dltensor"  # a capsule keeps a pointer to its name


def shape(*sizes):
    return Shape(len(sizes), (ctypes.c_int64 * 8)(*sizes))


class Lent:
    """What numpy.from_dlpack and torch.from_dlpack take: a tensor of Belay's."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        managed = to_dlpack(self.tensor)
        assert managed, "nothing was exported"
        return capsule_new(managed, DLTENSOR, None)

    def __dlpack_device__(self):
        return (1, 0)


def take(context, capsule):
    """A tensor of Belay's over what another library lends."""
    tensor = from_dlpack(context, capsule_get(capsule, DLTENSOR))
    assert tensor.generation, "the import was refused"
    capsule_name(capsule, USED)
    return tensor


def values(tensor, dtype):
    sizes = tensor_shape(tensor)
    out = numpy.empty(list(sizes.size)[:sizes.rank], dtype)
    assert tensor_read(tensor, out.ctypes.data, out.nbytes) == 0
    return out


def make(context, array, dtype):
    return tensor_from(context, dtype, shape(*array.shape), array.ctypes.data, array.nbytes)


def numpy_sees_and_writes_the_same_memory():
    context = belay_open(None)
    source = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    tensor = make(context, source, F32)
    seen = numpy.from_dlpack(Lent(tensor))
    assert seen.shape == (2, 3) and seen.dtype == numpy.float32 and (seen == source).all()
    turned = numpy.from_dlpack(Lent(transpose(tensor, 0, 1)))
    assert (turned == source.T).all() and turned.strides == (4, 12)
    address = seen.__array_interface__["data"][0]
    ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[5] = 50  # NumPy takes imports for reading only
    assert values(tensor, numpy.float32)[1, 2] == 50 and turned[2, 1] == 50
    assert n_faults(context) == 0 and belay_close(context) == 0


def an_array_outlives_scope_and_context():
    context = belay_open(None)
    scope = scope_open(context)
    source = numpy.arange(1000, dtype=numpy.float64)
    seen = numpy.from_dlpack(Lent(make(context, source, F64)))
    scope_close(scope)
    for _ in range(8):
        make(context, numpy.zeros(1000), F64)
    assert (seen == source).all()
    assert belay_close(context) == 0
    assert (seen == source).all()
    del seen
    gc.collect()


def belay_sees_and_writes_the_memory_of_numpy():
    context = belay_open(None)
    scope = scope_open(context)
    array = numpy.arange(12, dtype=numpy.int64).reshape(3, 4)
    before = sys.getrefcount(array)
    tensor = take(context, array.__dlpack__())
    assert tensor_dtype(tensor) == I64 and (values(tensor, numpy.int64) == array).all()
    assert sys.getrefcount(array) == before + 1
    array[2, 3] = -7
    assert values(tensor, numpy.int64)[2, 3] == -7
    window = take(context, array[:, 1:3].__dlpack__())  # strided
    assert (values(window, numpy.int64) == array[:, 1:3]).all()
    assert (values(add(window, window), numpy.int64) == 2 * array[:, 1:3]).all()
    scope_close(scope)
    gc.collect()
    assert sys.getrefcount(array) == before, "the owner was not told"
    assert n_faults(context) == 0 and belay_close(context) == 0


def an_array_that_runs_backward_is_refused():
    context = belay_open(None)
    array = numpy.arange(4, dtype=numpy.float32)
    capsule = array[::-1].__dlpack__()
    assert from_dlpack(context, capsule_get(capsule, DLTENSOR)).generation == 0
    assert n_faults(context) == 1
    belay_close(context)


def torch_and_belay_share_memory_both_ways():
    context = belay_open(None)
    source = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    tensor = make(context, source, F32)
    seen = torch.from_dlpack(Lent(tensor))
    seen[1, 1] = 40
    assert values(tensor, numpy.float32)[1, 1] == 40
    theirs = torch.arange(4, dtype=torch.uint8)
    ours = take(context, torch.utils.dlpack.to_dlpack(theirs))
    assert tensor_dtype(ours) == U8
    theirs[0] = 9
    assert values(ours, numpy.uint8)[0] == 9
    assert n_faults(context) == 0 and belay_close(context) == 0
    assert seen.tolist() == [[0, 1, 2], [3, 40, 5]]


tests = [
    numpy_sees_and_writes_the_same_memory,
    an_array_outlives_scope_and_context,
    belay_sees_and_writes_the_memory_of_numpy,
    an_array_that_runs_backward_is_refused,
]
if torch is not None:
    tests.append(torch_and_belay_share_memory_both_ways)
else:
    print("skipped: PyTorch cannot be imported")
for test in tests:
    test()
    print("ok", test.__name__)
print("NumPy", numpy.__version__, "PyTorch", torch.__version__ if torch is not None else "absent")
