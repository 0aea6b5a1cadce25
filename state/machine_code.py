"""Machine code of other libraries (`CLibrary`: the functions of a shared library), and the folder where compiled code is cached."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

VECTOR_BYTES = 16
"""The width of the vectors that every processor has."""


def cache_folder() -> Path:
    """`__pycache__` in the source folder. If that cannot be written (installed package, read-only image), a private folder.

    The folder holds executable code, so a folder that other users may write to is never used.
    """
    beside = Path(__file__).parent / "__pycache__"
    if os.access(beside if beside.exists() else beside.parent, os.W_OK):
        beside.mkdir(exist_ok=True)
        return beside
    folder = Path(tempfile.gettempdir()) / f"streams-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o022 or not stat.S_ISDIR(state.st_mode):
        folder = Path(tempfile.mkdtemp(prefix="streams-kernels-"))
    return folder


def kernels_compiled() -> bool:
    """Whether numba's cache has a worker's kernels for this Python. If not, the first worker compiles for a minute."""
    # They are in the source folders, unless the cache is one folder for all modules.
    folders = {Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder()), Path(__file__).parent}
    # This kernel is not used by the test driver, and other kernels are compiled first by tests.
    name = f"native_kernels.fill_file-*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    return any(next(folder.rglob(name), None) is not None for folder in folders)


Signatures: TypeAlias = Mapping[str, tuple[Any, Sequence[Any]]]
"""Function -> the `ctypes` types of its result and its arguments."""


class CLibrary:
    """The declared functions of a shared library. Subclasses add operations that need several calls.

    Args:
        path: The shared library.
        prefix: The prefix of all names of functions in the library.
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
        """The address of a function, for compiled kernels."""
        return address_of(getattr(self, name))


def address_of(function: Any) -> int:
    """The address of a function of `ctypes`."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
