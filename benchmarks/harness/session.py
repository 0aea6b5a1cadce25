"""A session of measurements: one broker, any number of workloads, each with its input loaded once for all peers."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import result
from benchmarks.harness.cluster import Cluster, own_cluster
from benchmarks.harness.peers import OURS, Peer
from benchmarks.harness.result import Result, Run
from benchmarks.harness.run import Loaded, Options, repeat
from benchmarks.workloads.base import Workload
from streams.config import StreamsConfig

Note = Callable[[str], object]


@contextmanager
def session(keep: Path | None = None) -> Iterator[tuple[Cluster, Path]]:
    """A broker and a folder for a number of runs.

    Args:
        keep: The folder, which is kept; default: a temporary one.
    """
    # A request to end must still stop the peer, which is not in this process's group.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = keep or Path(tempfile.mkdtemp(prefix="streams-bench-"))
    try:
        with own_cluster(folder / "kafka") as cluster:
            yield cluster, folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def measured(
    loaded: Loaded, peers: Sequence[Peer], times: int = 1, label: str = "", note: Note = lambda line: None
) -> list[Result]:
    """The results of the peers, side by side over the same input.

    Args:
        loaded: The workload in its cluster.
        peers: The peers.
        times: Runs of each, in turn.
        label: A word for the names of the result files.
        note: Takes a line about each run.
    """
    workload, options = loaded.workload, loaded.options
    runs: dict[str, list[Run]] = {one.name: [] for one in peers}
    if not workload.grows:
        loaded.load()
    try:
        for one, done in repeat(loaded, peers, times):
            runs[one.name].append(done)
            note(f"{workload.name} {label} {one.name}: {summary(done)}")
    finally:
        loaded.delete()
    return [_result(workload, options, one, runs[one.name], label) for one in peers]


def _result(workload: Workload, options: Options, peer: Peer, runs: Sequence[Run], label: str) -> Result:
    return result.described(
        workload=workload.name,
        size=options.size,
        peer=peer.name,
        title=peer.title,
        guarantee=options.guarantee or peer.guarantee,
        settings=_settings(peer, options),
        parameters={**workload.parameters_of(options.size), "records": workload.sizes[options.size]},
        runs=runs,
        label=label,
    )


def _settings(peer: Peer, options: Options) -> Mapping[str, str]:
    """The settings of the runs; the execution of ours is named even if it is the default, which has changed once."""
    usual = {"execution": StreamsConfig.model_fields["execution"].default.value} if peer.name == OURS else {}
    return {**usual, **options.settings}


def summary(run: Run) -> str:
    """A run in one line; a run that does not count, with the reasons."""
    if not run.counts:
        return f"{run.outcome}: " + "\n".join(run.why[:40])
    first = "" if run.first_result_s is None else f", first result after {run.first_result_s:.1f} s"
    return (
        f"{run.records_per_second:,} records/s, {run.cpu_us_per_record:.2f} µs CPU a record{first}, "
        f"{run.figures.get('peak_pss_mb', 0):,} MB, probe {run.figures.get('probe_us', 0):.0f} µs, verified"
    )


def all_of(results: Iterable[Result]) -> bool:
    """Whether every run counts or was not supported."""
    return all(one.outcome in ("verified", "not supported") for one in results)
