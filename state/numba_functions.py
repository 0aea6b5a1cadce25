"""The compiler of kernels: numba, and the few pointer operations that it lacks. Imported by the first kernel that runs.

Kernels take addresses as arguments. A kernel that captures a ctypes function contains an address of its process and cannot be
cached on disk, whereas with int64 addresses the machine code is compiled once on each machine. Invariants: all
kernels release the GIL; a pointer is an int64; arguments and results of C calls are integers or pointers (both 64-bit
ABIs pass them in registers, so int32 parameters may be passed as int64; of an int32 result only the low half counts).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, cfunc
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from state.machine_code import VECTOR_BYTES, cache_folder

__all__ = ["as_pointer", "call", "carray", "cfunc", "compiled", "copy_bytes", "plain_bytes", "type_of", "types"]


def _use_writable_cache() -> None:
    """Gives numba a cache folder if it cannot write to the source folder, which it uses by default."""
    folder = cache_folder()
    if not os.environ.get("NUMBA_CACHE_DIR") and folder.name != "__pycache__":
        numba.config.CACHE_DIR = str(folder)


_use_writable_cache()


def _make_contexts() -> None:
    """Makes the contexts of all kernels in advance.

    Two threads that made them would each hold a lock of numba that the other waits for.
    """
    with global_compiler_lock:
        # They are made on first access.
        _ = cpu_target.typing_context, cpu_target.target_context


_make_contexts()


def compiled(function: Callable[..., Any], allocates: bool) -> Any:
    """Makes a kernel that is compiled at its first call (or loaded from the disk cache), and runs without the GIL.

    Args:
        function: The definition.
        allocates: Whether it makes arrays, so that references to arrays are counted.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy", _nrt=allocates)(function)


def type_of(function: object) -> Any:
    """The type by which numba's compiler knows a function that kernels may call."""
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(function)


@intrinsic  # type: ignore[untyped-decorator]
def as_pointer(_context: Any, address: Any) -> Any:
    """int64 address -> pointer, for `numba.carray`."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def call(_context: Any, address: Any, arguments: Any) -> Any:
    """Calls the C function at `address` with a tuple of int64 arguments, and returns its result as int64."""

    def generate(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(word, [word] * arguments.count)
        pointer = builder.inttoptr(values[0], function.as_pointer())
        return builder.call(pointer, cgutils.unpack_tuple(builder, values[1], arguments.count))

    if arguments.key[0] != types.int64:
        raise numba.TypingError(f"arguments of a C call must be int64, not {arguments}")
    return types.int64(types.int64, arguments), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copies `size` bytes from one address to another."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        to, start = (builder.inttoptr(value, byte_pointer) for value in values[:2])
        cgutils.raw_memcpy(builder, to, start, values[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def plain_bytes(_context: Any, data: Any, at: Any) -> Any:
    """The number of bytes before the first quote, backslash or control character, in the `VECTOR_BYTES` bytes from data[at] on.

    All of them are compared at once, and all have to be within the array.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        block, bits = ir.VectorType(ir.IntType(8), VECTOR_BYTES), ir.IntType(VECTOR_BYTES)
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.bitcast(builder.gep(array.data, [values[1]]), block.as_pointer())
        loaded = builder.load(place, align=1)
        quote, backslash, space = (ir.Constant(block, [byte] * VECTOR_BYTES) for byte in b'"\\ ')
        ends = [builder.icmp_unsigned("==", loaded, one) for one in (quote, backslash)]
        ends.append(builder.icmp_unsigned("<", loaded, space))
        found = builder.bitcast(builder.or_(builder.or_(ends[0], ends[1]), ends[2]), bits)
        return builder.zext(builder.cttz(found, ir.Constant(ir.IntType(1), 0)), ir.IntType(64))

    return types.uint64(data, at), generate
