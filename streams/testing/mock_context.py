"""`MockProcessorContext`: a processor alone, without a topology (Kafka Streams: `MockProcessorContext`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from state.stores.task_store import TaskStore
from state.tables.memory import MemoryTable
from streams.model.record import HeldRecord, Record, RecordMetadata
from streams.operators.processor import Mode, PunctuationType
from streams.runtime.task.punctuation import Punctuation, Punctuations
from streams.runtime.typed_stores import typed_store
from streams.topology.graph import StoreNode


class Forwarded(NamedTuple):
    """What a processor forwarded, and to which child; None: to all."""

    record: Record
    child: str | None


class MockProcessorContext:
    """A `ProcessorContext` that keeps what a processor does with it.

    Example:
        >>> ctx = MockProcessorContext([Stores.key_value_store("seen", StringSerde(), Int64Serde())])
        >>> processor = CountSeen()
        >>> processor.init(ctx)
        >>> processor.process(Record("a", 1, 5))
        >>> assert [one.record.value for one in ctx.forwarded] == [1]

    The clocks stand still: set `stream_time` and `now_ms`, and call `punctuate`. All attributes may be set.

    Args:
        stores: What `store` gives, by name; they lie in memory.
        mode: `strict` or `compat`.
        now_ms: The wall clock.

    Attributes:
        forwarded: What was forwarded, in order; clear it as you like.
        dropped: Records that were dropped, and why.
        counts: What was counted.
        state: What survives restarts in production.
    """

    flushing = False
    emit_interval_ms = 0

    def __init__(self, stores: Sequence[StoreNode] = (), mode: Mode = "strict", now_ms: int = 0) -> None:
        self.node = "processor"
        self.application_id = "test"
        self.task_id = "0_0"
        self.mode: Mode = mode
        self.now_ms = now_ms
        self.stream_time = -1
        self.record_metadata: RecordMetadata | None = None
        self.state: dict[str, Any] = {}
        self.forwarded: list[Forwarded] = []
        self.dropped: list[tuple[Record, str]] = []
        self.counts: dict[str, int] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        self._punctuations = Punctuations({}, now_ms)
        kept = TaskStore(MemoryTable(), [store.spec for store in stores])
        self._stores = {store.name: typed_store(store, kept, store.name) for store in stores}

    def shared_state(self, name: str) -> dict[str, Any]:
        """See `ProcessorContext`."""
        return self._shared.setdefault(name, {})

    def store(self, name: str) -> Any:
        """See `ProcessorContext`.

        Raises:
            KeyError: The context was made without it.
        """
        if name not in self._stores:
            raise KeyError(f"no store {name!r}: MockProcessorContext was given {sorted(self._stores)}")
        return self._stores[name]

    def forward(self, record: Record, child: str | None = None) -> None:
        """See `ProcessorContext`."""
        self.forwarded.append(Forwarded(record, child))

    def drop(self, record: Record, reason: str) -> None:
        """See `ProcessorContext`."""
        self.dropped.append((record, reason))

    def drop_many(self, count: int, reason: str) -> None:
        """See `ProcessorContext`; of such records only the number is known."""
        self.dropped += [(Record(None, None, -1), reason)] * count

    def count(self, what: str, number: int) -> None:
        """See `ProcessorContext`."""
        self.counts[what] = self.counts.get(what, 0) + number

    def hold(self, record: Record) -> RecordMetadata | None:
        """See `ProcessorContext`."""
        return self.record_metadata

    @contextmanager
    def resume(self, held: RecordMetadata | None) -> Iterator[None]:
        """See `ProcessorContext`."""
        before, self.record_metadata = self.record_metadata, held
        try:
            yield
        finally:
            self.record_metadata = before

    def attempt(self, action: Callable[[], None], held: HeldRecord | None = None) -> None:
        """See `ProcessorContext`; errors are raised."""
        action()

    def expire(self, store: str, stream_time: int) -> None:
        """See `ProcessorContext`; nothing is forgotten here."""

    def schedule(self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]) -> Punctuation:
        """See `ProcessorContext`."""
        return self._punctuations.schedule(self.node, interval_ms, kind, callback)

    def punctuate(self, kind: PunctuationType, time: int) -> int:
        """Move one of the clocks to `time`, ms, and make the calls that are due then; gives their number."""
        if kind == "stream_time":
            self.stream_time = time
        else:
            self.now_ms = time
        due = self._punctuations.due(kind, time)
        for one in due:
            one.callback(time)
        return len(due)
