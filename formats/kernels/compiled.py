"""Compilation of the inner loops of readers.

Importing this module imports numba. Kernels release the GIL, are compiled on first use and kept on disk, in
NUMBA_CACHE_DIR or the user's cache. Compiled code does not check array bounds, so each kernel checks every offset and
size from a file before it uses it. Arrays from which words are read or to which they are stored have ``SLACK`` spare
bytes behind the part in use.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from statestore.formats.kernels.arrays import Bytes
from statestore.formats.places.private_folders import private_folder

SLACK = 64
# int() of an unsigned number stays unsigned, and mixing signed with unsigned numbers makes a float.
I64: Any = np.int64
U64: Any = np.uint64

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.int32]
_types: Any = types  # neither has types of its own
_code: Any = cgutils
F = TypeVar("F", bound=Callable[..., Any])
_deciding_folder = threading.Lock()  # several threads may load modules of kernels at the same time


def kernel(function: F) -> F:
    """Compile ``function`` by numba, for calls with numpy arrays and numbers."""
    return _compiled(function, nogil=True)


def holding_gil(function: F) -> F:
    """Compile ``function`` as `kernel` does, for one that makes Python objects (`python_objects`)."""
    return _compiled(function, nogil=False)


def _compiled(function: F, nogil: bool) -> F:
    folder = _cache_folder()
    if folder is None:
        return cast(F, numba.njit(nogil=nogil)(function))
    with _deciding_folder:
        config: Any = numba.config  # numba creates its settings on import
        before = config.CACHE_DIR
        config.CACHE_DIR = folder
        try:
            return cast(F, numba.njit(cache=True, nogil=nogil)(function))
        finally:
            config.CACHE_DIR = before


def inlined(function: F) -> F:
    """Mark a function that is compiled into each kernel that calls it; Python cannot call it."""
    # Functions for calls from Python and C would take a third of the time of the compilation.
    unused: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(inline="never", nogil=True, **unused)(function))


def inlined_once(function: F) -> F:
    """Mark a function as `inlined` does, which is compiled once for all constants that it is called with.

    By itself numba compiles it for each of them. The walk over objects of Kryo took a third more time to compile.
    """
    found: Any = inlined(function)
    compiled_for, plain = found.get_call_template, cast(Any, types.unliteral)

    def for_all(args: Any, kws: Any) -> Any:
        return compiled_for(tuple(map(plain, args)), {name: plain(each) for name, each in kws.items()})

    found.get_call_template = for_all
    return cast(F, found)


def merged(function: F) -> F:
    """Mark a function that becomes a part of its caller, for one with many arrays that few places call.

    Each array is passed as seven numbers or more: two calls with fifteen arrays took 150 ns for each value.
    """
    unused: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(inline="never", forceinline=True, nogil=True, **unused)(function))


@cache
def _cache_folder() -> str | None:
    """The user's private folder for code compiled from exactly these sources; None if it cannot be made.

    numba executes the contents of this folder, so no other user may write there. By itself numba would compare only the
    time of the file that holds a kernel, and miss a change in a function that it inlines.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):  # this file among them
        digest.update(path.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    found = private_folder(name, Path(given) / "statestore" if given else None)
    return None if found is None else str(found)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, bits: int) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(bits).as_pointer())


def _borrowed(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_array(signature.return_type)(context, builder, arguments[0])
        found.meminfo = ir.Constant(found.meminfo.type, None)
        found.parent = ir.Constant(found.parent.type, None)
        return found._getvalue()

    return array(array), generate


def _packed(typing_context: Any, array: Any, arrays: Any) -> Any:
    kinds = _types.Tuple((array, *arrays))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_tuple(builder, kinds, [arguments[0], *_code.unpack_tuple(builder, arguments[1])])
        place = _code.alloca_once_value(builder, found)
        return builder.bitcast(place, context.get_value_type(signature.return_type))

    return _types.CPointer(kinds)(array, arrays), generate


def _unpacked(typing_context: Any, pointer: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.return_type
        place = builder.bitcast(arguments[0], context.get_value_type(kinds).as_pointer())
        found = []
        for number, kind in enumerate(kinds):
            array = context.make_array(kind)(
                context, builder, builder.load(_code.gep_inbounds(builder, place, 0, number))
            )
            array.meminfo = ir.Constant(array.meminfo.type, None)
            array.parent = ir.Constant(array.parent.type, None)
            found.append(array._getvalue())
        return context.make_tuple(builder, kinds, found)

    return pointer.dtype(pointer), generate


def _reader(bits: int, *, swap: bool = False) -> Any:
    def read(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = _address(context, builder, signature.args[0], arguments[0], arguments[1], bits)
            word = builder.load(where)
            word.align = 1
            if swap:
                word = builder.bswap(word)
            return builder.zext(word, ir.IntType(64)) if bits < 64 else word

        return types.uint64(array, types.int64), generate

    return intrinsic(read)


def _writer() -> Any:
    def write(typing_context: Any, array: Any, index: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = _address(context, builder, signature.args[0], arguments[0], arguments[1], 64)
            builder.store(arguments[2], where).align = 1
            return context.get_dummy_value()

        return types.void(array, types.int64, types.uint64), generate

    return intrinsic(write)


# Little-endian words at any byte of a byte array, widened to 64 bits; ``big_word`` reads a big-endian one.
half_word: Callable[[Bytes, int], Any] = _reader(32)
word: Callable[[Bytes, int], Any] = _reader(64)
big_word: Callable[[Bytes, int], Any] = _reader(64, swap=True)
store_word: Callable[[Bytes, int, Any], None] = _writer()
unowned: Any = intrinsic(_borrowed)
"""An array without its count of references, for functions that are called while the caller keeps the array.

A function that returns at many places counts references to each of its arrays, atomically: a walk over an object of
Kryo took twice the time.
"""
packed: Any = intrinsic(_packed)
"""The place of an array and a tuple of them in the caller's frame, for a function that `unpacked` gives all of them.

Each array would be passed as seven numbers or more. The caller, which is a kernel, keeps them: they are not counted.
"""
unpacked: Any = intrinsic(_unpacked)
