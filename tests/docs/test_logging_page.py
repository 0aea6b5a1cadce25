"""docs/logging.md: its table of events is that of the engine, and its example lines have the fields of real ones."""

import logging
import re
from dataclasses import fields
from pathlib import Path

import orjson
import pytest

from streams.logs.events import KINDS, RESTORED
from streams.metrics.application import StepFigures

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")
LINES = [orjson.loads(line) for line in re.findall(r"^\{.*\}$", PAGE, re.MULTILINE)]


def test_the_table_of_events_is_that_of_the_engine() -> None:
    rows = [
        f"| `{kind.name}` | {logging.getLevelName(kind.level)} | {kind.means} | {', '.join(f'`{one}`' for one in kind.fields)} |"
        for kind in KINDS
    ]
    table = PAGE.partition("| event | level | when | own fields |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows


@pytest.mark.parametrize("line", LINES, ids=[line["event"] for line in LINES])
def test_an_example_line_has_the_fields_of_a_real_one(line: dict[str, object]) -> None:
    common = {"time", "level", "logger", "event", "application", "sub_topology", "task", "message"}
    known = {"step": {field.name for field in fields(StepFigures)}, "restored": set(RESTORED.fields)}
    assert common <= line.keys()
    assert line.keys() - common <= known[str(line["event"])]
