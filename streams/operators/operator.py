"""The engine's own operators: their context, their base class, calls of users' functions for batches, and dropped records.

`OperatorContext` is the runtime's interface for the engine's own operators, beyond `ProcessorContext`. Users do not see it: its
methods hold records back, isolate failures and count, and are only correct together with an operator's stores and the commit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from state.columns import rows_where
from streams.model.ownership import all_unchanging, may_share, only_reads, snapshot
from streams.model.record import Change, Headers, HeldRecord, Record
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, lent_values
from streams.operators.processor import BaseProcessor, ProcessorContext

if TYPE_CHECKING:
    from typing_extensions import Self

Mode = Literal["strict", "compat"]
T = TypeVar("T")


class OperatorContext(ProcessorContext[Any, Any], Protocol):
    """The context of an operator, one object per node and step. `store` returns the typed store with all of its methods."""

    @property
    def mode(self) -> Mode:
        """`strict` (default) or `compat`, which reproduces Kafka Streams' flaws."""

    @property
    def emit_interval_ms(self) -> int:
        """In `compat` mode, the shortest wall-clock time between two checks for closed windows, ms."""

    @property
    def private_rows(self) -> bool:
        """Whether stores with a cache give each reader its own copy of a value (`Operator.changes_in_place`)."""

    def run_with_private_rows(self) -> None:
        """Run the step again with private rows. Does nothing if it already has them.

        Raises:
            Exception: The step has to be run again.
        """

    @property
    def flushing(self) -> bool:
        """Whether the step is ending: operators then emit their pending results."""

    @property
    def results_change(self) -> bool:
        """Whether functions below may change what the operator forwards. Nothing else may then hold these objects."""

    def shared_state(self, name: str) -> dict[str, Any]:
        """A state like `state`, but shared by all nodes of the task that use `name` (the two sides of a join)."""

    @property
    def has_children(self) -> bool:
        """Whether any node receives what this one forwards."""

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        """Forward records together, to all children or only to the named one."""

    def count_forwarded(self, number: int) -> None:
        """Count records as forwarded by this node even though another node of its group forwards them with its own records.

        Nodes with the same children let one of them forward the records of all, so that these stay in order. A negative number
        subtracts records that `forward_batch` has counted.
        """

    def batch_of(self, record: Record) -> ColumnarBatch:
        """The current record as a batch of one."""

    def alone(self, record: Record) -> AbstractContextManager[ColumnarBatch]:
        """A context with the record as a batch of one, in which `refuse` raises the record's error."""

    def attempt_each(self, batch: ColumnarBatch, process: Callable[[Record], None]) -> None:
        """Run a function for each record of a batch, as if the records came one by one; the results are forwarded together."""

    def copy_of(self, value: Any) -> Any:
        """A value that does not change when `value` changes: `value` itself if it cannot change, otherwise a copy."""

    def refuse(self, batch: ColumnarBatch, row: int, error: Exception) -> None:
        """Apply the processing policy to a record that the operator fails on, as if `process` had raised the error."""

    def drop_batch(self, batch: ColumnarBatch, reason: str) -> None:
        """Drop records that were processed together, for a reason."""

    def drop_many(self, count: int, reason: str) -> None:
        """Count records that were processed as columns as dropped, for a reason."""

    def fault(self, error: Exception) -> Headers:
        """The headers that describe an error of the current record, as in a dead letter.

        Raises:
            Exception: The error itself, if no policy for records applies to it: an error of stores or Kafka, for example.
        """

    def partly_done(self) -> None:
        """Report that the operator has written to its state, or forwarded, for the current record before failing on it.

        The dead letter then says that a second attempt would do this again.
        """

    def divert(self, record: Record) -> None:
        """Forward a record to the nodes that take dropped records, although the operator does not drop it."""

    def count_looked_up(self, number: int, missing: Mapping[str, int], join: str | None = None) -> None:
        """Count a join's look-ups on its other side and, by reason, how many of them found no match.

        `join` is the name of a join whose sides are counted together; None: the node.
        """

    def count(self, what: str, number: int) -> None:
        """Add to the counter `<what>:<node>` of the step."""

    def hold(self, record: Record) -> Any:
        """Reserve the place of the current record, whose results are forwarded later. Returns the argument of `resume`."""

    def resume(self, held: Any) -> AbstractContextManager[None]:
        """A context in which the record is the current one again, with its metadata, its errors, and its place in the order."""

    def attempt(self, action: Callable[[], object], held: HeldRecord | None = None) -> None:
        """Run one part of the work under the processing policy, so that its failure does not affect other parts."""

    def expire(self, store: str, stream_time: int) -> None:
        """Pass stream time to a windowed store: rows older than its retention before that time are no longer needed.

        If several nodes share a store, the smallest of their times counts.
        """


