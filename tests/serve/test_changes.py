"""Changes by commit, without loss or repetition; and records that are sent, processed and answered."""

from contextlib import nullcontext

import orjson
import pytest
from starlette.testclient import TestClient

from state.errors import KafkaClientError
from streams.errors import CursorExpiredError, QueryError
from streams.serdes.json_text import loads
from streams.serve.app import Api
from streams.serve.feed import ChangeFeed
from streams.serve.http.security import Guard, Security
from streams.serve.scans import Scan
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click
from topologies import commands


@pytest.fixture
def driver():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        yield driver


def changes_of(driver, store="counts", **options):
    return ChangeFeed(driver.served().store(store), "test", driver._kafka, **options)


def flat(changes):
    return [(row["key"], row["value"]) for change in changes for row in map(loads, change.rows)]


def test_each_commit_is_an_event_of_its_task(driver):
    changes = changes_of(driver)
    assert list(changes.next()) == []
    click(driver, [(name, 1000) for name in NAMES])
    found = list(changes.next())
    assert [(change.point.task, change.point.version) for change in found] == [(0, 1), (1, 1), (2, 1)]
    assert sorted(flat(found)) == [(name, 1) for name in NAMES]
    assert not changes.pending()
    click(driver, [("k001", 2000)])
    assert changes.pending()
    assert flat(changes.next()) == [("k001", 2)]


def test_who_comes_back_with_an_id_misses_nothing_and_sees_nothing_twice(driver):
    changes, seen = changes_of(driver), []
    for at in range(5):
        click(driver, [(name, at * 1000) for name in NAMES[:10]])
        for change in changes.next():
            seen += flat([change])
            # A new connection after each event.
            changes = changes_of(driver, after=change.id)
    seen += flat(changes.next())
    assert sorted(seen) == sorted((name, count) for name in NAMES[:10] for count in range(1, 6))


def test_a_large_commit_is_several_events_and_can_be_continued_in_between(driver, monkeypatch):
    monkeypatch.setattr("streams.serve.feed.MOST_ROWS", 7)
    changes, seen = changes_of(driver), []
    click(driver, [(name, 1000) for name in NAMES])
    while parts := list(changes.next()):
        assert len(parts[0].rows) <= 7
        seen += flat(parts[:1])
        changes = changes_of(driver, after=parts[0].id)
    assert sorted(seen) == [(name, 1) for name in NAMES]


def test_an_event_has_no_more_than_so_many_bytes_unless_one_row_has(driver, monkeypatch):
    monkeypatch.setattr("streams.serve.feed.MOST_BYTES", 3 * len('"k001"1'))
    changes, seen = changes_of(driver), []
    click(driver, [(name, 1000) for name in NAMES])
    while parts := list(changes.next()):
        assert 1 <= len(parts[0].rows) <= 3
        seen += flat(parts[:1])
        changes = changes_of(driver, after=parts[0].id)
    assert sorted(seen) == [(name, 1) for name in NAMES]
    monkeypatch.setattr("streams.serve.feed.MOST_BYTES", 1)
    click(driver, [(name, 2000) for name in NAMES[:3]])
    assert [len(change.rows) for change in changes.next()] == [1, 1, 1]


def test_rows_come_first_and_then_what_has_changed_since(driver):
    click(driver, [(name, 1000) for name in NAMES])
    changes = changes_of(driver)
    initial = changes.initial(Scan(limit=7))
    rows = flat([next(initial)])
    click(driver, [("k001", 2000), ("k059", 2000)])
    rows += flat(initial)
    assert sorted(rows) == [(name, 1) for name in NAMES], "all rows are of the commits of the first page"
    assert sorted(flat(changes.next())) == [("k001", 2), ("k059", 2)]


def test_rows_that_come_first_are_of_commits_that_need_not_be_kept(driver, monkeypatch):
    """A live task commits ten times a second, and keeps nothing but its last commit."""
    click(driver, [(name, 1000) for name in NAMES])
    changes = changes_of(driver)
    page = changes.store.page

    def slow(*args):
        answer = page(*args)
        for at in range(10):
            click(driver, [("k001", 2000 + at)])
        return answer

    monkeypatch.setattr(changes.store, "page", slow)
    monkeypatch.setattr("streams.serve.copies.Copy._recent", lambda copy: [])
    assert sorted(flat(changes.initial(Scan(limit=1000)))) == [(name, 1) for name in NAMES]
    assert [value for key, value in flat(changes.next()) if key == "k001"][-1] == 11


