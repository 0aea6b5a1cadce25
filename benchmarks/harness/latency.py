"""The procedures `latency` and `recovery`: a paced load, what its results take to arrive, and how a crash interrupts them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from benchmarks.generators.load import Loader
from benchmarks.generators.paced import TICK_S, Paced, Pacer
from benchmarks.harness.bench import Bench, Measured
from benchmarks.harness.monitor import Monitor, TooSlowError
from benchmarks.harness.reader import ArrivalReader, Floats, latencies
from benchmarks.verify.compare import Verdict
from benchmarks.workloads.paced import Latency

_LEAD_S = 1.0
LATE_S = 60.0
"""How late the generator may be: longer than the machine stands still."""


@dataclass
class PacedRun:
    """A running system under a paced load."""

    bench: Bench
    workload: Latency
    load: Paced
    pacer: Pacer
    reader: ArrivalReader

    def finish(self, monitor: Monitor) -> Verdict:
        """Ends the load, waits for all results and verifies them."""
        sent = self.pacer.stop()
        self.bench.wait(monitor, more=sent)
        self.reader.read_to_end()
        return self.workload.verify_paced(self.bench.size, self.bench.output, self.load, sent)

    def latencies(self, begin: int, end: int) -> Floats:
        """Of the readings with the numbers [begin, end)."""
        window_ms = self.bench.config.parameters["window_ms"]
        return latencies(self.load.columns(begin, end), self.reader.arrivals(), window_ms)


def latency(bench: Bench) -> Measured:
    """Latency and CPU of a system that keeps up with a steady load.

    Raises:
        SystemFailedError: The system has ended early.
        NotSupportedError: It says that it cannot do this.
        TooSlowError: It has not come to the end in time.
    """
    bench.system.start()
    try:
        with bench.usage() as usage, bench.monitor(usage) as monitor:
            bench.wait(monitor)
            first_at = monitor.first_output_at()
            with _paced(bench) as run:
                run.pacer.start()
                begin = _measured_from(run)
                sleep_until(run, begin)
                cpu, broker_s, started = usage.cpu_by_name(), bench.broker_cpu_s(), time.perf_counter()
                count = run.workload.sizes[bench.size]
                sleep_until(run, begin + count)
                seconds, ended = time.perf_counter() - started, time.monotonic()
                broker_us = (bench.broker_cpu_s() - broker_s) / count * 1e6
                used = {kind: value - cpu.get(kind, 0.0) for kind, value in usage.cpu_by_name().items()}
                verdict = run.finish(monitor)
                found = run.latencies(begin, begin + count)
    finally:
        bench.system.stop()
    return Measured(
        records=count,
        seconds=seconds,
        cpu_us={kind: round(value / count * 1e6, 3) for kind, value in sorted(used.items()) if value},
        first_result_s=None if first_at is None else first_at - monitor.started,
        steady=True,
        verdict=verdict,
        figures={
            **_percentiles(found),
            **usage.memory_mb(),
            **usage.growth(ended - seconds, ended),
            "broker_cpu_us": round(broker_us, 2),
            "generator_late_ms": round(run.pacer.latest_ms, 1),
        },
    )


def recovery(bench: Bench) -> Measured:
    """A crash in the middle of a steady load: how soon there are new results, and how soon nothing waits any more.

    Raises:
        SystemFailedError: The system has ended by itself.
        NotSupportedError: It says that it cannot do this.
        TooSlowError: It has not come to the end in time.
    """
    bench.system.start()
    try:
        with bench.usage() as usage:
            with bench.monitor(usage) as monitor:
                bench.wait(monitor)
            with _paced(bench) as run:
                run.pacer.start()
                begin = _measured_from(run)
                sleep_until(run, begin)
                killed_at = time.time() * 1_000
                bench.system.kill()
                bench.system.start()
                with bench.usage() as again, bench.monitor(again) as monitor:
                    sleep_until(run, begin + run.workload.sizes[bench.size])
                    verdict = run.finish(monitor)
                    figures = _after_crash(run, killed_at)
    finally:
        bench.system.stop()
    return Measured(
        records=run.pacer.sent,
        seconds=(time.time() * 1_000 - killed_at) / 1_000,
        cpu_us={},
        first_result_s=figures["first_new_result_s"],
        steady=True,
        verdict=verdict,
        figures={**figures, **again.memory_mb()},
    )


@contextmanager
def _paced(bench: Bench) -> Iterator[PacedRun]:
    workload = bench.workload
    assert isinstance(workload, Latency)
    # A producer that waits for company would add to every latency.
    client = {**bench.cluster.client, "linger.ms": "1"}
    loader = Loader(client, bench.config.topics, bench.config.partitions)
    load = Paced(int((time.time() + _LEAD_S) * 1_000), workload.rates[bench.size])
    pacer = Pacer(load, "events", loader.send)
    try:
        with ArrivalReader(bench.cluster.client, bench.config.topics["out"], bench.config.partitions) as reader:
            yield PacedRun(bench, workload, load, pacer, reader)
    finally:
        pacer.stop()
        loader.flush()
        loader.close()


def _measured_from(run: PacedRun) -> int:
    return run.workload.warm_up_s[run.bench.size] * run.load.rate


def sleep_until(run: PacedRun, number: int) -> None:
    """Waits until so many readings are due and sent, and looks after the system meanwhile."""
    due_s = (run.load.start_ms + number * 1_000 / run.load.rate) / 1_000
    while (left := due_s - time.time()) > 0:
        run.bench.system.check()
        time.sleep(min(left, 0.5))
    while run.pacer.sent < number:
        if time.time() > due_s + LATE_S:
            raise TooSlowError(
                f"the generator has sent {run.pacer.sent:,} readings, and {number:,} were due {LATE_S} s ago"
            )
        time.sleep(TICK_S)


def _percentiles(found: Floats) -> dict[str, float]:
    """Percentiles; a reading without a result counts as one that waits for ever, and percentiles that reach those are left out."""
    waits = np.where(np.isnan(found), np.inf, found)
    wanted = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    values = {name: float(np.percentile(waits, percent, method="higher")) for name, percent in wanted.items()}
    missing = int(np.isnan(found).sum())
    return {
        **{name: round(value, 1) for name, value in values.items() if np.isfinite(value)},
        **({"without_result": missing} if missing else {}),
    }


def _after_crash(run: PacedRun, killed_at: float) -> dict[str, float]:
    """Times after the crash: to the first new result, and until results are as fresh as before."""
    before = run.latencies(0, int((killed_at - run.load.start_ms) * run.load.rate / 1_000))
    usual = float(np.nanpercentile(before, 99))
    results = run.reader.arrivals()
    late = (results["at"] > killed_at) & (results["at"] - results["t"] > usual + 1_000)
    caught_up = float(results["at"][late].max()) if late.any() else killed_at
    # A result with a record of after the crash can only come from the new processes.
    new = results["at"][results["t"] > killed_at]
    return {
        "first_new_result_s": round((float(new.min()) - killed_at) / 1_000, 2) if len(new) else math.nan,
        "caught_up_s": round((caught_up - killed_at) / 1_000, 2),
        "usual_p99_ms": round(usual, 1),
    }
