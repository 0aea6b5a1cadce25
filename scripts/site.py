"""Builds the documentation site: docs/ with pages made from the code, by Zensical, into build/site (`make site`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import streams
import streams.testing
from streams.spark.kafka_streams import KafkaStreams

ROOT = Path(__file__).parents[1]
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
}
"""Page -> title, and the names that come first; the module of each other name decides its page."""
PAGE_OF = {
    "streams.dsl.grouped": "grouped",
    "streams.model.windows": "windows",
    "streams.dsl.suppressed": "windows",
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
    "streams.spark": "running",
}
"""The beginning of a module's name -> its page; the longest one counts."""


def documented() -> dict[str, list[str]]:
    """The public names by page, as paths of the modules that define them."""
    found: dict[str, list[str]] = {page: [] for page in API}
    page_of_name = {name: page for page, (_, names) in API.items() for name in names}
    things = {name: getattr(streams, name) for name in streams.__all__}  # type: ignore[attr-defined]
    things |= {name: getattr(streams.testing, name) for name in streams.testing.__all__}
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
    """Copies docs/, and adds the pages of the API."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page, paths in documented().items():
        text = "\n\n".join([f"# {API[page][0]}", *(f"::: {path}" for path in paths)])
        (PAGES / "api").mkdir(exist_ok=True)
        (PAGES / "api" / f"{page}.md").write_text(text + "\n", encoding="utf-8")


def add_markdown() -> None:
    """Puts the Markdown of each page next to its HTML, and a list of all pages for language models (llms.txt)."""
    lines = ["# Streams on Spark", "", "> Stateful Kafka applications in Python, run by Spark, exactly once.", ""]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs")
        (SITE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, SITE / name)
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"* [{title}]({name.as_posix()})")
    (SITE / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    write_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run([sys.argv[1], "build", "--strict"], cwd=ROOT, check=False)
    if built.returncode:
        raise SystemExit("the site has warnings (above), so it was not built")
    add_markdown()
    print(f"the site is in {SITE.relative_to(ROOT)}: python -m http.server -d {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
