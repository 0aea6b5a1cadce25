"""`Position`: how far the sources of a task have been read, by its commit markers; and which commits belong to one step.

Answers show it, and a request may ask for it. It is a lower bound: the state includes every record for the task below these
offsets. A partition that never had a record for the task is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from state.commit.marker import CommitMarker
from state.kafka.topics import TopicPartition
from streams.errors import QueryError

_ENTRY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,9})=(?P<offset>\d{1,19})", re.ASCII)
_COMMIT = re.compile(
    r"(?P<sub>[a-zA-Z0-9._-]+)/(?P<task>\d{1,9})=(?P<version>\d{1,19})(?:@(?P<life>[0-9a-f]+))?", re.ASCII
)


@dataclass(frozen=True)
class Position:
    """For each topic and partition, the offset below which all records are in the state."""

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
        """The position as text that `parse` reads. It is kept, because every answer has it, and a commit has many answers."""
        return ",".join(f"{topic}-{partition}={offset}" for (topic, partition), offset in sorted(self.offsets.items()))

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def after(self, marker: CommitMarker, before: CommitMarker | None) -> Position:
        """The position of a task after the step of a marker. A topic that was created again starts with new offsets."""
        offsets = dict(self.offsets)
        if before is not None:
            known = {topic: found for topic, (found, _) in before.reached().items()} | dict(before.topic_ids)
            other = {topic for topic, found in marker.topic_ids.items() if known.get(topic, found) != found}
            offsets = {place: offset for place, offset in offsets.items() if place[0] not in other}
        for topic, (_, partitions) in marker.reached().items():
            for partition, end in partitions.items():
                place = topic, int(partition)
                offsets[place] = max(end, offsets.get(place, 0))
        return Position(offsets)

    def covers(self, other: Position) -> bool:
        """Whether everything below the offsets of the other position is in the state of this one."""
        return all(self.offsets.get(place, 0) >= offset for place, offset in other.offsets.items())


def common(positions: Iterable[Position]) -> Position:
    """The position that all of these positions cover."""
    found = [position.offsets for position in positions]
    places = set.intersection(*(set(offsets) for offsets in found)) if found else set()
    return Position({place: min(offsets[place] for offsets in found) for place in places})


class Commit(NamedTuple):
    """A commit of a task.

    Attributes:
        version: Its number.
        life: The application's life that made it. `streams reset` begins another life, with numbers from 1 again. Empty: not known.
    """

    version: int
    life: str = ""

    def __str__(self) -> str:
        return f"{self.version}@{self.life}" if self.life else str(self.version)


Commits = Mapping[tuple[str, int], Commit]
"""Sub-topology and task -> its commit."""


def parse_commits(text: str) -> Commits:
    """Commits from text such as `flights/0=12@9f3c11aa,flights/1=9`.

    Raises:
        QueryError: The text is not a list of commits.
    """
    found = [_matched(_COMMIT, part, "a list of commits: write SUB-TOPOLOGY/TASK=COMMIT,...") for part in _parts(text)]
    return {(one["sub"], int(one["task"])): Commit(int(one["version"]), one["life"] or "") for one in found}


def commits_text(commits: Commits) -> str:
    """The commits as text that `parse_commits` reads."""
    return ",".join(f"{sub}/{task}={commit}" for (sub, task), commit in sorted(commits.items()))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _matched(pattern: re.Pattern[str], text: str, form: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise QueryError(f"{text!r} is not {form}")
    return found


# --- Reads of all tasks as of one micro-batch (`snapshot=step`): which commit of each task that is.
#
# Spark begins a micro-batch when all tasks have committed the one before. So as soon as a copy has a commit of micro-batch N, and
# all copies have followed what was committed until then, they hold everything up to N - 1; and N itself once each of them has a
# commit of N. A task without records in a micro-batch commits nothing in it: its last commit still counts.


class Step(NamedTuple):
    """A micro-batch, or the time before the first one.

    Attributes:
        query: The query that it belongs to.
        batch: Its number.
        now_ms: When Spark began it, in ms since 1970.
    """

    query: str = ""
    batch: int = -1
    now_ms: int = 0


class Kept(NamedTuple):
    """A commit of a task that a copy holds.

    Attributes:
        version: Its number.
        step: The micro-batch that made it.
        until: The micro-batch of the task's next commit; None: there is none yet.
    """

    version: int
    step: Step
    until: Step | None

    def holds(self, at: Step) -> bool:
        """Whether this commit is the task's state as of the end of a micro-batch."""
        # A step of another query is from an earlier query, which has ended: another checkpoint continues.
        mine = self.step.query == at.query
        begun = self.step.batch <= at.batch if mine else self.step.now_ms <= at.now_ms
        if self.until is None:
            return begun
        over = self.until.batch <= at.batch if self.until.query == at.query else not mine
        return begun and not over


def newest(steps: Iterable[Step]) -> Step:
    """The last micro-batch of these."""
    return max(steps, key=lambda step: (step.now_ms, step.batch), default=Step())


def common_versions(kept: Mapping[int, Sequence[Kept]], at: Step) -> dict[int, int] | None:
    """Task -> its commit as of the newest micro-batch that all copies hold completely; None: there is no such micro-batch.

    Args:
        kept: Task -> the commits that its copy holds. The copy has followed everything that was committed when `at` was seen.
        at: A micro-batch that some task has committed in.
    """
    complete = at.batch < 0 or all(any(one.step[:2] == at[:2] for one in commits) for commits in kept.values())
    for one in (at, at._replace(batch=at.batch - 1)) if complete else (at._replace(batch=at.batch - 1),):
        found = {task: [kept.version for kept in commits if kept.holds(one)] for task, commits in kept.items()}
        if all(found.values()):
            return {task: versions[-1] for task, versions in found.items()}
    return None


def to_json(kept: Mapping[int, Sequence[Kept]]) -> dict[str, list[list[object]]]:
    """The commits as JSON, for another process."""
    return {
        str(task): [[one.version, list(one.step), None if one.until is None else list(one.until)] for one in commits]
        for task, commits in kept.items()
    }


def parse(data: Mapping[str, Sequence[Any]]) -> dict[int, list[Kept]]:
    """Reads commits that `to_json` has written."""
    return {
        int(task): [
            Kept(version, Step(*step), None if until is None else Step(*until)) for version, step, until in commits
        ]
        for task, commits in data.items()
    }


def step_text(step: Step) -> str:
    """Writes a micro-batch as a parameter."""
    return f"{step.query}:{step.batch}:{step.now_ms}"


def parse_step(text: str) -> Step:
    """Reads a micro-batch that `step_text` has written."""
    query, batch, now_ms = text.rsplit(":", 2)
    return Step(query, int(batch), int(now_ms))
