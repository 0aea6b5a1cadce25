"""The part of a reset in the checkpoint folder: the note that a reset has begun, the deletion of the checkpoints, and new ones.

Invariants: nothing outside the folder is touched, nor anything in it that is neither a query's checkpoint nor the engine's own
file; the note is written before anything is deleted and deleted last, so that an application never starts on half a reset.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from streams.application.instances import LOCK
from streams.application.topology_manifest import FILE, local_folder
from streams.checkpoint.files import LocalFiles
from streams.checkpoint.log import write_first_batch, write_query_id
from streams.errors import ResetUnfinishedError
from streams.lake.commit import TABLE_COMMIT
from streams.source.offsets import FirstBatch

NOTE = "reset.json"


def check_no_reset(application_id: str, checkpoint_dir: str) -> None:
    """Refuses a start after an unfinished reset.

    Raises:
        ResetUnfinishedError: A reset was begun and not finished.
    """
    if noted_topics(checkpoint_dir) is not None:
        raise ResetUnfinishedError(
            f"a reset of {application_id} was begun and has not come to its end, so a part of what it has kept is gone. Run "
            f"`streams reset {application_id}` again: it goes on where it stopped. Nothing was written."
        )


def noted_topics(checkpoint_dir: str) -> list[str] | None:
    """The topics that an unfinished reset is to delete; None if there is no unfinished reset."""
    note = _note(checkpoint_dir)
    return None if note is None else [str(topic) for topic in note.get("topics", ())]


def noted_start(checkpoint_dir: str) -> dict[str, FirstBatch]:
    """Where an unfinished reset lets sub-topologies begin to read; empty if it says nothing about that."""
    found = (_note(checkpoint_dir) or {}).get("start", {})
    return {name: FirstBatch.from_json(first) for name, first in found.items()}


def _note(checkpoint_dir: str) -> dict[str, Any] | None:
    folder = local_folder(checkpoint_dir)
    if folder is None or not (folder / NOTE).exists():
        return None
    try:
        note = orjson.loads((folder / NOTE).read_bytes())
    except orjson.JSONDecodeError:
        # The note is truncated, so nothing was deleted yet.
        return {}
    return note if isinstance(note, dict) else {}


def note_reset(
    checkpoint_dir: str, topics: Iterable[str], start: Mapping[str, FirstBatch] = MappingProxyType({})
) -> None:
    """Writes the note that a reset begins, with the topics that it is to delete, and where reading then begins."""
    folder = local_folder(checkpoint_dir)
    if folder is not None:
        note = {"topics": sorted(topics), "start": {name: first.to_json() for name, first in sorted(start.items())}}
        LocalFiles(str(folder)).write(NOTE, orjson.dumps(note))


def query_folders(checkpoint_dir: str, sub_topologies: Collection[str]) -> list[Path]:
    """The checkpoints of queries in the folder: folders named after a sub-topology, or with Spark's layout, or of a lake sink.

    Folders that `streams adopt` has moved aside are named after a sub-topology too, with a suffix that begins with `~`.
    """
    folder = local_folder(checkpoint_dir)
    if folder is None or not folder.is_dir():
        return []
    return [
        child
        for child in sorted(folder.iterdir())
        if child.is_dir()
        and not child.is_symlink()
        and (
            not {child.name, child.name.partition("~")[0]}.isdisjoint(sub_topologies)
            or ((child / "metadata").exists() and (child / "offsets").is_dir())
            or (child / TABLE_COMMIT).exists()
        )
    ]


def delete_checkpoint(
    checkpoint_dir: str, sub_topologies: Collection[str], start: Mapping[str, FirstBatch] = MappingProxyType({})
) -> list[str]:
    """Deletes the queries' checkpoints, makes new ones where reading begins elsewhere, then deletes the engine's own files."""
    folder = local_folder(checkpoint_dir)
    if folder is None or not folder.is_dir():
        return []
    for query in query_folders(checkpoint_dir, sub_topologies):
        shutil.rmtree(query)
    files = LocalFiles(str(folder))
    for name, first in start.items():
        write_query_id(files, name, str(uuid.uuid4()))
        write_first_batch(files, name, first)
    for file in (*folder.glob(f"{Path(FILE).stem}.*.tmp"), folder / FILE, folder / LOCK, folder / NOTE):
        file.unlink(missing_ok=True)
    left = sorted(child.name for child in folder.iterdir() if child.name not in start)
    if not left and not start:
        folder.rmdir()
    return left
