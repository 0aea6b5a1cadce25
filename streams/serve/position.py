"""`Position`: how far the sources of a task have been read, as its commit markers say.

Answers show it, and a request may ask for it. It is a lower bound: everything that a source had for the task below these offsets is
in the state. A partition that never had a record for the task is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from state.commit.marker import CommitMarker
from state.kafka.topics import TopicPartition
from streams.errors import QueryError

_ENTRY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)=(?P<offset>\d+)")
_COMMIT = re.compile(r"(?P<sub>[a-zA-Z0-9._-]+)/(?P<task>\d+)=(?P<version>\d+)")


@dataclass(frozen=True)
class Position:
    """Topic and partition -> the offset below which everything is in the state."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position from text such as `flights-3=812,flights-4=77`.

        Raises:
            QueryError: The text is not a position.
        """
        found = [_matched(_ENTRY, part, "a position: write TOPIC-PARTITION=OFFSET,...") for part in _parts(text)]
        return cls({(one["topic"], int(one["partition"])): int(one["offset"]) for one in found})

    @cached_property
    def text(self) -> str:
        """What `parse` reads. Kept, because each answer has it, and a commit has many answers."""
        return ",".join(f"{topic}-{partition}={offset}" for (topic, partition), offset in sorted(self.offsets.items()))

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def after(self, marker: CommitMarker, before: CommitMarker | None) -> Position:
        """The position of a task after the step of a marker. Offsets in a topic that was created again mean other records."""
        offsets = dict(self.offsets)
        if before is not None:
            other = {topic for topic, found in marker.topic_ids.items() if before.topic_ids.get(topic, found) != found}
            offsets = {place: offset for place, offset in offsets.items() if place[0] not in other}
        for topic, partitions in marker.ranges.items():
            for partition, (_, end) in partitions.items():
                place = topic, int(partition)
                offsets[place] = max(end, offsets.get(place, 0))
        return Position(offsets)

    def covers(self, other: Position) -> bool:
        """Whether everything below the offsets of the other position is in the state of this one."""
        return all(self.offsets.get(place, 0) >= offset for place, offset in other.offsets.items())


def common(positions: Iterable[Position]) -> Position:
    """What all of these positions cover."""
    found = [position.offsets for position in positions]
    places = set.intersection(*(set(offsets) for offsets in found)) if found else set()
    return Position({place: min(offsets[place] for offsets in found) for place in places})


Commits = Mapping[tuple[str, int], int]
"""Sub-topology and task -> the number of its commit."""


def parse_commits(text: str) -> Commits:
    """Commits from text such as `flights/0=12,flights/1=9`.

    Raises:
        QueryError: The text is not a list of commits.
    """
    found = [_matched(_COMMIT, part, "a list of commits: write SUB-TOPOLOGY/TASK=VERSION,...") for part in _parts(text)]
    return {(one["sub"], int(one["task"])): int(one["version"]) for one in found}


def commits_text(commits: Commits) -> str:
    """The commits as text that `parse_commits` reads."""
    return ",".join(f"{sub}/{task}={version}" for (sub, task), version in sorted(commits.items()))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _matched(pattern: re.Pattern[str], text: str, form: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise QueryError(f"{text!r} is not {form}")
    return found