# --- `Operator`: the base class of the engine's own operators.


class Operator(BaseProcessor[Any, Any, OperatorContext]):
    """One of the engine's own operators, with the life cycle of a `Processor` and the wider `OperatorContext`."""

    @abstractmethod
    def process_batch(self, batch: ColumnarBatch) -> None:
        """Processes the records of a pass, or a part of them; may be called several times in a pass.

        Results, drops, state and their order must not depend on how the records are divided into batches. The operator applies the
        policy to a record that fails (`OperatorContext.refuse`, `attempt_each`). A call that raises must not have had any effect,
        because the runtime then divides the batch until it has found the record. So look up and compute first, then write to
        stores, and forward last.
        """

    def process(self, record: Record) -> None:
        """Processes one record, as a batch of one."""
        with self.ctx.alone(record) as batch:
            try:
                self.process_batch(batch)
            except Exception:
                self.skip(batch)
                raise

    def skip(self, batch: ColumnarBatch) -> None:
        """Called for a record on which `process_batch` has failed: it advances stream time all the same."""

    def lead(self, group: Sequence[Self]) -> None:
        """Makes this operator process the records of several nodes that share stores; called after `init` of all of them.

        Args:
            group: The operators of these nodes, beginning with this one. `ColumnarBatch.nodes` has the indices.
        """
        raise NotImplementedError

    @property
    def leaves_values(self) -> bool:
        """Whether the operator leaves its input values unchanged: its functions only read them, or get copies."""
        return False

    @property
    def makes_results(self) -> bool:
        """Whether results contain no object of the operator's inputs, at least where functions below may change the results."""
        return False

    @property
    def changes_in_place(self) -> bool:
        """Whether the user's functions get values that the step's cache shares: one that fails may leave them half changed."""
        return False


class RecordOperator(Operator):
    """An operator that processes one record after the other."""

    @abstractmethod
    def process(self, record: Record) -> None: ...

    def process_batch(self, batch: ColumnarBatch) -> None:
        self.ctx.attempt_each(batch, self.process)


def forward_in_one(ctxs: Sequence[OperatorContext], results: ColumnarBatch, nodes: Int64s) -> None:
    """Forward the results of the nodes of a group in one order, through the last node; each node counts its own results."""
    if not len(results):
        return
    counts = np.bincount(nodes, minlength=len(ctxs)).tolist()
    for ctx, count in zip(ctxs[:-1], counts[:-1], strict=True):
        ctx.count_forwarded(count)
    ctxs[-1].count_forwarded(counts[-1] - len(results))
    ctxs[-1].forward_batch(results)


# --- Calls of users' functions for the records of a batch.


def lent(batch: ColumnarBatch, function: Callable[..., Any]) -> tuple[Iterable[Any], ...]:
    """Keys and values for calls of a function whose records continue unchanged: copies, unless the function only reads."""
    if only_reads(function):
        return with_timestamps(batch, function, batch.keys, batch.values)
    return batch.keys.each(), lent_values(batch.values)


def takes_timestamp(function: Callable[..., Any]) -> bool:
    """Whether a function takes key, value and timestamp."""
    return getattr(function, "takes_timestamp", False) is True


def with_timestamps(
    batch: ColumnarBatch, function: Callable[..., Any], keys: Iterable[Any], values: Iterable[Any]
) -> tuple[Iterable[Any], ...]:
    """Keys and values, and the timestamps if the function takes them."""
    return (keys, values, batch.timestamps.tolist()) if takes_timestamp(function) else (keys, values)


def own_results(
    ctx: OperatorContext, function: Callable[..., Any], records: ColumnarBatch, results: list[Any]
) -> list[Any]:
    """The results of a function, copied where functions below may change them and another object may share them."""
    if not ctx.results_change or not may_share(function) or all_unchanging(results):
        return results
    return [one if one is value else snapshot(one) for one, value in zip(results, records.values, strict=True)]


