"""The processes that the product starts show no secret: every user of a machine can read their command lines."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkConf

from streams.spark.jvm import java_output


def test_spark_is_started_without_its_secret_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SparkConf] = []

    def launched(conf: SparkConf, *_: Any) -> str:
        seen.append(conf)
        return "gateway"

    monkeypatch.setattr(java_output, "launch_gateway", launched)
    settings = {
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": "hidden",
        "spark.ssl.keyPassword": "hidden",
    }
    assert java_output.launch(settings) == "gateway"
    (conf,) = seen
    assert conf.get("spark.driver.memory") == "1g"
    assert "hidden" not in conf.toDebugString()
