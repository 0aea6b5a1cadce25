"""`docs/semantics.md` says what the engine does: every example runs, every operator has a section, every case is real."""

import inspect
import re
from pathlib import Path

import pytest

import streams
from tests.conformance.case import read_cases
from tests.conformance.driver_engine import run_on_driver
from tests.docs.page import PAGE, examples

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = list(examples(TEXT))
CASES = Path(__file__).parents[1] / "conformance" / "cases"
CLASSES = [
    streams.StreamsBuilder,
    streams.TopologyBuilder,
    streams.KStream,
    streams.KTable,
    streams.KGroupedStream,
    streams.KGroupedTable,
    streams.TimeWindowedKStream,
    streams.SessionWindowedKStream,
    streams.CogroupedKStream,
    streams.BranchedKStream,
]


@pytest.mark.parametrize("at", range(len(EXAMPLES)), ids=[f"{n}-{one.heading}" for n, one in enumerate(EXAMPLES)])
def test_example(at):
    example = EXAMPLES[at]
    for column, mode in example.results.items():
        assert example.run(mode) == example.expected(column)


def test_both_modes_differ_where_the_page_shows_both():
    both = [example for example in EXAMPLES if "compat" in example.columns]
    assert both
    for example in both:
        assert example.expected("strict") != example.expected("compat"), example.heading


def test_every_public_method_is_on_the_page():
    methods = {
        name
        for cls in CLASSES
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and callable(member)
    }
    assert {name for name in methods if not re.search(rf"`[^`\n]*\b{name}\b", TEXT)} == set()


def test_the_contents_name_every_section():
    """Each heading is linked from the table of contents, by the anchor that a renderer gives it."""
    headings = re.findall(r"^## (?!Contents)(.*)$", TEXT, re.MULTILINE)
    linked = set(re.findall(r"\]\(#([^)]*)\)", TEXT))
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert anchors <= linked


def test_the_cases_that_the_page_names_show_a_difference():
    named = set(re.findall(r"`((?:generated/)?[a-z_]+/[a-z_0-9]+)`", TEXT.split("## Strict and compat")[1]))
    cases = {case.name: case for case in read_cases([CASES]) if case.name in named}
    assert cases.keys() == named
    for case in cases.values():
        strict, compat = run_on_driver(case, "strict"), run_on_driver(case, "compat")
        assert (strict.rows, strict.error is None) != (compat.rows, compat.error is None), case.name
