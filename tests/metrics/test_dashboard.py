"""The dashboard and the alerts use only what is served, and the dashboard shows all of it."""

from __future__ import annotations

import re

import pytest

from streams.metrics.catalogue import METRICS
from tests.metrics.queries import PAGE, Query, alert_queries, dashboard_queries, served

QUERIES = [*dashboard_queries(), *alert_queries()]
SERVED = dict(served())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.where}: {query.legend}")
def test_a_query_uses_metrics_and_labels_that_are_served(query: Query) -> None:
    assert query.metrics
    for name, matched in query.metrics.items():
        assert name in SERVED
        assert matched | query.labels <= SERVED[name], name


def test_the_dashboard_has_a_panel_for_every_metric() -> None:
    shown = {name for query in dashboard_queries() for name in query.metrics}
    names = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in shown}
    assert {metric.served_name for metric in METRICS} - names == set()


def test_the_page_lists_every_metric_with_its_labels_and_meaning() -> None:
    rows = re.findall(r"^\| `(streams_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    expected = [
        (metric.served_name, metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in METRICS
    ]
    assert [(name, kind, labels.strip(), text) for name, kind, labels, text in rows] == expected


def test_there_are_alerts_for_lag_failures_dead_letters_and_disk() -> None:
    used = {name for query in alert_queries() for name in query.metrics}
    assert used >= {
        "streams_lag_records",
        "streams_ready",
        "streams_query_starts_total",
        "streams_failed_attempts_total",
        "streams_dead_letters_total",
        "streams_state_disk_bytes",
    }
