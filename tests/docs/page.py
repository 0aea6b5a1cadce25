"""The executable examples of the pages in `docs`: each a Python block and the table behind it.

A block is run behind the first block of its page that has no table, which has the imports and the ``builder``; on a page without
one, blocks have their own. Nothing else is added, so a reader can paste both. A row of the table is one record that is piped in,
and in its last column what comes out of it, in order: ``key = value @ time``, behind ``topic:`` where that is not ``out``. A
``+`` before the topic puts the record into the step of the one above. ``(restart)`` and ``(clock +1000)`` in the first
column do what they say; ``settings`` in the block are the driver's. Two last columns, ``strict`` and ``compat``, show both modes.

``python -m tests.docs.page`` writes the last columns anew from what the engine does; read the difference before you keep it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams import Windowed
from streams.operators.operator import Mode
from streams.testing import TopologyTestDriver

DOCS = Path(__file__).parents[2] / "docs"
_WITH_EXAMPLES = """
    index learn/windows learn/joins port/kafka-streams port/spark port/quix-faust-bytewax guide modes
"""
_OPERATORS = "topics records aggregates joins tables processors more options"
OPERATORS = [f"operators/{name}" for name in _OPERATORS.split()]
PAGES = {name: DOCS / f"{name}.md" for name in [*_WITH_EXAMPLES.split(), *OPERATORS]}
"""The pages with executable examples, by name."""

_EXAMPLE = re.compile(r"```python\n(?P<code>(?:(?!```).)*)```\n\n(?P<table>(?:\|[^\n]*\n)+)", re.DOTALL)
_MODES: tuple[Mode, ...] = ("strict", "compat")
NOTHING = "\u2013"


@dataclass
class Example:
    """One example: its heading, code, columns and rows, and the position of its table in the page."""

    heading: str
    code: str
    columns: list[str]
    rows: list[list[str]]
    place: tuple[int, int]
    prelude: str

    @property
    def results(self) -> dict[str, Mode]:
        """The columns of results, and the mode of each."""
        return {name: name if name in _MODES else "strict" for name in self.columns if name in ("out", *_MODES)}

    def expected(self, column: str) -> list[str]:
        """What the page says, row by row."""
        return [row[self.columns.index(column)] for row in self.rows]

    def run(self, mode: Mode) -> list[str]:
        """What the engine gives, row by row; an error ends it and stands in its row."""
        space: dict[str, Any] = {}
        for code in (self.prelude, self.code):
            exec(compile(code, self.heading, "exec"), space)
        topology = space["builder"].build()
        found = [""] * len(self.rows)
        with TopologyTestDriver(topology, mode=mode, **space.get("settings", {})) as driver:
            names = sorted({sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)})
            outputs = [driver.create_output_topic(name) for name in names]
            for step in self._steps():
                try:
                    with ExitStack() as stack:
                        if len(step) > 1:
                            stack.enter_context(driver.batch())
                        for at in step:
                            _feed(driver, dict(zip(self.columns, self.rows[at], strict=True)))
                except Exception as error:
                    found[step[-1]] = f"fails: {_cause(error)}"
                    break
                rows = [_text(record) for output in outputs for record in output.read_records_to_list()]
                found[step[-1]] = "<br>".join(rows)
        return [text or NOTHING for text in found]

    def _steps(self) -> Iterator[list[int]]:
        step: list[int] = []
        for at, row in enumerate(self.rows):
            if step and not row[0].startswith("+"):
                yield step
                step = []
            step.append(at)
        yield step

    def table(self, results: dict[str, list[str]]) -> str:
        """The table with these results."""
        lines = ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        for at, row in enumerate(self.rows):
            cells = [results[name][at] if name in results else row[n] for n, name in enumerate(self.columns)]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def _feed(driver: TopologyTestDriver, row: dict[str, str]) -> None:
    topic = row["in"].lstrip("+")
    if topic == "(restart)":
        driver.restart()
    elif topic.startswith("(clock +"):
        driver.advance_wall_clock_time(int(topic.removeprefix("(clock +").rstrip(")")))
    else:
        headers = tuple((name, text.encode()) for name, text in json.loads(row.get("headers", "") or "{}").items())
        key = None if row["key"] == "null" else row["key"]
        driver.create_input_topic(topic).pipe_input(key, json.loads(row["value"]), int(row["time"]), headers)


def _text(record: Any) -> str:
    key = record.key
    if isinstance(key, Windowed):
        key = f"{key.key} [{key.window.start}..{key.window.end}]"
    elif key is None or isinstance(key, dict):
        key = json.dumps(key)
    topic = "" if record.topic == "out" else f"{record.topic}: "
    headers = json.dumps({name: (value or b"").decode() for name, value in record.headers}) if record.headers else ""
    return f"{topic}{key} = {json.dumps(record.value)} @ {record.timestamp} {headers}".rstrip()


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def examples(text: str) -> Iterator[Example]:
    """All examples of a page."""
    first = re.search(r"```python\n((?:(?!```).)*)```\n\n(\|)?", text, re.DOTALL)
    prelude = first[1] if first and not first[2] else ""
    for found in _EXAMPLE.finditer(text):
        heading = re.findall(r"^#+ (.*)$", text[: found.start()], re.MULTILINE)[-1]
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found["table"].splitlines()]
        if lines[0][0] == "in":
            yield Example(heading, found["code"], lines[0], lines[2:], found.span("table"), prelude)


def written_anew(text: str) -> str:
    """The page with the results that the engine gives now."""
    for example in reversed(list(examples(text))):
        results = {column: example.run(mode) for column, mode in example.results.items()}
        start, end = example.place
        text = text[:start] + example.table(results) + text[end:]
    return text


if __name__ == "__main__":
    for path in PAGES.values():
        path.write_text(written_anew(path.read_text(encoding="utf-8")), encoding="utf-8")
