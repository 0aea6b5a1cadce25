"""Reads of served stores of every kind: equal to what the operators see, whatever the number of tasks and the way of paging."""

from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from streams import (
    CalendarWindows,
    Consumed,
    Int64Serde,
    JsonSerde,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    UnlimitedWindows,
)
from streams.errors import CursorExpiredError, NotUpToBoundError, QueryError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.position import Commit, Position, parse_commits
from streams.serve.requests import Limits
from streams.serve.scans import Scan
from streams.serve.served import Consistency, Freshness
from streams.testing import TopologyTestDriver

NAMES = [f"k{number:03d}" for number in range(60)]


def build():
    """Counts clicks by key: over all time, in windows, in sessions; the last value of each key with versions; names for all."""
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", Consumed(StringSerde(), Int64Serde()))
    by_key = clicks.group_by_key()
    by_key.count(Materialized("counts"))
    by_key.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=10))).count(
        Materialized("windows", retention=timedelta(hours=1))
    )
    by_key.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(seconds=5))).count(
        Materialized("sessions")
    )
    history = Materialized("history", history_retention=timedelta(hours=1))
    builder.table("prices", Consumed(StringSerde(), Int64Serde()), history)
    builder.global_table("names", Consumed(StringSerde(), JsonSerde()), Materialized("names"))
    return builder.build()


@pytest.fixture(params=[1, 3])
def driver(request):
    partitions = {"clicks": request.param, "prices": request.param}
    with TopologyTestDriver(build(), partitions=partitions) as driver:
        yield driver


def click(driver, rows):
    topic = driver.create_input_topic("clicks")
    with driver.batch():
        for number, (key, at) in enumerate(rows):
            topic.pipe_input(key, number, at)


def pages(store, scan):
    """The rows of all pages."""
    answer = store.scan(scan)
    rows = list(answer.rows)
    while answer.cursor:
        answer = store.scan(scan, answer.cursor)
        rows += answer.rows
    return rows


def test_a_key_is_found_with_its_commit_and_the_position_of_its_sources(driver):
    click(driver, [(name, 1000) for name in NAMES] * 2)
    store = driver.served().store("counts")
    answer = store.get([store.reader.key_bytes("k007")])
    (row,) = answer.rows
    assert (row.key, row.value, row.timestamp) == ("k007", 2, 1000)
    assert list(answer.commits) == [(store.sub, store.task_of(b"k007"))]
    assert answer.commits[store.sub, row.task].version == 1
    partitions = 1 if store.tasks == 1 else 3
    ends = {("clicks", p): len([n for n in NAMES if store.task_of(n.encode()) == p]) * 2 for p in range(partitions)}
    assert answer.position.offsets["clicks", row.task] == ends["clicks", row.task]


def test_an_absent_key_has_a_position_too(driver):
    click(driver, [(name, 1000) for name in NAMES])
    answer = driver.served().store("counts").get([b"nobody"])
    assert answer.rows == ()
    assert len(answer.points) == 1
    assert answer.position.offsets


def test_a_batch_of_keys_keeps_their_order(driver):
    click(driver, [(name, 1000) for name in NAMES])
    keys = [b"k031", b"nobody", b"k002", b"k031", b"k059"]
    assert [row.key for row in driver.served().store("counts").get_all(keys).rows] == ["k031", "k002", "k031", "k059"]


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({}, NAMES),
        ({"lower": b"k010"}, NAMES[10:]),
        ({"lower": b"k0101", "upper": b"k020"}, NAMES[11:21]),
        ({"upper": b"k005"}, NAMES[:6]),
        ({"prefix": b"k04"}, NAMES[40:50]),
        ({"prefix": b"x"}, []),
    ],
)
def test_ranges_are_merged_over_tasks_and_paged(driver, bounds, wanted, reverse, limit):
    click(driver, [(name, 1000) for name in NAMES])
    found = pages(driver.served().store("counts"), Scan(**bounds, reverse=reverse, limit=limit))
    assert [row.key for row in found] == (wanted[::-1] if reverse else wanted)


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_windows_by_time_and_by_key(driver, reverse, limit):
    click(driver, [(name, at) for at in range(0, 100_000, 4_000) for name in NAMES[:9]])
    store = driver.served().store("windows")
    oracle = driver.get_window_store("windows")
    wanted = sorted((start, key, value) for key, start, value in oracle.fetch_all(20_000, 60_000))
    found = pages(store, Scan(from_ms=20_000, to_ms=60_000, reverse=reverse, limit=limit))
    assert [(row.window_start, row.key, row.value) for row in found] == (wanted[::-1] if reverse else wanted)
    assert all(row.window_end == row.window_start + 10_000 for row in found)
    one = pages(store, Scan(key=b"k003", from_ms=20_000, to_ms=60_000, reverse=reverse, limit=limit))
    assert one == [row for row in found if row.key == "k003"]
    assert len(one) == 5


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_sessions_by_time_and_by_key(driver, reverse, limit):
    times = [0, 2_000, 20_000, 40_000, 43_000, 60_000]
    click(driver, [(name, at) for at in times for name in NAMES[:9]])
    store = driver.served().store("sessions")
    found = pages(store, Scan(from_ms=2_000, to_ms=43_000, reverse=reverse, limit=limit))
    wanted = [(0, 2_000, 2), (20_000, 20_000, 1), (40_000, 43_000, 2)]
    rows = [(start, end, key, value) for start, end, value in wanted for key in NAMES[:9]]
    assert [(r.window_start, r.window_end, r.key, r.value) for r in found] == (rows[::-1] if reverse else rows)
    assert pages(store, Scan(key=b"k003", from_ms=2_000, to_ms=43_000, reverse=reverse, limit=limit)) == [
        row for row in found if row.key == "k003"
    ]


