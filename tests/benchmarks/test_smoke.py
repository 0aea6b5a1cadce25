"""Every workload at a size that only shows that it still works, in one broker and one Spark session, output verified."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness import peers
from benchmarks.harness.cluster import Cluster
from benchmarks.harness.run import Loaded, Options
from benchmarks.harness.system import SessionSystem
from benchmarks.workloads.catalogue import WORKLOADS


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_engine_computes_what_the_verifier_expects(
    name: str, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    options = Options("smoke", make_system=lambda peer, config, folder: SessionSystem(config, spark))
    loaded = Loaded(cluster, WORKLOADS[name], options, tmp_path)
    loaded.load()
    run = loaded.run(peers.find(peers.OURS))
    assert run.outcome == "verified", run.why
    assert run.records > 0
    assert run.figures["internal_records"] > 0
    assert "without_result" not in run.figures
    loaded.delete()
