"""The procedure `drain`: the input is there, the system starts and consumes it as fast as it can."""

from __future__ import annotations

from benchmarks.generators.load import load
from benchmarks.harness.bench import Bench, Measured
from benchmarks.harness.figures import steady
from benchmarks.harness.system import NotSupportedError


def drain(bench: Bench) -> Measured:
    """Runs a system over the loaded input.

    Raises:
        SystemFailedError: It has ended early.
        NotSupportedError: It says that it cannot do this.
        TooSlowError: It has not consumed the input in time.
    """
    probes = list(bench.workload.probes(bench.size))
    if probes and bench.by_output:
        raise NotSupportedError("only committed offsets show the progress of a fill, and this peer commits none")
    bench.system.start()
    try:
        with bench.usage() as usage, bench.monitor(usage) as monitor:
            # A table's fill has no results before the probes, and some peers have none before time passes.
            bench.wait(monitor, outputs=0 if probes or bench.late_results else 1)
            samples = list(monitor.samples)
            memory = usage.memory_mb()
            if probes:
                sent = load(bench.cluster.client, bench.config.topics, bench.config.partitions, probes)
                bench.wait(monitor, more=sum(sent.values()))
            verdict = bench.verified(monitor)
            first_at = monitor.first_output_at()
            if not probes and not bench.closes:
                # Results that came while the verifier was at work belong to the measured time.
                samples = list(monitor.samples)
    finally:
        bench.system.stop()
    total = sum(bench.loaded.values())
    found = steady(samples, total, by_output=bench.by_output)
    return Measured(
        records=found.records,
        seconds=found.seconds,
        cpu_us=found.cpu_us,
        first_result_s=None if probes or first_at is None else first_at - samples[0].at,
        steady=not found.whole,
        verdict=verdict,
        figures=memory,
    )
