"""Reading positions without a checkpoint: the offsets that were committed together with the markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from state.kafka.topics import TopicPartition
from streams.checkpoint.log import Checkpoint
from streams.errors import ConfigError


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module uses."""

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]: ...
    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


@dataclass(frozen=True)
class GivenPositions:
    """The user's positions for partitions whose position is otherwise unknown.

    Attributes:
        partitions: Partition -> offset.
        topics: Topic -> `earliest` or `latest`, for its other partitions.
    """

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> GivenPositions:
        """The positions that texts like `TOPIC:PARTITION=OFFSET`, `TOPIC=earliest` and `TOPIC=latest` give.

        Raises:
            ConfigError: A text has another form.
        """
        partitions: dict[TopicPartition, int] = {}
        topics: dict[str, str] = {}
        for text in texts:
            where, _, what = text.partition("=")
            topic, _, number = where.partition(":")
            if topic and number.isdecimal() and what.isdecimal():
                partitions[topic, int(number)] = int(what)
            elif topic and not number and what in ("earliest", "latest"):
                topics[topic] = what
            else:
                raise ConfigError(
                    f"--position {text}: TOPIC:PARTITION=OFFSET is needed, or TOPIC=earliest, or TOPIC=latest"
                )
        return cls(partitions, topics)

    def of(self, place: TopicPartition, begin: int, end: int) -> int | None:
        """The offset for a partition with records [begin, end); None if none was given."""
        named = self.topics.get(place[0])
        return self.partitions.get(place, None if named is None else begin if named == "earliest" else end)


def reading_positions(
    admin: Admin,
    group: str,
    places: Sequence[TopicPartition],
    known: Mapping[TopicPartition, int],
    checkpoint: Checkpoint,
    given: GivenPositions,
) -> dict[TopicPartition, int]:
    """The next offset of each partition.

    Kafka forgets the committed offsets of a partition that was quiet for some days (`offsets.retention.minutes`). So a missing
    offset does not mean that nothing was read: unless the partition is empty, or the old checkpoint has read all of it, only
    the user can know.

    Raises:
        ConfigError: A position is unknown, or the user gives one that is known.
    """
    committed = admin.group_offsets(group, places)
    begin, end = admin.begin_offsets(places), admin.end_offsets(places)
    logged = checkpoint.offsets.get(checkpoint.logged)
    found: dict[TopicPartition, int] = {}
    unknown: list[TopicPartition] = []
    for place in places:
        said = given.of(place, begin[place], end[place])
        if place in known or place in committed:
            if place in given.partitions:
                raise ConfigError(
                    f"--position {place[0]}:{place[1]}={said}: the application has committed its position there, leave this out"
                )
            found[place] = known.get(place, committed.get(place, 0))
        elif said is not None:
            found[place] = said
        elif begin[place] == end[place] or (logged is not None and logged.of(*place) == end[place]):
            found[place] = end[place]
        else:
            unknown.append(place)
    if unknown:
        raise _unknown_positions(group, unknown, begin, end)
    return found


def _unknown_positions(
    group: str,
    unknown: Sequence[TopicPartition],
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> ConfigError:
    shown = ", ".join(
        f"{topic}-{number} [{begin[topic, number]}, {end[topic, number]})" for topic, number in unknown[:5]
    )
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    topic, number = unknown[0]
    return ConfigError(
        f"group {group} has no committed offset for {shown}{more}: nothing was read there so far, or Kafka has forgotten it "
        f"after some quiet days (offsets.retention.minutes). Say where reading goes on: --position {topic}:{number}=OFFSET, or "
        f"--position {topic}=earliest (all is new) or --position {topic}=latest (all was read)"
    )
