"""Expressions instead of functions: what they make of typed streams, and the mistakes with them."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from typing_extensions import assert_type

from streams import (
    Aggregate,
    Expression,
    JoinWindows,
    JsonSerde,
    KGroupedTable,
    KStream,
    KTable,
    StreamsBuilder,
    StringSerde,
    agg,
    col,
    fields,
    lit,
    record_key,
    record_timestamp,
    timestamp_field,
    when,
)


@dataclass
class Reading:
    sensor: str
    degrees: float


builder = StreamsBuilder()
readings = builder.stream("readings", key_serde=StringSerde(), value_serde=JsonSerde(Reading))
warm = col("degrees") * 1.8 + 32 > 68
assert_type(warm, Expression)
assert_type(col("a") == 1, Expression)
assert_type(~warm & (abs(col("degrees")) > 1) | col("sensor").isin(["a", "b"]), Expression)

assert_type(when(warm, 1).when(col("a") > 1, col("b")).otherwise(None), Expression)
assert_type((col("degrees").cast(Decimal) * Decimal("1.19")).cast(str), Expression)
assert_type(col("sensor").split("/")[1].lower(), Expression)
assert_type(col("at").to_timestamp().hour("Europe/Berlin"), Expression)

timed = readings.filter(record_key() != "s1").map_values(fields("sensor", at=record_timestamp()))
assert_type(timed, KStream[str, dict[str, Any]])
assert_type(readings.filter(warm), KStream[str, Reading])
assert_type(readings.filter_not(warm), KStream[str, Reading])
assert_type(readings.map_values(fields("sensor", f=col("degrees") * 1.8)), KStream[str, dict[str, Any]])
assert_type(readings.map_values(col("degrees")), KStream[str, Any])
assert_type(readings.select_key(col("sensor")), KStream[Any, Reading])
assert_type(readings.group_by(col("sensor")).count(), KTable[Any, int])
assert_type(readings.group_by_key().mean(col("degrees") * 1.8), KTable[str, dict[str, Any]])
assert_type(readings.group_by_key().aggregate(n=agg.count(), f=agg.max(warm)), KTable[str, dict[str, Any]])
best = agg.max_by(fields("sensor", "degrees"), by=col("degrees"))
some, users = agg.collect("degrees", last=3), agg.count_distinct("sensor", where=warm)
latest = agg.last_by("sensor", by="at")
tails, about = agg.quantile(col("degrees"), [0.5, 0.9], accuracy=0.1), agg.approx_count_distinct("sensor", where=warm)
assert_type(agg.quantile("degrees", 0.5), Aggregate)
by_fields = readings.group_by(fields("sensor"))
assert_type(
    by_fields.aggregate(best=best, some=some, n=users, latest=latest, tails=tails, about=about),
    KTable[dict[str, Any], dict[str, Any]],
)
by_sensor = readings.to_table().group_by(col("sensor"))
assert_type(by_sensor, KGroupedTable[Any, Reading])
assert_type(by_sensor.mean("degrees"), KTable[Any, dict[str, Any]])
assert_type(by_sensor.aggregate(n=agg.count(), sum=agg.sum("degrees")), KTable[Any, dict[str, Any]])
windows = JoinWindows.of_time_difference_with_no_grace(1)
joined = readings.join(readings, fields(left="*", right=["degrees"], sum=col("left.degrees")), windows)
assert_type(joined, KStream[str, dict[str, Any]])
assert_type(readings.left_join(readings.to_table(), fields(left="*", source=lit("x"))), KStream[str, dict[str, Any]])
builder.stream("others", timestamp_extractor=timestamp_field(col("second") * 1000))

fields(sensor="sensor")  # found by mypy: call-overload; by pyright: reportArgumentType, reportCallIssue
col("a").cast(list)  # found by mypy: arg-type; by pyright: reportArgumentType
agg.mean(1.8)  # found by mypy: arg-type; by pyright: reportArgumentType
