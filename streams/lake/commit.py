"""`SinkCommit`: what a sink writes into each of its table's commits, and reads there at each start.

The text is the `userMetadata` of a Delta commit, and so becomes visible with the rows or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from streams.source.offsets import TopicOffsets

TABLE_COMMIT = "table-commit.json"
"""The copy of the last commit: a file in the sink's folder of the checkpoint."""
MARK = "streams_on_spark"
"""The name in the JSON object of a commit's metadata; other writers' metadata does not have it."""


@dataclass(frozen=True, slots=True)
class SinkId:
    """A sink of an application.

    Attributes:
        application_id: The application.
        sink: The sink's name.
    """

    application_id: str
    sink: str

    def transactions(self, topic_id: str) -> str:
        """The `txnAppId` of the sink's commits. A new internal topic begins a new series of versions."""
        return f"streams/{self.application_id}/{self.sink}/{topic_id}"

    def __str__(self) -> str:
        return f"{self.application_id}/{self.sink}"


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """One commit of a sink.

    Attributes:
        version: The number of this commit among the sink's own, from 1 on; 0: the state before the first.
        position: The positions in the internal topic behind the commit's rows.
        attempt: An id of the attempt that has made the commit.
    """

    version: int
    position: TopicOffsets
    attempt: str = ""

    def to_json(self, of: SinkId) -> dict[str, Any]:
        return {
            "application": of.application_id,
            "sink": of.sink,
            "version": self.version,
            "topic_id": self.position.topic_id,
            "offsets": list(self.position.offsets),
            "attempt": self.attempt,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SinkCommit:
        """The commit from the data of `to_json`."""
        position = TopicOffsets(str(data["topic_id"]), tuple(map(int, data["offsets"])))
        return cls(int(data["version"]), position, str(data["attempt"]))

    def text(self, of: SinkId) -> str:
        return orjson.dumps({MARK: self.to_json(of)}).decode()


def newest(metadata: Iterable[str | None], of: SinkId) -> SinkCommit | None:
    """The newest commit of a sink among the `userMetadata` of a table's commits, newest first; None: there is none."""
    for text in metadata:
        if not text or MARK not in text:
            continue
        try:
            data = orjson.loads(text)[MARK]
            if (data["application"], data["sink"]) == (of.application_id, of.sink):
                return SinkCommit.from_json(data)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            continue  # somebody else's text
    return None
