"""The state of a new task's operators, made from the states of the tasks whose keys it takes over. Pure functions.

Stores are divided by key, but what operators keep in `ctx.state` is of a task as a whole. A new task takes over keys of one or
several old tasks, and each kind of state has its rule: times are the smallest, so that no record is late that would not have
been (if one of them has none, the time is open, and idle time begins at the smallest of the others: `IDLE_FROM`); numbers that
must not be used twice, and upper bounds, are the largest; the rest is counted or noted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Literal

from streams.errors import RescaleError
from streams.model.times import NO_TIME
from streams.operators.stream_time import IDLE_FROM, STREAM_TIME, idle_from

State = Mapping[str, Any]
Handling = Literal["copy", "drop"]

_LEAST = frozenset({"earliest", "min", "next_emit", "newest"})
"""Times, and lower bounds of times. One that a task does not have yet is unknown for the new task, too."""
_COUNTED_AGAIN = frozenset({"records", "bytes", "advancing"})
"""`suppress` counts its buffer again where the counts are missing; `advancing` is only used within a step."""
_OLDEST_STARTS = "oldest_start"
_TASK_STATES = frozenset({"time", "idle", "needed", "partition_times", "punctuations", "failing"})


@dataclass(frozen=True)
class UsersChoices:
    """What only the user can know.

    Attributes:
        by_key: Stores of processors whose rows are stored under the keys of their records.
        states: Node -> what happens to the `ctx.state` of its processor.
        dropped: Stores without a changelog whose rows may be lost.
    """

    by_key: frozenset[str] = frozenset()
    states: Mapping[str, Handling] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()


def sources_of(task: int, old: int, new: int) -> range:
    """The old tasks of which a new task takes over keys: those whose keys may have the same remainder."""
    step = gcd(old, new)
    return range(task % step, old, step)


def merged_state(
    states: Sequence[State], task: int, tasks: int, users: frozenset[str], choices: UsersChoices
) -> dict[str, Any]:
    """The operator state of a new task.

    Raises:
        RescaleError: A processor keeps state of which nobody has said what becomes of it.
    """
    merged: dict[str, Any] = {}
    for kind in ("nodes", "shared"):
        names = sorted({name for state in states for name in state.get(kind, {})})
        for name in names:
            parts = [state.get(kind, {}).get(name, {}) for state in states]
            made = _users_state(name, parts, choices) if kind == "nodes" and name in users else _own_state(name, parts)
            if made:
                merged.setdefault(kind, {})[name] = made
    of_task = _task_state([state.get("task", {}) for state in states], task, tasks)
    return merged | ({"task": of_task} if of_task else {})


def least(values: Iterable[int | None]) -> int:
    """The smallest of times; `NO_TIME` if one is not known."""
    return min((NO_TIME if value is None else value for value in values), default=NO_TIME)


def _own_state(name: str, parts: Sequence[State]) -> dict[str, Any]:
    """The state of one of the engine's operators."""
    merged = _times(parts)
    for key in sorted({key for part in parts for key in part} - {STREAM_TIME, IDLE_FROM}):
        values = [part.get(key) for part in parts]
        known = [value for value in values if value is not None]
        if key in _COUNTED_AGAIN:
            continue
        if key == _OLDEST_STARTS:
            merged[key] = _least_of_each(known)
        elif key in ("earliest", "min"):
            # A task without a bound has no rows.
            merged[key] = min(known)
        elif key in _LEAST:
            if len(known) == len(values):
                merged[key] = min(known)
        elif all(isinstance(value, int) for value in known):
            # The number of the last record that waits, and by stores' names the times that no row is newer than.
            merged[key] = max(known)
        else:
            raise RescaleError(
                f"the operator {name!r} keeps {key!r} in its state, for which this version has no rule: report this"
            )
    return merged


def _times(parts: Sequence[State]) -> dict[str, Any]:
    """The stream time of an operator or a task, if all have one; else where idle time begins, if any has one."""
    seen = [part.get(STREAM_TIME, NO_TIME) for part in parts]
    known = [time for part, own in zip(parts, seen, strict=True) if (time := idle_from(part, own)) != NO_TIME]
    return {IDLE_FROM if NO_TIME in seen else STREAM_TIME: min(known)} if known else {}


def _users_state(name: str, parts: Sequence[State], choices: UsersChoices) -> dict[str, Any]:
    filled = [dict(part) for part in parts if part]
    handling = choices.states.get(name)
    if not filled or handling == "drop":
        return {}
    if handling is None:
        raise RescaleError(
            f"the processor {name!r} keeps something in ctx.state, which belongs to a task and not to a key: only you know what "
            f"becomes of it. Say --state {name}=copy (each new task begins with that of the task whose keys it takes over) or "
            f"--state {name}=drop (each new task begins without)"
        )
    if any(one != filled[0] for one in filled):
        raise RescaleError(
            f"--state {name}=copy: a new task takes over the keys of several tasks, in which {name!r} keeps different things in "
            f"ctx.state. Take a multiple of the present number of tasks, or --state {name}=drop"
        )
    return filled[0]


def _task_state(parts: Sequence[State], task: int, tasks: int) -> dict[str, Any]:
    unknown = {name for part in parts for name in part} - _TASK_STATES
    if unknown:
        raise RescaleError(f"tasks keep {', '.join(sorted(unknown))}, for which this version has no rule: report this")
    merged: dict[str, Any] = {}
    if time := _times([part.get("time", {}) for part in parts]):
        merged["time"] = time
    punctuations = _punctuations([part.get("punctuations", {}) for part in parts])
    if punctuations:
        merged["punctuations"] = punctuations
    # Noted by the task that owns the partition.
    times = _partition_times(parts, lambda partition: partition % tasks == task)
    if times:
        merged["partition_times"] = times
    return merged


def _punctuations(parts: Sequence[State]) -> dict[str, Any]:
    """Schedules: the next call is the earliest of all tasks, and one that some task has not cancelled goes on."""
    merged: dict[str, Any] = {}
    for name in sorted({name for part in parts for name in part}):
        states = [part[name] for part in parts if name in part]
        merged[name] = {"next": min(state["next"] for state in states)}
        if all(state.get("cancelled") for state in states):
            merged[name]["cancelled"] = True
    return merged


def _partition_times(parts: Sequence[State], owned: Callable[[int], bool]) -> dict[str, Any]:
    merged: dict[str, dict[str, Any]] = {}
    for part in parts:
        for topic, of_topic in part.get("partition_times", {}).items():
            for partition, times in of_topic.items():
                if owned(int(partition)):
                    merged.setdefault(topic, {})[partition] = times
    return merged


def _least_of_each(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {
        key: min(part[key] for part in parts if key in part) for key in sorted({key for part in parts for key in part})
    }
