"""The part of a reset that is in the checkpoint folder: the note that it has begun, and what is deleted there.

Invariants: nothing outside the folder is touched, nor anything in it that is neither a query's checkpoint nor the engine's own
file; the note is written before anything is deleted and goes last, so that half a reset is never taken for an application.
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
    """Called before a start.

    Raises:
        ResetUnfinishedError: A reset was begun, and did not come to its end.
    """
    if noted_topics(checkpoint_dir) is not None:
        raise ResetUnfinishedError(
            f"a reset of {application_id} was begun and has not come to its end, so a part of what it has kept is gone. Run "
            f"`streams reset {application_id}` again: it goes on where it stopped. Nothing was written."
        )


def noted_topics(checkpoint_dir: str) -> list[str] | None:
    """The topics that a reset which has begun is to delete; None if none has."""
    folder = local_folder(checkpoint_dir)
    if folder is None or not (folder / NOTE).exists():
        return None
    try:
        topics = orjson.loads((folder / NOTE).read_bytes())["topics"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # Cut short as it was written, so nothing was deleted yet.
        return []
    return [str(topic) for topic in topics]


def note_reset(checkpoint_dir: str, topics: Iterable[str]) -> None:
    """Writes down that a reset begins, and what it is to delete in Kafka."""
    folder = local_folder(checkpoint_dir)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NOTE).write_bytes(orjson.dumps({"topics": sorted(topics)}))


def query_folders(checkpoint_dir: str, sub_topologies: Collection[str]) -> list[Path]:
    """The checkpoints of queries in the folder: called after a sub-topology, or laid out as Spark does.

    What `streams adopt` has moved aside is called after a sub-topology too, with an ending that begins with `~`.
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
    """Deletes the queries' checkpoints, then the engine's own files, then the folder if nothing is left in it.

    Returns:
        Names of what is left.
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
