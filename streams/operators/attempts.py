"""The headers of a record that waits to be retried: its attempts so far, and its way through the retry topics.

They contain the number of failures, the next topic, the event time, and where the record was first read. A record that succeeds
continues without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.record import ERROR_HEADERS, ORIGIN, RETRY, Headers, Record, RecordMetadata, plain_headers, set_apart
from streams.model.timestamps import RETRIED_TIME

ATTEMPT = RETRY + "attempt"
"""The number of times that the record has failed."""


LEVEL = RETRY + "level"
"""The retry topic to which the record is sent, counted from 1; 0: the dead letters."""


TICKET = RETRY + "ticket"
"""The number of the record among the records of its key that wait for a retry (`retry`)."""


WALK = RETRY + "walk"
"""The retry topics that the record has passed through since the line of its key last moved (`Walk`)."""


TOPIC = RETRY + "topic"
"""In a dead letter, the first retry topic: a replay through it reaches the operator that failed."""


DEAD = 0


@dataclass(frozen=True, slots=True)
class Attempts:
    """The retry topics of one operator.

    Attributes:
        topics: The names of the topics without the application's id, in order.
    """

    topics: tuple[str, ...]

    def real_topics(self, application_id: str) -> tuple[str, ...]:
        """The full names of the topics in Kafka."""
        return tuple(f"{application_id}-{topic}" for topic in self.topics)

    def failed(self, record: Record, error: Headers, retried: bool, application_id: str) -> Record:
        """The record with headers that send it to the next topic after a failure."""
        before = dict(record.headers) if retried else {}
        failures = _number(before.get(ATTEMPT)) + 1
        level = failures if failures <= len(self.topics) else DEAD
        # A retried record keeps the origin of its first read.
        described = [(name, before.get(name, value) if name in ORIGIN else value) for name, value in error]
        to = [(TOPIC, self.real_topics(application_id)[0].encode())] if level == DEAD else []
        own = _apart(record.headers) if retried else set_apart(record.headers)
        headers = (*own, *described, (ATTEMPT, b"%d" % failures), (LEVEL, b"%d" % level), *to)
        return Record(record.key, record.value, record.timestamp, headers)


def plain(record: Record) -> Record:
    """The record as it was before it failed, from a record of a retry topic."""
    return Record(record.key, record.value, record.timestamp, plain_headers(record.headers))


def _apart(headers: Headers) -> Headers:
    """The own headers of a record from a retry topic, still under their other names."""
    return tuple(one for one in headers if not one[0].startswith((RETRY, ERROR_HEADERS)))


def placed(record: Record, read_at: RecordMetadata | None) -> Record:
    """A record that has not failed, with headers for where it was read, in case it fails after it has waited."""
    own = set_apart(record.headers)
    if read_at is None:
        return Record(record.key, record.value, record.timestamp, own)
    where = (read_at.topic, read_at.partition, read_at.offset, record.timestamp)
    first = zip(ORIGIN, (str(part).encode() for part in where), strict=True)
    return Record(record.key, record.value, record.timestamp, (*own, *first))


def at(record: Record, level: int, ticket: int, walk: bytes | None = None) -> Record:
    """The record with headers for its place in the line of its key, on its way to a retry topic."""
    others = tuple(one for one in record.headers if one[0] not in (LEVEL, TICKET, WALK, RETRIED_TIME))
    headers = (*others, (LEVEL, b"%d" % level), (TICKET, b"%d" % ticket), *([] if walk is None else [(WALK, walk)]))
    return Record(record.key, record.value, record.timestamp, headers)


def level_of(record: Record) -> int:
    """The retry topic to which a record is sent; `DEAD`: the dead letters."""
    return _number(dict(record.headers).get(LEVEL))


def ticket_of(record: Record) -> int | None:
    """A record's ticket in the line of its key; None if it has none."""
    found = dict(record.headers).get(TICKET)
    return None if found is None else int(found)


def walk_of(record: Record) -> bytes | None:
    """The record's header with the topics that it has passed through while it waited in its key's line; None if it has none."""
    return dict(record.headers).get(WALK)


def _number(header: bytes | None) -> int:
    return int(header or 0)
