"""Many cases in one application, in live execution on real Spark and Kafka.

Each case is a part of the topology that has nothing to do with the others, so an application costs one start for all of
them. They go on together: the next stretch of each case is written when all that was written is processed. A live step takes
what has arrived, and topics become visible one after the other, so a stretch is of one topic: then there is one order in
which its records can be taken. At a mark `restart` the application ends, loses its local state and starts again.
"""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.kafka.admin import KafkaAdmin
from streams.config import Execution, StreamsConfig
from streams.config import Mode as ConfiguredMode
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.metrics.application import StepFigures
from streams.operators.operator import Mode
from streams.topology.plan import Plan, SubTopology, build_plan, with_added_topics
from streams.topology.topology import Topology
from streams.topology.ways import why_not_live
from tests.conformance.build import build, build_together
from tests.conformance.case import Case, CaseError
from tests.conformance.driver_engine import Outcome
from tests.conformance.spark_case import late_of, rows_of, sent
from tests.conformance.spark_cluster import Cluster, prefixed
from tests.conformance.stretches import Stretch, cut, meets_repartitioned, merge_order_plain
from tests.spark.live import running_in_thread, write_transaction

_TIMEOUT_S = 300.0


def why_not(case: Case, mode: Mode) -> str | None:
    """Why a case cannot run live on Spark; None: it can."""
    try:
        plan = _planned(build(case.topology, case.config.get("optimize", False)), "app")
    except CaseError:
        raise
    except Exception as error:
        return f"it cannot be built: {type(error).__name__}"
    try:
        cut(case, plan, mode)
    except CaseError as error:
        return str(error)
    if any("max_bytes" in node for node in case.topology):
        return "a buffer's bytes count the names of topics, which are longer here"
    return next((why for sub in plan.sub_topologies if (why := why_not_live(sub))), None)


def _planned(topology: Topology, application_id: str) -> Plan:
    """The plan of an application that begins live; all topics have one partition."""
    return build_plan(with_added_topics(topology, {}), application_id)


def groups_of(cases: Sequence[Case], size: int) -> Iterator[list[Case]]:
    """Cases that can be one application, at most `size` at a time; one that has to fail is alone."""

    def kind(case: Case) -> tuple[bool, bool]:
        return bool(case.config.get("optimize")), any("restart" in record for record in case.records)

    for case in cases:
        if case.error is not None:
            yield [case]
    for _, found in groupby(sorted((one for one in cases if one.error is None), key=kind), key=kind):
        alike = list(found)
        yield from (alike[at : at + size] for at in range(0, len(alike), size))


class _Late(Progress):
    """Counts late records, for each sub-topology."""

    def __init__(self, title: str) -> None:
        super().__init__(title, Console(file=io.StringIO()))
        self.late: Counter[str] = Counter()

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        """See `Progress`."""
        super().step(sub, batch_id, steps)
        self.late[sub] += sum(map(late_of, steps))


class _Positions:
    """How far the tasks have read their topics, by their commits."""

    def __init__(self, servers: str, application_id: str, subs: Sequence[SubTopology]) -> None:
        settings = {"bootstrap.servers": servers, "group.id": "conformance", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 20})
        self._subs = {commits_topic(application_id, sub.name): sub for sub in subs}
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in self._subs])
        self._at = {(sub.name, topic): 0 for sub in subs for topic in sub.topics}

    def now(self) -> Mapping[tuple[str, str], int]:
        """Sub-topology and topic -> the position."""
        while found := self._consumer.consume(500, 0.05):
            for one in found:
                assert one.error() is None, one.error()
                value, sub = one.value(), self._subs[one.topic() or ""]
                assert value is not None
                read = CommitMarker.from_bytes(value).live_positions
                self._at |= {(sub.name, topic): end for (topic, _), end in read.items()}
        return self._at

    def close(self) -> None:
        self._consumer.close()


