"""Kernels: functions that numba compiles, for loops over columns and for calls of C libraries. What a module needs to define them.

Importing numba takes 50 MB and 0.15 s of CPU, and a driver imports the modules of all operators without ever running a kernel. So
here are only stand-ins: the first kernel that runs imports numba (`state.numba_functions`). Numba asks a stand-in that a kernel
refers to for its type by numba's own protocol, the attribute `_numba_type_`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Kernel:
    """A function that is compiled when it is called, or when a kernel that calls it is."""

    compiled: Any
    """Numba's dispatcher of the function, made when it is asked for."""

    def __init__(self, function: Callable[..., Any], allocates: bool) -> None:
        self._function = function
        self._allocates = allocates
        update_wrapper(self, function)

    def __getattr__(self, name: str) -> Any:
        # No `cached_property`: before Python 3.12 it has a lock, and numba's own may be waited for with it and without.
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
    """Decorator: compile on first call (or load from the disk cache), without the GIL. All arrays come from the caller.

    So numba need not count references to arrays. It would do so at each call from kernel to kernel, once for each array, with an
    instruction that waits for all processors: in the JSON scanner, that took two thirds of the time.
    """
    return cast(_Function, _Kernel(function, allocates=False))


def allocating_kernel(function: _Function) -> _Function:
    """`kernel`, of a function that makes arrays (also by `carray`), or calls a kernel that does: references are counted."""
    return cast(_Function, _Kernel(function, allocates=True))


carray: Any = _InKernels("carray")
"""`numba.carray`: an array at a pointer."""
as_pointer: Any = _InKernels("as_pointer")
"""int64 address -> pointer, for `carray`."""
call: Any = _InKernels("call")
"""Call the C function at an address with a tuple of int64 arguments; its result as int64."""
copy_bytes: Any = _InKernels("copy_bytes")
"""Copy a number of bytes from one address (the second argument) to another (the first)."""
plain_bytes: Any = _InKernels("plain_bytes")
"""How many of the 16 bytes of an array from a position on stand before the first quote, backslash or control character."""
