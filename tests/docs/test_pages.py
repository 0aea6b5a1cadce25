"""The pages in `docs` say what the engine does: every example runs, every operator has an entry, every link leads somewhere."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import streams
from tests.conformance.case import read_cases
from tests.conformance.driver_engine import run_on_driver
from tests.docs.page import DOCS, OPERATORS, PAGES, examples

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
EXAMPLES = [(name, example) for name, text in TEXTS.items() for example in examples(text)]
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


OPTIONS = [
    streams.Consumed,
    streams.Produced,
    streams.Grouped,
    streams.Repartitioned,
    streams.Materialized,
    streams.Joined,
    streams.StreamJoined,
]
ROOT = Path(__file__).parents[2]
LINKING = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def anchor(heading: str) -> str:
    """The anchor that a renderer gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def headings(text: str, marks: str = "#+") -> list[str]:
    """The headings of a page, those with these marks only."""
    return re.findall(
        rf"^{marks} (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "example"), EXAMPLES, ids=[f"{name}-{n}-{one.heading}" for n, (name, one) in enumerate(EXAMPLES)]
)
def test_an_example_gives_what_its_table_shows(name, example):
    for column, mode in example.results.items():
        assert example.run(mode) == example.expected(column)


@pytest.mark.parametrize(("name", "least"), {"guide": 3, "operators/": 50, "modes": 17}.items())
def test_no_example_is_lost(name, least):
    assert sum(page.startswith(name) for page, _ in EXAMPLES) >= least


def test_both_modes_differ_where_the_page_shows_both():
    both = [example for _, example in EXAMPLES if "compat" in example.columns]
    assert both
    for example in both:
        assert example.expected("strict") != example.expected("compat"), example.heading


def test_every_public_method_is_on_a_page_of_operators():
    text = "".join(TEXTS[page] for page in OPERATORS)
    methods = {
        name
        for cls in CLASSES
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and callable(member)
    }
    assert {name for name in methods if not re.search(rf"`[^`\n]*\b{name}\b", text)} == set()


def shown_default(value):
    return f"{type(value).__name__}()" if hasattr(value, "extract") else str(value)


@pytest.mark.parametrize("option", OPTIONS, ids=[option.__name__ for option in OPTIONS])
def test_an_option_is_listed_with_all_fields_and_defaults(option):
    section = TEXTS["operators/options"].split(f"\n## {option.__name__}\n")[1].split("\n##")[0]
    listed = {
        name: default.strip("` ")
        for names, default in re.findall(r"^\| ([^|]*) \| ([^|]*) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    shown = {field.name: getattr(option(), field.name) for field in dataclasses.fields(option)}
    assert listed == {name: shown_default(default) for name, default in shown.items()}


@pytest.mark.parametrize(("name", "marks"), {"guide": "##", "modes": "###?"}.items())
def test_the_contents_name_every_section(name, marks):
    """Each heading is linked from the table of contents, by the anchor that a renderer gives it."""
    contents = TEXTS[name].split("\n## Contents\n")[1].split("\n## ")[0]
    sections = [anchor(heading) for heading in headings(TEXTS[name], marks) if heading != "Contents"]
    assert re.findall(r"\]\(#([^)]*)\)", contents) == sections


def test_the_page_of_operators_names_every_section():
    index = (DOCS / "operators.md").read_text(encoding="utf-8")
    sections = [(page, anchor(heading)) for page in OPERATORS for heading in headings(TEXTS[page], "###?")]
    assert re.findall(r"\]\((operators/\w+)\.md#([^)]*)\)", index) == sections


@pytest.mark.parametrize("path", LINKING, ids=[path.relative_to(ROOT).as_posix() for path in LINKING])
def test_every_link_leads_to_a_file_and_a_heading(path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        place, _, heading = link.partition("#")
        target = path.parent / place if place else path
        if not place.startswith("http") and (
            not target.exists()
            or (heading and heading not in map(anchor, headings(target.read_text(encoding="utf-8"))))
        ):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
def test_items_of_items_are_indented_by_four_spaces(path):
    """With two, GitHub shows them as meant, and the site in one row with the items above them."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^ {1,3}[*-] .{,40}", prose, re.MULTILINE) == []


@pytest.mark.parametrize("name", PAGES)
def test_headings_have_anchors_of_their_own(name):
    anchors = [anchor(heading) for heading in headings(TEXTS[name])]
    assert len(anchors) == len(set(anchors))


@pytest.mark.slow
def test_the_cases_that_the_page_names_show_a_difference():
    named = set(re.findall(r"`((?:generated/)?[a-z_]+/[a-z_0-9]+)`", TEXTS["modes"].split("## Strict and compat")[1]))
    cases = {case.name: case for case in read_cases([CASES]) if case.name in named}
    assert cases.keys() == named
    for case in cases.values():
        strict, compat = run_on_driver(case, "strict"), run_on_driver(case, "compat")
        assert (strict.rows, strict.error is None) != (compat.rows, compat.error is None), case.name


def test_an_example_can_be_tried_as_the_guide_says(capsys):
    first = next(examples(TEXTS["guide"]))
    recipe = re.search(r"```py\n(from streams.testing import TopologyTestDriver\n.*?)```", TEXTS["guide"], re.DOTALL)
    space = {}
    for code in (first.prelude, first.code, recipe[1]):
        exec(compile(code, "guide", "exec"), space)
    space["driver"].close()
    assert "'amount': 12" in capsys.readouterr().out
