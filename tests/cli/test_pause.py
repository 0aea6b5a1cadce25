"""`streams resume` reports what it has resumed."""

import pytest

from streams.application.pausing import Pausing
from streams.source.pauses import WHOLE, Pauses


@pytest.mark.parametrize(
    ("before", "after", "printed"),
    [
        ({WHOLE: 1, "in": 2}, {}, "app is resumed\napp: in is resumed\n"),
        ({"a": 0, "b": 0}, {"b": 0}, "app: a is resumed\napp: b is paused since 1970-01-01T00:00:00.000Z\n"),
        ({}, {}, "nothing of app is paused\n"),
    ],
)
def test_resume_reports_what_it_has_resumed(streams, monkeypatch, before, after, printed) -> None:
    monkeypatch.setattr("streams.cluster.admin.check_reachable", lambda client: None)
    monkeypatch.setattr(Pausing, "pauses", lambda self: Pauses(before))
    monkeypatch.setattr(Pausing, "resume", lambda self, sub: Pauses(after))
    assert streams("resume", "app", "-b", "localhost:9").output == printed
