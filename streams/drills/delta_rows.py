"""The rows of a Delta table on this machine's disk, read from its transaction log and its Parquet files.

A verifier that shares nothing with the writer: neither Spark nor Delta's own library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
from pyarrow import parquet

from streams.drills.failure import DrillFailed


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """The rows of the table's newest version; none if there is no table.

    Raises:
        DrillFailed: The table has deletion vectors, which this reader does not know.
    """
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_bytes().splitlines():
            action = orjson.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                if action["add"].get("deletionVector"):
                    raise DrillFailed(f"{table} has deletion vectors, which are not read here")
                files[action["add"]["path"]] = None
    return [row for file in files for row in parquet.read_table(table / unquote(file)).to_pylist()]
