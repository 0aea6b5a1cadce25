"""The manifest of the program that wrote an application's state: `topology.json` beside its checkpoint.

A start compares the manifest with the program (`check_start`), `streams diff` shows the same comparison, and `streams reset`
reads from it what the application has created.

Invariants: the file names its application; it is replaced atomically, and only after a start has accepted the program, so
after a refused change it still describes the program that wrote the state. A checkpoint on remote storage has no such file
(save the output of `streams describe --format json` with the program instead).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from state.changelog.topics import changelog_topic, commits_topic, rescale_topic, staging_topic
from state.errors import CheckpointMismatchError
from state.tables.private_folder import make_private, write_private
from streams.checkpoint.files import is_local
from streams.config import StreamsConfig
from streams.topology.manifest import FORMAT, Manifest, plan_manifest
from streams.topology.plan import Plan

FILE = "topology.json"


def local_folder(checkpoint_dir: str) -> Path | None:
    """The folder of a checkpoint; None if the checkpoint is on remote storage."""
    return Path(checkpoint_dir.removeprefix("file:")) if is_local(checkpoint_dir) else None


def written_manifest(checkpoint_dir: str) -> Manifest | None:
    """The manifest in a checkpoint's folder; None if there is none that this version can read."""
    folder = local_folder(checkpoint_dir)
    try:
        found = orjson.loads((folder / FILE).read_bytes()) if folder else None
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    readable = (
        isinstance(found, dict) and found.get("format") == FORMAT and isinstance(found.get("sub_topologies"), dict)
    )
    return found if readable else None


def own_manifest(config: StreamsConfig) -> Manifest | None:
    """Like `written_manifest`, for an application's own checkpoint.

    Raises:
        CheckpointMismatchError: The checkpoint belongs to another application.
    """
    found = written_manifest(config.checkpoint_dir)
    # Files of older versions do not name their application.
    if found is not None and found.get("application_id", config.application_id) != config.application_id:
        raise CheckpointMismatchError(
            f"the checkpoint {config.checkpoint_dir} belongs to another application id, {found['application_id']!r} (its "
            f"{FILE} says so), and not to {config.application_id!r}. Nothing was written or deleted. Give each application a "
            f"checkpoint_dir of its own."
        )
    return found


def write_manifest(plan: Plan, checkpoint_dir: str) -> Path | None:
    """Writes the manifest of a program whose start was accepted."""
    if (folder := local_folder(checkpoint_dir)) is None:
        return None
    file = folder / FILE
    make_private(folder)
    written = {"application_id": plan.application_id, **plan_manifest(plan)}
    write_private(file, orjson.dumps(written, option=orjson.OPT_INDENT_2))
    return file


def described_topics(written: Mapping[str, Any], application_id: str) -> set[str]:
    """The real names of all internal topics of a described program, also of those that exist only during a rescale."""
    subs = written["sub_topologies"]
    stores = {name: store for sub in subs.values() for name, store in sub["stores"].items()}
    return {
        *(topic(application_id, name) for name in subs for topic in (commits_topic, rescale_topic)),
        *(
            topic(application_id, name)
            for name, store in stores.items()
            if store["logged"]
            for topic in (changelog_topic, staging_topic)
        ),
        *described_repartitions(written, application_id),
    }


def described_repartitions(written: Mapping[str, Any], application_id: str) -> set[str]:
    """The real names of the repartition topics of a described program."""
    return {f"{application_id}-{name}" for name in written["repartition_topics"]}
