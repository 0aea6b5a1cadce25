"""The blocks of the pages about Delta tables, dead letters and logs run here; for others, which test runs them.

What the reader has of his own is in OWN.

Not run here: what needs a session of Spark or a running application (`store_dataframe`, `start`); tests/spark has tests of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streams.config import load_config
from tests.docs.page import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@dataclass
class Flight:
    carrier: str


@dataclass
class Order:
    item: str


OWN = """
from dataclasses import dataclass
from datetime import timedelta

from streams import *
from streams import KafkaStreams
from streams.testing import TopologyTestDriver

class Ship(Processor):
    def process(self, record):
        self.ctx.forward(record.key, record.value)

async def country(address):
    return "de"

def build():
    builder.stream("flights", value_serde=JsonSerde(Flight)).to_delta("/lake/flights")
    builder.from_delta("/lake/orders", key="order_id").to("copies")
    return builder.build()

builder = StreamsBuilder()
flight = Flight("AA")
orders, ips = builder.stream("orders"), builder.stream("ips")
"""
NEEDS_MORE = re.compile(r"\bspark\.sql\(|\.start\(\)|await_termination")
HERE = ("lake", "lake-sources", "dead-letters", "logging", "learn/values")
ELSEWHERE = {
    "howto/debug": "docs/test_howto.py",
    "howto/no-results": "docs/test_howto.py",
    "howto/python-clients": "docs/test_howto.py",
    "howto/schema-registry": "docs/test_howto.py",
    "metrics": "running/test_kafka_streams.py",
    "operate/procedures": "docs/procedures.py",
    "port/kafka-streams": "docs/test_port.py",
    "running": "docs/test_running_page.py",
    "sinks": "sinks/test_page.py",
    "serve": "docs/test_serve_page.py",
    "ui": "docs/test_ui_page.py",
    "start/notebook": "docs/test_notebook.py",
    "start/second": "docs/test_tutorial.py",
    "state-sql": "spark/test_kafka_streams.py",
    "tutorial": "docs/test_tutorial.py",
}
"""Page -> the tests that run its blocks, or of the one call that its block is about. Those of PAGES are run for their tables."""
BLOCKS = [
    (page, number, code)
    for page in HERE
    for number, code in enumerate(
        re.findall(r"```python\n((?:(?!```).)*)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    )
    if not NEEDS_MORE.search(code)
]


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_a_block_runs(page: str, number: int, code: str) -> None:
    space: dict[str, Any] = {"Flight": Flight, "Order": Order}
    for part in (OWN, code):
        exec(compile(part, page, "exec"), space)


def test_no_block_is_lost() -> None:
    assert [sum(page == one for page, *_ in BLOCKS) for one in HERE] == [3, 2, 2, 1, 2]


def test_every_page_with_python_or_a_console_is_run() -> None:
    """Blocks without a language hold commands and outputs that are not played; tests/docs/test_commands.py reads the commands."""
    with_code = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if re.search(r"^ *```(py|python|console)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert with_code - {*HERE, *ELSEWHERE, *PAGES} == set()
    assert [path for path in ELSEWHERE.values() if not (DOCS.parent / "tests" / path).exists()] == []


TOML = [
    (path.name, block)
    for path in sorted(DOCS.rglob("*.md"))
    for block in re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.mark.parametrize(("page", "block"), TOML, ids=[page for page, _ in TOML])
def test_a_block_of_settings_can_be_loaded(page: str, block: str, tmp_path: Path) -> None:
    settings = tmp_path / "streams.toml"
    settings.write_text('application_id = "app"\n' * ("application_id" not in block) + block)
    assert load_config(settings)
