"""The cases' processors, written against the public Processor API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streams import Processor, ProcessorContext, Record
from tests.conformance.case import CaseError
from tests.conformance.functions import number


class Dedupe(Processor):
    """Lets a record pass if its key has not passed for ``ttl_ms`` of stream time."""

    def __init__(self, store: str, ttl_ms: int) -> None:
        self.store_name = store
        self.ttl_ms = ttl_ms

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store: key -> stream time at which it passed."""
        super().init(ctx)
        self.passed = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Pass it on, or not."""
        if record.key is None:
            return
        now, before = self.ctx.stream_time, self.passed.get(record.key)
        if before is None or now - before >= self.ttl_ms:
            self.ctx.forward(record)
            self.passed.put(record.key, now, record.timestamp)


class RunningSum(Processor):
    """Sums the values of each key; a null value deletes the sum."""

    def __init__(self, store: str) -> None:
        self.store_name = store

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store."""
        super().init(ctx)
        self.sums = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Forward the new sum."""
        if record.key is None:
            return
        total = None
        if record.value is not None:
            total = number(self.sums.get(record.key)) + number(record.value)
        self.sums.put(record.key, total, record.timestamp)
        self.ctx.forward(record.with_value(total))


class CountAndPunctuate(Processor):
    """Counts the records of each key; a punctuation forwards all counts, in order of the bytes of the keys."""

    def __init__(self, store: str, kind: Any, interval_ms: int, reset: bool = False) -> None:
        self.store_name = store
        self.kind = kind
        self.interval_ms = interval_ms
        self.reset = reset

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store and schedule."""
        super().init(ctx)
        self.counts = ctx.store(self.store_name)
        ctx.schedule(self.interval_ms, self.kind, self.punctuate)

    def process(self, record: Record) -> None:
        """Count."""
        if record.key is not None:
            self.counts.put(record.key, number(self.counts.get(record.key)) + 1, record.timestamp)

    def punctuate(self, time: int) -> None:
        """Forward every count with the time of the punctuation."""
        for key, count in list(self.counts.all()):
            self.ctx.forward(Record(key, count, time))
            if self.reset:
                self.counts.put(key, None, time)


class ShiftTimestamp(Processor):
    """Moves the timestamp by ``delta_ms``, but not below 0."""

    def __init__(self, delta_ms: int) -> None:
        self.delta_ms = delta_ms

    def process(self, record: Record) -> None:
        """Forward with the new time."""
        self.ctx.forward(Record(record.key, record.value, max(0, record.timestamp + self.delta_ms), record.headers))


def supplier_of(node: dict[str, Any], store: str) -> tuple[Callable[[], Processor], bool]:
    """Takes a processor and its parameters out of a node: what makes it, and whether it keeps state in the store."""
    known: dict[str, tuple[Callable[..., Processor], tuple[str, ...]]] = {
        "dedupe": (partial(Dedupe, store), ("ttl_ms",)),
        "running_sum": (partial(RunningSum, store), ()),
        "punctuate_stream_time": (partial(CountAndPunctuate, store, "stream_time"), ("interval_ms", "reset")),
        "punctuate_wall_clock": (partial(CountAndPunctuate, store, "wall_clock"), ("interval_ms", "reset")),
        "shift_timestamp": (ShiftTimestamp, ("delta_ms",)),
    }
    processor = node.pop("processor")
    if processor not in known:
        raise CaseError(f"unknown processor {processor!r}")
    make, names = known[processor]
    return partial(make, **{name: node.pop(name) for name in names if name in node}), make is not ShiftTimestamp
