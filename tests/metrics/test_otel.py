"""The same figures by OpenTelemetry."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from streams.config import load_config
from streams.errors import ConfigError
from streams.metrics.catalogue import METRICS
from streams.metrics.export import check_serving
from tests.metrics.made import recorder, step

pytest.importorskip("opentelemetry.sdk.metrics")


def exported(reader: Any) -> dict[str, list[Any]]:
    (resource,) = reader.get_metrics_data().resource_metrics
    assert resource.resource.attributes["service.name"] == "app"
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


def test_counters_gauges_and_histograms_are_exported_with_their_labels() -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from streams.metrics.export import OtelExport

    made = recorder()
    reader = InMemoryMetricReader()
    with OtelExport(made, reader):
        made.step("sub", 0, (step(0, counters={"dropped:join:late": 2}), step(1)))
        found = exported(reader)
    assert {point.attributes["task"]: point.value for point in found["streams_records_in"]} == {"0": 5, "1": 5}
    (dropped,) = found["streams_dropped_records"]
    assert dict(dropped.attributes) == {"app": "app", "sub_topology": "sub", "operator": "join", "reason": "late"}
    durations = {point.attributes["part"]: point for point in found["streams_step_duration_seconds"]}
    assert set(durations) == {"fence", "process", "total"}
    assert durations["process"].count == 1
    assert {metric.name for metric in METRICS} >= set(found)


def test_without_the_extra_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_config(None, {"application_id": "app", "otel": True})
    check_serving(settings)

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    monkeypatch.setattr("streams.metrics.export.find_spec", missing)
    with pytest.raises(ConfigError, match=r"pip install 'streams-on-spark\[otel\]'"):
        check_serving(settings)
