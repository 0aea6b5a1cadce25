"""Built-in aggregates: the plain definition of what they compute."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import TopologyError, agg
from streams.model.aggregates import results
from streams.model.fields import pick

CELLS = (
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.floats(-1e3, 1e3).map(lambda x: x + 0.0)
    | st.text(max_size=3)
)
KINDS = [
    agg.count(),
    agg.count("f"),
    agg.sum("f"),
    agg.min("f"),
    agg.max("f"),
    agg.mean("f"),
    agg.first("f"),
    agg.last("f"),
]


def run(aggregate, cells):
    accumulator = aggregate.initial()
    for cell in cells:
        accumulator = aggregate.updated(accumulator, cell)
    return accumulator


def numbers(cells):
    return [cell for cell in cells if isinstance(cell, int | float) and not isinstance(cell, bool)]


@given(st.lists(CELLS))
def test_results_are_those_of_python(cells):
    there, known = numbers(cells), [cell for cell in cells if cell is not None]
    expected = [
        len(cells),
        len(known),
        sum(there) if there else None,
        min(there) if there else None,
        max(there) if there else None,
        sum(there) / len(there) if there else None,
        known[0] if known else None,
        known[-1] if known else None,
    ]
    assert [aggregate.result(run(aggregate, cells)) for aggregate in KINDS] == expected


@given(st.lists(CELLS), st.lists(CELLS))
def test_merging_two_runs_is_running_on(earlier, later):
    for aggregate in KINDS:
        merged = aggregate.result(aggregate.merge(run(aggregate, earlier), run(aggregate, later)))
        whole = aggregate.result(run(aggregate, earlier + later))
        assert merged == (pytest.approx(whole) if isinstance(whole, float) else whole)


@given(st.lists(CELLS))
def test_accumulators_rest_as_json(cells):
    for aggregate in KINDS:
        accumulator = run(aggregate, cells)
        assert orjson.loads(orjson.dumps(accumulator)) == accumulator


def test_whole_numbers_stay_whole():
    assert run(agg.sum("f"), [2**53, 1]) == 2**53 + 1
    assert isinstance(run(agg.sum("f"), [1, 1.0]), float)


def test_pick_follows_a_dotted_path():
    value = {"a": {"b": 1, "c": None}, "d": [1]}
    assert [pick(value, path) for path in ("a.b", "a.c", "a.x", "x", "d.a", "a.b.c")] == [
        1,
        None,
        None,
        None,
        None,
        None,
    ]
    assert pick(None, "a") is None


def test_results_have_the_names_given():
    aggregates = {"n": agg.count(), "m": agg.mean("f")}
    assert results(aggregates, [2, [6, 2]]) == {"n": 2, "m": 3.0}
    assert results(aggregates, None) is None


@pytest.mark.parametrize("field", ["", ".a", "a..b", None, 5])
def test_a_field_is_a_path(field):
    with pytest.raises(TopologyError, match="a field is a name"):
        agg.sum(field)
