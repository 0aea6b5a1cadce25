"""The folder for compiled code that is made once per machine: numba's kernels, and libraries unpacked from archives."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """`__pycache__` beside the source; where that cannot be written (installed package, read-only image), a private folder.

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
    """Whether numba's cache has kernels for this Python; if not, the first process that needs them compiles for half a minute."""
    # Beside the source of the kernels, unless the cache is one folder for all modules.
    folders = {
        Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder()),
        Path(__file__).parent / "tables" / "__pycache__",
    }
    name = f"block_kernels.sort_rows-*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    return any(next(folder.rglob(name), None) is not None for folder in folders)
