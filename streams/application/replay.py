"""The output topics of a replay: made like those of the program that it repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from state.errors import TopicNotFoundError
from state.kafka.topics import TopicInfo, TopicSpec

_COPIED = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module uses."""

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]: ...
    def topic_config(self, name: str) -> Mapping[str, str]: ...
    def create_topics(self, topics: Iterable[TopicSpec]) -> object: ...


def make_outputs(admin: Admin, names: Mapping[str, str], replication: int = -1) -> list[str]:
    """Creates the output topics of a replay with the partitions and settings of the originals; existing ones stay.

    Raises:
        TopicNotFoundError: An original does not exist.
        TopicMismatchError: A topic of the replay exists with another number of partitions.
    """
    found = admin.describe_topics([*names, *names.values()])
    specs = []
    for original, name in sorted(names.items()):
        if original not in found:
            raise TopicNotFoundError(original)
        settings = admin.topic_config(original)
        config = {key: settings[key] for key in _COPIED if key in settings}
        specs.append(TopicSpec(name, found[original].partitions, config, replication))
    admin.create_topics(specs)
    return [spec.name for spec in specs if spec.name not in found]


def make_row_topics(admin: Admin, names: Sequence[str], inputs: Iterable[str], replication: int = -1) -> list[str]:
    """Creates the topics that a replay writes to instead of lake sinks; existing ones stay."""
    missing = sorted(set(names) - admin.describe_topics(names).keys())
    partitions = max((info.partitions for info in admin.describe_topics(inputs).values()), default=1)
    admin.create_topics([TopicSpec(name, partitions, replication=replication) for name in missing])
    return missing
