"""The context of a global store's processor.

Such a processor only maintains its store (Kafka Streams: `GlobalProcessorContextImpl`). It runs in every process, once for each
copy, so any other effect would happen several times.
"""

from __future__ import annotations

from typing import Any

from state.stores.task_store import TaskStore
from streams.errors import TopologyError
from streams.model.record import Record, RecordMetadata
from streams.operators.operator import Mode
from streams.runtime.counters import Counters
from streams.runtime.settings import TaskSettings
from streams.runtime.typed_stores import typed_store
from streams.topology.graph import GlobalTable


class GlobalContext:
    """The part of `ProcessorContext` that is available to a global store's processor.

    Args:
        table: The global table: the store and its source.
        stores: The process's stores.
        settings: The application's settings.
        counters: The counters of `drop`.
        now_ms: The step's wall clock.
    """

    task_id = "global"
    flushing = False

    def __init__(
        self, table: GlobalTable, stores: TaskStore, settings: TaskSettings, counters: Counters, now_ms: int
    ) -> None:
        self.node = table.name
        self.application_id = settings.application_id
        self.mode: Mode = settings.mode
        self.now_ms = now_ms
        self.record_metadata: RecordMetadata | None = None
        self._counters = counters
        self._name = table.store.name
        self._typed = typed_store(table.store, stores, str(table.source.topics[0]))

    def store(self, name: str) -> Any:
        """The processor's own store; other stores are refused."""
        if name != self._name:
            raise TopologyError(f"'{self.node}' keeps the global store '{self._name}' and sees no other, not '{name}'.")
        return self._typed

    def drop(self, record: Record, reason: str) -> None:
        """Count a record that changes nothing."""
        self._counters.add(f"dropped:{self.node}:{reason}")

    def __getattr__(self, name: str) -> Any:
        """Refuses everything else, by name."""
        raise TopologyError(
            f"'{self.node}' keeps a global store and has no '{name}': it runs once in every process. Read the topic as a stream "
            f"to forward, to schedule and to keep other state."
        )
