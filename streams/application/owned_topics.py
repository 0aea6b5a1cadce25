"""Finds what an application has created: the manifest of its program (`topology.json` at its checkpoint), and its topics.

A start compares the manifest with the program (`check_start`), `streams diff` shows the same comparison, and `streams reset`
reads from it what the application has created.

Invariants: the file names its application; it is replaced atomically, and only after a start has accepted the program, so
after a refused change it still describes the program that wrote the state. A checkpoint on remote storage has no such file
(save the output of `streams describe --format json` with the program instead).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from state.changelog import (
    INTERNAL_ENDINGS,
    changelog_topic,
    commits_topic,
    endpoints_topic,
    pauses_topic,
    rescale_topic,
    staging_topic,
)
from state.commit.marker import CommitMarker, MarkerLog
from state.errors import CheckpointMismatchError, MarkerFormatError
from state.kafka.admin import KafkaAdmin
from state.tables.files import make_private, write_private
from streams.application.markers import newest_markers
from streams.checkpoint.files import is_local
from streams.config import StreamsConfig
from streams.topology.manifest import FORMAT, Manifest, plan_manifest
from streams.topology.plan import Plan

FILE = "topology.json"


def local_folder(checkpoint_dir: str) -> Path | None:
    """The folder of a checkpoint; None if the checkpoint is on remote storage."""
    return Path(checkpoint_dir.removeprefix("file:")) if is_local(checkpoint_dir) else None


def written_manifest(checkpoint_dir: str) -> Manifest | None:
    """The manifest in a checkpoint's folder; None if there is no manifest that this version can read."""
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
    """The manifest at an application's own checkpoint, with the result of `written_manifest`."""
    found = written_manifest(config.checkpoint_dir)
    # Files of older versions do not name their application.
    if found is not None and found.get("application_id", config.application_id) != config.application_id:
        raise CheckpointMismatchError(
            f"the checkpoint {config.checkpoint_dir} belongs to another application id, {found['application_id']!r} (its "
            f"{FILE} says so), and not to {config.application_id!r}. Nothing was written or deleted. Give each application a "
            f"checkpoint_dir of its own."
        )
    return found


def write_manifest(
    plan: Plan, checkpoint_dir: str, placements: Mapping[str, str] = MappingProxyType({})
) -> Path | None:
    """Writes the manifest of a program whose start was accepted, with the placements of its sub-topologies."""
    if (folder := local_folder(checkpoint_dir)) is None:
        return None
    file = folder / FILE
    make_private(folder)
    written = {"application_id": plan.application_id, **plan_manifest(plan)}
    for name, placement in placements.items():
        written["sub_topologies"][name]["placement"] = placement
    write_private(file, orjson.dumps(written, option=orjson.OPT_INDENT_2))
    return file


def described_topics(written: Mapping[str, Any], application_id: str) -> set[str]:
    """The real names of all internal topics of a described program, including the temporary ones of a rescale."""
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
        *(f"{application_id}-{name}" for name in written.get("given_tables", ())),
    }


def described_repartitions(written: Mapping[str, Any], application_id: str) -> set[str]:
    return {f"{application_id}-{name}" for name in written["repartition_topics"]}


# --- The topics that an application has created, as its topology.json and its commit markers prove.
#
# A name alone proves nothing: `orders-eu-counts-changelog` begins with `orders-`, but may belong to the application
# `orders-eu`. A marker names its application and the stores of its task. Markers of older versions do not name the
# application: then their topic counts as the application's own only if topology.json lists it too.

COMMITS, REPARTITION = "-commits", "-repartition"


@dataclass(frozen=True)
class OwnedTopics:
    """The topics of the cluster that may belong to an application.

    Attributes:
        own: Topics that the application has created -> the proof.
        foreign: Topics with similar names that belong to another application by a marker -> that application.
        unproven: Topics with similar names whose owner is unknown.
    """

    own: Mapping[str, str]
    foreign: Mapping[str, str]
    unproven: tuple[str, ...]


def owned_topics(application_id: str, kept: Mapping[str, Any] | None, admin: KafkaAdmin, log: MarkerLog) -> OwnedTopics:
    """The ownership of all topics whose names begin with the application id."""
    names = set(admin.topic_names())
    described = described_topics(kept, application_id) & names if kept else set()
    alike = {name for name in names if name.startswith(f"{application_id}-") and name.endswith(INTERNAL_ENDINGS)}
    pauses = {pauses_topic(application_id)} & names
    serving = {endpoints_topic(application_id)} & names
    own = {
        **dict.fromkeys(described, "topology.json"),
        **dict.fromkeys(pauses, "its pauses"),
        **dict.fromkeys(serving, "processes that serve its stores"),
    }
    foreign: dict[str, str] = {}
    commits = admin.describe_topics(sorted(name for name in alike - pauses if name.endswith(COMMITS)))
    for topic, info in commits.items():
        for marker in _readable_markers(log, topic, info.partitions):
            proven = _proven(topic, marker) & names
            if marker.application_id == application_id:
                own = dict.fromkeys(proven, f"the commits of query {marker.query_id}") | own
            else:
                foreign |= dict.fromkeys(proven, marker.application_id)
    own = {name: proof for name, proof in sorted(own.items()) if name not in foreign}
    unproven = tuple(sorted(alike - own.keys() - foreign.keys()))
    return OwnedTopics(own, dict(sorted(foreign.items())), unproven)


def commits_topics_of(application_id: str, topics: Iterable[str]) -> dict[str, str]:
    """Topic with commit markers, among an application's own topics -> its sub-topology."""
    return {
        topic: topic[len(application_id) + 1 : -len(COMMITS)]
        for topic in topics
        if topic.endswith(COMMITS) and topic != pauses_topic(application_id)
    }


def _readable_markers(log: MarkerLog, topic: str, partitions: int) -> list[CommitMarker]:
    """The newest markers of a topic; none if its records are not markers."""
    try:
        return list(newest_markers(log, topic, range(partitions)))
    except MarkerFormatError:
        return []


def _proven(topic: str, marker: CommitMarker) -> set[str]:
    """The topics that a marker proves to belong to its application; none if it does not name it."""
    owner = marker.application_id
    if not owner:
        return set()
    # Also what exists only while a rescale is unfinished: its copies would bring back what a reset has deleted.
    stores = (each(owner, store) for store in marker.changelog_ends for each in (changelog_topic, staging_topic))
    proven = {topic, *stores, *(rescale_topic(owner, sub) for sub in commits_topics_of(owner, [topic]).values())}
    # A sub-topology that is named after a repartition topic reads that topic; the other topics it reads may be anyone's.
    if (read := topic.removesuffix(COMMITS)).endswith(REPARTITION) and read in marker.topic_ids:
        proven.add(read)
    return proven
