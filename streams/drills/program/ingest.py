"""The default program with a source outside Kafka: files of rows, the rows of which go to a topic."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import orjson

from streams.drills.program.topology import program
from streams.serdes.json import JsonSerde
from streams.topology.topology import Topology

FOLDER = "STREAMS_DRILL_INGEST"
"""The variable with the folder of the files (`IN`), and of the file that holds a task while it exists (`HOLD`)."""
IN, HOLD = "in", "hold"
ROWS, OUT, PARTITIONS = "rows", "ingested", 2
HELD = -1
"""The number of the row at which a task is held."""
_POLL_S = 0.05


class HoldingSerde(JsonSerde):
    """Holds a task within its transaction at a certain row, while a file exists."""

    def serialize(self, topic: str, value: Any, headers: Any = None, /) -> bytes | None:
        hold = Path(os.environ[FOLDER]) / HOLD
        while value["n"] == HELD and hold.exists():
            time.sleep(_POLL_S)
        return super().serialize(topic, value, headers)


def build() -> Topology:
    """The topology; the folder comes from the environment."""
    builder = program()
    rows = builder.from_dataframe(
        lambda spark: spark.readStream.schema("k STRING, n INT").json(f"{os.environ[FOLDER]}/{IN}"),
        ROWS,
        key="k",
        value_serde=HoldingSerde(),
        partitions=PARTITIONS,
    )
    rows.to(OUT)
    return builder.build()


def add_rows(folder: Path, *numbers: int) -> None:
    """Adds a file of rows, whose keys spread them over the tasks."""
    files = folder / IN
    files.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps({"k": f"key-{number}", "n": number}) for number in numbers]
    unfinished = folder / "unfinished"
    unfinished.write_bytes(b"\n".join(lines))
    unfinished.rename(files / f"{len(list(files.iterdir()))}.json")
