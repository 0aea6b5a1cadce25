"""The driver reads out of the message of a failed record what a worker has written there: Spark passes on nothing else."""

from __future__ import annotations

import pytest

from streams.driver.queries import readable
from streams.engine.graph.handlers import Origin, record_failed


@pytest.mark.parametrize("topic", ["orders", "a.b-1_c", "orders-7"])
@pytest.mark.parametrize("key", [b"k", b"", b"a, key 'b' offset 9", b"\xff\n", None])
@pytest.mark.parametrize("node", ["map-1", "it's", "of task x:"])
def test_a_failed_record_is_found_in_its_message(topic: str, key: bytes | None, node: str) -> None:
    """The sentence of `handlers.description` and the expressions of `spark/queries.py` are one format: they change together."""
    origin = Origin(topic, 3, 41, 1000, key, b"v", None)
    failed = record_failed(
        "processing", node, "orders/0", origin, ValueError("no, record at other-1 offset 5, key b'x', made")
    )
    # As Spark has it: the last line of a worker's traceback within Java's.
    text = f"Job aborted\n\tat org.apache.spark\nstreams.errors.{type(failed).__name__}: {failed}\n\n\tat java.base"
    found = vars(readable(Exception(text)))
    wanted = {"topic": topic, "partition": 3, "offset": 41}
    assert {name: found.get(name) for name in wanted} == wanted
    if "'" not in node and ":" not in node:
        assert (found.get("node"), found.get("task")) == (node, "orders/0")
