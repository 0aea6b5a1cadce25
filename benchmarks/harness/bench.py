"""One run of one peer: what the procedures need, and what they say about it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import psutil

from benchmarks.generators.load import load
from benchmarks.harness.cluster import Cluster
from benchmarks.harness.monitor import POLL_S, Monitor
from benchmarks.harness.peers import Peer
from benchmarks.harness.system import System
from benchmarks.usage import TreeUsage
from benchmarks.verify.compare import Verdict
from benchmarks.workloads.base import Output, RunConfig, Workload

QUIET_S = {"offsets": 0.5, "outputs": 10.0}
"""How long nothing may change before a system counts as done, by how the peer shows its progress."""
TIMEOUT_S = {"smoke": 180.0, "small": 900.0, "full": 7200.0}
"""How long a run may take, by its size."""
SLOWEST_PER_S = 10_000
"""Records that a run may take a second for, if that is longer: series of growth load what they like."""
_MOST_ROUNDS = 5
_ROUND_S = 2.0
"""Between two verdicts. More than a second: Kafka Streams looks for unmatched rows of joins once a second."""
_PATIENCE_S = 10.0
"""How long a further result may take."""
_AT_REST_S = 3.0
"""A sub-topology behind a repartition topic is at rest if it has written nothing for so long: nothing shows how far it has read."""


@dataclass(frozen=True)
class Measured:
    """What a procedure has measured.

    Attributes:
        records: Input records in the measured time.
        seconds: The measured time.
        cpu_us: CPU microseconds a record by kind of process.
        first_result_s: From the start to the first committed result.
        steady: Whether the measured time is a steady state.
        verdict: The verifier's.
        figures: Further figures of the procedure.
    """

    records: int
    seconds: float
    cpu_us: Mapping[str, float]
    first_result_s: float | None
    steady: bool
    verdict: Verdict
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """One run of one peer.

    Attributes:
        workload: What is computed.
        size: The size's name.
        peer: Who computes it.
        config: What the peer is told.
        cluster: The broker.
        system: The peer, not started yet.
        loaded: The number of input records by role.
        end_ms: The largest timestamp of the input.
    """

    workload: Workload
    size: str
    peer: Peer
    config: RunConfig
    cluster: Cluster
    system: System
    loaded: Mapping[str, int]
    end_ms: int

    @property
    def timeout_s(self) -> float:
        """How long a run may take."""
        return max(TIMEOUT_S[self.size], sum(self.loaded.values()) / SLOWEST_PER_S)

    @property
    def by_output(self) -> bool:
        """Whether only the output shows the peer's progress."""
        return self.peer.progress == "outputs"

    @property
    def closes(self) -> bool:
        """Whether the last results need records that make time pass."""
        return self.workload.closes or self.late_results

    @property
    def late_results(self) -> bool:
        """Whether the peer emits results only when event time has passed them."""
        return self.workload.name in self.peer.closes

    @cached_property
    def output(self) -> Output:
        """The output of the run."""
        return Output(self.config, self.peer.retracts, self.peer.sliding)

    def usage(self) -> TreeUsage:
        """The usage of the system, which is running."""
        without = set() if self.system.root is not None else self._broker_pids()
        return TreeUsage(without, self.system.root)

    def monitor(self, usage: TreeUsage) -> Monitor:
        """A monitor of all input and output topics."""
        return Monitor(self.config, usage, tuple(self.workload.inputs), tuple(self.workload.outputs))

    def wait(self, monitor: Monitor, more: int = 0, outputs: int = 1) -> None:
        """Waits until the input, and `more` records of it, are consumed, and what is behind repartition topics is at rest."""
        total = None if self.by_output else sum(self.loaded.values()) + more
        monitor.wait(self.system, total, QUIET_S[self.peer.progress], self.timeout_s, outputs)
        before, deadline = None, time.perf_counter() + self.timeout_s
        while (written := self._written_behind()) != before and time.perf_counter() < deadline:
            self.system.check()
            before = written
            time.sleep(_AT_REST_S)

    def _written_behind(self) -> int | None:
        """Where the topics end that sub-topologies behind repartition topics write; None: there are none of these."""
        internal = self.cluster.internal_topics(self.config.application_id)
        if not any(name.endswith("-repartition") for name in internal):
            return None
        # Markers of commits come also while there is nothing to do.
        return self.cluster.end_offsets(name for name in internal if name.endswith(("-repartition", "-changelog")))

    def verified(self, monitor: Monitor) -> Verdict:
        """The verifier's verdict, with closing records sent first where results wait for time to pass.

        As long as results still arrive (from a second sub-topology, for instance), a verdict that refuses is not the last one.
        """
        for round_ in itertools.count(1):
            if self.closes:
                closing = self.workload.closing(round_, self.end_ms)
                load(self.cluster.client, self.config.topics, self.config.partitions, closing)
                self.wait(monitor, round_ * self.config.partitions * len(self.workload.inputs))
            seen = monitor.last.outputs
            verdict = self.workload.verify(self.size, self.output)
            if verdict.accepted or round_ >= _MOST_ROUNDS:
                break
            time.sleep(_ROUND_S)
            if not self.closes and not self._went_on(monitor, seen):
                break
        return verdict

    def _went_on(self, monitor: Monitor, seen: int) -> bool:
        """Whether more results than those seen have come, or come soon; it returns when no more come."""
        deadline = time.perf_counter() + _PATIENCE_S
        while monitor.last.outputs == seen and time.perf_counter() < deadline:
            time.sleep(POLL_S)
        self.wait(monitor)
        return monitor.last.outputs != seen

    def broker_cpu_s(self) -> float:
        """CPU seconds of the benchmark's own broker so far; the load and the reader of the results have their part in it."""
        times = [psutil.Process(pid).cpu_times() for pid in self._broker_pids()]
        return float(sum(one.user + one.system for one in times))

    def _broker_pids(self) -> set[int]:
        broker = self.cluster.broker
        return {node.pid for node in broker.status().nodes if node.pid is not None} if broker is not None else set()
