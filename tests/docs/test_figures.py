"""Numbers in sentences are those of benchmarks/results, rounded to as many digits as the sentence has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.harness import sizing
from benchmarks.harness.result import RESULTS, read

DOCS = Path(__file__).parents[2] / "docs"
FOUND = {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}


def figure(name: str, of: str = "cpu_us_per_record") -> float:
    """The median of a figure of one result."""
    spread = FOUND[name].spread(of)
    assert spread is not None, name
    return spread[0]


def cpu(workload: str) -> float:
    return figure(f"{workload}-small-streams")


def counts(series: str) -> float:
    return figure(f"counts-small-streams-growth-{series}")


def latency(name: str) -> list[float]:
    return [figure(name, "p50_ms"), figure(name, "p99_ms"), figure(name)]


def of_sizes() -> dict[str, list[float]]:
    """A sentence of docs/sizing.md, with a group for each number -> the numbers."""
    one_core = "join-3d-small-streams-10-million-live-rows-one-core"
    written = figure("join-3d-small-streams-growth-state-5e+06", "internal_bytes") / 5_000_000
    return {
        r"(\d+) µs of CPU a record for windows of\s+built-in aggregates": [cpu("windows")],
        r"(\d+) with Python functions, (\d+) to (\d+) for joins": [
            cpu("windows-python"),
            cpu("table-join"),
            cpu("join-left"),
        ],
        r"a count takes (\d+) µs a record instead of ([\d.]+); with ten million, .*?, (\d+)\.": [
            counts("keys-1e+06"),
            counts("keys-1000"),
            counts("keys-1e+07"),
        ],
        r"16 tasks\s+took ([\d.]+) times as much CPU as 4, and 64 took ([\d.]+) times": [
            counts("tasks-16") / counts("tasks-4"),
            counts("tasks-64") / counts("tasks-4"),
        ],
        r"changelog: (\d+) bytes a record of 200 bytes in a join": [written],
        r"10 million live rows ran in ([\d,]+) MiB, the driver included, at ([\d ]+) records": [
            figure(one_core, "peak_pss_mb"),
            figure(one_core, "records_per_second"),
        ],
        r"live, windows of built-in aggregates take ([\d.]+) µs a record": [figure("windows-small-streams-live")],
        r"(five) cores at 60 % use compute windows of\s+built-in aggregates, (\d+) an inner join": [
            sizing.cores(1_000_000, cpu("windows")),
            sizing.cores(1_000_000, cpu("join-inner")),
        ],
    }


def of_live() -> dict[str, list[float]]:
    """The same for docs/live.md."""
    live, theirs, batches = "latency-small-streams-live", "latency-small-kafka-streams", "latency-small-streams"
    return {
        r"visible after (\d+) ms \(median\), (\d+) ms for 99 of 100, at (\d+) µs of CPU": latency(live),
        r"commit interval, took (\d+) ms,\s+(\d+) ms and (\d+) µs": latency(theirs),
        r"and micro-batches (\d+) ms, (\d+) ms and (\d+) µs": latency(batches),
        r"live execution took (\d+) ms, (\d+) ms and (\d+) µs": latency(f"{live}-slow"),
        r"Kafka Streams (\d+) ms, (\d+) ms and (\d+) µs": latency(f"{theirs}-slow"),
    }


def is_rounded(stated: str, exact: float) -> bool:
    """Whether a number in a text is the exact one with fewer digits."""
    text = {"five": "5"}.get(stated, re.sub(r"[ ,]", "", stated))
    digits = len(text.partition(".")[2])
    zeros = 0 if digits else len(text) - len(text.rstrip("0"))
    return abs(float(text) - exact) <= 0.501 * 10.0 ** (zeros - digits)


@pytest.mark.parametrize(
    ("name", "sentence", "exact"),
    [
        (name, *one)
        for name, sentences in (("sizing.md", of_sizes()), ("live.md", of_live()))
        for one in sentences.items()
    ],
)
def test_a_number_in_a_sentence_is_the_measured_one(name: str, sentence: str, exact: list[float]) -> None:
    page = " ".join((DOCS / name).read_text(encoding="utf-8").split())  # wherever its lines end
    stated = re.search(sentence, page)
    assert stated is not None, "the sentence has changed: change it here, too"
    for text, number in zip(stated.groups(), exact, strict=True):
        assert is_rounded(text, number), f"{stated[0]}: {text} is {number:.4g}"


ESTIMATES = {"5 to 10 ms", "100 ms", "10 ms"}
"""Numbers of docs/live.md that are no results: a rule of thumb, a goal and an example."""


def test_no_figure_of_live_execution_is_without_a_result() -> None:
    page = re.sub(r"^```.*?^```$", "", (DOCS / "live.md").read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    page = " ".join(page.split())
    compared = [found.span() for sentence in of_live() for found in re.finditer(sentence, page)]
    free = [
        number[0]
        for number in re.finditer(r"\d[\d,.]*(?: to \d+)? (?:ms|µs|MiB)\b", page)
        if not any(begin <= number.start() < end for begin, end in compared)
    ]
    assert set(free) - ESTIMATES == set()


@pytest.mark.parametrize(
    ("page", "rows", "report"),
    [
        ("serve.md", r"^\| (.*?), (?:from Python|over HTTP) \| ([\d,]+) \|$", "reads.md"),
        ("ui.md", r"that took ([\d.]+ % of a core)", "page-cost.md"),
    ],
)
def test_a_figure_is_in_the_report_of_its_measurement(page: str, rows: str, report: str) -> None:
    text = (DOCS.parent / "benchmarks" / report).read_text(encoding="utf-8")
    stated = re.findall(rows, (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert stated
    for one in stated:
        assert (one if isinstance(one, str) else one[-1]) in text


@pytest.mark.parametrize(
    ("stated", "exact", "right"),
    [("2", 1.87, True), ("2", 2.6, False), ("1,009", 1009.3, True), ("67 000", 67_400, True), ("1.6", 1.72, False)],
)
def test_rounding_is_what_the_digits_allow(stated: str, exact: float, right: bool) -> None:
    assert is_rounded(stated, exact) is right
