"""Builds the documentation site: docs/ with pages made from the code, by Zensical, into build/site (`make site`).

Without an argument, writes the pages from the code that GitHub shows, too, into docs/.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import streams
import streams.sinks
import streams.testing
from streams.cli.main import COMMANDS, app
from streams.driver.kafka_streams import KafkaStreams
from streams.migration_hints import CONTEXTS, OPERATORS, PACKAGE, SETTINGS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PAGES, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
API = {
    "builder": ("Builder and topology", ["StreamsBuilder", "Topology", "TopologyBuilder"]),
    "streams": ("Streams", ["KStream", "BranchedKStream", "Branched"]),
    "tables": ("Tables", ["KTable", "GlobalKTable"]),
    "grouped": ("Grouped streams and tables", []),
    "windows": ("Windows", []),
    "aggregates": ("Aggregates and expressions", ["AggregateFunctions", "Aggregate", "NumericAggregate", "Expression"]),
    "options": ("Options", []),
    "processors": ("Processors and stores", []),
    "serdes": ("Serdes", []),
    "records": ("Records and timestamps", []),
    "errors": ("Errors", []),
    "testing": ("Testing", []),
    "running": ("Running", []),
    "sinks": ("Sinks", ["Sink", "SinkTable"]),
}
"""Page -> title, and the names that come first; the module of each other name decides its page."""
PAGE_OF = {
    "streams.dsl.grouped": "grouped",
    "streams.model.windows": "windows",
    "streams.dsl.suppressed": "windows",
    "streams.model.agg": "aggregates",
    "streams.model.aggregates": "aggregates",
    "streams.model.expressions": "aggregates",
    "streams.dsl.options": "options",
    "streams.dsl.stores": "processors",
    "streams.operators": "processors",
    "streams.serdes": "serdes",
    "streams.model": "records",
    "streams.errors": "errors",
    "state.errors": "errors",
    "streams.testing": "testing",
    "streams.metrics": "testing",
    "streams.driver": "running",
    "streams.sinks": "sinks",
}
"""The beginning of a module's name -> its page; the longest one counts."""


def documented() -> dict[str, list[str]]:
    """The public names by page, as paths of the modules that define them."""
    found: dict[str, list[str]] = {page: [] for page in API}
    page_of_name = {name: page for page, (_, names) in API.items() for name in names}
    things = {name: getattr(streams, name) for name in streams.__all__}  # type: ignore[attr-defined]
    for module in (streams.testing, streams.sinks):
        things |= {name: getattr(module, name) for name in module.__all__}
    for name, thing in {**things, "KafkaStreams": KafkaStreams}.items():
        if isinstance(thing, type) or callable(thing):
            page = page_of_name.get(name) or _page_of(thing)
            found[page].append(f"{thing.__module__}.{name}")
    for page, (_, names) in API.items():
        first = {name: place for place, name in enumerate(names)}
        found[page].sort(key=lambda path: (first.get(path.rpartition(".")[2], len(first)), path.lower()))
    return found


def _page_of(thing: Any) -> str:
    module = thing.__module__
    fitting = [prefix for prefix in PAGE_OF if module == prefix or module.startswith(f"{prefix}.")]
    if not fitting:
        raise SystemExit(
            f"scripts/site.py: {module}.{thing.__name__} is public and has no page; add its module to PAGE_OF"
        )
    return PAGE_OF[max(fitting, key=len)]


def write_pages() -> None:
    """Copies docs/, and adds the pages that are made from the code."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("__pycache__"))
    for page, paths in documented().items():
        write(f"api/{page}.md", [f"# {API[page][0]}", *(f"\n::: {path}" for path in paths)])
    write_from_code(PAGES)
    write_cookbook()


def write_from_code(folder: Path) -> None:
    """The pages from the code that docs/ has, too, because GitHub shows them."""
    write("reference/options.md", options(), folder)
    write("port/names.md", names_from_elsewhere(), folder)


def write(name: str, lines: list[str], folder: Path | None = None) -> None:
    path = (folder or PAGES) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def cell(text: str) -> str:
    """Text within a table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


Row = tuple[str, str]
"""The names of an option, and what it does."""
_OFTEN = 6


def options() -> list[str]:
    """Every command with its arguments and options, as Typer knows them; what many commands share stands once, at the top."""
    group: Any = typer.main.get_command(app)
    commands: list[tuple[str, Any]] = []
    for name in sorted(COMMANDS):
        command = group.resolve_command(group.context_class(group), [name])[1]
        commands += _with_children(f"streams {name}", command)
    rows = {name: _rows(command) for name, command in commands}
    counts = Counter(row for of_one in rows.values() for row in of_one)
    shared = [row for row, count in counts.items() if count >= _OFTEN]
    lines = [
        "# All options",
        "",
        "This page is made from the command line itself. [Commands](../commands.md) explains the commands.",
        "",
        "## Options of many commands",
        "",
        *_table(shared),
        "",
    ]
    for name, command in commands:
        lines += [f"## {name}", "", inspect.cleandoc(command.help or ""), ""]
        if own := [row for row in rows[name] if row not in shared]:
            lines += [*_table(own), ""]
        if also := [row[0].partition(",")[0] for row in rows[name] if row in shared]:
            lines += [f"Also {', '.join(also)} ([above](#options-of-many-commands)).", ""]
    return lines


