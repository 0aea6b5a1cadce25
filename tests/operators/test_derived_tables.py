"""A table joined with what is made of it: one update changes both sides, and a row that ceases to exist is deleted all the same."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from streams import KTable, Materialized, StreamsBuilder
from streams.testing import TopologyTestDriver

KINDS = ("join", "left_join", "outer_join")
SEQUENCES = {"".join(map(str, values)): values for values in itertools.product((None, 1, 2), repeat=3)}
"""One key for each sequence of values."""


def odd(value: int) -> bool:
    """A predicate."""
    return value % 2 == 1


def tens(value: int | None) -> int | None:
    """A mapper that takes deletions, too."""
    return None if value is None else value * 10


def filtered(value: int | None) -> int | None:
    """What `odd` leaves."""
    return value if value is not None and odd(value) else None


def kept(caching: bool) -> Materialized:
    """A store of its own for the derived table."""
    return Materialized(name="derived", caching=caching)


Derive = Callable[[KTable, bool], KTable]
DERIVED: dict[str, tuple[Derive, Callable[[int | None], int | None]]] = {
    "mapped": (lambda table, caching: table.map_values(tens), tens),
    "filtered": (lambda table, caching: table.filter(odd), filtered),
    "mapped, kept": (lambda table, caching: table.map_values(tens, materialized=kept(caching)), tens),
    "filtered, kept": (lambda table, caching: table.filter(odd, materialized=kept(caching)), filtered),
    "a stream and a table again": (
        lambda table, caching: table.to_stream().map_values(tens).to_table(materialized=kept(caching)),
        tens,
    ),
    "joined with itself": (lambda table, caching: table.filter(odd).join(table, lambda one, other: one), filtered),
}


MIXED = [pytest.param(caching, marks=pytest.mark.long) for caching in ((False, True), (True, False))]


def rows_of(kind: str, left: int | None, right: int | None) -> list[int | None] | None:
    """The definition of a join."""
    needed = {"join": (left, right), "left_join": (left,), "outer_join": ()}[kind]
    return None if None in needed or left is right is None else [left, right]


@pytest.mark.slow
@pytest.mark.parametrize("derived_first", [False, True], ids=["derived on the right", "derived on the left"])
@pytest.mark.parametrize("caching", [(False, False), (True, True), *MIXED], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DERIVED)
def test_what_is_passed_on_is_what_the_join_is(
    name: str, kind: str, caching: tuple[bool, bool], derived_first: bool
) -> None:
    derive, meaning = DERIVED[name]
    builder = StreamsBuilder()
    table = builder.table("in", materialized=Materialized(caching=caching[0]))
    derived = derive(table, caching[1])
    left, right = (derived, table) if derived_first else (table, derived)
    joined = getattr(left, kind)(right, lambda one, other: [one, other])
    joined.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        inputs, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        told: dict[str, Any] = {}
        for number in range(3):
            with driver.batch():
                for key, values in SEQUENCES.items():
                    inputs.pipe_input(key, values[number], 1000 * number)
            told.update({record.key: record.value for record in out.read_records_to_list()})
            for key, values in SEQUENCES.items():
                now = values[number]
                sides = (meaning(now), now) if derived_first else (now, meaning(now))
                assert told.get(key) == rows_of(kind, *sides), (key, number)
