"""The topics of a topology, so that a misspelt name is an error instead of an empty topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from streams.serdes.base import Serde
from streams.serdes.primitives import BytesSerde
from streams.suggest import did_you_mean
from streams.topology.graph import InternalTopic, SinkNode, SourceNode
from streams.topology.plan import Plan
from streams.topology.rewrite import matches

Serdes = tuple[Serde[Any], Serde[Any]]


class KnownTopics:
    """The topics that a topology reads and writes, and their serdes.

    Args:
        plan: The topology with the real names of its topics.
        dead_letter_topic: The topic of dead letters, if there is one.
        declared: Topics that the test declares, whether or not a pattern matches them.
    """

    def __init__(self, plan: Plan, dead_letter_topic: str | None, declared: Collection[str] = ()) -> None:
        self._plan = plan
        self._declared = declared
        self._dead_letters = dead_letter_topic
        self._sources = [
            *(source for sub in plan.sub_topologies for source in sub.sources),
            *(table.source for table in plan.topology.global_tables.values()),
        ]
        self._sinks = [sink for sub in plan.sub_topologies for sink in sub.sinks]

    def input_serdes(self, name: str) -> Serdes:
        """The key and value serde of the source of a topic.

        Raises:
            LookupError: No source reads the topic.
        """
        found = next((one for one in self._sources if name in one.topics or matches(one, name)), None)
        if found is None and name in self._declared:
            return self._plan.topology.default_key_serde, self._plan.topology.default_value_serde
        if found is None:
            known = {text for source in self._sources for text in _read_by(source)} - self._plan.internal_topics.keys()
            known |= self._plan.topology.ingests.keys()
            raise LookupError(f"the topology does not read a topic {name!r}: {listed(name, known)}")
        return found.key_serde, found.value_serde

    def input_topic(self, name: str) -> str:
        """The topic of a name; that of a source outside Kafka is its internal topic."""
        ingest = self._plan.topology.ingests.get(name)
        return name if ingest is None else InternalTopic(name).topic_name(self._plan.application_id)

    def output_serdes(self, name: str) -> Serdes:
        """The key and value serde of the sink of a topic; bytes for dead letters and internal topics without a sink.

        Raises:
            LookupError: No sink writes the topic, and none chooses its topics by the record.
        """
        found: SinkNode | None = next((sink for sink in self._sinks if sink.topic == name), None)
        if found is not None and name != self._dead_letters:
            return found.key_serde, found.value_serde
        if name == self._dead_letters or name in self._plan.internal_topics:
            return BytesSerde(), BytesSerde()
        choosing = next((sink for sink in self._sinks if sink.topic is None), None)
        if choosing is not None:
            return choosing.key_serde, choosing.value_serde
        own = {str(sink.topic) for sink in self._sinks} - self._plan.internal_topics.keys()
        known = own | ({self._dead_letters} if self._dead_letters else set())
        raise LookupError(f"the topology does not write a topic {name!r}: {listed(name, known)}")


def _read_by(source: SourceNode) -> Iterable[str]:
    return source.subscription if source.pattern is not None else map(str, source.topics)


def listed(name: str, known: set[str]) -> str:
    """The existing names, for the error about an unknown one."""
    if not known:
        return "it has none."
    return f"it has {', '.join(map(repr, sorted(known)))}.{did_you_mean(name, known)}"
