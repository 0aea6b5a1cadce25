"""`MockProcessorContext`: a processor alone, without a topology (Kafka Streams: `MockProcessorContext`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from state.stores.task_store import TaskStore
from state.tables.memory import MemoryTable
from streams.model.record import Headers, Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.process.in_process import InProcess
from streams.operators.process.user_context import checked_record
from streams.operators.process.user_stores import user_store
from streams.operators.punctuation import PunctuationType, punctuation_type
from streams.runtime.task.punctuation import Punctuation, Punctuations
from streams.runtime.typed_stores import typed_store
from streams.topology.graph import StoreNode


class Forwarded(NamedTuple):
    """What a processor forwarded, and to which child; None: to all."""

    record: Record
    child: str | None


class _Clock(InProcess):
    """The time of what is written without a time: nothing tells the context which record a test has in process."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: MockProcessorContext) -> None:
        super().__init__()
        self._ctx = ctx

    @property
    def timestamp(self) -> int:
        """Stream time; the wall clock as long as that is not set."""
        return self._ctx.stream_time if self._ctx.stream_time >= 0 else self._ctx.now_ms


class MockProcessorContext:
    """A `ProcessorContext` that keeps what a processor does with it.

    Example:
        >>> ctx = MockProcessorContext([Stores.key_value_store("seen", StringSerde(), Int64Serde())])
        >>> processor = CountSeen()
        >>> processor.init(ctx)
        >>> processor.process(Record("a", 1, 5))
        >>> assert [one.record.value for one in ctx.forwarded] == [1]

    The clocks stand still: set `stream_time` and `now_ms`, and call `punctuate`. All attributes may be set. What is written to a
    store without a timestamp has `stream_time`, or `now_ms` as long as that is not set.

    Args:
        stores: What `store` gives, by name; they lie in memory.
        now_ms: The wall clock.

    Attributes:
        forwarded: What was forwarded, in order; clear it as you like.
        dropped: Records that were dropped, and why.
        state: What survives restarts in production.
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
        kept = TaskStore(MemoryTable(), [store.spec for store in stores])
        in_process = _Clock(self)
        self._stores = {
            store.name: user_store(store.name, typed_store(store, kept, store.name), in_process) for store in stores
        }

    def store(self, name: str) -> Any:
        """See `ProcessorContext`.

        Raises:
            KeyError: The context was made without it.
        """
        if name not in self._stores:
            raise KeyError(f"no store {name!r}: MockProcessorContext was given {sorted(self._stores)}")
        return self._stores[name]

    def get_state_store(self, name: str) -> Any:
        """See `ProcessorContext`."""
        return self.store(name)

    @property
    def topic(self) -> str | None:
        """See `ProcessorContext`."""
        return None if self.record_metadata is None else self.record_metadata.topic

    def current_stream_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self.stream_time

    def current_system_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self.now_ms

    def forward(self, record: Record, child: str | None = None) -> None:
        """See `ProcessorContext`."""
        self.forwarded.append(Forwarded(checked_record(self.node, record, child, self.headers), child))

    def drop(self, record: Record, reason: str) -> None:
        """See `ProcessorContext`."""
        self.dropped.append((record, reason))

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        """See `ProcessorContext`."""
        return self._punctuations.schedule(self.node, interval, kind, callback)

    def punctuate(self, kind: PunctuationType | str, time: int) -> int:
        """Move one of the clocks to `time`, ms, and make the calls that are due then; gives their number."""
        kind = punctuation_type(kind)
        if kind is PunctuationType.STREAM_TIME:
            self.stream_time = time
        else:
            self.now_ms = time
        due = self._punctuations.due(kind, time)
        for one in due:
            one.callback(time)
        return len(due)
