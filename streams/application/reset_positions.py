"""Where an application begins to read after a reset: at a time, some time ago, or at given offsets.

The positions become the first position of a new checkpoint, in the file that a start looks for (`first-batch.json`), so that
the start of the application needs no setting. Everything is refused that is not exactly possible: a topic without partitions
named, an offset that is not in the log.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from state.commit.last_marker import MarkerLog
from state.kafka.topics import TopicInfo, TopicPartition
from streams.application.belongings import REPARTITION, belongings, commits_topics_of
from streams.application.markers import newest_markers
from streams.application.topology_manifest import described_repartitions, local_folder, own_manifest
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.source.offsets import FirstBatch, SourceOffsets, TopicOffsets


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module uses."""

    def topic_names(self) -> list[str]: ...
    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]: ...
    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]: ...


@dataclass(frozen=True)
class Wanted:
    """The positions that a user asks for.

    Attributes:
        time_ms: The first records at or past this time, ms since 1970; None: the offsets.
        offsets: Partition -> offset; partitions that are not named are an error.
    """

    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse_offsets(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """The offsets in lines of `topic,partition,offset`, the form of `kafka-consumer-groups.sh --from-file`.

    Raises:
        ConfigError: A line has another form.
    """
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        if len(row) != 3 or not (row[1].strip().isdecimal() and row[2].strip().isdecimal()):
            raise ConfigError(f"--to-offsets: line {number} is {','.join(row)!r}, and topic,partition,offset is needed")
        found[row[0].strip(), int(row[1])] = int(row[2])
    return found


def start_positions(config: StreamsConfig, admin: Admin, log: MarkerLog, wanted: Wanted) -> dict[str, FirstBatch]:
    """Sub-topology -> where it is to begin; without those that only read repartition topics, which a reset deletes.

    Raises:
        ConfigError: The inputs are unknown, a position is missing, or it is not in the log.
    """
    if local_folder(config.checkpoint_dir) is None:
        raise ConfigError(
            f"the checkpoint {config.checkpoint_dir} is on remote storage, where a reset cannot make a new one: reset without "
            "positions, and start with --set starting_offsets=timestamp:MS"
        )
    inputs = _inputs(config, admin, log)
    found = admin.describe_topics({topic for topics in inputs.values() for topic in topics})
    missing = sorted({topic for topics in inputs.values() for topic in topics} - found.keys())
    if missing:
        raise ConfigError(f"{', '.join(missing)}: the application reads this, and there is no such topic")
    places = [(name, number) for name, info in sorted(found.items()) for number in range(info.partitions)]
    at = _positions(admin, places, wanted)
    return {
        sub: _first({name: TopicOffsets(found[name].topic_id, _of(at, name, found[name])) for name in sorted(topics)})
        for sub, topics in sorted(inputs.items())
        if topics
    }


def _first(topics: Mapping[str, TopicOffsets]) -> FirstBatch:
    # A first position with an end is final; without one, a start decides anew where a first micro-batch begins.
    return FirstBatch(SourceOffsets(topics), SourceOffsets(topics))


def _of(at: Mapping[TopicPartition, int], topic: str, info: TopicInfo) -> tuple[int, ...]:
    return tuple(at[topic, number] for number in range(info.partitions))


def _positions(admin: Admin, places: list[TopicPartition], wanted: Wanted) -> Mapping[TopicPartition, int]:
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    if wanted.time_ms is not None:
        found = admin.offsets_for_times(dict.fromkeys(places, wanted.time_ms))
        return {place: min(max(found[place], begins[place]), ends[place]) for place in places}
    strange = sorted(wanted.offsets.keys() - set(places))
    if strange:
        raise ConfigError(f"--to-offsets: {strange[0][0]}-{strange[0][1]} is no partition that the application reads")
    for place in places:
        name = f"{place[0]}-{place[1]}"
        if place not in wanted.offsets:
            raise ConfigError(f"--to-offsets: {name} is missing, whose log has [{begins[place]}, {ends[place]})")
        if not begins[place] <= wanted.offsets[place] <= ends[place]:
            raise ConfigError(
                f"--to-offsets: offset {wanted.offsets[place]} of {name} is not in the log, which has [{begins[place]}, "
                f"{ends[place]})"
            )
    return wanted.offsets


def _inputs(config: StreamsConfig, admin: Admin, log: MarkerLog) -> dict[str, set[str]]:
    """Sub-topology -> the topics that it reads and does not own: by topology.json and by the markers."""
    app, kept = config.application_id, own_manifest(config)
    found: dict[str, set[str]] = {}
    own = {*belongings(app, kept, admin, log).own, *(described_repartitions(kept, app) if kept else ())}
    for name, sub in kept["sub_topologies"].items() if kept else ():
        found[name] = _plain_sources(sub, kept or {}, set(admin.topic_names()))
    for topic, name in sorted(commits_topics_of(app, own).items()):
        info = admin.describe_topics([topic]).get(topic)
        for marker in newest_markers(log, topic, range(info.partitions)) if info else ():
            # Without topology.json only their names tell what a reset deletes: nobody else reads such a topic.
            internal = {
                topic for topic in marker.topic_ids if topic.startswith(f"{app}-") and topic.endswith(REPARTITION)
            }
            found.setdefault(name, set()).update(set(marker.topic_ids) - own - internal)
    if not any(found.values()):
        raise ConfigError(
            f"which topics {app} reads is not known: there is neither a topology.json in {config.checkpoint_dir} nor any commit "
            "marker. Is the application id right, and --base-dir?"
        )
    return found


def _plain_sources(sub: Mapping[str, Any], kept: Mapping[str, Any], known: set[str]) -> set[str]:
    """The named topics of a described sub-topology; those of a pattern are known from the markers."""
    named = {str(topic) for topics in sub["sources"].values() for topic in topics}
    # A pattern stands between slashes, which no topic's name contains.
    return {topic for topic in named - set(kept["repartition_topics"]) if topic in known or "/" not in topic}