def test_the_first_rows_are_events_of_so_many_bytes(driver, monkeypatch):
    click(driver, [(name, 1000) for name in NAMES])
    monkeypatch.setattr("streams.serve.feed.MOST_BYTES", 100)
    found = list(changes_of(driver).initial(Scan(limit=1000)))
    assert max(len(change.rows) for change in found) < 10
    assert sorted(flat(found)) == [(name, 1) for name in NAMES]


def test_an_event_says_no_more_than_its_rows(driver, monkeypatch):
    """A commit that comes while an event is made is another event's."""
    changes = changes_of(driver)
    click(driver, [(name, 1000) for name in NAMES])
    end = changes._end

    def slow(task, view):
        found = end(task, view)
        click(driver, [(name, 2000) for name in NAMES])
        return found

    monkeypatch.setattr(changes, "_end", slow)
    assert {change.point.version for change in changes._of_task(0)} == {1}


def test_windows_sessions_versions_and_deletions(driver):
    feeds = {name: changes_of(driver, name) for name in ("windows", "sessions", "history")}
    click(driver, [("k001", 11_000), ("k001", 13_000)])
    prices = driver.create_input_topic("prices")
    prices.pipe_input("apple", 10, 1_000)
    prices.pipe_input("apple", None, 2_000)
    (window,) = [loads(row) for change in feeds["windows"].next() for row in change.rows]
    assert (window["key"], window["value"], window["window"]) == ("k001", 2, {"start": 10_000, "end": 20_000})
    sessions = [loads(row) for change in feeds["sessions"].next() for row in change.rows]
    assert (sessions[-1]["window"], sessions[-1]["value"]) == ({"start": 11_000, "end": 13_000}, 2)
    history = [
        (row["value"], row["timestamp"]) for change in feeds["history"].next() for row in map(loads, change.rows)
    ]
    assert history == [(10, 1_000), (None, 2_000)]


def test_changes_that_are_deleted_are_an_error_and_no_gap(driver):
    click(driver, [(name, 1000) for name in NAMES])
    changes = changes_of(driver)
    click(driver, [(name, 2000) for name in NAMES])
    delete_changelog(driver)
    with pytest.raises(CursorExpiredError, match="initial=true"):
        list(changes.next())


def delete_changelog(driver):
    """As a trim does it; a changelog of a table is never trimmed, but may have been made again."""
    for task in range(3):
        log = driver._kafka.log("test-counts-changelog", task)
        log.begin = log.stable_end


def test_an_id_of_another_store_is_refused(driver):
    with pytest.raises(QueryError, match="is not the id"):
        changes_of(driver, after="x")
    for text in ("0=1@a.1", "0=1@a.1,1=2@a.1,2=3@a.1,3=4@a.1"):
        with pytest.raises(CursorExpiredError, match="and 'counts' has 3"):
            changes_of(driver, after=text)
    click(driver, [(name, 1000) for name in NAMES])
    of_windows = changes_of(driver, "windows").id
    with pytest.raises(CursorExpiredError, match="made again"):
        changes_of(driver, after=of_windows)


def test_who_comes_back_after_a_reset_is_told(driver):
    """The offsets mean other records in topics that were made again, however many there are."""
    click(driver, [(name, 1000) for name in NAMES])
    seen = changes_of(driver).id
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as other:
        # The topics of this driver have other ids than those of the first one, as in a real cluster.
        ids = other._kafka.topic_ids
        other._kafka.topic_ids = lambda topics: {name: f"{found} again" for name, found in ids(topics).items()}
        click(other, [(name, at * 1000) for at in range(3) for name in NAMES])
        params = {"follow": "false"}
        again = http(other).get("/v1/stores/counts/changes", params=params, headers={"Last-Event-ID": seen})
        assert (again.status_code, again.json()["error"]) == (410, "CursorExpiredError")


def test_a_stream_ends_when_the_application_is_reset(driver, monkeypatch):
    click(driver, [(name, 1000) for name in NAMES])
    changes = changes_of(driver)
    monkeypatch.setattr("streams.serve.copies.View.changelog_id", lambda view, store: "another")
    assert changes.pending()
    with pytest.raises(CursorExpiredError, match="made again"):
        list(changes.next())


