"""Runs a workload: loads its input once, then runs each peer over it, again and again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.generators.load import load
from benchmarks.generators.records import Batch
from benchmarks.harness.bench import Bench, Measured
from benchmarks.harness.cluster import Cluster
from benchmarks.harness.drain import drain
from benchmarks.harness.latency import latency, recovery
from benchmarks.harness.monitor import TooSlowError
from benchmarks.harness.peers import Peer
from benchmarks.harness.probe import MachineProbe
from benchmarks.harness.restore import restore
from benchmarks.harness.result import Run
from benchmarks.harness.system import NotSupportedError, ProcessSystem, System, SystemFailedError
from benchmarks.verify.output import OutputError
from benchmarks.workloads.base import RunConfig, Workload
from state.errors import StreamsError
from topologies.records import shown

ATTEMPTS = 4
"""How often a run is repeated because the machine stood still."""
DISTURBED = 0.01
"""The share of its measured time for which the machine may stand still. A run of less than 50 s is repeated for any standstill."""
PROCEDURES: Mapping[str, Callable[[Bench], Measured]] = {
    "drain": drain,
    "restore": restore,
    "latency": latency,
    "recovery": recovery,
}
_numbers = itertools.count(1)

MakeSystem = Callable[[Peer, RunConfig, Path], System]


@dataclass(frozen=True)
class Options:
    """How a workload is run.

    Attributes:
        size: The size's name.
        threads: How many threads a peer is to work with.
        guarantee: The guarantee; empty: each peer's own.
        settings: Settings of the peer.
        make_system: Makes the system under test.
    """

    size: str
    threads: int = 2
    guarantee: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    make_system: MakeSystem = ProcessSystem


class Loaded:
    """The input of a workload in a cluster, for any number of runs.

    Args:
        cluster: The broker.
        workload: The workload.
        options: How it is run.
        folder: The folder of the runs.
    """

    def __init__(self, cluster: Cluster, workload: Workload, options: Options, folder: Path) -> None:
        self.cluster = cluster
        self.workload = workload
        self.options = options
        self.folder = folder
        self._end_ms = 0
        self._inputs: dict[str, str] = {}
        self._counts: Mapping[str, int] = {}
        self._borrowed = False

    def borrowed_by(self, workload: Workload) -> Loaded:
        """The same input for another workload, which neither loads nor deletes it."""
        other = Loaded(self.cluster, workload, self.options, self.folder)
        other._end_ms, other._inputs, other._counts, other._borrowed = self._end_ms, self._inputs, self._counts, True
        return other

    def load(self) -> int:
        """Creates the input topics and fills them, unless they are borrowed: the number of records."""
        if self._borrowed:
            return sum(self._counts.values())
        number = next(_numbers)
        self._inputs = self._named((role for role in self.workload.inputs if role not in self._probed), number)
        self.cluster.create(self._inputs.values(), self.workload.partitions)
        with shown(f"loading {self.workload.name}", self.workload.sizes[self.options.size]) as advance:
            batches = self._noting_time(self.workload.batches(self.options.size))
            counts = load(self.cluster.client, self._inputs, self.workload.partitions, batches, advance)
        self._counts = {role: count for role, count in counts.items() if role not in self.workload.looked_up}
        return sum(self._counts.values())

    def delete(self) -> None:
        """Deletes the topics of all runs, and of the input unless it is borrowed."""
        self.cluster.delete(name for name in self.cluster.topics() if self._is_mine(name))

    def _is_mine(self, topic: str) -> bool:
        if topic in self._inputs.values():
            return not self._borrowed
        return topic.startswith(f"{self.workload.name}.") or f"{self.workload.name}-" in topic

    def _noting_time(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._end_ms = max(self._end_ms, int(batch.timestamps.max()))
            yield batch

    def run(self, peer: Peer) -> Run:
        """One run of a peer, with output topics and a state folder of its own."""
        reason = peer.reason_against(self.workload.name)
        if reason is not None:
            return Run("not supported", why=[reason])
        if self.workload.grows:
            self.load()
        config = self.config(peer)
        system = self.options.make_system(peer, config, self.folder / config.application_id)
        bench = Bench(self.workload, self.options.size, peer, config, self.cluster, system, self._counts, self._end_ms)
        try:
            with MachineProbe() as probe:
                measured = PROCEDURES[self.workload.procedure](bench)
        except NotSupportedError as error:
            return Run("not supported", why=[str(error)])
        except (SystemFailedError, TooSlowError, OutputError, StreamsError, KeyError, ValueError) as error:
            return Run("failed", why=f"{type(error).__name__}: {error}".splitlines())
        return self._result(bench, measured, probe)

    def config(self, peer: Peer) -> RunConfig:
        """What a peer is told about its next run; creates its output topics."""
        number = next(_numbers)
        application_id = f"{self.workload.name}-{peer.name}-{number}"
        own = self._named([*self.workload.outputs, *self._probed], number)
        self.cluster.create(own.values(), self.workload.partitions)
        return RunConfig(
            workload=self.workload.name,
            application_id=application_id,
            bootstrap_servers=self.cluster.servers,
            topics={**self._inputs, **own},
            partitions=self.workload.partitions,
            threads=self.options.threads,
            guarantee=self.options.guarantee or peer.guarantee,
            state_dir=str(self.folder / application_id / "state"),
            parameters=dict(self.workload.parameters_of(self.options.size)),
            settings=dict(self.options.settings),
        )

    @cached_property
    def _probed(self) -> set[str]:
        """The roles of what is sent while a system runs; it belongs to that run, and the next one must not find it."""
        return {batch.role for batch in self.workload.probes(self.options.size)}

    def _named(self, roles: Iterable[str], number: int) -> dict[str, str]:
        return {role: f"{self.workload.name}.{role}.{number}" for role in roles}

    def _result(self, bench: Bench, measured: Measured, probe: MachineProbe) -> Run:
        internal = self.cluster.internal_topics(bench.config.application_id)
        figures = {
            **measured.figures,
            **measured.verdict.figures,
            "internal_records": self.cluster.end_offsets(internal),
            "internal_bytes": self.cluster.log_bytes(internal),
            "probe_us": probe.mean_us,
            "stood_still_s": probe.stood_still_s,
        }
        return Run(
            outcome="verified" if measured.verdict.accepted else "wrong",
            records=measured.records,
            seconds=round(measured.seconds, 2),
            records_per_second=int(measured.records / measured.seconds) if measured.seconds > 0 else 0,
            cpu_us_per_record=round(sum(measured.cpu_us.values()), 2),
            cpu_us_by_process=measured.cpu_us,
            first_result_s=None if measured.first_result_s is None else round(measured.first_result_s, 2),
            steady=measured.steady,
            output_records=measured.verdict.output_records,
            figures={name: value for name, value in figures.items() if value is not None},
            why=list(measured.verdict.differences),
        )


def repeat(loaded: Loaded, peers: Sequence[Peer], times: int) -> Iterator[tuple[Peer, Run]]:
    """Runs the peers in turn, `times` times: what disturbs the machine for a while disturbs all alike."""
    for _ in range(times):
        for peer in peers:
            yield peer, _undisturbed(loaded, peer)


def _undisturbed(loaded: Loaded, peer: Peer) -> Run:
    """A run during which the machine hardly stood still; after some attempts, the one with the shortest standstill."""
    runs = [loaded.run(peer)]
    attempts = 1 if loaded.options.size == "smoke" else ATTEMPTS
    while runs[-1].counts and _stood_still(runs[-1]) > DISTURBED * runs[-1].seconds and len(runs) < attempts:
        runs.append(loaded.run(peer))
    return min(runs, key=_stood_still) if runs[-1].counts else runs[-1]


def _stood_still(run: Run) -> float:
    return run.figures.get("stood_still_s", 0.0)
