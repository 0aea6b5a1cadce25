"""The current record while the records of a batch are processed one by one, and the policy for those that fail.

Invariant: errors of stores, Kafka and the like are not caused by a record and are never skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streams.errors import RecordError, RecordFailedError, StreamsError
from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
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
    before = run.held, run.position, run.cursor
    held, place = run.held, batch.place
    try:
        for row, (position, record) in enumerate(zip(batch.order.tolist(), batch.records(), strict=True)):
            run.held = batch.held.get(row, held) if batch.held else held
            run.position, run.cursor = position, place(position)
            yield record
    finally:
        run.held, run.position, run.cursor = before


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
