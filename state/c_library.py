"""`CLibrary`: a shared library's C functions by their names without prefix, for Python and for compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Signatures: TypeAlias = Mapping[str, tuple[Any, Sequence[Any]]]
"""Function -> the types of its result and its arguments, as `ctypes` takes them."""


class CLibrary:
    """The declared functions of a shared library; subclasses add what is called in more than one step.

    Args:
        path: The shared library.
        prefix: What all names of functions begin with in the library.
        signatures: The functions, without the prefix.

    Raises:
        OSError: The library cannot be loaded.
        AttributeError: The library lacks a function.
    """

    def __init__(self, path: Path, prefix: str, signatures: Signatures) -> None:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in signatures.items():
            function = getattr(loaded, f"{prefix}{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:
        raise AttributeError(f"the C function {name!r} is not declared in {type(self).__module__}")

    def address(self, name: str) -> int:
        """Address of a function, for compiled kernels."""
        return address_of(getattr(self, name))


def address_of(function: Any) -> int:
    """Address of a function of `ctypes`."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
