"""The rights that an application needs, from its topology and its settings alone: no cluster is asked.

Internal topics and transactional ids begin with `<application id>-`, so one prefixed ACL covers all of them, also those of a later
version of the program. `Describe` is never listed: Kafka implies it with `Read`, `Write` and `Delete`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from streams.application.dead_letters.replayed import replay_id, replays_topic
from streams.config import StreamsConfig
from streams.topology.check import check_topics
from streams.topology.graph import Failed, Graph, SourceNode
from streams.topology.plan import internal_topics
from streams.topology.planning.sub_topologies import sub_topologies, sub_topology_name

READ, WRITE, CREATE, DELETE, DESCRIBE_CONFIGS = "Read", "Write", "Create", "Delete", "DescribeConfigs"
_PLAIN = re.compile(r"[A-Za-z0-9_-]*")


class Resource(str, Enum):
    """What a right is about, as `kafka-acls` names its options."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Right:
    """Operations on one resource, or on all whose names begin alike.

    Attributes:
        resource: The kind of resource.
        name: Its name, or how the names begin.
        operations: The operations, as `kafka-acls` names them.
        why: What the application does with it.
        prefixed: Whether `name` is only the beginning.
    """

    resource: Resource
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False

    def __str__(self) -> str:
        what = {Resource.TRANSACTIONAL_ID: "transactional id"}.get(self.resource, self.resource.value)
        where = f"{what}s that begin with {self.name!r}" if self.prefixed else f"{what} {self.name!r}"
        return f"{', '.join(self.operations)} on {where}"


@dataclass(frozen=True)
class NeededRights:
    """The rights of one application.

    Attributes:
        application_id: The application.
        rights: The rights without which it does not start, each resource once.
        internal: The names of its internal topics, at its first start.
        dead_letters: Its topics of dead letters.
        chosen: Whether records choose topics (`to(topic_extractor)`), which no plan knows: each needs `Write`.
    """

    application_id: str
    rights: tuple[Right, ...]
    internal: tuple[str, ...]
    dead_letters: tuple[str, ...]
    chosen: bool


def needed_rights(topology: Graph, config: StreamsConfig) -> NeededRights:
    """The rights that an application needs to run.

    Raises:
        TopologyError: There is no source, or a topic is used in contradictory ways.
    """
    check_topics(topology)
    app = config.application_id
    sources = list(topology.sources())
    groups = [
        [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]
        for names in sub_topologies(topology)
    ]
    internal = internal_topics(topology, app, [sub_topology_name(group, ()) for group in groups])
    dead = {config.dead_letter_topic} if config.dead_letter_topic else set()
    dead |= {str(sink.topic) for sink in topology.sinks() if sink.failed == Failed() and isinstance(sink.topic, str)}
    written = {sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)} - dead
    tables = {str(topic) for table in topology.global_tables.values() for topic in table.source.topics}
    read = {topic for source in sources if source.pattern is None for topic in source.topics if isinstance(topic, str)}
    rights = [
        *(_topic(name, (READ,), "source") for name in read),
        *(_pattern(source.pattern) for source in sources if source.pattern is not None),
        *(_topic(name, (READ,), "global table") for name in tables),
        *(_topic(name, (WRITE,), "output") for name in written),
        *(_topic(name, (WRITE, DESCRIBE_CONFIGS), "dead letters") for name in dead),
        Right(
            Resource.TOPIC,
            f"{app}-",
            (CREATE, READ, WRITE, DELETE, DESCRIBE_CONFIGS),
            "changelogs, commits and repartition topics; Delete trims them",
            prefixed=True,
        ),
        Right(Resource.GROUP, app, (READ,), "offsets of the sources"),
        Right(Resource.TRANSACTIONAL_ID, f"{app}-", (WRITE,), "one transaction for each step of a task", prefixed=True),
    ]
    chosen = any(sink.topic is None for sink in topology.sinks())
    return NeededRights(app, tuple(_merged(rights)), tuple(sorted(internal)), tuple(sorted(dead)), chosen)


def operating_rights(needed: NeededRights) -> tuple[Right, ...]:
    """What `streams reset`, `dlq` and `replica` need besides: for the people who operate the application.

    A replay also needs `Write` on the topics that its letters came from, most of them sources, which is left to their owners.
    """
    return (
        *(_topic(name, (READ, DELETE), "streams dlq: list, show, purge") for name in needed.dead_letters),
        *(
            _topic(
                replays_topic(name), (CREATE, READ, WRITE, DESCRIBE_CONFIGS), "streams dlq: which letters were replayed"
            )
            for name in needed.dead_letters
        ),
        *(
            Right(
                Resource.TRANSACTIONAL_ID,
                replay_id(name),
                (WRITE,),
                "streams dlq replay: one transaction for its letters",
            )
            for name in needed.dead_letters
        ),
        Right(Resource.GROUP, needed.application_id, (DELETE,), "streams reset"),
        Right(Resource.GROUP, f"{needed.application_id}-replicas", (READ,), "streams replica"),
    )


def _sources(topology: Graph, names: Iterable[str]) -> list[SourceNode]:
    return [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]


def _topic(name: str, operations: tuple[str, ...], why: str) -> Right:
    return Right(Resource.TOPIC, name, operations, why)


def _pattern(pattern: re.Pattern[str]) -> Right:
    """The right to read what matches a pattern: ACLs know no patterns, only how names begin."""
    found = _PLAIN.match(pattern.pattern)
    begins = found.group() if found else ""
    rest = pattern.pattern[len(begins) :]
    if rest[:1] in ("?", "*", "{"):
        # The last letter may be missing.
        begins = begins[:-1]
    if "|" in pattern.pattern or pattern.flags & re.IGNORECASE or not begins:
        return Right(Resource.TOPIC, "*", (READ,), f"sources that match {pattern.pattern}")
    return Right(Resource.TOPIC, begins, (READ,), f"sources that match {pattern.pattern}", prefixed=True)


def _merged(rights: Iterable[Right]) -> list[Right]:
    """Each resource once, with all its operations: a topic may be read and written."""
    found: dict[tuple[Resource, str, bool], Right] = {}
    for right in sorted(rights, key=lambda one: (list(Resource).index(one.resource), one.prefixed, one.name)):
        key = (right.resource, right.name, right.prefixed)
        known = found.get(key)
        operations = dict.fromkeys((*known.operations, *right.operations)) if known else right.operations
        why = f"{known.why}, {right.why}" if known else right.why
        found[key] = Right(right.resource, right.name, tuple(operations), why, right.prefixed)
    return list(found.values())
