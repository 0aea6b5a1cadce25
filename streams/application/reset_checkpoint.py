"""The part of a reset in the checkpoint folder: the note that a reset has begun, and the deletion of the checkpoints.

Invariants: nothing outside the folder is touched, nor anything in it that is neither a query's checkpoint nor the engine's own
file; the note is written before anything is deleted and deleted last, so that an application never starts on half a reset.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import orjson

from streams.application.topology_manifest import FILE, local_folder
from streams.errors import ResetUnfinishedError

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
    folder = local_folder(checkpoint_dir)
    if folder is None or not (folder / NOTE).exists():
        return None
    try:
        topics = orjson.loads((folder / NOTE).read_bytes())["topics"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # The note is truncated, so nothing was deleted yet.
        return []
    return [str(topic) for topic in topics]


def note_reset(checkpoint_dir: str, topics: Iterable[str]) -> None:
    """Writes the note that a reset begins, with the topics that it is to delete."""
    folder = local_folder(checkpoint_dir)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NOTE).write_bytes(orjson.dumps({"topics": sorted(topics)}))


def query_folders(checkpoint_dir: str, sub_topologies: Collection[str]) -> list[Path]:
    """The checkpoints of queries in the folder: folders named after a sub-topology, or with Spark's layout.

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
        )
    ]


def delete_checkpoint(checkpoint_dir: str, sub_topologies: Collection[str]) -> list[str]:
    """Deletes the queries' checkpoints, then the engine's own files, then the folder if it is empty.

    Returns:
        The names of the remaining entries.
    """
    folder = local_folder(checkpoint_dir)
    if folder is None or not folder.is_dir():
        return []
    for query in query_folders(checkpoint_dir, sub_topologies):
        shutil.rmtree(query)
    for file in (*folder.glob(f"{Path(FILE).stem}.*.tmp"), folder / FILE, folder / NOTE):
        file.unlink(missing_ok=True)
    left = sorted(child.name for child in folder.iterdir())
    if not left:
        folder.rmdir()
    return left
