"""The part of `KStream` that calls other systems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from streams.dsl import functions
from streams.dsl.arguments import operator_name
from streams.dsl.build.enrich import EnrichOptions, OnError, add_enrich
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.options import NameLike
from streams.model.typing import V2, K, T, V
from streams.model.windows import Duration

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream

Results: TypeAlias = Sequence[V2] | Awaitable[Sequence[V2]]
OrFactory: TypeAlias = T | Callable[..., T]
OnFailure: TypeAlias = Literal["fail", "drop"] | Callable[[K, V, Exception], V2] | Callable[[V, Exception], V2]


class EnrichMixin(KStreamPart[K, V]):
    """What of a `KStream` waits for answers from elsewhere."""

    @overload
    def enrich(
        self,
        function: OrFactory[Callable[[list[V]], Results[V2]]],
        *,
        batch_size: int,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: OnFailure[K, V, V2] = "fail",
        named: NameLike = None,
    ) -> KStream[K, V2]: ...

    @overload
    def enrich(
        self,
        function: OrFactory[Callable[[list[K], list[V]], Results[V2]]],
        *,
        batch_size: int,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: OnFailure[K, V, V2] = "fail",
        named: NameLike = None,
    ) -> KStream[K, V2]: ...

    @overload
    def enrich(
        self,
        function: OrFactory[Callable[[V], Awaitable[V2]]],
        *,
        batch_size: None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: OnFailure[K, V, V2] = "fail",
        named: NameLike = None,
    ) -> KStream[K, V2]: ...

    @overload
    def enrich(
        self,
        function: OrFactory[Callable[[K, V], Awaitable[V2]]],
        *,
        batch_size: None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: OnFailure[K, V, V2] = "fail",
        named: NameLike = None,
    ) -> KStream[K, V2]: ...

    def enrich(
        self,
        function: functions.Function,
        *,
        batch_size: int | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: OnError = "fail",
        named: NameLike = None,
    ) -> KStream[Any, Any]:
        """Makes new values by calls to another system: many values in one call, or many calls side by side.

        Either, with `batch_size`, a function of many values (`async def` too), or an `async def` of one::

            def countries(ips: list[str]) -> list[str]:
                return geo.lookup_all(ips)

            async def country(ip: str) -> str:
                return await geo.lookup(ip)

            stream.enrich(countries, batch_size=500, retries=3)
            stream.enrich(country, concurrency=32, timeout=timedelta(seconds=2), on_error="drop")

        `KStream[K, V]` to `KStream[K, V2]`. Key, time, headers and the order of records stay; nulls go to the function.
        It runs where records are read, before they are merged by time; behind a stateful operator the stream crosses a
        repartition topic for that. A micro-batch that is repeated calls again, and only one attempt's results are committed.

        Args:
            function: `fn(values)` or `fn(keys, values)` gives a list with a result for each; without `batch_size`,
                `async fn(value)` or `async fn(key, value)` gives the result. A class (or a `partial` of one) is made once
                in each process, in the event loop of its calls, and its object is called; so it can keep a client.
            batch_size: How many values a call gets at most; None: calls are for one value.
            concurrency: How many calls of an async function may be under way in a reader (topic-partition); None: 16.
            timeout: How long a call of an async function may take; None: 30 seconds.
            retries: How often a call that fails is made again. If it is for many values, these are then tried one by one.
            backoff: How long to wait before the first of these; twice as long before each further one, up to a minute.
            on_error: When all calls for a record have failed: `"fail"`: as of any function that raises, the processing policy
                decides; `"drop"`: the record is left out (`dropped()`; reasons `call_failed`, `timeout`); or a function
                `(value, error) -> value` or `(key, value, error) -> value`.
            named: Name of the operator, and of the repartition topic where one is needed.

        Raises:
            TopologyError: The function is of another shape, or the settings do not fit it.

        Source: ours; for Kafka Streams, KIP-311 and KIP-408 asked for it.
        """
        options = EnrichOptions(batch_size, concurrency, timeout, retries, backoff, on_error)
        port = add_enrich(self._graph, self._port, function, options, operator_name("enrich", named))
        return self._stream(port)
