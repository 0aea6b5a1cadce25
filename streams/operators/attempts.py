"""The attempts of a record that waits to be tried again, and its way through the retry topics: all in its headers.

How often it has failed, which topic is next, its event time, and where it came from first. A record that succeeds continues
without these headers.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.record import ERROR_HEADERS, ORIGIN, RETRY, Headers, Record, RecordMetadata, plain_headers, set_apart
from streams.model.timestamps import RETRIED_TIME

ATTEMPT = RETRY + "attempt"
"""How often the record has failed."""


LEVEL = RETRY + "level"
"""The retry topic to which the record goes, counted from 1; 0: to the dead letters."""


TICKET = RETRY + "ticket"
"""The record's place in its key's line (`retry`)."""


WALK = RETRY + "walk"
"""The retry topics that a record has come through while its key's line stood still (`Walk`)."""


TOPIC = RETRY + "topic"
"""Of a dead letter: the first retry topic, through which it may be replayed to the operator that has failed."""


DEAD = 0


@dataclass(frozen=True, slots=True)
class Attempts:
    """The retry topics of one operator.

    Attributes:
        topics: Their names without the application's id, in order.
    """

    topics: tuple[str, ...]

    def real_topics(self, application_id: str) -> tuple[str, ...]:
        """The names of the topics in Kafka."""
        return tuple(f"{application_id}-{topic}" for topic in self.topics)

    def failed(self, record: Record, error: Headers, retried: bool, application_id: str) -> Record:
        """A record that has failed, on its way to the next topic."""
        before = dict(record.headers) if retried else {}
        failures = _number(before.get(ATTEMPT)) + 1
        level = failures if failures <= len(self.topics) else DEAD
        # Where the record came from is where it came from first.
        described = [(name, before.get(name, value) if name in ORIGIN else value) for name, value in error]
        to = [(TOPIC, self.real_topics(application_id)[0].encode())] if level == DEAD else []
        own = _apart(record.headers) if retried else set_apart(record.headers)
        headers = (*own, *described, (ATTEMPT, b"%d" % failures), (LEVEL, b"%d" % level), *to)
        return Record(record.key, record.value, record.timestamp, headers)


def plain(record: Record) -> Record:
    """A record from a retry topic, as it was before it failed."""
    return Record(record.key, record.value, record.timestamp, plain_headers(record.headers))


def _apart(headers: Headers) -> Headers:
    """The headers of a record from a retry topic that are its own, still renamed."""
    return tuple(one for one in headers if not one[0].startswith((RETRY, ERROR_HEADERS)))


def placed(record: Record, read_at: RecordMetadata | None) -> Record:
    """A record that has not failed, with where it was read, for the case that it fails after it has waited."""
    own = set_apart(record.headers)
    if read_at is None:
        return Record(record.key, record.value, record.timestamp, own)
    where = (read_at.topic, read_at.partition, read_at.offset, record.timestamp)
    first = zip(ORIGIN, (str(part).encode() for part in where), strict=True)
    return Record(record.key, record.value, record.timestamp, (*own, *first))


def at(record: Record, level: int, ticket: int, walk: bytes | None = None) -> Record:
    """A record with its place in its key's line, on its way to a retry topic."""
    others = tuple(one for one in record.headers if one[0] not in (LEVEL, TICKET, WALK, RETRIED_TIME))
    headers = (*others, (LEVEL, b"%d" % level), (TICKET, b"%d" % ticket), *([] if walk is None else [(WALK, walk)]))
    return Record(record.key, record.value, record.timestamp, headers)


def level_of(record: Record) -> int:
    """The retry topic to which a record goes; `DEAD`: the dead letters."""
    return _number(dict(record.headers).get(LEVEL))


def ticket_of(record: Record) -> int | None:
    """A record's place in its key's line; None: it has none."""
    found = dict(record.headers).get(TICKET)
    return None if found is None else int(found)


def walk_of(record: Record) -> bytes | None:
    """What a record notes of its way behind its key's line."""
    return dict(record.headers).get(WALK)


def _number(header: bytes | None) -> int:
    return int(header or 0)
