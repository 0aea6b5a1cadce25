"""The application for the Spark operator (deploy/spark-application.yaml) fits the package; nobody has run it on a cluster yet."""

from __future__ import annotations

import re
from pathlib import Path

from streams.config import StreamsConfig
from streams.driver.launch.settings import SPARK_SETTINGS
from streams.driver.session import SUPPORTED_SPARK

ROOT = Path(__file__).parents[2]
MANIFEST = (ROOT / "deploy/spark-application.yaml").read_text(encoding="utf-8")


def test_its_versions_are_those_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    image = re.search(r"image: \S+:(\S+)$", MANIFEST, re.MULTILINE)
    spark = re.search(r'sparkVersion: "(\d+)\.(\d+)', MANIFEST)
    assert version
    assert image
    assert spark
    assert image[1] == version[1]
    assert (int(spark[1]), int(spark[2])) in SUPPORTED_SPARK


def test_its_settings_exist_and_are_those_of_the_engine() -> None:
    named = re.findall(r"--set\n +- (\w+)=", MANIFEST)
    assert named
    assert set(named) <= StreamsConfig.model_fields.keys()
    of_spark = dict(re.findall(r'^ +(spark\.[\w.]+): "?([\w.]+)"?$', MANIFEST, re.MULTILINE))
    assert {name: value for name, value in of_spark.items() if name in SPARK_SETTINGS} == {
        name: SPARK_SETTINGS[name] for name in ("spark.python.daemon.module", "spark.python.worker.reuse")
    }
