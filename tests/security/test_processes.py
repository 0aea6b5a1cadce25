"""The processes that the product starts show no secret and leave none: others can read command lines and temporary folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf

from state.tables.files import private_temporary_folder
from streams.driver import java
from streams.driver.launch.settings import session_settings


def test_spark_is_started_without_its_secret_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SparkConf] = []

    def launched(conf: SparkConf, *_: Any) -> str:
        seen.append(conf)
        return "gateway"

    monkeypatch.setattr(java, "launch_gateway", launched)
    settings = {
        "spark.master": "local[1,4]",
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": "hidden",
        "spark.ssl.keyPassword": "hidden",
    }
    assert java.launch(settings) == "gateway"
    (conf,) = seen
    assert conf.get("spark.driver.memory") == "1g"
    assert "hidden" not in conf.toDebugString()


def test_shuffled_records_of_a_local_run_are_in_a_private_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # A Spark session that other tests run in this process would give its settings to new ones.
    monkeypatch.setattr("pyspark.SparkConf", lambda: SparkConf(loadDefaults=False))
    private_temporary_folder.cache_clear()
    try:
        folder = Path(session_settings("app", {"spark.master": "local[2]"}, "")["spark.local.dir"])
    finally:
        private_temporary_folder.cache_clear()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_the_user_names_for_sparks_files_is_taken(tmp_path: Path) -> None:
    given = {"spark.master": "local[2]", "spark.local.dir": str(tmp_path)}
    assert session_settings("app", given, "")["spark.local.dir"] == str(tmp_path)
