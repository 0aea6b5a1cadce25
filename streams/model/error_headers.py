"""The headers in which a record that has failed says why, and where it came from (KIP-1034)."""

from streams.model.record import Headers

_ALL = "__streams."
ERROR_HEADERS = "__streams.errors."
"""What the names of these headers begin with."""
STAGE = ERROR_HEADERS + "stage"
CUT = ERROR_HEADERS + "cut"
"""What was cut from a dead letter that Kafka would have refused."""
ORIGIN = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "timestamp"))
"""Where the record came from first."""
RETRY = "__streams.retry."
"""What the names of the headers of records in retry topics begin with."""
OWN = "__streams.own."
"""What these names begin with where they are the record's own: an application may read the dead letters of another."""


def set_apart(headers: Headers) -> Headers:
    """A record's own headers, renamed where their names are those that the engine is about to add."""
    if not any(name.startswith((ERROR_HEADERS, RETRY, OWN)) for name, _ in headers):
        return headers
    return tuple(
        (OWN + name.removeprefix(_ALL) if name.startswith((ERROR_HEADERS, RETRY, OWN)) else name, value)
        for name, value in headers
    )


def plain_headers(headers: Headers) -> Headers:
    """The headers that are the record's own, as they were."""
    return tuple(
        (_ALL + name.removeprefix(OWN) if name.startswith(OWN) else name, value)
        for name, value in headers
        if not name.startswith((ERROR_HEADERS, RETRY))
    )
