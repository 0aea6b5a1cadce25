"""What an operator has requested for an application: pauses (Kafka Streams: KIP-834, which keeps none), and its execution.

The topic `<app>-__pauses-commits` has a record for each paused sub-topology, and one without a name for the whole application; a
resume deletes it. So any host of the cluster can pause and resume, and a pause outlives every process. The planner reads the topic
before it plans a micro-batch. While paused, it plans none, with or without records; the query itself stays alive.

One more record, under a name that no topic can have, names the execution that replaces the setting; the driver reads it once a
second. If a sub-topology had to leave live execution, the driver writes a record with the reason, for `streams status` and for
the operator who moves its state. A version that does not know such a name takes it for the pause of an unknown sub-topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from state.changelog import pauses_topic

if TYPE_CHECKING:
    from state.kafka.range_reader import Run
    from streams.engine.source.log import RunLog

WHOLE = ""
"""The name of the record that pauses the whole application."""
EXECUTION = "execution="
"""The name of the record of the execution."""
LEFT_LIVE = "left-live="
"""Prefix of the name of a record that says why a sub-topology has left live execution."""
LOOK_MS = 1_000
"""The planner reads the pauses again after this long."""


class LeftLive(NamedTuple):
    """Why a sub-topology that ran live continues in micro-batches.

    Attributes:
        since_ms: When it left live execution, ms since 1970.
        why: The reason, as part of a sentence.
        back: The options of `streams rescale` that let it run live again.
        record: Topic, partition and offset of the record that was the reason; None if it was not a record.
    """

    since_ms: int
    why: str
    back: str = ""
    record: tuple[str, int, int] | None = None

    def command(self, target: str, application_id: str) -> str:
        """The command that brings it back to live execution, once it is stopped."""
        return f"streams rescale {target} -a {application_id}{self.back and ' ' + self.back}"


class Pauses(NamedTuple):
    """The pauses of an application, and its executions.

    Attributes:
        since_ms: Sub-topology, or `WHOLE`, -> when it was paused, ms since 1970.
        execution: The execution that an operator has ordered; None: the setting applies.
        left_live: Sub-topology -> why it has left live execution, as written by the driver.
    """

    since_ms: Mapping[str, int]
    execution: str | None = None
    left_live: Mapping[str, LeftLive] = MappingProxyType({})

    def of(self, sub_topology: str) -> int | None:
        """When a sub-topology was paused, individually or with the whole application, ms since 1970; None if it is not."""
        times = [self.since_ms[name] for name in (WHOLE, sub_topology) if name in self.since_ms]
        return min(times, default=None)


NOTHING: Pauses = Pauses({})


def read_pauses(log: RunLog, application_id: str) -> Pauses:
    topic = pauses_topic(application_id)
    if topic not in log.describe_topics([topic]):
        return NOTHING
    place = (topic, 0)
    return pauses_in(log.read(*place, log.begin_offsets([place])[place], log.end_offsets([place])[place]))


def pauses_in(records: Iterable[Run]) -> Pauses:
    """Reads the pauses from the records of the topic."""
    found: dict[str, int] = {}
    execution: str | None = None
    left: dict[str, LeftLive] = {}
    for run in records:
        for key, value in run.cells():
            name, said = (key or b"").decode(), orjson.loads(value or b"{}")
            if name == EXECUTION:
                execution = said.get("execution")
                continue
            if name.startswith(LEFT_LIVE):
                left.pop(name.removeprefix(LEFT_LIVE), None)
                if said:
                    left[name.removeprefix(LEFT_LIVE)] = _left_live(said)
                continue
            found.pop(name, None)
            if said:
                found[name] = int(said["since_ms"])
    return Pauses(found, execution, left)


def _left_live(said: Mapping[str, Any]) -> LeftLive:
    record = said.get("record")
    place = None if record is None else (str(record[0]), int(record[1]), int(record[2]))
    return LeftLive(int(said["since_ms"]), str(said["why"]), str(said["back"]), place)


def left_live_record(sub_topology: str, left: LeftLive | None) -> tuple[bytes, bytes | None]:
    """The key and value that say why a sub-topology has left live execution. None deletes that record."""
    return f"{LEFT_LIVE}{sub_topology}".encode(), None if left is None else orjson.dumps(left._asdict())


def pause_record(name: str, since_ms: int | None) -> tuple[bytes, bytes | None]:
    """The key and value that pause a sub-topology or `WHOLE`. Without a time, they resume it."""
    return name.encode(), None if since_ms is None else orjson.dumps({"since_ms": since_ms})


def execution_record(execution: str | None, since_ms: int) -> tuple[bytes, bytes | None]:
    """The key and value that order an execution. With None, the setting applies again."""
    value = None if execution is None else orjson.dumps({"execution": execution, "since_ms": since_ms})
    return EXECUTION.encode(), value


class PauseWatch:
    """Finds out for a planner whether its sub-topology is paused.

    Args:
        now_ms: The clock, ms.
    """

    def __init__(self, log: RunLog, application_id: str, sub_topology: str, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._application_id = application_id
        self._sub_topology = sub_topology
        self._now_ms = now_ms
        self._looked_ms: int | None = None
        self._paused = False

    def __call__(self) -> bool:
        """Whether the sub-topology is paused, so that no micro-batch may be planned."""
        now = self._now_ms()
        if self._looked_ms is None or not 0 <= now - self._looked_ms < LOOK_MS:
            self._paused = read_pauses(self._log, self._application_id).of(self._sub_topology) is not None
            self._looked_ms = now
        return self._paused
