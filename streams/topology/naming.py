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
from typing import TYPE_CHECKING

from streams.errors import TopologyError
from streams.wording import described

INGEST = "-ingest"
"""Suffix of the persistent name of a source outside Kafka. It is used where a sub-topology's name is expected."""

if TYPE_CHECKING:
    from streams.topology.node_kind import NodeKind
    from streams.topology.specs.base import Parameters

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
        topics, through = {*self.topics, *other.topics}, {*self.through, *other.through}
        return Lineage(tuple(sorted(topics)), tuple(sorted(through)))

    def behind(self, name: str) -> Lineage:
        """The lineage of the results of a stateful operator, or of a stream that comes from a repartition topic."""
        return Lineage(self.topics, (name,))

    def __str__(self) -> str:
        text = "-".join(self.topics)
        return text if len(text) <= _LONGEST_LINEAGE else text[:_LONGEST_LINEAGE].rstrip("-._")


def stateless_name(kind: NodeKind, lineage: Lineage, taken: Container[str]) -> str:
    """Makes a name for a stateless node from its kind and topics, numbered from the second on."""
    return numbered(f"{kind}-{lineage}", taken)


def numbered(name: str, taken: Container[str]) -> str:
    """The name, followed by the first free `-2`, `-3`, ... if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def stateful_name(kind: NodeKind | str, lineage: Lineage, parameters: Parameters = ()) -> str:
    """Makes a name for a node or store with state: kind, topics, and 8 hex digits that distinguish it from others."""
    what = [str(kind), lineage.topics, lineage.through, parameters]
    digest = hashlib.sha256(json.dumps(what, separators=(",", ":")).encode()).hexdigest()[:8]
    return f"{kind}-{lineage}-{digest}"


_GENERATED = re.compile(r"[A-Z]+(-[A-Z]+)+-.+-[0-9a-f]{8}(-[A-Za-z-]+|-.+-join-store)?|.+-STATE-STORE")


def is_generated(name: str) -> bool:
    """Whether the name of a store or repartition topic was generated: by `stateful_name`, or from its table's topic."""
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


def wrong_application_id(application_id: str) -> str | None:
    """Says what is wrong with an application id, as a sentence without a full stop; None if it is valid."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", application_id):
        return "use letters, digits, '.', '_' and '-'"
    if not application_id.strip("."):
        return "as the name of a folder, dots alone mean other folders, so add a letter or a digit"
    return None


def fit_for_topic(name: str) -> str:
    """The name with `-` for each character that Kafka does not allow in the names of topics."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def pattern_text(pattern: re.Pattern[str]) -> str:
    """The pattern between slashes, followed by its flags as a number if there are any."""
    flags = pattern.flags & ~re.UNICODE
    return f"/{pattern.pattern}/{int(flags) or ''}"


def pattern_name(pattern: re.Pattern[str]) -> str:
    """A name for the internal topics of a source with a pattern: its plain text and `-pattern`, whichever topics match."""
    plain = re.sub(r"-{2,}", "-", fit_for_topic(pattern.pattern)).strip("-.")
    return f"{plain}-pattern" if plain else "pattern"
