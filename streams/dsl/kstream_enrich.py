"""The part of `KStream` that calls other systems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from streams.dsl import functions
from streams.dsl.arguments import operator_name
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.nodes.enrich import EnrichOptions, OnError, add_enrich
from streams.dsl.options import NameLike
from streams.model.typing import V2, K, T, V
from streams.model.windows import Duration

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream

Results: TypeAlias = Sequence[V2] | Awaitable[Sequence[V2]]
OrFactory: TypeAlias = T | Callable[..., T]
OnFailure: TypeAlias = Literal["fail", "drop"] | Callable[[K, V, Exception], V2] | Callable[[V, Exception], V2]


class EnrichMixin(KStreamPart[K, V]):
    """The method of a `KStream` that calls other systems."""

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
        """Maps values by calls to another system, with many values per call or many calls at the same time.

        The function takes either many values (with `batch_size`; may be `async def`) or one value (must be `async def`)::

            def countries(ips: list[str]) -> list[str]:
                return geo.lookup_all(ips)

            async def country(ip: str) -> str:
                return await geo.lookup(ip)

            stream.enrich(countries, batch_size=500, retries=3)
            stream.enrich(country, concurrency=32, timeout=timedelta(seconds=2), on_error="drop")

        `KStream[K, V]` to `KStream[K, V2]`. Keys, timestamps, headers and the order of records stay; nulls are passed to the
        function. Calls are made where records are read, before records are merged by time; behind a stateful operator, the
        stream goes through a repartition topic first. A repeated micro-batch makes its calls again, and only the results of one
        attempt are committed.

        Args:
            function: `fn(values)` or `fn(keys, values)` returns a list with one result per value; without `batch_size`,
                `async fn(value)` or `async fn(key, value)` returns the result. Of a class (or a `partial` of one), one object
                is made in each process, in the event loop of its calls, and called; such an object can hold a client.
            batch_size: The most values in a call; None: one value per call.
            concurrency: The most calls of an async function at the same time in a reader (topic-partition); None: 16.
            timeout: The longest that a call of an async function may take; None: 30 seconds.
            retries: How often to repeat a failed call. If a call for many values still fails, each value is tried alone.
            backoff: The wait before the first retry, doubled before each further one, up to a minute.
            on_error: What to do when all calls for a record have failed. `"fail"`: the processing policy decides, as for any
                function that raises; `"drop"`: the record is left out (`dropped()`; reasons `call_failed`, `timeout`); a `Retry`:
                the record goes through retry topics and comes back; or a function `(value, error) -> value` or
                `(key, value, error) -> value`.
            named: Name of the operator, and of the repartition topic if one is needed; required with a `Retry`.

        Raises:
            TopologyError: The function has another signature, or the settings do not fit the function.

        Source: ours; for Kafka Streams, KIP-311 and KIP-408 proposed the same.
        """
        options = EnrichOptions(batch_size, concurrency, timeout, retries, backoff, on_error)
        port = add_enrich(self._graph, self._port, function, options, operator_name("enrich", named))
        return self._stream(port)
