"""Reads and writes at addresses of memory, for kernels that gather from many buffers in one call.

An address comes from a buffer that the caller holds, and never from a file. Each kernel knows the sizes of the buffers
that it is given, and stays inside them. Words are little-endian, and may lie at any address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _reader(bits: int) -> Any:
    def read(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = builder.load(_pointer(builder, arguments[0], bits))
            found.align = 1
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.uint64(types.int64), generate

    return intrinsic(read)


def _writer(bits: int) -> Any:
    def write(typing_context: Any, address: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = builder.trunc(arguments[1], ir.IntType(bits)) if bits < 64 else arguments[1]
            builder.store(number, _pointer(builder, arguments[0], bits)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64), generate

    return intrinsic(write)


def _copier() -> Any:
    def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source, size = arguments
            byte = ir.IntType(8).as_pointer()
            kinds = [byte, byte, ir.IntType(64)]
            memcpy = builder.module.declare_intrinsic("llvm.memcpy", kinds)
            pointers = [builder.inttoptr(address, byte) for address in (target, source)]
            builder.call(memcpy, [*pointers, size, ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return intrinsic(copy)


# Numbers at an address, widened to 64 bits without a sign.
byte_at: Callable[[int], Any] = _reader(8)
pair_at: Callable[[int], Any] = _reader(16)
half_at: Callable[[int], Any] = _reader(32)
word_at: Callable[[int], Any] = _reader(64)
put_byte: Callable[[int, Any], None] = _writer(8)
put_pair: Callable[[int, Any], None] = _writer(16)
put_half: Callable[[int, Any], None] = _writer(32)
put_word: Callable[[int, Any], None] = _writer(64)
copy_memory: Callable[[int, int, int], None] = _copier()
