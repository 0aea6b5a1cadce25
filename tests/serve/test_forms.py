"""Keys and values of every serde: one form in JSON, which can be read back, by every way to ask for a key."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from streams import (
    BooleanSerde,
    BytesSerde,
    CalendarWindows,
    Consumed,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int64Serde,
    JsonSerde,
    ListSerde,
    Materialized,
    Serde,
    SlidingWindows,
    StreamsBuilder,
    StringSerde,
    TupleSerde,
    UuidSerde,
    Windows,
)
from streams.errors import QueryError, SerdeError
from streams.model.record import Window, Windowed
from streams.serdes.json_shown import reader_of, shown, shown_json, value_of, written, written_of_text
from streams.serdes.json_text import loads
from streams.serdes.keys import as_key
from streams.serdes.wrappers import SessionWindowedSerde, TimeWindowedSerde
from streams.serve.app import Api
from streams.serve.client import StoreClient
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.serve.test_at_once import serving


@dataclass(frozen=True)
class Id:
    shop: str
    number: int


class Place(NamedTuple):
    east: int
    north: float


class Colour(Enum):
    RED = "red"


@dataclass
class Account:
    orders: int
    total: Decimal
    newest: datetime
    raw: float = 0.0


class Reversed(Serde[str]):
    """A serde of a user's."""

    def serialize(self, topic: str, value: str | None, headers: Any = None) -> bytes | None:
        return None if value is None else value[::-1].encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Any = None) -> str | None:
        return None if data is None else data.decode()[::-1]


