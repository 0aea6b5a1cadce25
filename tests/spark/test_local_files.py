"""Spark's local files are written by Java itself, with the same permissions and checksums as by Hadoop's own class."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.spark
def test_local_files_need_no_other_process(spark: SparkSession, tmp_path: Path) -> None:
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "file"))
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert files.getClass().getName() == "streams.LocalFiles"
    files.create(path, True).close()
    files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("640"))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert (tmp_path / ".file.crc").exists()
