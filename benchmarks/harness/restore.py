"""The procedure `restore`: a table is filled, the system stopped, its state deleted, and the system started again.

From outside a restore cannot be told from the rest of a start. So the system is started three times more: with its state as
it is, without, and with it again. Each time a probe for each hundredth row waits, and the start ends when all are answered.
What a start without state costs beyond the cheaper start with state is the restore's CPU. The start's time varies by more
than a restore takes, so the rate is the one that the peer says (a line `RESTORED {"seconds": …}` in its log) where it does.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generators.load import load
from benchmarks.harness.bench import Bench, Measured
from benchmarks.harness.system import NotSupportedError
from benchmarks.workloads.tables import Restore


@dataclass(frozen=True)
class _Start:
    """One start: seconds and CPU seconds until all probes are answered, and the memory that it has taken."""

    seconds: float
    cpu_s: dict[str, float]
    memory_mb: dict[str, float]


def restore(bench: Bench) -> Measured:
    """Fills, starts again with the state, and starts again without it.

    Raises:
        SystemFailedError: The system has ended early.
        NotSupportedError: It says that it cannot do this.
        TooSlowError: It has not answered in time.
    """
    workload = bench.workload
    assert isinstance(workload, Restore)
    if bench.by_output:
        raise NotSupportedError("only committed offsets show the progress of a fill, and this peer commits none")
    probes = sum(len(batch) for batch in workload.probes(bench.size))
    _fill(bench)
    kept = _start(bench, workload, 0, probes)
    _delete_stores(Path(bench.config.state_dir) / bench.peer.stores)
    wiped = _start(bench, workload, 1, 2 * probes)
    said = bench.system.said("RESTORED")
    again = _start(bench, workload, 2, 3 * probes)
    kept = min(kept, again, key=lambda start: sum(start.cpu_s.values()))
    verdict = workload.verify_rounds(bench.size, bench.output, 3)
    rows = workload.sizes[bench.size]
    seconds = wiped.seconds - kept.seconds if said is None else said["seconds"]
    cpu = {kind: (used - kept.cpu_s.get(kind, 0.0)) / rows * 1e6 for kind, used in wiped.cpu_s.items()}
    return Measured(
        records=rows,
        seconds=seconds,
        cpu_us={kind: round(value, 3) for kind, value in sorted(cpu.items())},
        first_result_s=wiped.seconds,
        steady=said is not None,
        verdict=verdict,
        figures={
            "ready_with_state_s": round(kept.seconds, 2),
            "ready_without_state_s": round(wiped.seconds, 2),
            **wiped.memory_mb,
        },
    )


def _fill(bench: Bench) -> None:
    bench.system.start()
    try:
        with bench.usage() as usage, bench.monitor(usage) as monitor:
            bench.wait(monitor, outputs=0)
    finally:
        bench.system.stop()


def _start(bench: Bench, workload: Restore, round_: int, answers: int) -> _Start:
    """Sends a round of probes, starts the system and waits until all rounds are answered."""
    load(bench.cluster.client, bench.config.topics, bench.config.partitions, workload.probes(bench.size, round_))
    bench.system.start()
    try:
        with bench.usage() as usage, bench.monitor(usage) as monitor:
            bench.wait(monitor, more=answers, outputs=answers)
            last = monitor.last
            return _Start(last.at - monitor.started, dict(last.cpu), usage.memory_mb())
    finally:
        bench.system.stop()


def _delete_stores(folder: Path) -> None:
    """Deletes a system's local stores."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