def test_versions_as_of_a_time(driver):
    prices = driver.create_input_topic("prices")
    for at, price in ((1_000, 10), (2_000, 20), (3_000, None), (4_000, 40)):
        prices.pipe_input("apple", price, at)
    store = driver.served().store("history")
    found = {at: store.get([b"apple"], at).rows for at in (500, 1_000, 1_999, 2_500, 3_500, 9_000)}
    assert {at: [row.value for row in rows] for at, rows in found.items()} == {
        500: [],
        1_000: [10],
        1_999: [10],
        2_500: [20],
        3_500: [],
        9_000: [40],
    }
    assert store.get([b"apple"]).rows[0].timestamp == 4_000


def test_global_tables_are_read_from_their_topic(driver):
    names = driver.create_input_topic("names")
    names.pipe_input("k001", {"name": "Ada"})
    store = driver.served().store("names")
    assert [row.value for row in store.get([b"k001"]).rows] == [{"name": "Ada"}]
    assert store.get([b"k001"]).position == Position({("names", 0): 1})
    names.pipe_input("k001", None)
    names.pipe_input("k002", {"name": "Alan"})
    assert [(row.key, row.value) for row in store.scan(Scan()).rows] == [("k002", {"name": "Alan"})]


def test_all_pages_are_of_the_same_commits(driver):
    click(driver, [(name, 1000) for name in NAMES])
    store = driver.served().store("counts")
    first = store.scan(Scan(limit=20))
    click(driver, [(name, 2000) for name in NAMES] + [("k0005", 2000)])
    second = store.scan(Scan(limit=1000), first.cursor)
    assert second.commits == first.commits
    assert [row.value for row in second.rows] == [1] * 40
    assert {row.value for row in store.scan(Scan()).rows} == {2, 1}


def test_a_cursor_whose_commits_are_gone_says_so(driver):
    click(driver, [(name, 1000) for name in NAMES])
    served = driver.served()
    store = served.store("counts")
    cursor = store.scan(Scan(limit=20)).cursor
    for copy in served.copies().values():
        copy.clock_s = lambda: 10**9
    # The last few commits are kept in any case, to read all tasks as of one micro-batch.
    for second in range(2, 7):
        click(driver, [(name, second * 1000) for name in NAMES])
        store.points()
        served.copies()
    with pytest.raises(CursorExpiredError, match="begin again"):
        store.scan(Scan(), cursor)


@pytest.mark.parametrize("cursor", ["", "x", "e30", "W10"])
def test_a_cursor_of_somebody_else_is_refused(driver, cursor):
    click(driver, [("k000", 1000)])
    with pytest.raises(QueryError, match="cursor"):
        driver.served().store("counts").scan(Scan(), cursor)


def test_what_a_store_does_not_have_is_named(driver):
    click(driver, [("k000", 1000)])
    served = driver.served()
    with pytest.raises(QueryError, match=r"no store 'count'.*counts"):
        served.store("count")
    for store, call, words in (
        ("windows", lambda s: s.get([b"a"]), "has windows"),
        ("sessions", lambda s: s.get_all([b"a"]), "has sessions"),
        ("counts", lambda s: s.get([b"a"], 5), "no versions"),
        ("counts", lambda s: s.scan(Scan(from_ms=5)), "neither windows"),
        ("windows", lambda s: s.scan(Scan(prefix=b"a")), "by key and time"),
        ("history", lambda s: s.scan(Scan()), "has versions"),
        ("counts", lambda s: s.scan(Scan(prefix=b"a", lower=b"b")), "not both"),
        ("counts", lambda s: s.scan(Scan(limit=0)), "at least one row"),
    ):
        with pytest.raises(QueryError, match=words):
            call(served.store(store))


