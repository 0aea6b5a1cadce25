"""Processor nodes at run time: the context of an operator, and the guard around each call.

Invariant: an exception is attributed to the node that raised it (KIP-1033), not to those that forwarded to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from streams.errors import RegistryError, TopologyError
from streams.model.record import Headers, HeldRecord, Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.columnar import BatchProcessor, ColumnarBatch, OneByOne, in_order
from streams.operators.dropped import dropped_record
from streams.operators.operator_context import Mode
from streams.operators.processor import AnyProcessor
from streams.operators.punctuation import PunctuationType
from streams.runtime.counters import ONE_BY_ONE
from streams.runtime.current_record import at_record, each_record, guard, may_be_the_records_fault
from streams.runtime.dead_letters import error_headers
from streams.runtime.forwarded import Forwarded
from streams.runtime.step_context import StepContext
from streams.runtime.task.punctuation import Punctuation, Punctuations


class Receiver(Protocol):
    """A receiver of records: a processor node, a sink, an edge out of the head."""

    name: str

    def receive(self, record: Record) -> None:
        """Handle the record."""


class BatchReceiver(Receiver, Protocol):
    """A receiver of a step's records together: a node or a sink of a task."""

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Handle the records."""


class NodeContext:
    """`OperatorContext` of one node in one run."""

    def __init__(self, node: str, run: StepContext, punctuations: Punctuations) -> None:
        self.node = node
        self.forwarded = 0
        self._run = run
        self._punctuations = punctuations
        self._receivers: tuple[Callable[[Record], None], ...] = ()
        self._by_name: Mapping[str, Callable[[Record], None]] = {}
        self._on_drop: tuple[Callable[[Record], None], ...] = ()
        self._batch_receivers: Mapping[str, BatchReceiver] = {}
        self._alternating = True
        self._forwarded: Forwarded | None = None

    def connect_batches(self, children: Mapping[str, BatchReceiver], alternating: bool) -> None:
        """Set the children once more, as receivers of whole batches.

        Args:
            children: The children.
            alternating: Whether each record goes to all children before the next record follows.
        """
        self._batch_receivers = dict(children)
        self._alternating = alternating

    def connect(self, children: Mapping[str, Receiver], on_drop: Sequence[Receiver] = ()) -> None:
        """Set the children, in their order, and the receivers of dropped records."""
        self._by_name = {name: child.receive for name, child in children.items()}
        self._receivers = tuple(self._by_name.values())
        self._on_drop = tuple(one.receive for one in on_drop)

    @property
    def application_id(self) -> str:
        """See `ProcessorContext`."""
        return self._run.settings.application_id

    @property
    def task_id(self) -> str:
        """See `ProcessorContext`."""
        return self._run.task_id

    @property
    def mode(self) -> Mode:
        """See `OperatorContext`."""
        return self._run.settings.mode

    @property
    def emit_interval_ms(self) -> int:
        """See `OperatorContext`."""
        return self._run.settings.emit_interval_ms

    @property
    def stream_time(self) -> int:
        """See `ProcessorContext`."""
        return self._run.stream_time

    @property
    def now_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._run.now_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """See `ProcessorContext`."""
        return self._run.metadata()

    @property
    def topic(self) -> str | None:
        """See `ProcessorContext`."""
        return None if self._run.cursor is None else self._run.cursor[0].topic

    @property
    def headers(self) -> Headers:
        """See `ProcessorContext`."""
        return () if self._run.cursor is None else self._run.cursor[0].headers_of(self._run.cursor[1])

    @property
    def flushing(self) -> bool:
        """See `OperatorContext`."""
        return self._run.flushing

    @property
    def state(self) -> dict[str, Any]:
        """See `ProcessorContext`."""
        return self._run.state("nodes", self.node)

    def current_stream_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._run.stream_time

    def current_system_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._run.now_ms

    def shared_state(self, name: str) -> dict[str, Any]:
        """See `OperatorContext`."""
        return self._run.state("shared", name)

    def store(self, name: str) -> Any:
        """See `ProcessorContext`."""
        stores = self._run.stores
        if name not in stores:
            raise TopologyError(
                f"'{self.node}' asks for the store '{name}', which its task does not have. Connect it: process(..., stores=[...]), "
                f"or connect_processor_and_state_stores(...). The task has: {', '.join(sorted(stores)) or 'none'}."
            )
        return stores[name]

    def get_state_store(self, name: str) -> Any:
        """See `ProcessorContext`."""
        return self.store(name)

    def forward(self, record: Record, child: str | None = None) -> None:
        """See `ProcessorContext`."""
        self.forwarded += 1
        if child is not None:
            if child not in self._by_name:
                raise TopologyError(
                    f"'{self.node}' forwards to '{child}', which is no child of it. It has: {', '.join(self._by_name) or 'none'}."
                )
            if self._forwarded is None:
                self._by_name[child](record)
                return
        if self._forwarded is not None:
            self._forwarded.add(record, child)
            return
        for receive in self._receivers:
            receive(record)

    @property
    def has_children(self) -> bool:
        """See `OperatorContext`."""
        return bool(self._receivers)

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        """See `OperatorContext`."""
        if not len(batch):
            return
        if self._alternating and len(self._batch_receivers) > 1:
            for record in each_record(batch, self._run):
                self.forward(record, child)
            return
        self.count_forwarded(len(batch))
        self._hand_on(batch, child)

    def _hand_on(self, batch: ColumnarBatch, child: str | None = None) -> None:
        for receiver in self._batch_receivers.values() if child is None else [self._batch_receivers[child]]:
            receiver.receive_batch(batch)

    @contextmanager
    def forwarding_together(self, numbered: bool = False) -> Iterator[None]:
        """Within the context, records that are forwarded one by one wait, and go on together afterwards; see `Forwarded`."""
        if self._alternating or not self._batch_receivers:
            yield
            return
        self._forwarded = Forwarded(self._run, numbered)
        yield
        forwarded, self._forwarded = self._forwarded, None
        for child, batch in forwarded.batches():
            self._hand_on(batch, child)

    def count_forwarded(self, number: int) -> None:
        """See `OperatorContext`."""
        self.forwarded += number

    def drop(self, record: Record, reason: str) -> None:
        """See `ProcessorContext`."""
        self._run.counters.add(f"dropped:{self.node}:{reason}")
        for receive in self._on_drop:
            receive(dropped_record(record, reason, self.node))

    def drop_many(self, count: int, reason: str) -> None:
        """`drop` for a number of records that were processed as columns."""
        self._run.counters.add(f"dropped:{self.node}:{reason}", count)

    def attempt_each(self, batch: ColumnarBatch, process: Callable[[Record], None]) -> None:
        """See `OperatorContext`."""
        with self.forwarding_together():
            for record in each_record(batch, self._run):
                try:
                    process(record)
                except Exception as error:
                    guard(error, self.node, self._run)

    def refuse(self, batch: ColumnarBatch, row: int, error: Exception) -> None:
        """See `OperatorContext`."""
        with at_record(batch, row, self._run):
            guard(error, self.node, self._run)

    def drop_batch(self, batch: ColumnarBatch, reason: str) -> None:
        """See `OperatorContext`."""
        self._run.counters.add(f"dropped:{self.node}:{reason}", len(batch))
        if self._on_drop:
            for record in each_record(batch, self._run):
                for receive in self._on_drop:
                    receive(dropped_record(record, reason, self.node))

    def fault(self, error: Exception) -> Headers:
        """See `OperatorContext`."""
        if not may_be_the_records_fault(error) or isinstance(error, RegistryError):
            raise error
        origin = self._run.origin()
        return error_headers("processing", origin[:3], origin.timestamp, error)

    def divert(self, record: Record) -> None:
        """See `OperatorContext`."""
        for receive in self._on_drop:
            receive(record)

    def count(self, what: str, number: int) -> None:
        """See `OperatorContext`."""
        self._run.counters.add(f"{what}:{self.node}", number)

    def hold(self, record: Record) -> Any:
        """See `OperatorContext`."""
        return self._run.hold(self.node, record)

    def resume(self, held: Any) -> AbstractContextManager[None]:
        """See `OperatorContext`."""
        return self._run.resume(held)

    def attempt(self, action: Callable[[], None], held: HeldRecord | None = None) -> None:
        """See `OperatorContext`."""
        before = self._run.held
        self._run.held = held or before
        try:
            action()
        except Exception as error:
            guard(error, self.node, self._run)
        finally:
            self._run.held = before

    def expire(self, store: str, stream_time: int) -> None:
        """See `OperatorContext`."""
        times = self._run.store_times
        times[store] = min(stream_time, times.get(store, stream_time))

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        """See `ProcessorContext`."""
        return self._punctuations.schedule(self.node, interval, kind, callback)


class NodeRunner:
    """One processor node in one run: counts, guards, and the operator together with its context."""

    def __init__(self, name: str, processor: AnyProcessor, context: NodeContext, run: StepContext) -> None:
        self.name = name
        self.processor = processor
        self.context = context
        self.received = 0
        self.group: NodeGroup | None = None
        self._run = run
        self._process = processor.process

    def receive(self, record: Record) -> None:
        """Process one record under the processing policy."""
        self.received += 1
        try:
            self._process(record)
        except Exception as error:
            guard(error, self.name, self._run)

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Process a step's records together if the operator can; otherwise one by one."""
        if self.group is not None:
            self.group.receive([batch])
        else:
            self.receive_each(batch)

    def receive_each(self, batch: ColumnarBatch) -> None:
        """Process records one by one; their results go on together where that makes no difference."""
        with self.context.forwarding_together():
            for record in each_record(batch, self._run):
                self.receive(record)

    def flush(self) -> None:
        """End the step: emit pending results, together where that makes no difference."""
        with self._run.dead_letters_in_order(), self.context.forwarding_together(numbered=True):
            self.context.attempt(self.processor.flush)

    def count(self) -> None:
        """Count the records in and out since the last call."""
        self._run.counters.add(f"in:{self.name}", self.received)
        self._run.counters.add(f"out:{self.name}", self.context.forwarded)
        self.received = self.context.forwarded = 0


