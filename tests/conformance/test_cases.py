"""The project's own set of cases passes, and the runner would notice if one did not.

The set: all hand-made cases of the oracle (Kafka Streams 4.3.1), a spread of its generated ones over all families, and a
spread of the strict cases, whose results were computed from definitions; and random cases of tables (`random_tables`).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.case import CaseError, parse, read_cases
from tests.conformance.runner import problem_of

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.jsonl"))


LONG = ("generated", "random_tables", "strict")
SLOW = ("stream_stream_join", "table_table_join")


def pieces() -> Iterator[Any]:
    """The files, the large ones in thirds of every third case, each with some of every family; two are for `make test-long`."""
    for file in FILES:
        if file.stem not in LONG:
            marks = [pytest.mark.slow] if file.stem in SLOW else []
            yield pytest.param(file, slice(None), marks=marks, id=file.stem)
            continue
        yield pytest.param(file, slice(0, None, 3), marks=pytest.mark.slow, id=file.stem)
        for first in (1, 2):
            yield pytest.param(file, slice(first, None, 3), marks=pytest.mark.long, id=f"{file.stem}-others-{first}")


@pytest.mark.parametrize(("file", "chosen"), [*pieces()])
def test_all_pass(file: Path, chosen: slice) -> None:
    mode = "strict" if file.stem == "strict" else "compat"
    cases = list(read_cases([file]))[chosen]
    problems = {case.name: found for case in cases if (found := problem_of(case, "driver", mode))}
    assert not problems, "\n\n".join(f"{name}\n{found}" for name, found in problems.items())


@pytest.fixture
def case():
    return parse(
        {
            "name": "double",
            "topology": [
                {"id": "s", "op": "stream", "topic": "in"},
                {"id": "m", "op": "map_values", "in": "s", "fn": {"fn": "mul", "n": 2}},
                {"id": "o", "op": "to", "in": "m", "topic": "out"},
            ],
            "records": [{"topic": "in", "key": "a", "value": 2**70, "timestamp": 1}],
            "expected": [{"topic": "out", "key": "a", "window": None, "value": 2**71, "timestamp": 1}],
        }
    )


def problem(case, **changes):
    return problem_of(replace(case, **changes), "driver", "compat")


def test_a_right_case_passes(case):
    assert problem(case) == ""


@pytest.mark.parametrize(
    ("column", "value"), [("value", 2**71 + 1), ("value", True), ("timestamp", 2), ("key", "b"), ("topic", "other")]
)
def test_a_wrong_row_is_shown(case, column, value):
    wrong = {**case.expected[0], column: value}
    shown = problem(case, expected=[wrong])
    assert f"-{wrong['topic']}: " in shown
    assert '+out: "a" = 2361183241434822606848 at 1' in shown


@pytest.mark.parametrize("compare", ["multiset", "per_key_order", "last", "order"])
def test_a_missing_row_is_shown(case, compare):
    assert '+out: "a" = 2361183241434822606848 at 1' in problem(case, expected=[], compare=compare)


def test_an_error_must_be_expected(case):
    broken = [*case.topology, {"id": "x", "op": "to", "in": "m", "topic": "not a topic"}]
    assert "failed at record -1" in problem(case, topology=broken)
    assert "expected E at record 0, got no error" in problem(case, error={"type": "E", "record": 0})


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"op": "transmute", "in": "s"}, "unknown operation 'transmute'"),
        ({"op": "peek", "in": "s", "volume": 11}, "unknown parameters ['volume']"),
        ({"op": "map_values", "in": "s", "fn": "transmute"}, "unknown function 'transmute'"),
        ({"op": "map_values", "in": "s", "fn": {"fn": "mod", "n": 1, "m": 2}}, "unexpected keyword argument 'm'"),
        ({"op": "filter", "in": "s", "predicate": "transmuted"}, "unknown predicate 'transmuted'"),
        ({"op": "process", "in": "s", "processor": "transmute"}, "unknown processor 'transmute'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_unknown_is_a_failure(case, node, says):
    assert says in problem(case, topology=[*case.topology, {"id": "x", **node}])


def test_an_unknown_field_is_a_failure():
    with pytest.raises(CaseError, match="colour"):
        parse({"name": "x", "topology": [], "records": [], "colour": "red"})


def test_the_command_counts(capsys):
    assert main([str(CASES / "stateless.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed"


def test_the_command_runs_a_case_in_the_mode_that_it_names(capsys):
    chosen = ["--only", "window_update/194", str(CASES)]
    assert main(chosen) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"


def test_the_command_names_what_is_not_there(capsys):
    with pytest.raises(SystemExit):
        main(["no-such-file.jsonl"])
    assert "no such file or folder: no-such-file.jsonl" in capsys.readouterr().err
