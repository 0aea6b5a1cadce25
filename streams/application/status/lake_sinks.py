"""How far the lake sinks of an application have written: the lag of their queries behind their internal topics.

A sink deletes from its internal topic what it has written, so the topic's beginning is a position that any host can ask for. A
sink of `foreach_batch` deletes a batch only with the next one, but notes it in the consumer group. A broker may refuse to delete,
and forgets a group's offsets after some quiet days, so the checkpoint is read as well, where it is on this host's disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from state.kafka.admin import KafkaAdmin, TopicPartition
from streams.application.prepare import Application
from streams.checkpoint.files import CheckpointFiles, LocalFiles, is_local
from streams.checkpoint.log import confirmed_end
from streams.lake.commit import TABLE_COMMIT, SinkCommit
from streams.source.offsets import TopicOffsets
from streams.source.pauses import NOTHING, Pauses
from streams.topology.graph import DeltaTable, LakeSink


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The status of a lake sink.

    Attributes:
        name: The sink's name.
        target: What it writes to.
        read: Topic and partition -> the next offset to write.
        ends: Topic and partition -> its end offset.
        at_most: Whether the last batch may count as lag though it was handed over: its note is gone, and the checkpoint elsewhere.
        paused_since_ms: Since when it is paused, ms since 1970; None: it is not.
    """

    name: str
    target: str
    read: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    at_most: bool = False
    paused_since_ms: int | None = None

    @property
    def lag(self) -> int:
        """The number of offsets left to write, over all partitions."""
        return sum(max(0, end - self.read[place]) for place, end in self.ends.items())


def sink_statuses(application: Application, admin: KafkaAdmin, pauses: Pauses = NOTHING) -> tuple[SinkStatus, ...]:
    """The status of each lake sink now."""
    config = application.config
    sinks = application.plan.topology.lake_sinks.values()
    topics = {sink.name: sink.topic.topic_name(config.application_id) for sink in sinks}
    found = admin.describe_topics(sorted(topics.values()))
    places = [(topic, number) for topic, info in found.items() for number in range(info.partitions)]
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    noted = admin.group_offsets(config.application_id, places)
    files = LocalFiles(config.checkpoint_dir) if is_local(config.checkpoint_dir) else None
    statuses = []
    for sink in sinks:
        own = [place for place in places if place[0] == topics[sink.name]]
        position = None if files is None or not own else _position(files, sink, topics[sink.name])
        if position is not None and position.topic_id != found[topics[sink.name]].topic_id:
            position = None  # of an internal topic that a reset has deleted
        known: Sequence[int] = () if position is None else position.offsets
        read = {at: max(begins[at], noted.get(at, 0), known[at[1]] if at[1] < len(known) else 0) for at in own}
        statuses.append(
            SinkStatus(
                sink.name,
                sink.target_text,
                read,
                {at: ends[at] for at in own},
                position is None and not noted.keys() >= {*own} and not isinstance(sink.target, DeltaTable),
                pauses.of(sink.name),
            )
        )
    return tuple(statuses)


def _position(files: CheckpointFiles, sink: LakeSink, topic: str) -> TopicOffsets | None:
    """The end of the last batch that the checkpoint has as written; None: it is not here, or has none."""
    if isinstance(sink.target, DeltaTable):
        saved = files.read(f"{sink.name}/{TABLE_COMMIT}")
        return None if saved is None else SinkCommit.from_json(orjson.loads(saved)).position
    return confirmed_end(files, sink.name, topic)
