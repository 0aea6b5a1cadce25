"""`NodeContext`: what an operator sees of the step that it runs in, and where its records go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from streams.errors import RegistryError, TopologyError
from streams.model.record import Headers, HeldRecord, Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Mode, dropped_record
from streams.operators.processor import PunctuationType
from streams.runtime.current_record import at_record, each_record, guard, may_be_the_records_fault
from streams.runtime.dead_letters import error_headers
from streams.runtime.forwarded import Forwarded, Inbox
from streams.runtime.step_context import StepContext
from streams.runtime.task.punctuation import Punctuation, Punctuations


class Receiver(Protocol):
    """A receiver of single records: a processor node, a sink, an edge out of the head."""

    name: str

    def receive(self, record: Record) -> None: ...


class NodeContext:
    """`OperatorContext` of one node in one run."""

    def __init__(self, node: str, run: StepContext, punctuations: Punctuations) -> None:
        self.node = node
        self.changes_in_place = False
        """See `Operator`."""
        self.forwarded = 0
        self._run = run
        self._punctuations = punctuations
        self._receivers: Mapping[str, Callable[[Record], None]] = {}
        self._inboxes: Mapping[str, Inbox] = {}
        self._on_drop: Collection[str] = ()
        self._results: tuple[Callable[[Record], None], ...] = ()
        self._waiting: tuple[Inbox, ...] = ()
        self._collected = Forwarded(run)

    def guard(self, error: Exception) -> None:
        """Apply the processing policy to an exception that the operator has raised for the current record."""
        if self.changes_in_place and may_be_the_records_fault(error):
            self._run.function_failed()
        guard(error, self.node, self._run)

    def connect(
        self,
        direct: Mapping[str, Receiver],
        inboxes: Mapping[str, Inbox] = MappingProxyType({}),
        on_drop: Collection[str] = (),
    ) -> None:
        """Set the children: those that receive each record at once, in their order, and those whose records wait for their unit.

        Some of them receive only the records that the node drops.
        """
        self._receivers = {name: child.receive for name, child in direct.items()}
        self._inboxes = inboxes
        self._on_drop = on_drop
        self._results = tuple(receive for name, receive in self._receivers.items() if name not in on_drop)
        self._waiting = tuple(inbox for name, inbox in inboxes.items() if name not in on_drop)

    @property
    def application_id(self) -> str:
        return self._run.settings.application_id

    @property
    def task_id(self) -> str:
        return self._run.task_id

    @property
    def mode(self) -> Mode:
        return self._run.settings.mode

    @property
    def emit_interval_ms(self) -> int:
        return self._run.settings.emit_interval_ms

    @property
    def stream_time(self) -> int:
        return self._run.stream_time

    @property
    def now_ms(self) -> int:
        return self._run.now_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._run.metadata()

    @property
    def topic(self) -> str | None:
        return None if self._run.cursor is None else self._run.cursor[0].topic

    @property
    def headers(self) -> Headers:
        return () if self._run.cursor is None else self._run.cursor[0].headers_of(self._run.cursor[1])

    @property
    def private_rows(self) -> bool:
        return self._run.private_rows

    @property
    def flushing(self) -> bool:
        return self._run.flushing

    @property
    def state(self) -> dict[str, Any]:
        return self._run.state("nodes", self.node)

    def current_stream_time_ms(self) -> int:
        return self._run.stream_time

    def current_system_time_ms(self) -> int:
        return self._run.now_ms

    def shared_state(self, name: str) -> dict[str, Any]:
        return self._run.state("shared", name)

    def store(self, name: str) -> Any:
        stores = self._run.stores
        if name not in stores:
            raise TopologyError(
                f"'{self.node}' asks for the store '{name}', which its task does not have. Connect it: process(..., stores=[...]), "
                f"or connect_processor_and_state_stores(...). The task has: {', '.join(sorted(stores)) or 'none'}."
            )
        return stores[name]

    def get_state_store(self, name: str) -> Any:
        return self.store(name)

    def forward(self, record: Record, child: str | None = None) -> None:
        self.forwarded += 1
        if child is not None:
            self._forward_to(child, record)
            return
        for receive in self._results:
            receive(record)
        if self._waiting:
            self._collected.add(record, None)

    def _forward_to(self, child: str, record: Record) -> None:
        if child in self._receivers:
            self._receivers[child](record)
        elif child in self._inboxes:
            self._collected.add(record, child)
        else:
            children = ", ".join(name for name in (*self._receivers, *self._inboxes) if name not in self._on_drop)
            raise TopologyError(
                f"'{self.node}' forwards to '{child}', which is no child of it. It has: {children or 'none'}."
            )

    @property
    def has_children(self) -> bool:
        return bool(self._results or self._waiting)

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        if not len(batch):
            return
        if self._receivers:
            for record in each_record(batch, self._run):
                self.forward(record, child)
            return
        self.count_forwarded(len(batch))
        self.hand_on()
        if self._run.numbered:
            start = self._run.position
            self._run.position += len(batch)
            batch = replace(batch, order=np.arange(start, self._run.position))
        for inbox in self._waiting if child is None else [self._inboxes[child]]:
            inbox.add(batch)

    def hand_on(self) -> None:
        """Move the records that were forwarded one by one to the children's inboxes."""
        collected = self._collected
        if collected.keys:
            self._collected = Forwarded(self._run)
            for child, batch in collected.batches(self._inboxes, self._on_drop):
                self._inboxes[child].add(batch)

    def count_forwarded(self, number: int) -> None:
        self.forwarded += number

    def drop(self, record: Record, reason: str) -> None:
        self._run.counters.add(f"dropped:{self.node}:{reason}")
        if self._on_drop:
            self.divert(dropped_record(record, reason, self.node))

    def drop_many(self, count: int, reason: str) -> None:
        """`drop` for a number of records that were processed as columns."""
        self._run.counters.add(f"dropped:{self.node}:{reason}", count)

    def attempt_each(self, batch: ColumnarBatch, process: Callable[[Record], None]) -> None:
        for record in each_record(batch, self._run):
            try:
                process(record)
            except Exception as error:
                guard(error, self.node, self._run)

    def refuse(self, batch: ColumnarBatch, row: int, error: Exception) -> None:
        with at_record(batch, row, self._run):
            self.guard(error)

    def drop_batch(self, batch: ColumnarBatch, reason: str) -> None:
        self._run.counters.add(f"dropped:{self.node}:{reason}", len(batch))
        if self._on_drop:
            for record in each_record(batch, self._run):
                self.divert(dropped_record(record, reason, self.node))

    def fault(self, error: Exception) -> Headers:
        if not may_be_the_records_fault(error) or isinstance(error, RegistryError):
            raise error
        origin = self._run.origin()
        return error_headers("processing", origin[:3], origin.timestamp, error)

    def divert(self, record: Record) -> None:
        for name in self._on_drop:
            self._forward_to(name, record)

    def count(self, what: str, number: int) -> None:
        self._run.counters.add(f"{what}:{self.node}", number)

    def hold(self, record: Record) -> Any:
        return self._run.hold(self.node, record)

    def resume(self, held: Any) -> AbstractContextManager[None]:
        return self._run.resume(held)

    def attempt(self, action: Callable[[], object], held: HeldRecord | None = None) -> None:
        before = self._run.held
        self._run.held = held or before
        try:
            action()
        except Exception as error:
            guard(error, self.node, self._run)
        finally:
            self._run.held = before

    def expire(self, store: str, stream_time: int) -> None:
        times = self._run.store_times
        times[store] = min(stream_time, times.get(store, stream_time))

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        return self._punctuations.schedule(self.node, interval, kind, callback)