def test_who_was_away_longer_than_deletions_are_kept_begins_again(driver):
    """A deletion that was compacted away would be missed."""
    click(driver, [(name, 1000) for name in NAMES])
    now = [10**12]
    kept_ms = driver._kafka.delete_retention_ms("test-counts-changelog")
    first = changes_of(driver, clock_ms=lambda: now[0])
    now[0] += kept_ms + 1
    # As long as nothing has changed, nothing can be missed; and whoever listens is told so.
    assert not first.pending()
    seen = first.id
    now[0] += 2 * kept_ms
    changes_of(driver, after=seen, clock_ms=lambda: now[0])
    click(driver, [("k001", 2000)])
    with pytest.raises(CursorExpiredError, match=r"delete\.retention\.ms"):
        changes_of(driver, after=seen, clock_ms=lambda: now[0])
    now[0] -= kept_ms + 1
    later = changes_of(driver, after=seen, clock_ms=lambda: now[0])
    assert flat(later.next()) == [("k001", 2)]


def test_a_copy_that_is_behind_the_one_before_has_nothing_new_yet(driver):
    """The process that was asked before may have followed further."""
    click(driver, [("k001", 1000)])
    ahead = changes_of(driver).id.replace("=", "=9")
    changes = changes_of(driver, after=ahead)
    assert list(changes.next()) == []


def test_a_global_table_has_no_changes_of_its_own(driver):
    with pytest.raises(QueryError, match="global table"):
        changes_of(driver, "names")


def parsed(text):
    """Server-sent events as (kind, id, data)."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields["event"], fields.get("id"), orjson.loads(fields["data"])))
    return found


def http(driver, write=None, guard=None):
    api = Api(driver.served(), guard or Guard(Security()), source=lambda: nullcontext(driver._kafka), write=write)
    return TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")


def test_events_over_http(driver):
    click(driver, [(name, 1000) for name in NAMES[:3]])
    client = http(driver)
    path = "/v1/stores/counts/changes"
    found = client.get(path, params={"initial": "true", "follow": "false"})
    assert found.headers["content-type"].startswith("text/event-stream")
    *rows, (kind, last, _) = parsed(found.text)
    assert {event[0] for event in rows} == {"rows"}
    assert sorted(row["key"] for _, _, data in rows for row in data["rows"]) == NAMES[:3]
    assert kind == "position"
    click(driver, [(name, 2000) for name in NAMES[1:3]])
    found = parsed(client.get(path, params={"follow": "false"}, headers={"Last-Event-ID": last}).text)
    assert found[0][0] == "position"
    assert sorted((row["key"], row["value"]) for _, _, data in found[1:] for row in data["rows"]) == [
        ("k001", 2),
        ("k002", 2),
    ]
    one = parsed(client.get(path, params={"follow": "false", "after": last, "key": "k001"}).text)
    assert [row["key"] for _, _, data in one[1:] for row in data["rows"]] == ["k001"]
    none = parsed(client.get(path, params={"follow": "false", "after": last, "prefix": "x"}).text)
    assert [event[0] for event in none] == ["position"]
    delete_changelog(driver)
    gone = client.get(path, params={"follow": "false", "after": last})
    assert (gone.status_code, gone.json()["error"]) == (410, "CursorExpiredError")


@pytest.fixture
def seats():
    with TopologyTestDriver(commands.build(), partitions={"seat-commands": 3}) as driver:
        yield driver


def writer(driver, processes=True):
    """Writes a record into the driver's topic, which processes it at once."""

    def write(topic, record):
        kafka = driver._kafka
        ends = {p: kafka.log(topic, p).stable_end for p in range(kafka.partition_count(topic))}
        kafka.append(topic, record.key, record.value, record.timestamp or 0, None, None)
        if processes:
            driver._run()
        (partition,) = [p for p, end in ends.items() if kafka.log(topic, p).stable_end > end]
        return partition, ends[partition]

    return write


JSON = {"content-type": "application/json"}


def reserve(client, id_, count, flight="LH400", **more):
    asked = {"await": "answers", "await_key": id_, **more}
    return client.post(
        "/v1/topics/seat-commands", params=asked, json={"key": flight, "value": {"id": id_, "seats": count}}
    )


def test_a_command_is_accepted_or_rejected_with_its_reason(seats):
    client = http(seats, writer(seats))
    first = reserve(client, "a", 2)
    assert (first.status_code, first.json()["processed"]) == (200, True)
    assert first.json()["row"]["value"] == {"accepted": True, "left": 1}
    second = reserve(client, "b", 2).json()
    assert second["row"]["value"] == {"accepted": False, "reason": "LH400 has 1 seats left, not 2"}
    assert reserve(client, "b", 1).json()["row"]["value"]["accepted"] is False, "the first answer stays"
    assert reserve(client, "c", 3, flight="LH401").json()["row"]["value"] == {"accepted": True, "left": 0}
    assert second["record"]["offset"] == first.json()["record"]["offset"] + 1


