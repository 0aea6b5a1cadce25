"""Reads of all tasks as of one micro-batch (`snapshot=step`): which commit of each task that is.

Spark begins a micro-batch when all tasks have committed the one before. So as soon as a copy has a commit of micro-batch N, and all
copies have followed what was committed until then, they hold everything up to N - 1; and N itself once each of them has a commit of
N. A task without records in a micro-batch commits nothing in it: its last commit still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A micro-batch, or the time before the first one.

    Attributes:
        query: The query that it belongs to.
        batch: Its number.
        now_ms: When Spark has begun it.
    """

    query: str = ""
    batch: int = -1
    now_ms: int = 0


class Kept(NamedTuple):
    """A commit of a task that a copy holds.

    Attributes:
        version: Its number.
        step: The micro-batch that it comes from.
        until: The micro-batch of the task's next commit; None: there is none yet.
    """

    version: int
    step: Step
    until: Step | None

    def holds(self, at: Step) -> bool:
        """Whether this is the task's state as of the end of a micro-batch."""
        # What is of another query is of one before, which has ended: another checkpoint continues.
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
    """Task -> its commit as of the newest micro-batch that all copies hold as a whole; None: there is none.

    Args:
        kept: Task -> the commits that its copy holds, which has followed everything that was committed when `at` was seen.
        at: A micro-batch that some task has committed in.
    """
    complete = at.batch < 0 or all(any(one.step[:2] == at[:2] for one in commits) for commits in kept.values())
    for one in (at, at._replace(batch=at.batch - 1)) if complete else (at._replace(batch=at.batch - 1),):
        found = {task: [kept.version for kept in commits if kept.holds(one)] for task, commits in kept.items()}
        if all(found.values()):
            return {task: versions[-1] for task, versions in found.items()}
    return None


def to_json(kept: Mapping[int, Sequence[Kept]]) -> dict[str, list[list[object]]]:
    """For another process."""
    return {
        str(task): [[one.version, list(one.step), None if one.until is None else list(one.until)] for one in commits]
        for task, commits in kept.items()
    }


def parse(data: Mapping[str, Sequence[Any]]) -> dict[int, list[Kept]]:
    """What `to_json` has written."""
    return {
        int(task): [
            Kept(version, Step(*step), None if until is None else Step(*until)) for version, step, until in commits
        ]
        for task, commits in data.items()
    }


def step_text(step: Step) -> str:
    """A micro-batch as a parameter."""
    return f"{step.query}:{step.batch}:{step.now_ms}"


def parse_step(text: str) -> Step:
    """What `step_text` has written."""
    query, batch, now_ms = text.rsplit(":", 2)
    return Step(query, int(batch), int(now_ms))