def test_a_quiet_source_stays_in_the_position_when_its_markers_are_compacted_away():
    builder = StreamsBuilder()
    east, west = (builder.stream(name, Consumed(StringSerde(), Int64Serde())) for name in ("east", "west"))
    east.merge(west).group_by_key().count(Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("east").pipe_input("a", 1, 1)
        for at in range(3):
            driver.create_input_topic("west").pipe_input("a", 1, at)
        (sub,) = {store.sub for store in driver.served().stores.values()}
        log = driver._kafka.log(f"test-{sub}-commits", 0)
        newest = log.readable()[-1].offset
        log.begin = newest
        served = driver.served()
        position = Position({("east", 0): 1})
        served.wait(served.store("counts"), [0], Freshness(position=position), 0)
        assert str(served.store("counts").points()[0].position).startswith("east-0=1,west-0=")


def test_a_cursor_from_before_a_reset_is_none_of_the_new_application(driver, monkeypatch):
    """Its commits have the same numbers, and other rows."""
    click(driver, [(name, 1000) for name in NAMES])
    store = driver.served().store("counts")
    cursor = store.scan(Scan(limit=7)).cursor
    assert len(store.scan(Scan(limit=7), cursor).rows) == 7
    monkeypatch.setattr("streams.serve.copies.life_of", lambda name: "another")
    with pytest.raises(CursorExpiredError, match="was reset"):
        driver.served().store("counts").scan(Scan(limit=7), cursor)


def test_a_bound_is_met_or_refused_with_the_present_position(driver):
    click(driver, [(name, 1000) for name in NAMES])
    served = driver.served()
    store = served.store("counts")
    task = store.task_of(b"k007")
    point = store.points([task])[0]
    served.wait(store, [task], Freshness(position=point.position, commits={(store.sub, task): Commit(1)}), 0)
    ahead = Position({place: end + 1 for place, end in point.position.offsets.items()})
    for bound in (Freshness(position=ahead), Freshness(commits={(store.sub, task): Commit(2)})):
        with pytest.raises(NotUpToBoundError) as refused:
            served.wait(store, [task], bound, 0)
        assert Position.parse(refused.value.position) == point.position
        assert parse_commits(refused.value.commits) == {(store.sub, task): Commit(1, point.life)}
        served.wait(store, [task], Freshness(Consistency.ANY, bound.position, bound.commits), 0)
    click(driver, [(name, 2000) for name in NAMES])
    served.wait(store, [task], Freshness(position=ahead), 0)
    served.wait(store, [task], Freshness(Consistency.LATEST), 0)


def test_a_position_in_topics_that_the_store_does_not_see_is_refused(driver):
    click(driver, [(name, 1000) for name in NAMES])
    served = driver.served()
    with pytest.raises(QueryError, match=r"'orders' is none of these"):
        served.wait(served.store("counts"), [0], Freshness(position=Position({("orders", 0): 1})), 0)


@pytest.mark.parametrize("text", ["clicks-0=5", "a.b_c-d-12=0,clicks-1=7", ""])
def test_positions_as_text(text):
    assert str(Position.parse(text)) == ",".join(sorted(text.split(",")))


@pytest.mark.parametrize("text", ["clicks", "clicks-0", "clicks-0=x", "=1", "clicks-0=-1"])
def test_what_is_no_position_is_refused(text):
    with pytest.raises(QueryError, match="TOPIC-PARTITION=OFFSET"):
        Position.parse(text)


@pytest.mark.parametrize(
    ("windows", "length"),
    [
        (CalendarWindows.of("day", "Europe/Berlin"), 25 * 3_600_000),
        (SlidingWindows.of_time_difference_with_no_grace(7), 7),
        (UnlimitedWindows(0), 2**63 - 1),
    ],
)
def test_windows_of_every_kind_have_their_end(windows, length):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).count(Materialized("counts"))
    autumn = 1_792_879_200_000  # 25 October 2026 in Berlin
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, autumn)
        (row,) = driver.served().store("counts").scan(Scan()).rows
        client = TestClient(
            Api(driver.served(), Guard(Security()), Limits()).application(),
            client=("127.0.0.1", 1),
            base_url="http://localhost",
        )
        (shown,) = client.get("/v1/stores/counts/windows", params={"key": "a"}).json()["rows"]
    assert row.window_end == row.window_start + length
    assert shown["window"] == {"start": row.window_start, "end": row.window_end}
