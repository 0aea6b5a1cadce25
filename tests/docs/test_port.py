"""The program for Spark itself in docs/port/spark.md gives what the table of ours says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
@pytest.mark.slow
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