AT = datetime(2024, 5, 1, 10, tzinfo=timezone.utc)
ID = uuid.UUID("7b0e2c5a-3a63-4f0e-9d6f-0c4a3a5a1b2c")
KEYS: dict[str, tuple[Serde[Any], Any, list[Any]]] = {
    "text": (StringSerde(), str, ["bob", '"bob"', ".", "..", "a\nb", "a/b%c d?e#f", "ü", "7", "null", "", "x" * 500]),
    "bytes": (BytesSerde(), bytes, [b"\xff\x00", b"ff00", b"", b"\xfb\xef", b"bob"]),
    "uuid": (UuidSerde(), uuid.UUID, [ID]),
    "int": (Int64Serde(), int, [0, -7, 2**53 + 1, -(2**63)]),
    "small": (Int16Serde(), int, [-1, 5]),
    "float": (Float64Serde(), float, [1.5, -0.25, 1e300, float("inf")]),
    "half": (Float32Serde(), float, [0.5]),
    "bool": (BooleanSerde(), bool, [True, False]),
    "plain": (JsonSerde(), object, ["7", 7, "a", '"a"', {"a": 1, "b": ["x"]}, 2**80, "", ".."]),
    "class": (JsonSerde(Id), Id, [Id("a", 7), Id("..", 2**70)]),
    "named": (JsonSerde(Place), Place, [Place(1, 2.5)]),
    "day": (JsonSerde(date), date, [date(2024, 5, 1)]),
    "moment": (JsonSerde(datetime), datetime, [AT]),
    "enum": (JsonSerde(Colour), Colour, [Colour.RED]),
    "number": (JsonSerde(Decimal), Decimal, [Decimal("12.50")]),
    "tuple": (TupleSerde(StringSerde(), Int64Serde(), BytesSerde()), tuple[str, int, bytes], [("a", 7, b"\xff")]),
    "own": (Reversed(), str, ["abc"]),
}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A table of keys of each kind, whose values are their numbers, and a table of values of each kind of bytes."""
    builder = StreamsBuilder()
    for name, (serde, _, _) in KEYS.items():
        builder.table(f"t-{name}", Consumed(serde, Int64Serde()), Materialized(name))
    builder.table("t-floats", Consumed(StringSerde(), Float64Serde()), Materialized("floats"))
    builder.table("t-blobs", Consumed(BytesSerde(), BytesSerde()), Materialized("blobs"))
    with TopologyTestDriver(builder.build(), partitions={"t-text": 3}) as driver:
        for name, (serde, _, keys) in KEYS.items():
            for number, key in enumerate(keys):
                driver.create_input_topic(f"t-{name}").pipe_bytes(
                    serde.serialize("", key), number.to_bytes(8, "big"), 1
                )
        floats = driver.create_input_topic("t-floats")
        for key, value in {"nan": math.nan, "low": -math.inf, "one": 1.0}.items():
            floats.pipe_input(key, value, 1)
        driver.create_input_topic("t-blobs").pipe_input(b"\xff\x00", b"\x00\xfe", 1)
        driver.create_input_topic("t-blobs").pipe_input(b"ff00", b"00fe", 1)
        yield Api(driver.served(), Guard(Security()))


@pytest.fixture(scope="module")
def real(api: Api) -> Iterator[httpx2.Client]:
    """A client of a real server."""
    with serving(api) as url, httpx2.Client(base_url=url) as http:
        yield http


@pytest.fixture(scope="module")
def http(api: Api) -> TestClient:
    return TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")


EACH = [pytest.param(name, key, id=f"{name}-{number}") for name, of in KEYS.items() for number, key in enumerate(of[2])]


@pytest.mark.parametrize(("name", "key"), EACH)
def test_a_key_is_found_by_the_form_in_which_it_is_shown(real: httpx2.Client, name: str, key: Any) -> None:
    serde, kind, keys = KEYS[name]
    number, form = keys.index(key) if not isinstance(key, bool) else [True, False].index(key), shown(key)
    assert written(serde, "", form) == serde.serialize("", key)
    # As it is typed: a text as it is, and everything else as JSON.
    text = form if isinstance(form, str) and name != "plain" else _json(form)
    store = f"/v1/stores/{name}"
    quoted = quote(_json(form), safe="")
    for way in ("", "&consistency=any"):  # the fast one, and that by the routes
        found = real.get(f"{store}/keys/{quoted}?keys=json{way}").json()
        assert (found["key"], found["value"]) == (form, number)
        if text not in (".", ".."):
            assert real.get(f"{store}/keys/{quote(text, safe='')}?wait=0{way}").json()["value"] == number
    batch = real.post(f"{store}/keys:batch", content=_json({"keys": [form]}), headers=JSON).json()
    assert [(row["key"], row["value"]) for row in batch["rows"]] == [(form, number)]
    client: StoreClient[Any, int] = StoreClient("", name, key=kind, value=int, http=real)
    assert client.get(key) == client.get(key, consistency="any") == number
    rows = {row.value: row.key for row in client.range()}
    assert rows[number] == key
    assert type(rows[number]) is type(key)


JSON = {"content-type": "application/json"}


def _json(data: Any) -> str:
    return shown_json(data).decode()


def test_what_is_no_key_is_refused_and_no_other_key(http: TestClient) -> None:
    for name, text in (
        ("bytes", "bob!"),
        ("uuid", "x"),
        ("int", "x"),
        ("int", '"7"'),
        ("class", '{"shop":"a"}'),
        ("tuple", '["a",7]'),
        ("float", "9007199254740993"),
        ("plain", "null"),
    ):
        answer = http.get(f"/v1/stores/{name}/keys/{quote(text, safe='')}")
        assert (answer.status_code, answer.json()["error"]) == (400, "QueryError"), name
    assert http.get("/v1/stores/text/keys/%22nobody%22").status_code == 404
    answer = http.get("/v1/stores/text/keys/%FF")
    assert (answer.status_code, "base64" in answer.json()["message"]) == (400, True)
    for key in ([1], 7, {}):
        assert http.post("/v1/stores/text/keys:batch", json={"keys": [key]}).status_code == 400


def test_one_text_is_one_key(http: TestClient) -> None:
    """`7` is the number where keys are JSON, and the text "7" has quotes; where keys are texts, quotes are a part of them."""
    plain = "/v1/stores/plain/keys/"
    assert http.get(f"{plain}7").json()["key"] == 7
    assert http.get(f"{plain}%227%22").json()["key"] == "7"
    assert http.get(f"{plain}a").json()["key"] == "a"
    assert http.get("/v1/stores/text/keys/%22bob%22").json()["value"] == 1


def test_bytes_are_base64_and_metadata_says_so(http: TestClient) -> None:
    rows = http.get("/v1/stores/blobs/range").json()["rows"]
    assert {row["key"]: row["value"] for row in rows} == {"/wA=": "AP4=", "ZmYwMA==": "MDBmZQ=="}
    # Also in the alphabet of addresses, and without the signs that fill it up.
    assert http.get("/v1/stores/blobs/keys/_wA").json()["value"] == "AP4="
    (store,) = [one for one in http.get("/v1/metadata").json()["stores"] if one["name"] == "blobs"]
    assert store["key_schema"] == store["value_schema"] == {"type": "string", "contentEncoding": "base64"}
    client: StoreClient[bytes, bytes] = StoreClient("", "blobs", key=bytes, value=bytes, http=http)
    assert client.get_all([b"\xff\x00", b"ff00"]) == {b"\xff\x00": b"\x00\xfe", b"ff00": b"00fe"}
    assert [row.key for row in client.range(prefix=b"\xff")] == [b"\xff\x00"]
    assert [row.key for row in client.range(b"\x00", b"zz")] == [b"ff00"]
    sql = {"sql": "SELECT key, octet_length(value) FROM blobs WHERE key = from_base64('/wA=')"}
    assert http.post("/v1/sql", json=sql).json()["rows"] == [["/wA=", 2]]


def test_numbers_that_json_does_not_have_are_said(http: TestClient) -> None:
    found = {row["key"]: row["value"] for row in http.get("/v1/stores/floats/range").json()["rows"]}
    assert found == {"nan": "NaN", "low": "-Infinity", "one": 1.0}
    client: StoreClient[str, float] = StoreClient("", "floats", value=float, http=http)
    assert math.isnan(client.get("nan") or 0.0)
    assert client.get("low") == -math.inf
    sql = {"sql": "SELECT value FROM floats WHERE isnan(value) OR value < 0 ORDER BY value"}
    assert http.post("/v1/sql", json=sql).json()["rows"] == [["-Infinity"], ["NaN"]]


def test_a_prefix_of_bytes_that_are_no_text_is_refused(http: TestClient) -> None:
    for name in ("int", "small", "float", "half", "bool", "tuple"):
        answer = http.get(f"/v1/stores/{name}/range?prefix=7")
        assert (answer.status_code, "no prefixes" in answer.json()["message"]) == (400, True), name
    assert [row["key"] for row in http.get("/v1/stores/uuid/range?prefix=7b").json()["rows"]] == [str(ID)]


def test_a_range_of_numbers_is_in_their_order(http: TestClient) -> None:
    client: StoreClient[int, int] = StoreClient("", "int", key=int, value=int, http=http)
    assert [row.key for row in client.range(-10, 2**60)] == [-7, 0, 2**53 + 1]
    floats: StoreClient[float, int] = StoreClient("", "float", key=float, value=int, http=http)
    assert [row.key for row in floats.range(-1.0, math.inf)] == [-0.25, 1.5, 1e300, math.inf]
    with pytest.raises(QueryError, match="NaN"):
        list(floats.range(math.nan))


def test_a_value_of_another_type_than_the_clients_is_an_error_of_ours(http: TestClient) -> None:
    client: StoreClient[str, Account] = StoreClient("", "text", value=Account, http=http)
    with pytest.raises(SerdeError, match="none of the type of the client"):
        client.get("bob")
    with pytest.raises(SerdeError, match="no form in JSON"):
        client.get(object())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Halves(Windows):
    """Windows of a user's, which end at the hour's middle or end."""

    grace_ms: int = 0

    @property
    def size_ms(self) -> int:
        return 1_800_000

    def starts(self, timestamp: int) -> list[int]:
        return [timestamp // self.size_ms * self.size_ms]

    def end_of(self, start: int) -> int:
        return start + self.size_ms


@pytest.fixture(scope="module")
def aggregates() -> Iterator[TestClient]:
    """Aggregates of a dataclass: over all time, and in windows of all kinds."""
    builder = StreamsBuilder()
    accounts = builder.stream("accounts", Consumed(StringSerde(), JsonSerde(Account))).group_by_key()

    def latest(old: Account, new: Account) -> Account:
        return new

    def as_value(name: str) -> Materialized:
        return Materialized(name, key_serde=StringSerde(), value_serde=JsonSerde(Account))

    accounts.reduce(latest, as_value("reduced"))
    accounts.aggregate(lambda: Account(0, Decimal(0), AT), lambda key, value, held: value, as_value("aggregated"))
    for name, windows in (
        ("calendar", CalendarWindows.of("month", "UTC")),
        ("sliding", SlidingWindows.of_time_difference_with_no_grace(timedelta(seconds=5))),
        ("own", Halves()),
    ):
        accounts.windowed_by(windows).reduce(latest, as_value(name))
    with TopologyTestDriver(builder.build()) as driver:
        at = int(AT.timestamp() * 1000)
        driver.create_input_topic("accounts").pipe_input("ann", Account(2, Decimal("12.10"), AT, 2.0), at)
        yield TestClient(
            Api(driver.served(), Guard(Security())).application(), client=("127.0.0.1", 1), base_url="http://localhost"
        )


def test_aggregates_of_a_type_are_what_their_serde_writes(aggregates: TestClient) -> None:
    """Not the text that Python makes of a dataclass."""
    form = {"orders": 2, "total": "12.10", "newest": "2024-05-01T10:00:00+00:00", "raw": 2.0}
    for name in ("reduced", "aggregated"):
        assert aggregates.get(f"/v1/stores/{name}/keys/ann").json()["value"] == form
        assert aggregates.get(f"/v1/stores/{name}/range").json()["rows"][0]["value"] == form
        client: StoreClient[str, Account] = StoreClient("", name, value=Account, http=aggregates)
        assert client.get("ann") == Account(2, Decimal("12.10"), AT, 2.0)
        sql = {"sql": f"SELECT value->>'total', value->'orders' FROM {name}"}
        assert aggregates.post("/v1/sql", json=sql).json()["rows"] == [["12.10", 2]]
        (store,) = [one for one in aggregates.get("/v1/metadata").json()["stores"] if one["name"] == name]
        assert store["value_schema"]["title"] == "Account"


def test_windows_of_all_kinds_have_their_end(aggregates: TestClient) -> None:
    at = int(AT.timestamp() * 1000)
    june = int(datetime(2024, 6, 1, tzinfo=timezone.utc).timestamp() * 1000)
    for name, end in (("calendar", june), ("sliding", at), ("own", at + 1_800_000)):
        (row,) = aggregates.get(f"/v1/stores/{name}/windows?key=ann").json()["rows"]
        assert row["window"]["end"] == end, name


TIMES = st.integers(0, 2**40)
FLOATS = st.floats(allow_nan=False) | st.just(math.nan)  # which has other bits elsewhere: one number, and one key
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
OF_SERDES: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (StringSerde(), st.text()),
    (BytesSerde(), st.binary()),
    (UuidSerde(), st.uuids()),
    (Int64Serde(), st.integers(-(2**63), 2**63 - 1)),
    (Float64Serde(), FLOATS),
    (Float32Serde(), st.floats(width=32, allow_nan=False)),
    (BooleanSerde(), st.booleans()),
    (JsonSerde(), JSON_VALUES.filter(lambda value: value is not None)),
    (JsonSerde(Id), st.builds(Id, st.text(), st.integers())),
    (JsonSerde(Place), st.builds(Place, st.integers(), st.floats(allow_nan=False, allow_infinity=False))),
    (JsonSerde(date), st.dates()),
    (ListSerde(Float64Serde()), st.lists(st.none() | FLOATS)),
    (TupleSerde(BytesSerde(), Int64Serde()), st.tuples(st.binary(), st.integers(-5, 5))),
    (
        TimeWindowedSerde(StringSerde(), 5),
        st.builds(lambda key, at: Windowed(key, Window(at, at + 5)), st.text(), TIMES),
    ),
    (SessionWindowedSerde(BytesSerde()), st.builds(lambda key, at: Windowed(key, Window(at, at)), st.binary(), TIMES)),
]


@up_to(300)
@given(st.sampled_from(OF_SERDES).flatmap(lambda of: st.tuples(st.just(of[0]), of[1])))
def test_bytes_come_back_from_what_is_shown_of_them(of: tuple[Serde[Any], Any]) -> None:
    serde, value = of
    data = as_key(serde).serialize("", value)
    form = loads(shown_json(reader_of(serde, "")(data)))
    assert written(as_key(serde), "", form) == data
    if not isinstance(form, str):
        assert written_of_text(as_key(serde), "", _json(form)) == data
    elif not isinstance(serde, JsonSerde):
        assert written_of_text(as_key(serde), "", form) == data


def test_shown_is_never_a_text_of_pythons() -> None:
    assert shown({(1, 2): {1, 2}, Colour.RED: Place(1, 2.0), 5: b"\xff"}) == {
        "[1,2]": [1, 2],
        "red": {"east": 1, "north": 2.0},
        "5": "/w==",
    }
    with pytest.raises(SerdeError, match="no form in JSON"):
        shown([object()])
    with pytest.raises(SerdeError, match="an array of 3"):
        value_of(KEYS["tuple"][0], "", [1])
