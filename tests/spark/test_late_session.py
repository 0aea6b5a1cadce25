"""What stands for a Spark session until something needs SQL. No Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from streams.driver import session as late


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The sessions that were made."""
    found: list[SimpleNamespace] = []
    context = SimpleNamespace(version="4.2.0", stopped=[], _jvm="java")
    context.stop = lambda: context.stopped.append("context")

    def make(settings: object) -> SimpleNamespace:
        found.append(SimpleNamespace(conf=settings, stop=lambda: context.stopped.append("session")))
        return found[-1]

    monkeypatch.setattr(SparkContext, "getOrCreate", lambda conf: context)
    monkeypatch.setattr(late, "session_with", make)
    return found


def test_live_execution_makes_no_session(made: list[SimpleNamespace]) -> None:
    session = late.late_session({"spark.app.name": "app"})
    assert session.version == "4.2.0"
    session.stop()
    assert session.sparkContext.stopped == ["context"]  # type: ignore[attr-defined]
    assert not made


def test_what_needs_sql_gets_one_session(made: list[SimpleNamespace]) -> None:
    session = late.late_session({"spark.app.name": "app"})
    assert session.conf == {"spark.app.name": "app"}  # type: ignore[comparison-overlap]
    assert late.session_itself(session) is made[0]  # type: ignore[comparison-overlap]
    session.stop()
    assert session.sparkContext.stopped == ["session"]  # type: ignore[attr-defined]
    assert len(made) == 1
