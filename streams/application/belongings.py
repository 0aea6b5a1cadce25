"""Which topics an application has made, told by what proves it: its topology.json and its commit markers.

A name alone proves nothing: `orders-eu-counts-changelog` begins with `orders-`, and may be of the application `orders-eu` all the
same. A marker names its application and the stores of its task; older markers do not name it, and then their topic counts as the
application's own only if topology.json has it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from state.changelog.topics import INTERNAL_ENDINGS, changelog_topic
from state.commit.last_marker import MarkerLog
from state.commit.marker import CommitMarker
from state.errors import MarkerFormatError
from state.kafka.topics import TopicInfo
from streams.application.newest_marker import newest_markers
from streams.application.topology_manifest import described_topics

COMMITS, REPARTITION = "-commits", "-repartition"


class TopicLister(Protocol):
    """What is needed of `state.kafka.admin.KafkaAdmin`."""

    def topic_names(self) -> list[str]:
        """All topics that can be seen."""

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Those of the topics that exist."""


@dataclass(frozen=True)
class Belongings:
    """The topics of the cluster that may be an application's.

    Attributes:
        own: Those that it has made, and what proves it.
        foreign: Those whose names look alike, but which a marker gives to another application; and to which.
        unproven: Those whose names look alike, and nothing more is known.
        query_ids: Ids of the Spark queries by which its markers were written.
    """

    own: Mapping[str, str]
    foreign: Mapping[str, str]
    unproven: tuple[str, ...]
    query_ids: frozenset[str] = frozenset()


@dataclass
class _Found:
    own: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    query_ids: set[str] = field(default_factory=set)


def belongings(application_id: str, kept: Mapping[str, Any] | None, admin: TopicLister, log: MarkerLog) -> Belongings:
    """Looks at all topics whose names begin as the application's do.

    Args:
        application_id: The application.
        kept: Its topology.json; None if there is none.
        admin: Knows the topics.
        log: Reads the commits topics.
    """
    names = set(admin.topic_names())
    described = described_topics(kept, application_id) & names if kept else set()
    alike = {name for name in names if name.startswith(f"{application_id}-") and name.endswith(INTERNAL_ENDINGS)}
    found = _Found(dict.fromkeys(described, "topology.json"))
    commits = admin.describe_topics(name for name in alike if name.endswith(COMMITS))
    for topic, info in commits.items():
        for marker in _readable_markers(log, topic, info.partitions):
            _take(found, application_id, topic, marker)
    own = {name: proof for name, proof in found.own.items() if name in names and name not in found.foreign}
    foreign = {name: owner for name, owner in found.foreign.items() if name in names}
    unproven = tuple(sorted(alike - own.keys() - foreign.keys()))
    return Belongings(dict(sorted(own.items())), dict(sorted(foreign.items())), unproven, frozenset(found.query_ids))


def _readable_markers(log: MarkerLog, topic: str, partitions: int) -> list[CommitMarker]:
    """The newest markers of a topic; none if it holds something else."""
    try:
        return list(newest_markers(log, topic, range(partitions)))
    except MarkerFormatError:
        return []


def _take(found: _Found, application_id: str, topic: str, marker: CommitMarker) -> None:
    """Notes what one marker proves."""
    owner = marker.application_id
    if not owner:
        return
    proven = {topic, *(changelog_topic(owner, store) for store in marker.changelog_ends)}
    # A sub-topology that is called after a repartition topic reads it; other topics that it reads may be anybody's.
    if (read := topic.removesuffix(COMMITS)).endswith(REPARTITION) and read in marker.topic_ids:
        proven.add(read)
    if owner == application_id:
        found.query_ids.add(marker.query_id)
        found.own |= {name: f"the commits of query {marker.query_id}" for name in proven if name not in found.own}
    else:
        found.foreign |= dict.fromkeys(proven, owner)
