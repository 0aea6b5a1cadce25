"""Random tables hold what their definitions say (`random_tables`, `table_model`), a few here and thousands with the command."""

import pytest

from tests.conformance.case import parse
from tests.conformance.random_tables import FAMILIES, main, make, with_restarts
from tests.conformance.table_model import differences


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_depends_on_its_number_alone(family):
    assert make(1, family, 3) == make(1, family, 3) != make(2, family, 3)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_strict_mode_tells_what_the_definitions_say(family):
    found = [each for number in range(12) for each in differences(parse(with_restarts(make(5, family, number), 5)))]
    assert not found, "\n".join(found)


def case(*nodes, values):
    """A case with one table, whose sink is the last node."""
    out = [
        {"id": "rows", "op": "to_stream", "in": nodes[-1]["id"]},
        {"id": "to", "op": "to", "in": "rows", "topic": "out"},
    ]
    records = [{"topic": "in", "key": "a", "value": value, "timestamp": at} for at, value in enumerate(values)]
    return parse(
        {"name": "x", "topology": [{"id": "t", "op": "table", "topic": "in"}, *nodes, *out], "records": records}
    )


ODD = {"id": "odd", "op": "filter", "in": "t", "predicate": "odd"}
JOIN = {"id": "join", "op": "join", "left": "odd", "right": "t", "joiner": "pair"}


def test_the_model_notices_a_row_that_nobody_deleted():
    left_standing = case(ODD, JOIN, values=[1, 2])
    assert not [*differences(left_standing)]
    deleted = case(ODD, JOIN, values=[1, None])
    assert not [*differences(deleted)]
    (found,) = differences(deleted, "compat")
    assert "after record 1" in found
    assert """'out' is {'"a"': '[1,1]'}, not {}""" in found


def test_the_command_writes_cases_and_compares_them(capsys, tmp_path):
    assert main(["--count", "2", "--family", "table_chain", "--out", str(tmp_path / "cases.jsonl")]) == 0
    assert len((tmp_path / "cases.jsonl").read_text().splitlines()) == 2
    assert main(["--count", "2", "--family", "table_chain", "--check"]) == 0
    assert capsys.readouterr().out == "0 cases differ\n"
