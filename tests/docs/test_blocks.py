"""The blocks of the pages about Delta tables, dead letters and logs run, with what the reader has of his own.

Not run here: what needs a session of Spark or a running application (`store_dataframe`, `start`); tests/spark has tests of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
BLOCKS = [
    (page, number, code)
    for page in ("lake", "lake-sources", "dead-letters", "logging")
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
    assert [sum(page == one for page, *_ in BLOCKS) for one in ("lake", "lake-sources", "dead-letters", "logging")] == [
        3,
        2,
        1,
        1,
    ]