def test_a_command_that_is_not_processed_in_time_is_accepted_nevertheless(seats):
    late = reserve(http(seats, writer(seats, processes=False)), "a", 2, wait="10ms")
    assert (late.status_code, late.json()["processed"]) == (202, False)
    place = late.json()["record"]
    assert late.headers["streams-position"] == f"seat-commands-{place['partition']}={place['offset'] + 1}"


def test_without_await_a_record_is_only_written(seats):
    client = http(seats, writer(seats))
    found = client.post(
        "/v1/topics/seat-commands", json={"key": "LH1", "value": {"id": "x", "seats": 1}, "timestamp": 5}
    )
    assert found.status_code == 202
    position = found.headers["streams-position"]
    row = client.get("/v1/stores/reserved/keys/LH1", headers={"Streams-Position": position})
    assert row.json()["value"] == 1


@pytest.mark.parametrize(
    ("topic", "body", "words"),
    [
        ("seat-answers", {"value": {}}, "is not a topic that the served stores are made of"),
        ("seat-commands", {"key": 5, "value": {}}, "does not fit"),
        ("seat-commands", {"key": "a"}, "the body is"),
        ("seat-commands", {"value": {}, "partition": 1}, "the body is"),
        ("seat-commands", {"value": {}, "timestamp": -1}, "milliseconds"),
        ("seat-commands", [], "the body is"),
    ],
)
def test_what_cannot_be_written_is_told(seats, topic, body, words):
    def refuse(*_):
        raise AssertionError("nothing may be written")

    found = http(seats, refuse).post(f"/v1/topics/{topic}", json=body)
    assert (found.status_code, words in found.json()["message"]) == (400, True), found.json()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"n": 12345678901234567890.12345}', "more digits"),
        ('{"n": 1e400}', "more digits"),
        ('{"n": 1, "n": 2}', "'n' occurs twice"),
        ('{"n": NaN}', "JSON"),
    ],
)
def test_what_would_not_be_written_as_it_is_is_refused(seats, value, words):
    def refuse(*_):
        raise AssertionError("nothing may be written")

    found = http(seats, refuse).post(
        "/v1/topics/seat-commands", content=f'{{"key": "a", "value": {value}}}', headers=JSON
    )
    assert (found.status_code, words in found.json()["message"]) == (400, True), found.json()


def test_a_record_is_written_as_its_serdes_write_it(seats):
    written = []

    def write(topic, record):
        written.append(record)
        return 0, 0

    body = '{"key": "a", "value": {"n": 1180591620717411303425, "x": 0.1, "y": 12.50}}'
    assert http(seats, write).post("/v1/topics/seat-commands", content=body, headers=JSON).status_code == 202
    assert [record.value for record in written] == [b'{"n":1180591620717411303425,"x":0.1,"y":12.5}']


@pytest.mark.parametrize(
    ("store", "words"), [("history", "none of these"), ("windows", "several rows"), ("sessions", "several rows")]
)
def test_a_record_whose_result_cannot_be_shown_is_not_written(driver, store, words):
    def refuse(*_):
        raise AssertionError("nothing may be written")

    found = http(driver, refuse).post(f"/v1/topics/clicks?await={store}", json={"key": "k001", "value": 1})
    assert (found.status_code, words in found.json()["message"]) == (400, True), found.json()


def test_a_copy_that_moves_while_a_record_is_written_is_no_error(seats):
    """A client that is told of an error would write it again."""
    served, write = seats.served(), writer(seats)

    def moving(topic, record):
        place = write(topic, record)
        served.copies = dict
        return place

    api = Api(served, Guard(Security()), write=moving)
    found = reserve(TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost"), "a", 1)
    assert (found.status_code, found.json()["processed"]) == (202, False)


def test_a_broker_that_does_not_take_the_record_is_a_503(seats):
    def fail(*_):
        raise KafkaClientError("the record was not written")

    assert reserve(http(seats, fail), "a", 1).status_code == 503


def test_writing_needs_its_scope(seats, tmp_path):
    path = tmp_path / "tokens"
    path.write_text("secret-of-the-reader read\nsecret-of-the-writer write\n")
    path.chmod(0o600)
    client = http(seats, writer(seats), Guard(Security(token_file=path)))
    client.headers["Authorization"] = "Bearer secret-of-the-reader"
    assert reserve(client, "a", 1).status_code == 403
    client.headers["Authorization"] = "Bearer secret-of-the-writer"
    assert reserve(client, "a", 1).status_code == 200
