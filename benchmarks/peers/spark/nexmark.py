"""Nexmark's queries over one topic of nested events without keys, by Spark's own operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.spark.run import Run, as_json

EVENT: Final = """
    event_type int,
    person struct<id: long, name: string, emailAddress: string, creditCard: string, city: string, state: string, extra: string,
        dateTime: string>,
    auction struct<id: long, itemName: string, description: string, initialBid: long, reserve: long, expires: string,
        seller: long, category: long, extra: string, dateTime: string>,
    bid struct<auction: long, bidder: long, price: long, channel: string, url: string, extra: string, dateTime: string>
"""
_DELAY: Final = "1 minute"
"""The source reads all partitions at the same pace, so nothing is late."""
_TEN_SECONDS: Final = "10 seconds"
_BID: Final = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


def _events(run: Run, spark: SparkSession, kind: str) -> DataFrame:
    """The persons, auctions or bids with the record's `timestamp`."""
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
    events = run.read_bytes(spark, "events").select("timestamp", event).withWatermark("timestamp", _DELAY)
    return events.select("timestamp", f"event.{kind}").where(F.col(kind).isNotNull()).select("timestamp", f"{kind}.*")


def _bids(run: Run, spark: SparkSession) -> DataFrame:
    return _events(run, spark, "bid")


def _named(*names: str, **others: Column) -> dict[str, Column | str]:
    return {**{name: name for name in names}, **others}


def _text(column: str) -> Column:
    return F.col(column).cast("string").alias("key")


def _windowed(key: Column, *times: Column) -> Column:
    """A key of bytes as Kafka Streams writes it: the text, then each time with 8 bytes."""
    ends = [F.unhex(F.lpad(F.hex(F.unix_millis(time)), 16, "0")) for time in times]
    return F.concat(key.cast("string").cast("binary"), *ends).alias("key")


def _write_bids(run: Run, bids: DataFrame, *names: str, **others: Column) -> None:
    run.write(bids.select(F.lit(None).cast("string").alias("key"), as_json(**_named(*names, **others))))


def q0(run: Run, spark: SparkSession) -> None:
    """Pass through."""
    _write_bids(run, _bids(run, spark), *_BID)


def q1(run: Run, spark: SparkSession) -> None:
    """Dollars to euros."""
    _write_bids(run, _bids(run, spark), "auction", "bidder", "dateTime", "extra", price=F.col("price") * 0.908)


def q2(run: Run, spark: SparkSession) -> None:
    """Some auctions."""
    _write_bids(run, _bids(run, spark).where("auction % 123 = 0"), "auction", "price")


def q3(run: Run, spark: SparkSession) -> None:
    """Who sells in category 10, in three states; without a bound, Spark keeps both sides for ever."""
    sellers = _events(run, spark, "person").where("state IN ('OR', 'ID', 'CA')")
    auctions = _events(run, spark, "auction").where("category = 10").select("id", "seller")
    found = auctions.join(sellers.select(F.col("id").alias("seller"), "name", "city", "state"), "seller")
    run.write(found.select(_text("id"), as_json(**_named("id", "name", "city", "state"))))