@dataclass
class LiveCases:
    """Cases while they run. Their names are those of the result; topologies and records have the names of `prefix`."""

    cluster: Cluster
    prefix: str
    cases: Sequence[Case]
    mode: Mode
    at: int = 0
    error: Exception | None = None
    late: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._named = {
            f"{self.prefix}c{number:02}.": case for number, case in enumerate(self.cases)
        }  # A dot ends it, so none is the beginning of another.
        self._own = {
            name: (prefixed(case.topology, name), prefixed(case.records, name)) for name, case in self._named.items()
        }
        self.config = StreamsConfig(
            application_id=self.prefix,
            bootstrap_servers=self.cluster.servers,
            base_dir=self.cluster.folder / self.prefix,
            mode=ConfiguredMode(self.mode),
            execution=Execution.LIVE,
            commit_interval_ms=20,
        )
        self._rounds = {name: _stretches(case, self.plan_of(name), self.mode) for name, case in self._named.items()}

    def plan_of(self, name: str) -> Plan:
        case = self._named[name]
        return _planned(build(self._own[name][0], case.config.get("optimize", False)), self.prefix)

    @cached_property
    def topology(self) -> Topology:
        optimize = any(case.config.get("optimize") for case in self.cases)
        return build_together({name: own[0] for name, own in self._own.items()}, optimize)

    @cached_property
    def plan(self) -> Plan:
        return _planned(self.topology, self.prefix)

    def outcomes(self) -> dict[str, Outcome]:
        """Runs the cases and reads what came of each, by the cases' names."""
        sinks = {sink.topic: sink for sink in self.topology.sinks() if isinstance(sink.topic, str)}
        read = {topic for sub in self.plan.sub_topologies for topic in sub.topics} - set(self.plan.repartition_topics)
        tables = {str(table.source.topics[0]) for table in self.topology.global_tables.values()}
        written = {record["topic"] for _, records in self._own.values() for record in records if "topic" in record}
        self.cluster.create_topics(sorted({*sinks, *read, *tables, *written}))
        try:
            for number in range(max(map(len, self._rounds.values()))):
                shutil.rmtree(self.config.state_dir, ignore_errors=True)
                self._run([(name, runs[number]) for name, runs in self._rounds.items() if number < len(runs)])
        except CaseError:
            raise
        except Exception as problem:
            self.error = problem
        found = {}
        for name, case in self._named.items():
            own = {topic: sink for topic, sink in sinks.items() if topic.startswith(name)}
            rows = list(rows_of(self.cluster, own, name))
            late = sum(count for sub, count in self.late.items() if name in sub)
            found[case.name] = Outcome(rows, self.error, self.at if self.error else -1, late)
        return found

    def _run(self, stretches: Sequence[tuple[str, Sequence[Stretch]]]) -> None:
        """From one start of the application to its end."""
        progress, started = _Late(self.prefix), threading.Event()
        happened: list[str] = []
        application = StreamsApplication(
            self.topology,
            self.config,
            progress,
            on_running=started.set,
            on_event=lambda event: happened.append(event.message),
        )
        try:
            with running_in_thread(application, self.cluster.session) as check:
                _until(started.is_set, check, lambda: "the application starts")
                with (
                    closing(_Positions(self.cluster.servers, self.prefix, self.plan.sub_topologies)) as positions,
                    KafkaAdmin({"bootstrap.servers": self.cluster.servers}) as admin,
                ):
                    for number in range(max((len(own) for _, own in stretches), default=0)):
                        now = [(name, own[number]) for name, own in stretches if number < len(own)]
                        self.at = now[0][1][0]
                        records = [self._own[name][1][index] for name, stretch in now for index in stretch]
                        write_transaction(self.cluster.servers, map(sent, records))
                        _until(
                            lambda: not self._waiting(positions, admin),
                            check,
                            lambda: f"{self._waiting(positions, admin)} is processed. Last events: {happened[-5:]}",
                        )
        finally:
            self.late += progress.late

    def _waiting(self, positions: _Positions, admin: KafkaAdmin) -> dict[str, Any]:
        """The topics that have what is not processed yet, with how far they are read, decided and written."""
        # The positions first: a step commits them together with what it writes.
        taken = dict(positions.now())
        places = sorted({(topic, 0) for _, topic in taken})
        ends, decided = admin.end_offsets(places, committed=False), admin.end_offsets(places)
        # Behind the last record there is the end of its transaction, which nobody has to read.
        return {
            f"{sub}: {topic}": (at, decided[topic, 0], ends[topic, 0])
            for (sub, topic), at in taken.items()
            if decided[topic, 0] != ends[topic, 0] or at < ends[topic, 0] - 1
        }


def _stretches(case: Case, plan: Plan, mode: Mode) -> list[list[Stretch]]:
    """The stretches in which a case is written; a list for each time that the application is started."""
    runs = []
    for run in cut(case, plan, mode):
        alone = case.error is not None or meets_repartitioned(plan)
        parts: list[Stretch] = []
        for stretch in run:
            for _, part in groupby(
                _ordered(case, stretch) if case.batch else stretch, key=lambda at: case.records[at]["topic"]
            ):
                indexes = list(part)
                parts += [[index] for index in indexes] if alone else [indexes]
        runs.append(parts)
    return runs


def _ordered(case: Case, stretch: Stretch) -> list[int]:
    """The records of a step in the order in which a task merges them."""
    topics = sorted({case.records[index]["topic"] for index in stretch})
    of = [topics.index(case.records[index]["topic"]) for index in stretch]
    times = [case.records[index]["timestamp"] for index in stretch]
    return [stretch[at] for at in merge_order_plain(of, range(len(of)), [0] * len(of), times)]


def _until(holds: Callable[[], bool], check: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        check()
        if time.monotonic() > deadline:
            raise CaseError(f"not within {_TIMEOUT_S:g} s: {what()}")
        time.sleep(0.01)
