"""The output of records: lines for people, and JSON for programs."""

from __future__ import annotations

from typing import Any

import orjson

from streams.application.store_rows import plain
from streams.cli.output import visible, visible_bytes
from streams.cli.topic.serdes import TopicSerdes
from streams.cli.topic.times import shown_time
from streams.cluster.records import Incoming
from streams.errors import SerdeError
from streams.serdes import Serde


class RecordPrinter:
    """A formatter of records as lines or as JSON data.

    Args:
        topic: The topic, which serdes receive.
        serdes: The serdes of keys and values.
        timestamps: Whether a line begins with the event time.
        headers: Whether headers come before the key.

    Attributes:
        unreadable: The number of keys and values that their serde could not read, which are shown as bytes.
        why: The error of the first of them.
    """

    def __init__(self, topic: str, serdes: TopicSerdes, *, timestamps: bool = False, headers: bool = False) -> None:
        self._topic = topic
        self._serdes = serdes
        self._timestamps = timestamps
        self._headers = headers
        self.unreadable = 0
        self.why = ""

    def line(self, record: Incoming) -> str:
        """A record for people: time, headers, key and value, separated by tabs; without a key, there is no column for it."""
        parts = [shown_time(record.timestamp)] if self._timestamps else []
        if self._headers:
            named = (f"{visible(name)}={_bytes(value)}" for name, value in record.headers)
            parts.append(",".join(named) or "-")
        if record.key is not None:
            parts.append(self._text(self._serdes.key, record.key, record))
        parts.append(self._text(self._serdes.value, record.value, record))
        return "\t".join(parts)

    def as_dict(self, record: Incoming) -> dict[str, Any]:
        """A record for programs, which `streams topic send --json` accepts."""
        return {
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": self._plain(self._serdes.key, record.key, record),
            "value": self._plain(self._serdes.value, record.value, record),
            "headers": [
                [name, None if value is None else value.decode(errors="backslashreplace")]
                for name, value in record.headers
            ],
        }

    def _text(self, serde: Serde | None, data: bytes | None, record: Incoming) -> str:
        if data is None:
            return "null"
        if serde is None:
            # Tabs are harmless: they separate key and value, and may indent JSON.
            return visible(data.decode(errors="backslashreplace"), keep="\t")
        found = self._plain(serde, data, record)
        return visible(found if isinstance(found, str) else orjson.dumps(found).decode())

    def _plain(self, serde: Serde | None, data: bytes | None, record: Incoming) -> Any:
        if data is None or serde is None:
            return None if data is None else data.decode(errors="backslashreplace")
        try:
            return plain(serde.deserialize(self._topic, data, record.headers))
        except SerdeError as error:
            self.unreadable += 1
            self.why = self.why or visible(str(error))
            return visible_bytes(data)


def _bytes(data: bytes | None) -> str:
    return "null" if data is None else visible_bytes(data)
