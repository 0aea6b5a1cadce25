"""The figures of a run: rates and CPU in the steady state, made of the monitor's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.monitor import Sample

WARM_UP = 0.2
"""The share of the input at which the steady state is taken to begin."""


@dataclass(frozen=True)
class Steady:
    """The steady state: from the first commit behind the warm-up to the last one.

    Attributes:
        records: Input records in it.
        seconds: Its length.
        cpu_s: CPU seconds by kind of process.
        whole: Whether the input was consumed in so few commits that the start of the system is part of it.
    """

    records: int
    seconds: float
    cpu_s: Mapping[str, float]
    whole: bool

    @property
    def records_per_second(self) -> int:
        """The rate."""
        return int(self.records / self.seconds)

    @property
    def cpu_us(self) -> dict[str, float]:
        """CPU microseconds a record, by kind of process."""
        return {kind: round(seconds / self.records * 1e6, 3) for kind, seconds in sorted(self.cpu_s.items()) if seconds}


def steady(samples: Sequence[Sample], total: int, *, by_output: bool) -> Steady:
    """The steady state of a drained backlog.

    Args:
        samples: The monitor's samples, from before the start to the last result.
        total: The number of input records.
        by_output: Whether progress is the share of the output that is there, for peers that do not commit offsets.
    """
    last = samples[-1]
    marks = [samples[0], *_ends_of_rounds(samples, by_output=by_output), last]
    done = [mark.outputs * total // last.outputs if by_output else mark.consumed for mark in marks]
    first = next(row for row, records in enumerate(done) if records >= WARM_UP * total)
    whole = done[first] == done[-1]
    if whole:
        first = 0
    begin = marks[first]
    cpu = {kind: seconds - begin.cpu.get(kind, 0.0) for kind, seconds in last.cpu.items()}
    return Steady(done[-1] - done[first], last.at - begin.at, cpu, whole)


def _ends_of_rounds(samples: Sequence[Sample], *, by_output: bool) -> list[Sample]:
    """The last sample of each round, in which each partition advances once at most.

    A system that works in micro-batches commits its tasks one after the other at the end of each. A mark in the middle of that
    would count records whose CPU has been spent before it.
    """
    ends: list[Sample] = []
    begin = before = samples[0]
    for sample in samples[1:]:
        pairs = [(one.ends if by_output else one.offsets) for one in (begin, before, sample)]
        if any(start != middle != now for start, middle, now in zip(*pairs, strict=True)):
            ends.append(before)
            begin = before
        before = sample
    return [*ends, before]
