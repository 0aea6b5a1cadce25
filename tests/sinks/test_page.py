"""docs/sinks.md: its programs run, its sink keeps the contract, and it has 30 lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topology

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@dataclass
class Order:
    item: str


def test_the_first_program_declares_two_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"Order": Order}
    exec(BLOCKS[0], space)
    topology: Topology = space["builder"].build()
    sinks = topology.lake_sinks
    assert {name: sink.target_text for name, sink in sinks.items()} == {
        "orders-db": "sqlite table orders of shop.db",
        "per-customer-db": "sqlite table per_customer of shop.db",
    }
    assert sinks["orders-db"].layout.names == ("key", "timestamp", "item")
    assert sinks["per-customer-db"].layout.keys == ("key",)


def test_the_program_for_iceberg_declares_its_table() -> None:
    builder = StreamsBuilder()
    exec(BLOCKS[1], {"orders": builder.stream("orders")})
    assert builder.build().lake_sinks["orders-iceberg"].target_text == "iceberg table shop.orders of shop"


@pytest.mark.slow
def test_the_sink_of_the_page_has_each_row_once(tmp_path: Path) -> None:
    written, proved = BLOCKS[2:4]
    code = [line for line in written.partition("class ")[2].splitlines() if line.strip()]
    assert len(code) <= 32
    space: dict[str, Any] = {"__name__": "__main__"}  # so that classes are pickled by value
    exec(f"{written}\n{proved}", space)
    space["test_my_sink"](tmp_path)
