"""What PromQL queries use: metrics with the labels that their selectors, groupings and legends name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams.metrics.catalogue import METRICS
from streams.metrics.serving import CopyFigures, ServingMetrics, replica_metrics

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana" / "streams.json"
PAGE = DOCS / "metrics.md"
ALERTS = DOCS / "grafana" / "alerts.yaml"
RUNBOOKS = DOCS / "operate" / "alerts.md"
_SELECTOR = re.compile(r"\b(streams_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        where: The panel or the alert.
        text: PromQL.
        legend: The legend, with labels in double braces.
    """

    where: str
    text: str
    legend: str = ""

    @property
    def metrics(self) -> dict[str, set[str]]:
        """Served name -> the labels that its selectors name."""
        found: dict[str, set[str]] = {}
        for name, matchers in _SELECTOR.findall(self.text):
            found.setdefault(name, set()).update(_MATCHER.findall(matchers))
        return found

    @property
    def labels(self) -> set[str]:
        """The labels that its groupings and its legend name."""
        groups = re.findall(r"\bby \(([^)]*)\)", self.text)
        return {label.strip() for group in groups for label in group.split(",")} | set(
            re.findall(r"\{\{(\w+)\}\}", self.legend)
        )


def dashboard_queries() -> list[Query]:
    """The queries of all panels, and that of the variable."""
    data = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in data["panels"]
        for target in panel.get("targets", [])
    ]
    variables = [one["query"]["query"] for one in data["templating"]["list"] if one["type"] == "query"]
    return [*found, *(Query("variable", text) for text in variables)]


def alert_queries() -> list[Query]:
    """The queries of the alerts."""
    return [Query(name, text) for name, text in re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", _rules())]


def _rules() -> str:
    return ALERTS.read_text(encoding="utf-8")


def served() -> Iterator[tuple[str, set[str]]]:
    """Every name in Prometheus' text, with its labels."""
    for metric in METRICS:
        for suffix in _SUFFIXES[metric.kind]:
            labels = {"app", *metric.labels}
            yield metric.name + suffix, labels | {"le"} if suffix == "_bucket" else labels


def served_with_copies() -> Iterator[tuple[str, set[str]]]:
    """The same of `streams serve` and `streams replica`, from their own text."""
    metrics = ServingMetrics("app", lambda: [CopyFigures("in", 0, (1.0, 2.0, 0.0))])
    metrics.answered("key", 0.001)
    metrics.refused("key", "404")
    replica = CollectorRegistry()
    replica.register(replica_metrics("app", lambda: [CopyFigures("in", 0, (5.0, 2.0, 0.0))]))
    for text in (metrics.text()[0], generate_latest(replica)):
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                yield sample.name, set(sample.labels)


def test_the_dashboard_shows_all_that_copies_say() -> None:
    names = {name for name, _ in served_with_copies() if not name.endswith(("_created", "_sum"))}
    assert {name for query in dashboard_queries() for name in query.metrics} >= names


# --- The dashboard and the alerts use only what is served, and the dashboard shows all of it.

QUERIES = [*dashboard_queries(), *alert_queries()]
SERVED = dict(served()) | dict(served_with_copies())


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


def test_every_alert_has_a_runbook_that_says_what_to_do_and_whether_it_can_wait() -> None:
    runbooks = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text(encoding="utf-8"), re.M | re.S))
    names = [query.where for query in alert_queries()]
    assert list(runbooks) == names
    assert re.findall(r"runbook_url: (\S+)", _rules()) == [f"operate/alerts.html#{name.lower()}" for name in names]
    severities = dict(zip(names, re.findall(r"severity: (\w+)}", _rules()), strict=True))
    for name, text in runbooks.items():
        assert "\n**Do**: " in text, name
        # What pages cannot wait; a ticket can.
        assert f"\n**Can it wait?** {'No' if severities[name] == 'page' else 'Yes'}" in text, name


def test_prometheus_takes_the_alerts() -> None:
    """Each rule is complete, as promtool checks it; promtool itself is asked where there is one."""
    rules = re.split(r"^      - ", _rules(), flags=re.M)[1:]
    fields = {"alert", "expr", "for", "labels", "annotations"}
    for rule in rules:
        assert {"alert", "expr", "labels", "annotations"} <= set(re.findall(r"^ *(\w+):", rule, re.M)) & fields
        assert rule.count("(") == rule.count(")")
        assert rule.count('"') % 2 == 0
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", str(ALERTS)], check=True, capture_output=True)


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
