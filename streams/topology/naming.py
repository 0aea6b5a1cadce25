"""Names of nodes, stores and repartition topics: given by the user, or generated so that they stay.

Kafka Streams counts all operators of a topology into its generated names, so that one inserted filter renames every
later store and loses its state. Here a generated name is the operator's kind, its *lineage* (source topics) and a short
hash of what it is (kind, windows, grouping, stateful operators above it). Nothing else moves it: stateless operators
may come and go. Where that is not enough to tell two stateful operators apart, the topology is refused until one has a
name. Stateless nodes keep nothing under their name, so equal ones are simply numbered.
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
    """Where a stream comes from, as far as names depend on it.

    Attributes:
        topics: Its source topics, sorted.
        through: The nearest stateful operators and repartitions it passed, by name, sorted.
    """

    topics: tuple[str, ...]
    through: tuple[str, ...] = ()

    def __or__(self, other: Lineage) -> Lineage:
        return Lineage(_union(self.topics, other.topics), _union(self.through, other.through))

    def behind(self, name: str) -> Lineage:
        """The lineage of what a stateful operator or a repartition topic gives."""
        return Lineage(self.topics, (name,))

    def __str__(self) -> str:
        text = "-".join(self.topics)
        return text if len(text) <= _LONGEST_LINEAGE else text[:_LONGEST_LINEAGE].rstrip("-._")


def _union(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*left, *right}))


def stateless_name(kind: NodeKind, lineage: Lineage, taken: Container[str]) -> str:
    """A name for a node that keeps nothing: kind and topics, numbered from the second on."""
    return numbered(f"{kind}-{lineage}", taken)


def numbered(name: str, taken: Container[str]) -> str:
    """The name, or with the first free `-2`, `-3`, ... behind it."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def stateful_name(kind: NodeKind | str, lineage: Lineage, parameters: Parameters = ()) -> str:
    """A name for something that has state: kind, topics, and 8 hex digits of what tells it from others."""
    what = [str(kind), lineage.topics, lineage.through, parameters]
    digest = hashlib.sha256(json.dumps(what, separators=(",", ":")).encode()).hexdigest()[:8]
    return f"{kind}-{lineage}-{digest}"


_GENERATED = re.compile(r"[A-Z]+(-[A-Z]+)+-.+-[0-9a-f]{8}(-[a-z-]+|-.+-join-store)?|.+-STATE-STORE")


def is_generated(name: str) -> bool:
    """Whether a store or repartition topic is called as `stateful_name` would call it, or after its table's topic."""
    return _GENERATED.fullmatch(name) is not None


def check_topic(topic: str) -> str:
    """Gives the topic back, or raises `TopologyError` if Kafka would not take its name."""
    if not isinstance(topic, str) or not _LEGAL.fullmatch(topic) or len(topic) > _LONGEST_TOPIC or topic in {".", ".."}:
        raise TopologyError(
            f"{described(topic)} cannot be the name of a topic: Kafka takes up to {_LONGEST_TOPIC} letters, digits, '.', '_' "
            f"and '-'."
        )
    return topic


def check_name(name: str) -> str:
    """Gives a user's name back, or raises `TopologyError` if it could not be part of a topic name."""
    if not isinstance(name, str) or not _LEGAL.fullmatch(name):
        raise TopologyError(
            f"{described(name)} cannot be the name of an operator or a store: use letters, digits, '.', '_' and '-' (it may become "
            f"part of a topic name)."
        )
    return name
