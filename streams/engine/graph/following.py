"""Follows a key: samples which of its records each operator receives, and which it drops and why. The dashboard shows them.

A key is followed if the settings name one. A sample is the name of a counter, so it reaches the driver like the counts of readers
and tasks: with the step that was committed, and not from attempts that failed. Only the last samples are kept, of received and of
dropped records separately.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np
import orjson

from streams.engine.graph.settings import Counters, TaskSettings
from streams.model.record import Change, Record, RecordMetadata, Windowed
from streams.operators.columnar import ColumnarBatch
from streams.serdes.json_shown import shown, shown_json

FOLLOWED: Final = "followed:"
"""Prefix of the counters that are samples."""
MOST: Final = 50
"""The largest number of samples kept of received records, and as many again of dropped ones."""
LONGEST: Final = 400
"""A longer value is cut to this many characters."""
MASK: Final = "***"


class Pass(Protocol):
    """The part of a `StepContext` that sampling uses."""

    settings: TaskSettings
    counters: Counters

    def metadata(self) -> RecordMetadata | None: ...

    def resume(self, held: Any) -> AbstractContextManager[None]: ...


class Followed:
    """Collects the samples of one pass."""

    def __init__(self, run: Pass) -> None:
        self._key, self._masked = run.settings.follow, run.settings.follow_masked
        self._run = run
        self._received: deque[str] = deque()
        self._dropped: deque[str] = deque()
        self._taken = 0

    def matches(self, key: Any) -> bool:
        return key is not None and _text(key.key if isinstance(key, Windowed) else key) == self._key

    def receives(self, node: str, record: Record) -> None:
        """Samples a record that a node receives, if it has the followed key."""
        if self.matches(record.key):
            self._add(node, None, record)

    def drops(self, node: str, reason: str, record: Record) -> None:
        """Samples a record that a node drops, if it has the followed key."""
        if self.matches(record.key):
            self._add(node, reason, record)

    def fails(self, node: str, error: Exception, record: Record) -> None:
        """Samples a record on which a node fails, if it has the followed key."""
        self.drops(node, f"{type(error).__name__}: {error}", record)

    def receives_all(self, node: str, batch: ColumnarBatch) -> None:
        self._add_all(node, None, batch)

    def drops_all(self, node: str, reason: str, batch: ColumnarBatch) -> None:
        self._add_all(node, reason, batch)

    def _add_all(self, node: str, reason: str | None, batch: ColumnarBatch) -> None:
        codes = [code for code, key in enumerate(batch.keys.objects) if self.matches(key)]
        for row in np.flatnonzero(np.isin(batch.keys.codes, codes))[-MOST:].tolist():
            with self._run.resume(batch.place(int(batch.order[row]))):
                self._add(node, reason, batch.record(row))

    def _add(self, node: str, reason: str | None, record: Record) -> None:
        where = self._run.metadata()
        sample = {
            "operator": node,
            "dropped": reason,
            "key": _text(record.key),
            "value": _shown(record.value, self._masked),
            "timestamp": record.timestamp,
            "source": None if where is None else [where.topic, where.partition, where.offset],
            "number": self._taken,
        }
        name = FOLLOWED + orjson.dumps(sample).decode()
        self._run.counters.add(name)
        self._taken += 1
        kept = self._received if reason is None else self._dropped
        kept.append(name)
        if len(kept) > MOST:
            self._run.counters.pop(kept.popleft(), None)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Windowed):
        return f"{_text(value.key)} [{value.window.start}, {value.window.end})"
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # integers beyond 64 bits
        return shown_json(shown(value)).decode()


def _shown(value: Any, masked: frozenset[str]) -> str:
    value = value.new if isinstance(value, Change) else value
    text = _text(_without(value, masked) if masked else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _without(value: Any, masked: frozenset[str]) -> Any:
    """A value with the masked fields hidden. Texts and other objects may contain anything, so they are hidden as a whole."""
    if isinstance(value, dict):
        return {
            name: MASK if name in masked else of if isinstance(of, str) else _without(of, masked)
            for name, of in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(one, masked) for one in value]
    return value if isinstance(value, int | float | None) else MASK