class NodeGroup:
    """Nodes that process a step's records together: one node, or several that share stores.

    Args:
        nodes: The nodes, in run order.
        processor: Processes their records.
        run: The step.
    """

    def __init__(self, nodes: Sequence[NodeRunner], processor: BatchProcessor, run: StepContext) -> None:
        self._nodes = nodes
        self._processor = processor
        self._run = run

    def receive(
        self, batches: Sequence[ColumnarBatch], reread: Callable[[], Iterable[ColumnarBatch]] | None = None
    ) -> None:
        """Process the records; one by one if that fails, so that only the one at fault meets its policy.

        Args:
            batches: One for each node.
            reread: Decodes the same records anew, because a function of the user may have changed their values by then.
        """
        try:
            self._processor.process_batches(batches)
        except Exception as error:
            if not may_be_the_records_fault(error):
                raise
            self._count_one_by_one(batches, error)
            batches = batches if reread is None else list(reread())
            if len(batches) == 1:
                self._nodes[0].receive_each(batches[0])
                return
            for which, row in in_order(batches):
                with at_record(batches[which], row, self._run):
                    self._nodes[which].receive(batches[which].record(row))
            return
        for node, batch in zip(self._nodes, batches, strict=True):
            node.received += len(batch)

    def _count_one_by_one(self, batches: Sequence[ColumnarBatch], error: Exception) -> None:
        reason = str(error) if isinstance(error, OneByOne) else type(error).__name__
        for node, batch in zip(self._nodes, batches, strict=True):
            self._run.counters.add(f"{ONE_BY_ONE}{node.name}:{reason}", len(batch))
