"""The pages for people who come from elsewhere do what they say: Spark's own program, and moving over from Kafka Streams."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import play

PAGE = (Path(__file__).parents[2] / "docs" / "port" / "spark.md").read_text(encoding="utf-8")
AROUND = """
from pyspark.sql import SparkSession

provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.streaming.stateStore.providerClass", provider)
    .getOrCreate()
)
orders = spark.readStream.schema("user STRING, item STRING").option("maxFilesPerTrigger", 1).json("orders")
{block}
query = counts.writeStream.format("memory").queryName("results").outputMode("update").trigger(availableNow=True).start()
query.awaitTermination()
print(sorted((row.user, row.n) for row in spark.table("results").collect()))
"""


@pytest.mark.spark
@pytest.mark.long
def test_transform_with_state_counts_the_same(tmp_path: Path) -> None:
    (block,) = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    rows = re.findall(r"^\| orders \| (\w+) \| (\{.*?\}) \|.*counts: (\w+) = (\d+) @", PAGE, re.MULTILINE)
    (tmp_path / "orders").mkdir()
    for number, (user, value, *_) in enumerate(rows):
        (tmp_path / "orders" / f"{number}.json").write_text(value.replace("{", f'{{"user": "{user}", '))
    (tmp_path / "app.py").write_text(AROUND.replace("{block}", block))
    # Spark's workers need the packages of this environment.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "app.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(sorted((key, int(count)) for *_, key, count in rows))


KAFKA_STREAMS = (Path(__file__).parents[2] / "docs" / "port" / "kafka-streams.md").read_text(encoding="utf-8")
ORDERS = [(20, 1000), (5, 2000), (30, 59000), (40, 60000)]
JAVA_RESULTS = [(1, 1000), (2, 59000), (1, 60000)]
"""Values and times of the input, and of what Kafka Streams gives for it: the page's table has both."""


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
def test_the_way_over_from_kafka_streams(tmp_path: Path) -> None:
    """The Java application is stood in for by its topic of results, in its bytes."""
    program = KAFKA_STREAMS.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    of_java = {
        "orders": [{"key": "ann", "value": {"amount": amount}, "timestamp": time} for amount, time in ORDERS],
        "results": [{"key": "ann", "value": count, "timestamp": time} for count, time in JAVA_RESULTS],
    }
    for name, records in of_java.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    before = """
```console
$ streams broker start
$ streams topic create orders large-orders-by-minute
$ streams topic send orders --json < orders
4 records written to orders
$ streams topic send large-orders-by-minute --json --value-serde int64 < results
3 records written to large-orders-by-minute
```
"""
    after = """
```console
$ last large-orders-by-minute
ann 1
$ streams broker stop
```
"""
    play(before + KAFKA_STREAMS + after, tmp_path)
