"""ISO 8601 text means the same under every Python, wherever the engine reads a time."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde, timestamp_field
from streams.cli.options import to_timestamp
from streams.model import iso
from streams.testing import TopologyTestDriver

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00z", NOON),
        ("2026-01-31t12:00:00z", NOON),
        ("2026-01-31 12:00:00", NOON),
        ("2026-01-31T12:00", NOON),
        ("2026-01-31T12", NOON),
        ("20260131T120000Z", NOON),
        ("20260131T120000", NOON),
        ("2026-W05-6T12:00:00Z", NOON),
        ("2026-01-31T17:30:00+0530", NOON),
        ("2026-01-31T17:30:00+05:30", NOON),
        ("2026-01-31T07:00:00-05", NOON),
        ("2026-01-31T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-01-31T12:00:00,5Z", NOON + timedelta(milliseconds=500)),
        ("2026-01-31T12:00:00.123Z", NOON + timedelta(milliseconds=123)),
        ("2026-01-31T12:00:00.123456Z", NOON + timedelta(microseconds=123_456)),
        ("2026-01-31T12:00:00.1234567Z", NOON + timedelta(microseconds=123_456)),  # .NET
        ("2026-01-31T12:00:00.123456789Z", NOON + timedelta(microseconds=123_456)),  # Java, Go
        ("2026-01-31", NOON - timedelta(hours=12)),
    ],
)
def test_times(text: str, wanted: datetime) -> None:
    assert iso.moment(text) == wanted
    assert to_timestamp(text) == (wanted - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2026-01-31T12.123456789+05:30",
            "2026-01-31T1200.1234567+05:30",
            "2026-01-31T12:00,123456Z",
            "2026-W05-6T12:00.12Z",
        ),
        *(
            "",
            "noon",
            "2026",
            "2026-1-31",
            "2026-02-30",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:00:60Z",
            "2026-01-31T12:00:00 UTC",
        ),
        *(
            " 2026-01-31",
            "2026-01-31T",
            "2026-01-31T12:00:00+25:00",
            "2026-01-31T12:00:00+05:99",
            "2026-01-31T12:00:00.Z",
        ),
        *("２０２６-01-31", "2026-01-31T1２:00:00Z"),  # noqa: RUF001
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        iso.moment(text)


@given(
    st.datetimes(timezones=st.timezones() | st.just(timezone.utc), min_value=datetime(1970, 1, 2)),  # noqa: DTZ001
    st.sampled_from(["T", " "]),
)
def test_what_python_writes_is_read_back(moment: datetime, separator: str) -> None:
    assert iso.moment(moment.isoformat(separator)) == moment


@given(st.dates())
def test_dates_are_read_back(day: date) -> None:
    assert iso.day(day.isoformat()) == iso.day(f"{day.year:04}{day.month:02}{day.day:02}") == day


def test_an_event_time_in_nanoseconds_of_text() -> None:
    builder = StreamsBuilder()
    builder.stream(
        "in", Consumed(StringSerde(), JsonSerde(), timestamp_extractor=timestamp_field("at", unit="iso"))
    ).to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in").pipe_input("a", {"at": "20260131T120000.123456789+0000"}, 1)
        assert driver.create_output_topic("out").read_record().timestamp == int(NOON.timestamp() * 1000) + 123
