"""`MockProcessorContext`: runs a processor alone, without a topology (Kafka Streams' `MockProcessorContext`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.engine.graph.node import Punctuation, Punctuations
from streams.engine.graph.typed_stores import typed_store
from streams.model.record import Headers, Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.process.store_views import user_store
from streams.operators.process.user_processor import checked_record
from streams.operators.process.user_stores import InProcess
from streams.operators.processor import KafkaNames, PunctuationType, punctuation_type
from streams.topology.graph import StoreNode


class Forwarded(NamedTuple):
    """A forwarded record, and the child that it was sent to; None: all children."""

    record: Record
    child: str | None


class _Clock(InProcess):
    """The timestamp of rows written without one: the context does not know which record a test is processing."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: MockProcessorContext) -> None:
        super().__init__()
        self._ctx = ctx

    @property
    def timestamp(self) -> int:
        """Stream time, or the wall clock as long as stream time is not set."""
        return self._ctx.stream_time if self._ctx.stream_time >= 0 else self._ctx.now_ms


class MockProcessorContext(KafkaNames):
    """A `ProcessorContext` that records what a processor does.

    Example:
        >>> ctx = MockProcessorContext([Stores.key_value_store("seen", StringSerde(), Int64Serde())])
        >>> processor = CountSeen()
        >>> processor.init(ctx)
        >>> processor.process(Record("a", 1, 5))
        >>> assert [one.record.value for one in ctx.forwarded] == [1]

    The clocks do not move by themselves: set `stream_time` and `now_ms`, and call `punctuate`. All attributes may be set. Rows that
    are written to a store without a timestamp get `stream_time`, or `now_ms` as long as `stream_time` is not set.

    Args:
        stores: The stores that `store` returns; they are in memory.
        now_ms: The wall clock.

    Attributes:
        forwarded: The forwarded records, in order; may be cleared at any time.
        dropped: The dropped records, with reasons.
        state: The context's state, which survives restarts in production.
    """

    def __init__(self, stores: Sequence[StoreNode] = (), now_ms: int = 0) -> None:
        self.node = "processor"
        self.application_id = "test"
        self.task_id = "0_0"
        self.now_ms = now_ms
        self.stream_time = -1
        self.record_metadata: RecordMetadata | None = None
        self.headers: Headers = ()
        self.state: dict[str, Any] = {}
        self.forwarded: list[Forwarded] = []
        self.dropped: list[tuple[Record, str]] = []
        self._punctuations = Punctuations({}, now_ms)
        task_store = TaskStore(MemoryTable(), [store.spec for store in stores])
        in_process = _Clock(self)
        self._stores = {
            store.name: user_store(store.name, typed_store(store, task_store, store.name), in_process)
            for store in stores
        }

    def store(self, name: str) -> Any:
        """Returns a store by its name.

        Raises:
            KeyError: The context was made without this store.
        """
        if name not in self._stores:
            raise KeyError(f"no store {name!r}: MockProcessorContext was given {sorted(self._stores)}")
        return self._stores[name]

    @property
    def topic(self) -> str | None:
        """The topic in `record_metadata`; None if that is not set."""
        return None if self.record_metadata is None else self.record_metadata.topic

    def forward(self, record: Record, child: str | None = None) -> None:
        """Records a forwarded record."""
        self.forwarded.append(Forwarded(checked_record(self.node, record, child, self.headers), child))

    def drop(self, record: Record, reason: str) -> None:
        """Records a dropped record, with the reason."""
        self.dropped.append((record, reason))

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        """Schedules a callback, which `punctuate` calls."""
        return self._punctuations.schedule(self.node, interval, kind, callback)

    def punctuate(self, kind: PunctuationType | str, time: int) -> int:
        """Moves one of the clocks to `time`, ms, and makes the calls that are due; returns their number."""
        kind = punctuation_type(kind)
        if kind is PunctuationType.STREAM_TIME:
            self.stream_time = time
        else:
            self.now_ms = time
        due = self._punctuations.due(kind, time)
        for one in due:
            one.callback(time)
        return len(due)
