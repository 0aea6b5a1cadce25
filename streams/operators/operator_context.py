"""`OperatorContext`: the runtime's interface for the engine's own operators, beyond `ProcessorContext`.

Users do not see it: these calls hold records back, guard parts of the work and count, and are correct only in combination
with an operator's stores and the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from streams.model.record import Headers, HeldRecord, Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.processor import ProcessorContext

Mode = Literal["strict", "compat"]


class OperatorContext(ProcessorContext[Any, Any], Protocol):
    """The context of an operator, one object per node and step. `store` returns the typed store with all of its methods."""

    @property
    def mode(self) -> Mode:
        """`strict` (default) or `compat`, which reproduces Kafka Streams' flaws."""

    @property
    def emit_interval_ms(self) -> int:
        """In `compat` mode, the least wall-clock time between two checks for closed windows, ms."""

    @property
    def private_rows(self) -> bool:
        """Whether stores with a cache give each reader a value of its own; see `Operator.changes_in_place`."""

    @property
    def flushing(self) -> bool:
        """Whether the step is at its end and operators emit their pending results."""

    def shared_state(self, name: str) -> dict[str, Any]:
        """A state like `state`, shared by all nodes of the task that use `name` (the two sides of a join)."""

    @property
    def has_children(self) -> bool:
        """Whether any node receives what this one forwards."""

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        """Forward records together, to all children or only to the named one."""

    def count_forwarded(self, number: int) -> None:
        """Count records as forwarded by this node which another node of its group forwards together with its own.

        Nodes with the same children let one of them forward the records of all, so that these stay in order. A negative number
        takes records back that `forward_batch` has counted.
        """

    def attempt_each(self, batch: ColumnarBatch, process: Callable[[Record], None]) -> None:
        """Run a function for each record of a batch, as if the records came one by one; what is forwarded goes on together."""

    def refuse(self, batch: ColumnarBatch, row: int, error: Exception) -> None:
        """Apply the processing policy to a record for which the operator has failed, as if `process` had raised the error."""

    def drop_batch(self, batch: ColumnarBatch, reason: str) -> None:
        """`drop` for records that were processed together."""

    def drop_many(self, count: int, reason: str) -> None:
        """`drop` for a number of records that were processed as columns."""

    def fault(self, error: Exception) -> Headers:
        """The headers that describe an error of the current record, as in a dead letter.

        Raises:
            Exception: The error itself, if no policy for records applies to it: an error of stores or Kafka, for example.
        """

    def divert(self, record: Record) -> None:
        """Forward a record to the nodes that take dropped records, although the operator does not drop it."""

    def count(self, what: str, number: int) -> None:
        """Add to the counter `<what>:<node>` of the step."""

    def hold(self, record: Record) -> Any:
        """Reserve the place of the current record, whose results are forwarded later; returns the argument of `resume`."""

    def resume(self, held: Any) -> AbstractContextManager[None]:
        """A context within which the record is current again: its metadata, its errors, its place in the order."""

    def attempt(self, action: Callable[[], object], held: HeldRecord | None = None) -> None:
        """Run one part of the work under the processing policy, so that its failure does not affect the others."""

    def expire(self, store: str, stream_time: int) -> None:
        """Pass stream time to a windowed store: rows older than its retention before that time can never matter again.

        If several nodes share a store, the smallest of their times counts.
        """
