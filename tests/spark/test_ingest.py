"""DataFrames as sources, on real Spark and Kafka: each row once, through batches that run again and starts that find all read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streams import Int64Serde, StreamsBuilder, Topology
from streams.errors import ApplicationFailedError, ConfigError
from tests.spark.harness import Harness

SCHEMA = "carrier STRING, delay INT, at TIMESTAMP"


def flights(folder: Path, *rows: tuple[str, int, str]) -> None:
    """Adds a file to the folder that a streaming DataFrame reads."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(("carrier", "delay", "at"), row, strict=True))) for row in rows]
    (folder / f"{len(list(folder.iterdir()))}.json").write_text("\n".join(lines))


def topology(folder: Path, delays: str, airlines: str) -> Topology:
    builder = StreamsBuilder()
    builder.from_dataframe(
        lambda spark: spark.readStream.schema(SCHEMA).json(str(folder)),
        "flights",
        key="carrier",
        timestamp="at",
        partitions=2,
    ).map_values(lambda flight: flight["delay"]).to(delays)
    builder.from_dataframe(
        lambda spark: spark.createDataFrame([(1, "UA", "United"), (2, "DL", "Delta")], "id INT, code STRING, name STRING"),
        "airlines", key="id", key_serde=Int64Serde(), partitions=2,
    ).to(airlines)  # fmt: skip
    return builder.build()


def test_rows_of_dataframes_are_read_exactly_once(harness: Harness) -> None:
    delays, airlines, folder = harness.topic("delays"), harness.topic("airlines"), harness.folder / "in"
    flights(folder, ("UA", 3, "2013-01-01T05:00:00Z"), ("DL", 7, "2013-01-01T06:00:00Z"))
    harness.run(topology(folder, delays, airlines))
    flights(folder, ("UA", 5, "2013-01-01T07:00:00Z"))
    harness.run(topology(folder, delays, airlines))

    # Spark does not know that the last batch was written, so it runs again; so does the part of the other source.
    checkpoint = Path(harness.config().checkpoint_dir) / "flights-ingest"
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    progress = harness.run(topology(folder, delays, airlines))
    assert {report["decision"] for report in progress.reports} == {"skip"}

    found = sorted((record.key, record.value, record.timestamp) for record in harness.read(delays))
    assert found == [(b"DL", b"7", 1357020000000), (b"UA", b"3", 1357016400000), (b"UA", b"5", 1357023600000)]
    assert sorted((record.key, record.value) for record in harness.read(airlines)) == [
        ((1).to_bytes(8, "big"), b'{"id":1,"code":"UA","name":"United"}'),
        ((2).to_bytes(8, "big"), b'{"id":2,"code":"DL","name":"Delta"}'),
    ]

    # Files have offsets that only their lost checkpoint explains.
    shutil.rmtree(checkpoint)
    with pytest.raises(
        ApplicationFailedError, match=r"(?s)is to write batch 0 .*has last written batch 1 of query .*Put back"
    ):
        harness.run(topology(folder, delays, airlines))
    assert len(harness.read(delays)) == 3


def test_a_column_that_is_missing_is_named_before_anything_is_written(harness: Harness) -> None:
    builder = StreamsBuilder()
    builder.from_dataframe(lambda spark: spark.range(3), "numbers", key="number").to(harness.topic("out"))
    with pytest.raises(ConfigError, match="the source 'numbers' has no column 'number'; it has id"):
        harness.run(builder.build())
