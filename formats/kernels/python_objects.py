"""Python objects made in compiled code, by calls of Python's C interface.

Objects are addresses here. A kernel that makes them holds the GIL (`holding_gil`). Making a dict or a tuple may collect
garbage, which runs any code and lets other threads run. Making text, bytes and numbers does not. A function that makes
an object returns 0 where it failed; Python's error is set then, and is raised if the kernel returns `as_object(0)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import intrinsic

_WORD, _DOUBLE, _INT = ir.IntType(64), ir.DoubleType(), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()
_insert: Any = cgutils.get_or_insert_function
_ERRNO = "__error" if sys.platform == "darwin" else "__errno_location"


class PythonObject(types.Type):
    """Any Python object, as an argument that its caller holds, or as a new result."""

    def __init__(self) -> None:
        super().__init__(name="statestore.PythonObject")


python_object = PythonObject()
_numba: Any = extending  # which has no types
_numba.register_model(PythonObject)(extending.models.OpaqueModel)
_numba.unbox(PythonObject)(lambda kind, found, context: _numba.NativeValue(found))
_numba.box(PythonObject)(lambda kind, found, context: found)


def _address_of() -> Any:
    def address_of(typing_context: Any, found: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ptrtoint(arguments[0], _WORD)

        return types.int64(python_object), generate

    return intrinsic(address_of)


def _as_object() -> Any:
    def as_object(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], _POINTER)

        return python_object(types.int64), generate

    return intrinsic(as_object)


def _called(builder: Any, name: str, result: Any, kinds: Any, arguments: Any) -> Any:
    """Call a function of the process; addresses are passed as pointers, and returned as numbers."""
    function = _insert(builder.module, ir.FunctionType(result, kinds), name)
    casts = {_POINTER: builder.inttoptr, _INT: builder.trunc}
    passed = [
        casts[kind](argument, kind) if kind in casts else argument
        for argument, kind in zip(arguments, kinds, strict=True)
    ]
    found = builder.call(function, passed)
    if result is _POINTER:
        return builder.ptrtoint(found, _WORD)
    return builder.sext(found, _WORD) if result is _INT else found


def _c_call(name: str, result: Any, *kinds: Any) -> Any:
    numbers = [types.float64 if kind is _DOUBLE else types.int64 for kind in kinds]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _called(builder, name, result, kinds, arguments)
        return context.get_dummy_value() if isinstance(result, ir.VoidType) else found

    returned = types.void if isinstance(result, ir.VoidType) else types.int64
    made = {
        0: lambda typing_context: (returned(), generate),
        1: lambda typing_context, a: (returned(*numbers), generate),
        2: lambda typing_context, a, b: (returned(*numbers), generate),
        3: lambda typing_context, a, b, c: (returned(*numbers), generate),
    }
    return intrinsic(made[len(kinds)])


def _errno() -> Any:
    def errno(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = _called(builder, _ERRNO, _POINTER, (), ())
            return builder.sext(builder.load(builder.inttoptr(where, _INT.as_pointer())), _WORD)

        return types.int64(), generate

    return intrinsic(errno)


def _float_reader(bits: int) -> Any:
    kind = _DOUBLE if bits == 64 else ir.FloatType()

    def read(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
            found.align = 1
            return found if bits == 64 else builder.fpext(found, _DOUBLE)

        return types.float64(types.int64), generate

    return intrinsic(read)


def _prefetch() -> Any:
    def prefetch(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(ir.VoidType(), [_POINTER, _INT, _INT, _INT])
            function = builder.module.declare_intrinsic("llvm.prefetch", [_POINTER], kind)
            read, near, data = (ir.Constant(_INT, number) for number in (0, 3, 1))
            builder.call(function, [builder.inttoptr(arguments[0], _POINTER), read, near, data])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return intrinsic(prefetch)


_NOTHING = ir.VoidType()
address_of: Callable[[Any], int] = _address_of()
as_object: Callable[[int], Any] = _as_object()
double_at: Callable[[int], float] = _float_reader(64)
float_at: Callable[[int], float] = _float_reader(32)

prefetch: Callable[[int], None] = _prefetch()  # asks for the cache line of an address, which need not be one

new_dict: Callable[[], int] = _c_call("PyDict_New", _POINTER)
new_tuple: Callable[[int], int] = _c_call("PyTuple_New", _POINTER, _WORD)
new_float: Callable[[float], int] = _c_call("PyFloat_FromDouble", _POINTER, _DOUBLE)
new_int: Callable[[Any], int] = _c_call("PyLong_FromLongLong", _POINTER, _WORD)
new_bool: Callable[[Any], int] = _c_call("PyBool_FromLong", _POINTER, _WORD)
new_bytes: Callable[[int, int], int] = _c_call("PyBytes_FromStringAndSize", _POINTER, _POINTER, _WORD)
new_text: Callable[[int, int, int], int] = _c_call("PyUnicode_DecodeUTF8", _POINTER, _POINTER, _WORD, _POINTER)
hold: Callable[[int], None] = _c_call("Py_IncRef", _NOTHING, _POINTER)
release: Callable[[int], None] = _c_call("Py_DecRef", _NOTHING, _POINTER)
# The tuple takes over the item; the dict and the list hold it, too. All return 0, and -1 where they failed.
set_member: Callable[[int, int, int], int] = _c_call("PyTuple_SetItem", _INT, _POINTER, _WORD, _POINTER)
set_entry: Callable[[int, int, int], int] = _c_call("PyDict_SetItem", _INT, _POINTER, _POINTER, _POINTER)
append: Callable[[int, int], int] = _c_call("PyList_Append", _INT, _POINTER, _POINTER)
bytes_data: Callable[[int], int] = _c_call("PyBytes_AsString", _POINTER, _POINTER)
bytes_size: Callable[[int], int] = _c_call("PyBytes_Size", _WORD, _POINTER)

let_others_run: Callable[[], int] = _c_call("PyEval_SaveThread", _POINTER)
go_on: Callable[[int], None] = _c_call("PyEval_RestoreThread", _NOTHING, _POINTER)
access: Callable[[int, int], int] = _c_call("access", _INT, _POINTER, _INT)
errno: Callable[[], int] = _errno()
