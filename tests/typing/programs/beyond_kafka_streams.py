"""What Kafka Streams lacks: calls to other systems, as-of joins, joins of many streams, deduplication."""

from datetime import timedelta
from functools import partial
from typing import Any, TypedDict

from typing_extensions import assert_type

from streams import JoinWindows, JsonSerde, KStream, StreamsBuilder, StringSerde


class Visit(TypedDict):
    ip: str
    page: str


def countries(visits: list[Visit]) -> list[str]:
    return [visit["ip"] for visit in visits]


async def countries_of(keys: list[str], visits: list[Visit]) -> list[str]:
    return [*keys, *(visit["ip"] for visit in visits)]


async def country(visit: Visit) -> str:
    return visit["ip"]


class Client:
    def __init__(self, url: str = "http://localhost") -> None:
        self.url = url

    async def __call__(self, key: str, visit: Visit) -> int:
        return len(self.url)


builder = StreamsBuilder()
visits = builder.stream("visits", key_serde=StringSerde(), value_serde=JsonSerde(Visit))
assert_type(visits.enrich(countries, batch_size=100), KStream[str, str])
assert_type(visits.enrich(countries_of, batch_size=100, retries=3), KStream[str, str])
assert_type(visits.enrich(country, concurrency=8, timeout=timedelta(seconds=1), on_error="drop"), KStream[str, str])
assert_type(visits.enrich(country, on_error=lambda visit, error: "unknown"), KStream[str, str])
assert_type(visits.enrich(Client), KStream[str, int])
assert_type(visits.enrich(partial(Client, "http://example.com")), KStream[str, int])

assert_type(visits.deduplicate(timedelta(hours=1)), KStream[str, Visit])
assert_type(visits.deduplicate(timedelta(hours=1), lambda visit: visit["page"]), KStream[str, Visit])
assert_type(visits.deduplicate(timedelta(hours=1), by=lambda key, visit: visit["page"]), KStream[str, Visit])
assert_type(
    visits.as_of_join(visits, lambda visit, earlier: (visit["page"], earlier["page"]), timedelta(hours=1)),
    KStream[str, tuple[str, str]],
)
assert_type(
    visits.as_of_join(visits, lambda visit, earlier: earlier is None, within=1000, left=True, name="before"),
    KStream[str, bool],
)
within = JoinWindows.of_time_difference_with_no_grace(1000)
assert_type(visits.join_all({"a": visits, "b": visits}, lambda values: values["a"], within), KStream[str, Any])
assert_type(visits.join_all({"a": visits, "b": visits}, lambda key, values: len(values), within), KStream[str, int])
assert_type(visits.dropped(), KStream[Any, Any])
