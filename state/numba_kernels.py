"""Kernels: functions that numba compiles, for loops over columns and for calls of C libraries. Modules define them with this.

Importing numba takes 50 MB and 0.15 s of CPU, and a driver imports the modules of all operators without ever running a kernel. So
here are only stand-ins: the first kernel that runs imports numba (`state.numba_functions`). If a kernel refers to a stand-in, numba
asks it for its type by numba's own protocol, the attribute `_numba_type_`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Kernel:
    """A function that is compiled when it is first called, or when a kernel that calls it is compiled."""

    compiled: Any
    """Numba's dispatcher of the function, made on first access."""

    def __init__(self, function: Callable[..., Any], allocates: bool) -> None:
        self._function = function
        self._allocates = allocates
        update_wrapper(self, function)

    def __getattr__(self, name: str) -> Any:
        # No `cached_property`: before Python 3.12 it has a lock, and threads wait for numba's own lock both with and without it.
        if name != "compiled":
            raise AttributeError(name)
        from state.numba_functions import compiled

        return self.__dict__.setdefault("compiled", compiled(self._function, self._allocates))

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @property
    def _numba_type_(self) -> Any:
        return self.compiled._numba_type_


class _InKernels:
    """A function of `state.numba_functions` that only kernels call."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _numba_type_(self) -> Any:
        from state import numba_functions

        return numba_functions.type_of(getattr(numba_functions, self._name))


def kernel(function: _Function) -> _Function:
    """Decorator: compiles at the first call (or loads from the disk cache); runs without the GIL on arrays of the caller.

    Because it makes no arrays, numba need not count references to them. It would do so at each call from kernel to kernel, once for
    each array, with an instruction that waits for all processors: in the JSON scanner, that took up to half of the time.
    """
    return cast(_Function, _Kernel(function, allocates=False))


def allocating_kernel(function: _Function) -> _Function:
    """Decorator for a kernel that makes arrays (also by `carray`), or calls one that does: references are counted."""
    return cast(_Function, _Kernel(function, allocates=True))


carray: Any = _InKernels("carray")
"""`numba.carray`: an array at a pointer."""
as_pointer: Any = _InKernels("as_pointer")
"""int64 address -> pointer, for `carray`."""
call: Any = _InKernels("call")
"""Calls the C function at an address with a tuple of int64 arguments, and returns its result as int64."""
copy_bytes: Any = _InKernels("copy_bytes")
"""Copies a number of bytes from one address (the second argument) to another (the first)."""
plain_bytes: Any = _InKernels("plain_bytes")
"""The number of bytes before the first quote, backslash or control character, in `VECTOR_BYTES` of an array from a position."""
