"""Names of nodes, stores and repartition topics: chosen by the user, or generated so that they are stable.

Kafka Streams numbers all operators of a topology in its generated names, so one inserted filter renames every later store and loses
its state. Here a generated name consists of the operator's kind, its *lineage* (source topics) and a short hash of its definition
(kind, windows, grouping, stateful operators above). Adding or removing stateless operators does not change the name. If two
stateful operators would have the same name, the topology is refused until one is named. No state is stored under the names of
stateless nodes, so equal ones are simply numbered.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container
from dataclasses import dataclass

from streams.errors import TopologyError
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import Parameters
from streams.wording import described

_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_TOPIC = 249
_LONGEST_LINEAGE = 60


@dataclass(frozen=True, slots=True)
class Lineage:
    """The origin of a stream, as used in names.

    Attributes:
        topics: The source topics, sorted.
        through: The names of the nearest stateful operators and repartitions that the stream passed, sorted.
    """

    topics: tuple[str, ...]
    through: tuple[str, ...] = ()

    def __or__(self, other: Lineage) -> Lineage:
        return Lineage(_union(self.topics, other.topics), _union(self.through, other.through))

    def behind(self, name: str) -> Lineage:
        """The lineage behind a stateful operator or a repartition topic."""
        return Lineage(self.topics, (name,))

    def __str__(self) -> str:
        text = "-".join(self.topics)
        return text if len(text) <= _LONGEST_LINEAGE else text[:_LONGEST_LINEAGE].rstrip("-._")


def _union(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*left, *right}))


def stateless_name(kind: NodeKind, lineage: Lineage, taken: Container[str]) -> str:
    """A name for a stateless node: kind and topics, numbered from the second on."""
    return numbered(f"{kind}-{lineage}", taken)


def numbered(name: str, taken: Container[str]) -> str:
    """The name, followed by the first free `-2`, `-3`, ... if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def stateful_name(kind: NodeKind | str, lineage: Lineage, parameters: Parameters = ()) -> str:
    """A name for something with state: kind, topics, and 8 hex digits that distinguish it from others."""
    what = [str(kind), lineage.topics, lineage.through, parameters]
    digest = hashlib.sha256(json.dumps(what, separators=(",", ":")).encode()).hexdigest()[:8]
    return f"{kind}-{lineage}-{digest}"


_GENERATED = re.compile(r"[A-Z]+(-[A-Z]+)+-.+-[0-9a-f]{8}(-[a-z-]+|-.+-join-store)?|.+-STATE-STORE")


def is_generated(name: str) -> bool:
    """Whether a store or repartition topic has the form of a name by `stateful_name`, or is named after its table's topic."""
    return _GENERATED.fullmatch(name) is not None


def check_topic(topic: str) -> str:
    """Returns the topic's name. Raises `TopologyError` if Kafka would reject the name."""
    if not isinstance(topic, str) or not _LEGAL.fullmatch(topic) or len(topic) > _LONGEST_TOPIC or topic in {".", ".."}:
        raise TopologyError(
            f"{described(topic)} cannot be the name of a topic: Kafka takes up to {_LONGEST_TOPIC} letters, digits, '.', '_' "
            f"and '-'."
        )
    return topic


def check_name(name: str) -> str:
    """Returns a user's name. Raises `TopologyError` if the name could not be part of a topic's name."""
    if not isinstance(name, str) or not _LEGAL.fullmatch(name):
        raise TopologyError(
            f"{described(name)} cannot be the name of an operator or a store: use letters, digits, '.', '_' and '-' (it may become "
            f"part of a topic name)."
        )
    return name
