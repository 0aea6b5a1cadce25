"""The current record while the records of a batch are processed one by one, and the policy for those that fail.

Invariant: errors of stores, Kafka and the like are not caused by a record and are never skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, repeat

from streams.errors import RecordError, RecordFailedError, StreamsError
from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch, in_order
from streams.runtime.step_context import ChangedInPlace, StepContext
from streams.users_code import is_of_state


@contextmanager
def at_record(batch: ColumnarBatch, row: int, run: StepContext) -> Iterator[None]:
    """Within the context, a record of a batch is the current one."""
    held, position = run.held, run.position
    run.held, run.position = batch.held.get(row, held), int(batch.order[row])
    try:
        with run.resume(batch.place(run.position)):
            yield
    finally:
        run.held, run.position = held, position


def each_record(batch: ColumnarBatch, run: StepContext) -> Iterator[Record]:
    """The records of a batch, each while it is the current one."""
    return (record for _, record in records_in_order([batch], run))


def records_in_order(batches: Sequence[ColumnarBatch], run: StepContext) -> Iterator[tuple[int, Record]]:
    """The records of several batches of a pass in the order of their positions, each while it is the current one.

    Yields the index of the record's batch with it. While an operator makes results that come from no record of the step
    (`StepContext.numbered`), the position stays that of its next result.
    """
    before = run.held, run.position, run.cursor
    held, times, shift, numbered = run.held, run.times, run.shift, run.numbered
    try:
        for which, row, position, record in _in_order(batches):
            batch = batches[which]
            run.held = batch.held.get(row, held) if batch.held else held
            run.cursor = batch.place(position)
            if not numbered:
                run.position = position
            if times is not None:
                run.stream_time = times[position >> shift]
            yield which, record
    finally:
        run.held, run.cursor = before[0], before[2]
        if not numbered:
            run.position = before[1]


def _in_order(batches: Sequence[ColumnarBatch]) -> Iterator[tuple[int, int, int, Record]]:
    """Index of the batch, row in it, position and record."""
    if len(batches) == 1:
        (batch,) = batches
        return zip(repeat(0), count(), batch.order.tolist(), batch.records(), strict=False)
    records, orders = [batch.records() for batch in batches], [batch.order.tolist() for batch in batches]
    return ((which, row, orders[which][row], next(records[which])) for which, row in in_order(batches))


def may_be_the_records_fault(error: Exception) -> bool:
    """Whether a policy for records applies to an error raised while records were processed."""
    not_the_records_fault = isinstance(error, StreamsError) and not isinstance(error, RecordError)
    nobodys = isinstance(error, RecordFailedError | MemoryError | ChangedInPlace) or is_of_state(error)
    return not (not_the_records_fault or nobodys)


def guard(error: Exception, node: str, run: StepContext) -> None:
    """Apply the processing policy to an exception raised in a node."""
    if not may_be_the_records_fault(error):
        raise error
    run.handlers.handle("processing", node, run.origin(), error)