def _with_children(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child in sorted(getattr(command, "commands", ())):
        yield from _with_children(f"{name} {child}", command.commands[child])


def _rows(command: Any) -> list[Row]:
    found = []
    for one in command.params:
        if one.name != "help" and not getattr(one, "hidden", False):
            names = [one.name.upper()] if one.param_type_name == "argument" else [*one.opts, *one.secondary_opts]
            found.append((", ".join(f"`{text}`" for text in names), cell(one.help or "")))
    return found


def _table(rows: list[Row]) -> list[str]:
    return ["| option | what it does |", "|---|---|", *(f"| {names} | {what} |" for names, what in rows)]


def names_from_elsewhere() -> list[str]:
    """The names of other libraries and what is written here instead, as the engine answers them."""
    lines = [
        "# Names from elsewhere",
        "",
        "Names of Kafka Streams, Quix Streams, Faust, Bytewax, Spark, Polars and Flink that are called",
    ]
    lines += ["otherwise here. The engine gives the same answers when a program uses one of them.", ""]
    groups = {"The package": PACKAGE, **OPERATORS, **SETTINGS, **CONTEXTS}
    for owner, answers in groups.items():
        if answers:
            lines += [f"## {owner}", "", "| name | instead |", "|---|---|"]
            lines += [f"| `{name}` | {_answer(answers[name])} |" for name in sorted(answers)]
            lines.append("")
    return lines


def _answer(text: str) -> str:
    text = cell(text)
    return text[0].upper() + text[1:]


def write_cookbook() -> None:
    """A page for each program of docs/examples: its docstring, its code, and the records of its test."""
    from tests.docs.test_examples import CASES

    readme = (ROOT / "docs/examples/README.md").read_text(encoding="utf-8")
    for title, name, what in re.findall(r"^\| \[(.*?)\]\((\w+)\.py\) \| (.*?) \|$", readme, re.MULTILINE):
        code = (ROOT / f"docs/examples/{name}.py").read_text(encoding="utf-8")
        about = inspect.cleandoc(ast.get_docstring(ast.parse(code)) or "")
        lines = [
            f"# {title[0].upper()}{title[1:]}",
            "",
            f"Shows: {what}.",
            "",
            about,
            "",
            "```python",
            code.rstrip(),
            "```",
            "",
        ]
        lines += ["## Records of its test", "", "| topic | key | value | time |", "|---|---|---|---|"]
        lines += [
            f"| {topic} | {_shown(key)} | {_shown(value)} | {time} |" for topic, key, value, time in CASES[name].sent
        ]
        lines += ["", "## What comes out", "", "| topic | key | value |", "|---|---|---|"]
        for topic, rows in CASES[name].expected.items():
            lines += [f"| {topic} | {_shown(key)} | {_shown(value)} |" for key, value in rows]
        write(f"cookbook/{name}.md", lines)


def _shown(value: object) -> str:
    return f"`{cell(value if isinstance(value, str) else json.dumps(value, default=repr))}`"


def add_markdown() -> None:
    """Puts the Markdown of each page next to its HTML, and a list of all pages for language models (llms.txt)."""
    lines = ["# Streams on Spark", "", "> Stateful Kafka applications in Python, run by Spark, exactly once.", ""]
    for page in sorted(PAGES.rglob("*.md")):
        name = page.relative_to(PAGES)
        (SITE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, SITE / name)
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"* [{title}]({name.as_posix()})")
    (SITE / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def load_nothing_from_elsewhere() -> None:
    """Lets the pages work without a network: Zensical's would load what runs their search from another host."""
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text(encoding="utf-8").replace("https://unpkg.com/iframe-worker/shim", f"{up}worker.js")
        page.write_text(text, encoding="utf-8")
        if elsewhere := re.findall(
            r'<(?:script|img|iframe|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//[^"]*"', text
        ):
            raise SystemExit(f"{page} loads from elsewhere: {elsewhere[0]}")


def main() -> None:
    if not sys.argv[1:]:
        write_from_code(ROOT / "docs")
        return
    write_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run([sys.argv[1], "build", "--strict"], cwd=ROOT, check=False)
    if built.returncode:
        raise SystemExit("the site has warnings (above), so it was not built")
    load_nothing_from_elsewhere()
    add_markdown()
    print(f"the site is in {SITE.relative_to(ROOT)}: python -m http.server -d {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