def call_each(
    ctx: OperatorContext, batch: ColumnarBatch, function: Callable[..., Any], *columns: Iterable[Any]
) -> tuple[ColumnarBatch, list[Any]]:
    """Calls a user's function once for each record, even if others fail. Returns the records without a failure, and results."""
    results: list[Any] = []
    failed: list[int] = []
    rows = zip(*(columns or (batch.keys.each(), batch.values)), strict=False)
    while len(results) + len(failed) < len(batch):
        try:
            for arguments in rows:
                results.append(function(*arguments))
        except Exception as error:
            row = len(results) + len(failed)
            failed.append(row)
            ctx.refuse(batch, row, error)
    if not failed:
        return batch, results
    return batch.take(np.setdiff1d(np.arange(len(batch)), failed)), results


def compute_all(
    ctx: OperatorContext, batch: ColumnarBatch, compute: Callable[[ColumnarBatch], T]
) -> tuple[ColumnarBatch, T]:
    """Applies a function without effects to a batch. Records on which it fails are refused and left out.

    Returns:
        The remaining records, and the function's result for them.

    Raises:
        Exception: The function has failed for a reason that no record has caused.
    """
    try:
        return batch, compute(batch)
    except Exception as error:
        ctx.fault(error)
    failed = _failing(batch, compute)
    for row, fault in failed.items():
        ctx.refuse(batch, row, fault)
    rest = part_of(batch, np.setdiff1d(np.arange(len(batch)), list(failed)))
    return rest, compute(rest)


def part_of(batch: ColumnarBatch, rows: npt.NDArray[np.int64]) -> ColumnarBatch:
    """Selects records, with only their keys in the column, because serdes write all keys of a column."""
    part = batch.take(rows)
    return replace(part, keys=part.keys.compact())


def _failing(batch: ColumnarBatch, compute: Callable[[ColumnarBatch], Any], first: int = 0) -> dict[int, Exception]:
    """Row -> error, for the rows on which the function fails; rows are numbered from `first`."""
    try:
        compute(batch)
    except Exception as error:
        if len(batch) == 1:
            return {first: error}
        left, right = np.array_split(np.arange(len(batch)), 2)
        found = _failing(part_of(batch, left), compute, first)
        return found | _failing(part_of(batch, right), compute, first + len(left))
    return {}


# --- The side stream of records that an operator dropped, each with the reason. Kafka Streams only counts them.

REASON_HEADER = "__streams.dropped.reason"
NODE_HEADER = "__streams.dropped.node"


def dropped_record(record: Record, reason: str, node: str) -> Record:
    """The original record (an update of a table: with the new value) and two more headers."""
    value = record.value.new if isinstance(record.value, Change) else record.value
    headers = (*record.headers, (REASON_HEADER, reason.encode()), (NODE_HEADER, node.encode()))
    return Record(record.key, value, record.timestamp, headers)


def refuse_rows(ctx: OperatorContext, batch: ColumnarBatch, failed: Mapping[int, Exception]) -> None:
    """Refuse the rows of a batch that have an error, in their order."""
    for row in sorted(failed):
        ctx.refuse(batch, row, failed[row])


def drop_rows(ctx: OperatorContext, batch: ColumnarBatch, reasons: Mapping[str, npt.NDArray[np.bool_]]) -> None:
    """Drop the rows of a batch that a mask selects, by reason and in their order."""
    drop_each(ctx, batch, {reason: rows_where(mask) for reason, mask in reasons.items()})


def latest_only(ctx: OperatorContext, batch: ColumnarBatch) -> ColumnarBatch:
    """Drops the updates of a versioned table that are older than the row's newest version (KIP-914), and returns the others."""
    keyed = batch.keys.codes != NULL_KEY
    outdated = keyed & ~np.fromiter((change.is_latest for change in batch.values), np.bool_, len(batch))
    drop_rows(ctx, batch, {"not_latest": outdated})
    return batch.take(rows_where(~outdated)) if outdated.any() else batch


def drop_each(ctx: OperatorContext, batch: ColumnarBatch, reasons: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Drop rows of a batch by reason. A row may occur several times, such as a record that is late for several windows."""
    dropped = sorted((row, reason) for reason, rows in reasons.items() for row in rows.tolist())
    for reason, same in groupby(dropped, key=itemgetter(1)):
        ctx.drop_batch(batch.take(np.array([row for row, _ in same])), reason)