def q5(run: Run, spark: SparkSession) -> None:
    """The auctions with the most bids in ten seconds, every two seconds: an aggregate of an aggregate, once windows have closed."""
    window = F.window("timestamp", _TEN_SECONDS, "2 seconds")
    counts = _bids(run, spark).groupBy("auction", window).agg(F.count("*").alias("num"))
    all_of = counts.groupBy("window").agg(
        F.max("num").alias("num"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    most = F.expr("transform(filter(all, one -> one.num = num), one -> one.auction)")
    key = F.unix_millis("window.start").cast("string").alias("key")
    run.write(all_of.select(key, as_json(num="num", auctions=most)))


def q7(run: Run, spark: SparkSession) -> None:
    """The highest bid of every ten seconds."""
    best = F.max_by(F.struct("auction", "bidder", "price", "dateTime"), "price").alias("best")
    highest = _bids(run, spark).groupBy(F.window("timestamp", _TEN_SECONDS)).agg(best)
    run.write(highest.select(_windowed(F.lit("all"), F.col("window.start")), as_json(best="best")), mode="update")


def q8(run: Run, spark: SparkSession) -> None:
    """Who has registered and opened an auction in the same ten seconds: a join of aggregates, once windows have closed."""
    window = F.window("timestamp", _TEN_SECONDS).alias("window")
    persons = _events(run, spark, "person").groupBy("id", window).agg(F.last("name").alias("name"))
    auctions = (
        _events(run, spark, "auction").groupBy(F.col("seller").alias("id"), window).agg(F.count("*").alias("auctions"))
    )
    found = persons.join(auctions, ["id", "window"])
    run.write(found.select(_windowed(F.col("id"), F.col("window.start")), as_json(name="name")))


def q10(run: Run, spark: SparkSession) -> None:
    """All bids with the day and the minute."""
    at = F.to_timestamp("dateTime")
    parts = {"dt": F.date_format(at, "yyyy-MM-dd"), "hm": F.date_format(at, "HH:mm")}
    _write_bids(run, _bids(run, spark), *_BID, **parts)


def q11(run: Run, spark: SparkSession) -> None:
    """The number of bids of each session of a bidder, once it has closed; Spark's end is the gap after the last bid."""
    session = F.session_window("timestamp", _TEN_SECONDS).alias("session")
    counts = _bids(run, spark).groupBy("bidder", session).agg(F.count("*").alias("bids"))
    last = F.col("session.end") - F.expr(f"INTERVAL {_TEN_SECONDS}")
    run.write(counts.select(_windowed(F.col("bidder"), last, F.col("session.start")), as_json(bids="bids")))


def q12(run: Run, spark: SparkSession) -> None:
    """The number of bids of each bidder in every ten seconds of the clock."""
    clock = F.window(F.current_timestamp(), _TEN_SECONDS).alias("window")
    counts = _bids(run, spark).groupBy("bidder", clock).agg(F.count("*").alias("bids"))
    run.write(counts.select(_windowed(F.col("bidder"), F.col("window.start")), as_json(bids="bids")), mode="update")


def q13(run: Run, spark: SparkSession) -> None:
    """Bids with what a static table says of their auctions."""
    value = F.get_json_object(F.col("value").cast("string"), "$.value").alias("value")
    side = run.read_table(spark, "side").select(F.col("key").cast("string").cast("long").alias("side"), value)
    joined = _bids(run, spark).withColumn("side", F.col("auction") % 1000).join(F.broadcast(side), "side")
    _write_bids(run, joined, "auction", "bidder", "price", "dateTime", "value")


def q14(run: Run, spark: SparkSession) -> None:
    """Some bids in euros, with the time of day and the number of letters c."""
    price, hour = F.col("price") * 0.908, F.hour(F.to_timestamp("dateTime"))
    day = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = F.length("extra") - F.length(F.replace("extra", F.lit("c"), F.lit("")))
    bids = _bids(run, spark).where((price > 1_000_000) & (price < 50_000_000))
    parts = {"price": price, "bidTimeType": day, "c_counts": letters}
    _write_bids(run, bids, "auction", "bidder", "dateTime", "extra", **parts)


_CLASSES: Final = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _statistics() -> dict[str, Column]:
    """Spark has no distinct counts of streams: the size of a set is one."""
    found = {f"{name}_bids": F.count(F.when(F.expr(one), 1)) for name, one in _CLASSES.items()}
    for what in ("bidder", "auction"):
        for name, one in _CLASSES.items():
            found[f"{name}_{what}s"] = F.size(F.collect_set(F.when(F.expr(one), F.col(what))))
    return found


def _day() -> Column:
    return F.substring("dateTime", 1, 10).alias("day")


def q15(run: Run, spark: SparkSession) -> None:
    """Bids, bidders and auctions of each day, in classes of prices."""
    found = {name: column.alias(name) for name, column in _statistics().items()}
    counted = _bids(run, spark).groupBy(_day()).agg(*found.values())
    run.write(counted.select(F.col("day").alias("key"), as_json(**_named(*found))), mode="update")


def q16(run: Run, spark: SparkSession) -> None:
    """The same of each channel and day, and the last minute."""
    all_of = {"minute": F.max(F.substring("dateTime", 12, 5)), **_statistics()}
    found = {name: column.alias(name) for name, column in all_of.items()}
    counted = _bids(run, spark).groupBy("channel", _day()).agg(*found.values())
    key = as_json(channel="channel", day="day").alias("key")
    run.write(counted.select(key, as_json(**_named(*found))), mode="update")


def q17(run: Run, spark: SparkSession) -> None:
    """Figures of each auction and day."""
    ranks = {name: F.count(F.when(F.expr(one), 1)) for name, one in _CLASSES.items()}
    all_of = {**ranks, "least": F.min("price"), "most": F.max("price"), "mean": F.mean("price"), "sum": F.sum("price")}
    found = {name: column.alias(name) for name, column in all_of.items()}
    counted = _bids(run, spark).groupBy("auction", _day()).agg(*found.values())
    key = as_json(auction="auction", day="day").alias("key")
    run.write(counted.select(key, as_json(**_named(*found))), mode="update")


def q18(run: Run, spark: SparkSession) -> None:
    """The last bid of each bidder on each auction."""
    last = F.max_by(F.struct(*_BID), "dateTime").alias("last")
    found = _bids(run, spark).groupBy("bidder", "auction").agg(last)
    run.write(
        found.select(as_json(bidder="bidder", auction="auction").alias("key"), as_json(last="last")), mode="update"
    )


def q19(run: Run, spark: SparkSession) -> None:
    """The ten highest bids of each auction, of a list of all: Spark has no top N of streams."""
    bids = F.collect_list(F.struct("price", *(name for name in _BID if name != "price"))).alias("bids")
    found = _bids(run, spark).groupBy("auction").agg(bids)
    top = F.slice(F.sort_array("bids", asc=False), 1, 10)
    ranked = F.transform(top, lambda bid, place: bid.withField("rank_number", place + 1))
    run.write(found.select(_text("auction"), F.to_json(ranked).alias("value")), mode="update")


def q20(run: Run, spark: SparkSession) -> None:
    """Bids on auctions of category 10, with the auction."""
    what = ("itemName", "description", "initialBid", "reserve", "seller", "category", "expires")
    bids = _bids(run, spark).withColumnRenamed("timestamp", "bid_at")
    opened = _events(run, spark, "auction").where("category = 10")
    auctions = opened.select(F.col("timestamp").alias("opened_at"), F.col("id").alias("opened"), *what)
    near = "bid_at BETWEEN opened_at - INTERVAL 1 minute AND opened_at + INTERVAL 1 minute"
    _write_bids(run, bids.join(auctions, F.expr(f"auction = opened AND {near}")), *_BID, *what)


def q21(run: Run, spark: SparkSession) -> None:
    """Bids with the number of their channel."""
    name = F.lower("channel")
    known = (
        F.when(name == "apple", "0")
        .when(name == "google", "1")
        .when(name == "facebook", "2")
        .when(name == "baidu", "3")
    )
    number = known.otherwise(F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2))
    bids = _bids(run, spark).withColumn("channel_id", number).where("channel_id != ''")
    _write_bids(run, bids, "auction", "bidder", "price", "channel", "channel_id")


def q22(run: Run, spark: SparkSession) -> None:
    """Bids with the folders of their addresses."""
    parts = F.split("url", "/")
    folders = {"dir1": parts[3], "dir2": parts[4], "dir3": parts[5]}
    _write_bids(run, _bids(run, spark), "auction", "bidder", "price", "channel", **folders)


_QUERIES: Final = (q0, q1, q2, q3, q5, q7, q8, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
WORKLOADS: Final[Mapping[str, Callable[[Run, SparkSession], None]]] = {
    f"nexmark-suite-{one.__name__}": one for one in _QUERIES
}
