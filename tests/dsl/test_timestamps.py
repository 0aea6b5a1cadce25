"""Timestamp extractors."""

import pytest

from streams import (
    Consumed,
    ConsumedRecord,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    StreamsBuilder,
    TimestampError,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    timestamp_field,
)


def record(timestamp=5, value=None):
    return ConsumedRecord("orders", 3, 17, timestamp, "k", value)


def test_valid_timestamps_pass():
    for extractor in (FailOnInvalidTimestamp(), LogAndSkipOnInvalidTimestamp(), UsePartitionTimeOnInvalidTimestamp()):
        assert extractor.extract(record(), 9, 100) == 5
        assert not extractor.needs_record


def test_invalid_timestamps():
    with pytest.raises(TimestampError, match="topic 'orders', partition 3, offset 17"):
        FailOnInvalidTimestamp().extract(record(-1), 9, 100)
    assert LogAndSkipOnInvalidTimestamp().extract(record(-7), 9, 100) < 0
    assert UsePartitionTimeOnInvalidTimestamp().extract(record(-1), 9, 100) == 9
    with pytest.raises(TimestampError, match="no earlier record"):
        UsePartitionTimeOnInvalidTimestamp().extract(record(-1), -1, 100)


def test_wall_clock_is_the_batchs():
    assert WallclockTimestampExtractor().extract(record(), 9, 100) == 100


@pytest.mark.parametrize(
    ("unit", "found", "expected"),
    [
        ("ms", 1_700_000_000_123, 1_700_000_000_123),
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("s", 1_700_000_000.5, 1_700_000_000_500),
        ("us", 1_700_000_000_123_999, 1_700_000_000_123),
        ("ns", 1_700_000_000_123_456_789, 1_700_000_000_123),
        ("iso", "2013-01-01T05:17:00Z", 1_357_017_420_000),
        ("iso", "2013-01-01T05:17:00", 1_357_017_420_000),
        ("iso", "2013-01-01T00:17:00.250-05:00", 1_357_017_420_250),
    ],
)
def test_field(unit, found, expected):
    extractor = timestamp_field("time.at", unit)
    assert extractor.needs_record
    assert extractor.extract(record(value={"time": {"at": found}}), -1, 0) == expected


@pytest.mark.parametrize("value", [None, {}, {"at": None}, {"at": True}, {"at": "soon"}, {"at": float("inf")}, 5])
@pytest.mark.parametrize("unit", ["ms", "iso"])
def test_field_without_a_time(value, unit):
    with pytest.raises(TimestampError, match="no time in the field 'at'"):
        timestamp_field("at", unit).extract(record(value=value), -1, 0)


def test_field_settings():
    for path, unit in (("at", "minutes"), ("", "ms"), ("a..b", "ms")):
        with pytest.raises(TopologyError):
            timestamp_field(path, unit)


def source_of(extractor):
    builder = StreamsBuilder()
    builder.stream("t", Consumed(timestamp_extractor=extractor))
    return next(builder.build().sources())


def test_functions_of_users():
    extractor = source_of(lambda record: record.value["at"] + 1).timestamp_extractor
    assert extractor.extract(record(value={"at": 1}), -1, 0) == 2
    extractor = source_of(lambda record, partition_time: partition_time).timestamp_extractor
    assert extractor.extract(record(), 44, 0) == 44
    with pytest.raises(TimestampError, match="must give epoch ms as int"):
        source_of(lambda record: 1.5).timestamp_extractor.extract(record(), -1, 0)


def test_a_class_is_not_an_extractor():
    with pytest.raises(TopologyError, match=r"takes an object: WallclockTimestampExtractor\(\)"):
        source_of(WallclockTimestampExtractor)
