"""The description of the program that wrote an application's state, kept beside its checkpoint for ``streams diff``.

Invariants: the file is replaced as a whole, and only by a program that the engine lets go on with the state: after a change
that it refuses, the file still tells what the state was written by. A checkpoint in a remote storage has no such file (then keep
``streams describe --format json`` with the program).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from state.stores.private_folder import make_private
from streams.topology.description import FORMAT, description, description_json
from streams.topology.diff import same_structure
from streams.topology.graph import Topology

FILE = "topology.json"


def keep_topology(topology: Topology, checkpoint_dir: str) -> Path | None:
    """Writes the description, unless the one that is there is of another structure.

    Args:
        topology: what is about to run.
        checkpoint_dir: the application's.

    Returns:
        The file; None if the checkpoint is in a remote storage.
    """
    if "://" in checkpoint_dir and not checkpoint_dir.startswith("file:"):
        return None
    file = Path(checkpoint_dir.removeprefix("file:")) / FILE
    old = _read(file)
    if old.get("format") == FORMAT and not same_structure(old, description(topology)):
        return file
    make_private(file.parent)
    fresh = file.with_suffix(f".{os.getpid()}.tmp")
    fresh.touch(0o600)
    fresh.write_text(description_json(topology), encoding="utf-8")
    fresh.replace(file)
    return file


def _read(file: Path) -> dict[str, Any]:
    """The description that is there; empty if there is none, or one that nobody can read."""
    try:
        found = orjson.loads(file.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
