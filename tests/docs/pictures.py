"""Draws the pictures of docs/learn from the tables of these pages, which the tests execute: `python -m tests.docs.pictures`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.docs.page import PAGES, Example, examples

FOLDER = Path(__file__).parents[2] / "docs" / "learn"
WINDOWS = {"Tumbling": "tumbling", "Hopping": "hopping", "Sliding": "sliding", "Sessions": "session"}
JOINS = {"Inner join": "inner-join", "Left join": "left-join", "Outer join": "outer-join"}
"""Beginning of a heading -> name of its picture."""

_WIDTH, _LEFT, _ROW = 720, 70, 24
_BLUE, _GREEN, _ORANGE, _GREY = "#3f51b5", "#00796b", "#ef6c00", "#757575"


def pictures() -> dict[str, str]:
    """All pictures, by file name."""
    drawn = {}
    for page, names, draw in (("learn/windows", WINDOWS, windows), ("learn/joins", JOINS, joins)):
        for example in examples(PAGES[page].read_text(encoding="utf-8")):
            name = names.get(example.heading.partition(":")[0])
            if name is not None:
                drawn[f"{name}.svg"] = draw(example)
    return drawn


def windows(example: Example) -> str:
    """The records as dots, and below them each window with its last count."""
    times = [int(row[3]) for row in example.rows]
    found: dict[tuple[int, int], int | None] = {}
    for start, end, count in re.findall(r"\[(\d+)\.\.(\d+)\] = (\w+)", " ".join(example.expected("out"))):
        found[int(start), int(end)] = json.loads(count)
    bars = sorted((start, end, count) for (start, end), count in found.items() if count is not None)
    last = max(end for _, end, _ in bars)
    parts = [_line(_x(0, last), 40, _x(last, last), 40, _GREY), _text(8, 44, "records")]
    for time in times:
        parts += [_dot(_x(time, last), 40, _BLUE), _text(_x(time, last), 26, str(time), "middle")]
    for number, (start, end, count) in enumerate(bars):
        top = 64 + number * _ROW
        width = max(_x(end, last) - _x(start, last), 4)
        parts.append(f'<rect x="{_x(start, last)}" y="{top}" width="{width}" height="16" rx="3" fill="{_GREEN}"/>')
        parts.append(_text(_x(end, last) + 6, top + 13, f"{start} to {end}: {count}"))
    return _svg(64 + len(bars) * _ROW + 8, parts)


def joins(example: Example) -> str:
    """Both sides as dots, the results between them, and a line from each record to its results."""
    last = max(int(row[3]) for row in example.rows)
    places: dict[str, tuple[int, int]] = {}
    parts = []
    for topic, height in (("orders", 40), ("payments", 200)):
        parts += [_line(_x(0, last), height, _x(last, last), height, _GREY), _text(4, height + 4, topic)]
    for topic, _, value, time, _ in example.rows:
        places[json.loads(value)] = (_x(int(time), last), 40 if topic == "orders" else 200)
    results: list[str] = []
    for number, (value, time) in enumerate(re.findall(r"= (\[[^@]*\]) @ (\d+)", " ".join(example.expected("out")))):
        at = _x(int(time), last)
        for name in filter(None, json.loads(value)):
            results.append(_line(*places[name], at, 120, _ORANGE))
        label = " + ".join(name or "none" for name in json.loads(value))
        results.append(f'<rect x="{at - 6}" y="114" width="12" height="12" fill="{_ORANGE}"/>')
        results.append(_text(at + 10, 125, label) if number % 2 else _text(at - 10, 125, label, "end"))
    for name, (at, height) in places.items():
        results += [_dot(at, height, _BLUE), _text(at, height - 10 if height == 40 else height + 20, name, "middle")]
    return _svg(236, [*parts, _text(4, 124, "results"), *results])


def _x(time: int, last: int) -> int:
    return _LEFT + round(time * (_WIDTH - _LEFT - 110) / last)


def _line(x1: int, y1: int, x2: int, y2: int, color: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="1.5"/>'


def _dot(x: int, y: int, color: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>'


def _text(x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _svg(height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
    background = f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    for file, drawn in pictures().items():
        (FOLDER / file).write_text(drawn, encoding="utf-8")
