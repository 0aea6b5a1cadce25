"""The pages of the server, the addresses it takes, and what the application's settings make of it."""

from __future__ import annotations

import importlib.util
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streams.config import StreamsConfig, load_config
from streams.config.settings import Address
from streams.errors import ConfigError
from streams.metrics import catalogue
from streams.metrics.catalogue import METRICS
from streams.metrics.export import check_serving, metrics_served, serving
from streams.metrics.recorder import START, MetricsRecorder
from tests.metrics.made import recorder, step


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value(text: str, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


def config(**settings: object) -> StreamsConfig:
    return load_config(None, {"application_id": "app", **settings})


def test_the_pages_follow_the_application() -> None:
    made = recorder()
    with metrics_served(made, Address("127.0.0.1", 0)) as address:
        url = f"http://{address}"
        assert get(f"{url}/health") == (200, "alive\n")
        status, why = get(f"{url}/ready")
        assert (status, why.split(";")[0]) == (503, "the application is starting")
        made.obstacle(START, None)
        made.step("sub", 0, (step(),))
        assert get(f"{url}/ready") == (200, "app is running\n")
        assert value(get(f"{url}/metrics")[1], "streams_ready", app="app") == 1
        made.failed("no luck")
        assert get(f"{url}/health") == (503, "app has ended with an error: no luck\n")
        assert get(f"{url}/elsewhere")[0] == 404
        assert "/metrics" in get(url)[1]


def test_figures_are_served_with_their_labels() -> None:
    counters = {"in:join": 5, "dropped:join:late": 2, "dead_letters:processing": 1, "skipped:future": 3}
    made = recorder((step(0, counters=counters, state={"disk_bytes": 4096, "stores": {"counts": [10, 200]}}),))
    made.positions("sub", {("in", 3): (4, 7)})
    with metrics_served(made, Address("127.0.0.1", 0)) as address:
        _, text = get(f"http://{address}/metrics")
    here = {"app": "app", "sub_topology": "sub"}
    assert value(text, "streams_records_in_total", task="0", **here) == 5
    assert value(text, "streams_lag_records", topic="in", partition="3", **here) == 3
    assert value(text, "streams_dropped_records_total", operator="join", reason="late", **here) == 2
    assert value(text, "streams_dead_letters_total", operator="", reason="processing", **here) == 1
    assert value(text, "streams_skipped_records_total", reason="future", **here) == 3
    assert value(text, "streams_state_rows", task="0", store="counts", **here) == 10
    assert value(text, "streams_state_disk_bytes", task="0", **here) == 4096
    assert value(text, "streams_step_duration_seconds_bucket", part="process", le="0.25", **here) == 1
    assert value(text, "streams_step_duration_seconds_bucket", part="process", le="0.1", **here) == 0
    assert value(text, "streams_memory_rss_bytes", role="driver") > 0


def test_series_beyond_the_bound_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MOST_SERIES", 3)
    made = recorder(tuple(step(number) for number in range(6)), tasks=6)
    metrics = {metric.name: metric for metric in catalogue.METRICS}
    found = dict(metrics["streams_records_in"].series(made.snapshot()))
    assert found == {
        ("app", "sub", "0"): 5,
        ("app", "sub", "1"): 5,
        ("app", "sub", "2"): 5,
        ("app", "other", "other"): 15,
    }
    durations = dict(metrics["streams_step_duration_seconds"].series(made.snapshot()))
    rest = durations["app", "other", "other", "other"]
    assert not isinstance(rest, float)
    assert rest.count == 6 * 3 - 3


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:80", ("::1", 80)),
        ("metrics.example:1", ("metrics.example", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    found = config(metrics=text).metrics_address
    assert found is not None
    assert found == address
    assert Address.parse(str(found)) == found


@pytest.mark.parametrize("text", ["here", "localhost:", "a b:1", "1:99999"])
def test_what_is_no_address_is_refused_with_the_settings(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics: .* is not an address: write HOST:PORT"):
        config(metrics=text)


def test_a_taken_port_is_refused_before_anything_starts(taken: int) -> None:
    settings = config(metrics=f"127.0.0.1:{taken}")
    with pytest.raises(ConfigError, match=rf"metrics cannot be served at 127.0.0.1:{taken}: .*--metrics HOST:PORT"):
        check_serving(settings)
    with pytest.raises(ConfigError), serving(settings, MetricsRecorder("app"), print):
        pass


def test_the_settings_decide_what_is_served() -> None:
    said: list[str] = []
    check_serving(config(metrics="0"))
    with serving(config(metrics="0"), recorder((step(),)), said.append):
        url = said[0].split()[1].rstrip(",")
        assert value(get(url)[1], "streams_micro_batches_total", app="app") == 1
    with pytest.raises(urllib.error.URLError):
        get(url)
    with serving(config(), recorder(), said.append):
        assert len(said) == 1


# --- The same figures by OpenTelemetry.

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


def test_clients_that_say_nothing_keep_nobody_from_the_metrics() -> None:
    with metrics_served(recorder(), Address("127.0.0.1", 0)) as address:
        before = threading.active_count()
        silent = [socket.create_connection((address.host, address.port)) for _ in range(100)]
        for one in silent:
            one.sendall(b"GET /hea")
        for _ in range(3):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                assert answer.status == 200
        assert threading.active_count() - before < 40
        for one in silent:
            one.close()
