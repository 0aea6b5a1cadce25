"""`join_all` a second time: brute force over all choices of records, from the rules in `docs/operators` alone.

Streams are told as {name: topic}, in the order of the join; a topic may stand there twice. Rows are (key, numbers of the
records in the order of the streams, time).
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.properties.model import Entry


def in_time(log: list[Entry], streams: dict[str, str], difference: int) -> list[Any]:
    """All combinations of a log without late records, whatever the order of arrival."""
    taken = [[one for one in log if one.topic == topic and usable(one)] for topic in streams.values()]
    return [row(choice) for choice in product(*taken) if together(choice, difference)]


def with_late(
    log: list[Entry], streams: dict[str, str], difference: int, grace: int, compat: bool = False
) -> tuple[list[Any], int]:
    """The same over the log in order of processing, in the order of the results; also how many records were late.

    Strict: what is older than the newest record by more than difference + grace gives nothing any more. In compat mode nothing
    is late, and a stream's record is forgotten when it is 2 * difference + grace older than the newest of its own stream.
    """
    newest, late = -1, 0
    kept: dict[str, list[Entry]] = {name: [] for name in streams}
    rows: list[Any] = []

    def is_known(name: str, one: Entry) -> bool:
        if compat:
            return one.time > max(other.time for other in kept[name]) - 2 * difference - grace
        return one.time >= newest - difference - grace

    for entry in log:
        for name in [name for name, topic in streams.items() if topic == entry.topic]:
            newest = max(newest, entry.time)
            if not usable(entry):
                continue
            if not compat and entry.time < newest - difference - grace:
                late += 1
                continue
            choices = [
                [entry]
                if other == name
                else sorted((one for one in kept[other] if is_known(other, one)), key=lambda one: one.time)
                for other in streams
            ]
            rows += [row(choice) for choice in product(*choices) if together(choice, difference)]
            kept[name].append(entry)
    return rows, late


def usable(entry: Entry) -> bool:
    return entry.key is not None and entry.value is not None


def together(choice: tuple[Entry, ...], difference: int) -> bool:
    times = [one.time for one in choice]
    return len({one.key for one in choice}) == 1 and max(times) - min(times) <= difference


def row(choice: tuple[Entry, ...]) -> Any:
    return (choice[0].key, [one.value["v"] for one in choice], max(one.time for one in choice))
