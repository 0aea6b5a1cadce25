"""The queries of Nexmark, each as its user writes it. `QUERIES` has them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    JoinWindows,
    KStream,
    KTable,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    WallclockTimestampExtractor,
    agg,
    col,
    fields,
    lit,
    when,
)

TEN_SECONDS = TimeWindows.of_size_and_grace(timedelta(seconds=10), timedelta(hours=1))
"""Readers of the partitions may be far apart, and no bid is to be late."""
NEAR = JoinWindows.of_time_difference_and_grace(timedelta(minutes=1), timedelta(hours=1))
"""An auction lives for a third of a second at most, and bids come up to a few seconds ahead of it."""
OPEN = JoinWindows.until(col("expires"), at_most=timedelta(minutes=1), grace=timedelta(hours=1))
"""From an auction's time to the end that it says."""

Query = Callable[[StreamsBuilder, Mapping[str, str]], "KStream[Any, Any] | KTable[Any, Any]"]
Events = KStream[Any, Any]


def _bids(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    events = builder.stream(topics["events"])
    return events.filter(col("event_type") == 2).map_values(col("bid"))


def _auctions(events: Events) -> Events:
    return events.filter(col("event_type") == 1).map_values(col("auction"))


def q0(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Pass through."""
    return _bids(builder, topics)


def q1(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Dollars to euros."""
    return _bids(builder, topics).map_values(
        fields("auction", "bidder", "dateTime", "extra", price=col("price") * 0.908)
    )


def q2(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Some auctions."""
    return _bids(builder, topics).filter(col("auction") % 123 == 0).map_values(fields("auction", "price"))


def q3(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """Who sells in category 10, in three states."""
    events = builder.stream(topics["events"])
    persons = events.filter(col("event_type") == 0).map_values(col("person"))
    sellers = persons.filter(col("state").isin(["OR", "ID", "CA"])).select_key(col("id").cast(int)).to_table("sellers")
    auctions = _auctions(events).filter(col("category") == 10).select_key(col("id").cast(int)).to_table("auctions")
    what = fields(id=col("left.id"), name=col("right.name"), city=col("right.city"), state=col("right.state"))
    return auctions.join(sellers, what, foreign_key=col("seller").cast(int))


def _winning(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The highest bid of each auction, in its time."""
    events = builder.stream(topics["events"])
    auctions = _auctions(events).select_key(col("id").cast(int))
    bids = events.filter(col("event_type") == 2).map_values(col("bid")).select_key(col("auction").cast(int))
    both = fields(left=["id", "category", "seller"], right=["bidder", "price"], at=col("right.dateTime"))
    best = agg.max_by(fields("id", "category", "seller", "bidder", "price", "at"), by="price")
    return auctions.join(bids, both, OPEN).group_by_key().aggregate(best=best).map_values(col("best"))


def q4(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The mean price that won, of each category."""
    return _winning(builder, topics).group_by(col("category").cast(int)).mean("price")


def q5(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The auctions with the most bids in ten seconds, every two seconds."""
    bids = _bids(builder, topics).group_by(col("auction").cast(int))
    counts = bids.windowed_by(TEN_SECONDS.advance_by(timedelta(seconds=2))).count().to_stream()
    by_window = counts.map(lambda key, n: (key.window.start, {"auction": key.key, "num": n}))
    return by_window.group_by_key(Grouped(key_serde=Int64Serde())).aggregate(
        lambda: {"num": 0, "auctions": []}, _hottest
    )


def _hottest(value: dict[str, int], best: dict[str, Any]) -> dict[str, Any]:
    """Counts only grow, so the largest of all updates is the largest count."""
    if value["num"] < best["num"] or (value["auction"] in best["auctions"] and value["num"] == best["num"]):
        return best
    others = best["auctions"] if value["num"] == best["num"] else []
    return {"num": value["num"], "auctions": [*others, value["auction"]]}


def q6(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The mean price of the last ten auctions of each seller."""
    last = _winning(builder, topics).group_by(col("seller").cast(int)).top(10, by=lambda won: (won["at"], won["id"]))
    return last.map_values(lambda won: {"mean": sum(one["price"] for one in won) / len(won)})


def q7(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The highest bid of every ten seconds."""
    bids = _bids(builder, topics).group_by(lit("all")).windowed_by(TEN_SECONDS)
    return bids.aggregate(best=agg.max_by(fields("auction", "bidder", "price", "dateTime"), by="price"))


def q8(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """Who has registered and opened an auction in the same ten seconds."""
    events = builder.stream(topics["events"])
    persons = events.filter(col("event_type") == 0).map_values(col("person")).group_by(col("id").cast(int))
    sellers = _auctions(events).group_by(col("seller").cast(int))
    names = persons.windowed_by(TEN_SECONDS).aggregate(name=agg.last("name"))
    opened = sellers.windowed_by(TEN_SECONDS).aggregate(auctions=agg.count())
    return names.join(opened, fields(left=["name"]))


def q9(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The winning bid of each auction."""
    return _winning(builder, topics)


def q10(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """All bids with the day and the minute by which files are named; here into a topic."""
    at = col("dateTime").to_timestamp()
    return _bids(builder, topics).map_values(fields("*", dt=at.date_format("%Y-%m-%d"), hm=at.date_format("%H:%M")))


def q11(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The number of bids of each session of a bidder."""
    gap = SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=10), timedelta(hours=1))
    return _bids(builder, topics).group_by(col("bidder").cast(int)).windowed_by(gap).aggregate(bids=agg.count())


def q12(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The number of bids of each bidder in every ten seconds of the clock."""
    events = builder.stream(topics["events"], Consumed(timestamp_extractor=WallclockTimestampExtractor()))
    bids = events.filter(col("event_type") == 2).map_values(col("bid")).group_by(col("bidder").cast(int))
    return bids.windowed_by(TEN_SECONDS).aggregate(bids=agg.count())


def q13(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Bids with what a table beside the stream says of their auctions."""
    side = builder.global_table(topics["side"])
    what = fields(left=["auction", "bidder", "price", "dateTime"], right=["value"])
    return _bids(builder, topics).join(side, (col("auction") % 1000).cast(str), what)


def q14(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Some bids in euros, with the time of day and the number of letters c."""
    price, hour = col("price") * 0.908, col("dateTime").to_timestamp().hour()
    day = when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = col("extra").length() - col("extra").replace("c", "").length()
    what = fields("auction", "bidder", "dateTime", "extra", price=price, bidTimeType=day, c_counts=letters)
    return _bids(builder, topics).filter((price > 1_000_000) & (price < 50_000_000)).map_values(what)


_CLASSES = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}


_RANKS: dict[str, Any] = {name: agg.count(where=one) for name, one in _CLASSES.items()}
_STATISTICS: dict[str, Any] = {
    "total_bids": agg.count(),
    **{f"{name}_bids": agg.count(where=one) for name, one in _CLASSES.items()},
    "total_bidders": agg.count_distinct("bidder"),
    **{f"{name}_bidders": agg.count_distinct("bidder", where=one) for name, one in _CLASSES.items()},
    "total_auctions": agg.count_distinct("auction"),
    **{f"{name}_auctions": agg.count_distinct("auction", where=one) for name, one in _CLASSES.items()},
}


def q15(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """Bids, bidders and auctions of each day, in classes of prices."""
    return _bids(builder, topics).group_by(col("dateTime")[0:10]).aggregate(**_STATISTICS)


def q16(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The same of each channel and day, and the last minute."""
    by_channel = _bids(builder, topics).group_by(fields("channel", day=col("dateTime")[0:10]))
    return by_channel.aggregate(minute=agg.max(col("dateTime")[11:16]), **_STATISTICS)


def q17(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """Figures of each auction and day."""
    day = col("dateTime")[0:10]
    return (
        _bids(builder, topics)
        .group_by(fields("auction", day=day))
        .aggregate(
            total=agg.count(),
            **_RANKS,
            least=agg.min("price"),
            most=agg.max("price"),
            mean=agg.mean("price"),
            sum=agg.sum("price"),
        )
    )


def q18(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The last bid of each bidder on each auction."""
    last = agg.last_by(fields("auction", "bidder", "price", "channel", "url", "dateTime", "extra"), by="dateTime")
    return _bids(builder, topics).group_by(fields("bidder", "auction")).aggregate(last=last)


def q19(builder: StreamsBuilder, topics: Mapping[str, str]) -> KTable[Any, Any]:
    """The ten highest bids of each auction."""
    return _bids(builder, topics).group_by(col("auction").cast(int)).top(10, by=col("price"), rank="rank_number")


def q20(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Bids on auctions of category 10, with the auction."""
    events = builder.stream(topics["events"])
    auctions = _auctions(events).filter(col("category") == 10).select_key(col("id").cast(int))
    bids = events.filter(col("event_type") == 2).map_values(col("bid")).select_key(col("auction").cast(int))
    what = fields(
        left=["auction", "bidder", "price", "channel", "url", "dateTime", "extra"],
        right=["itemName", "description", "initialBid", "reserve", "seller", "category", "expires"],
    )
    return bids.join(auctions, what, NEAR)


def q21(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Bids with the number of their channel."""
    name = col("channel").lower()
    known = (
        when(name == "apple", "0").when(name == "google", "1").when(name == "facebook", "2").when(name == "baidu", "3")
    )
    number = known.otherwise(col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2))
    what = fields("auction", "bidder", "price", "channel", channel_id=number)
    return _bids(builder, topics).map_values(what).filter(col("channel_id").is_not_null())


def q22(builder: StreamsBuilder, topics: Mapping[str, str]) -> Events:
    """Bids with the folders of their addresses."""
    parts = col("url").split("/")
    what = fields("auction", "bidder", "price", "channel", dir1=parts[3], dir2=parts[4], dir3=parts[5])
    return _bids(builder, topics).map_values(what)


QUERIES: Mapping[str, Query] = {
    one.__name__: one
    for one in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
}
