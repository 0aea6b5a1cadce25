"""The part of `KStream` that Kafka Streams lacks: joins of many streams, as-of joins, and what tells repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import one_option, operator_name
from streams.dsl.build.join_all import check_names, join_all_streams, port_of
from streams.dsl.build.stream_extras import add_deduplicate, join_as_of
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.options import NameLike, StreamJoined
from streams.dsl.options.keywords import StreamJoinedKeywords
from streams.model.typing import VO, K, KeyValueJoiner, KeyValueMapper, R, V, ValueJoiner, ValueMapper
from streams.model.windows import Duration, JoinWindows
from streams.serdes.base import Serde

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


class ExtrasMixin(KStreamPart[K, V]):
    """Joins and filters of a `KStream` that remember other records."""

    @overload
    def join_all(
        self,
        others: Mapping[str, KStream[K, Any]],
        joiner: ValueMapper[dict[str, Any], R],
        windows: JoinWindows,
        joined: StreamJoined | NameLike = None,
        *,
        this: str = "this",
        value_serdes: Mapping[str, Serde[Any]] | None = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def join_all(
        self,
        others: Mapping[str, KStream[K, Any]],
        joiner: KeyValueMapper[K, dict[str, Any], R],
        windows: JoinWindows,
        joined: StreamJoined | NameLike = None,
        *,
        this: str = "this",
        value_serdes: Mapping[str, Serde[Any]] | None = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    def join_all(
        self,
        others: Mapping[str, KStream[K, Any]],
        joiner: ValueMapper[dict[str, Any], R] | KeyValueMapper[K, dict[str, Any], R],
        windows: JoinWindows,
        joined: StreamJoined | NameLike = None,
        *,
        this: str = "this",
        value_serdes: Mapping[str, Serde[Any]] | None = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]:
        """Joins several streams: one result for each choice of one record per stream that lie within one window.

        `orders.join_all({"payment": payments, "shipment": shipments}, joiner, windows, this="order")`. All records of a
        result have one key, and the oldest and the newest of them are at most the windows' time difference apart. The result
        comes once, when the last of them comes, with the time of the newest and the headers of the last to come. Null keys
        and values and late records are dropped, by the rules of `join`. Of several results of one record the first stream's
        oldest record comes first, next the second's; this stream is the first, then `others` in their order.

        What it costs: a record gives as many results as there are choices. With m records of a key in a window, of each of n
        streams, that is about `m ** (n - 1)` per record: fine for keys that occur once or twice, such as an order's
        number, and beyond any machine for busy ones (four streams, 100 records each: a million results per record). Aggregate
        such streams first, or use a shorter window. A record is cheap while any other stream has nothing for its key.

        Args:
            others: Two to eight other streams by name; the same stream may be given again, then its records meet themselves.
            joiner: `joiner(values)` or `joiner(key, values)`; `values` is a new dict of name -> value of all streams.
                The values in it take part in several results: make a new one rather than change one.
            windows: How far apart records may be, and the grace; both bounds must be equal.
            joined: Names, the key serde and settings of the stores.
            this: This stream's name among `values`. Names are part of the names of stores, so they should last.
            value_serdes: Serdes of values in the stores, by name, for streams whose values an operator has made anew.
            **option: Fields of `StreamJoined`, given directly.

        Raises:
            TopologyError: Asymmetric windows, too few or too many streams, a name twice, a table, or streams that are keyed by
                different serdes.
        """
        check_names(this, others)
        for other in others.values():
            self._check_same_builder(other)
        ports = {this: self._port, **{name: port_of(name, other) for name, other in others.items()}}
        how = one_option("join_all", StreamJoined, joined, option)
        return self._stream(join_all_streams(self._graph, ports, joiner, windows, how, value_serdes or {}))

    @overload
    def as_of_join(
        self,
        other: KStream[K, VO],
        joiner: ValueJoiner[V, VO, R],
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined[K, V, VO] | NameLike = None,
        *,
        left: Literal[False] = False,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def as_of_join(
        self,
        other: KStream[K, VO],
        joiner: KeyValueJoiner[K, V, VO, R],
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined[K, V, VO] | NameLike = None,
        *,
        left: Literal[False] = False,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def as_of_join(
        self,
        other: KStream[K, VO],
        joiner: ValueJoiner[V, VO | None, R],
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined[K, V, VO] | NameLike = None,
        *,
        left: bool,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def as_of_join(
        self,
        other: KStream[K, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R],
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined[K, V, VO] | NameLike = None,
        *,
        left: bool,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    def as_of_join(
        self,
        other: KStream[Any, Any],
        joiner: functions.Function,
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined | NameLike = None,
        *,
        left: bool = False,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins each record with the newest one of the other stream that is not newer than itself (as-of join).

        `quotes` as of each trade: `trades.as_of_join(quotes, joiner, within=timedelta(seconds=10))`. A record waits
        until stream time has passed its own by more than `grace`, so that late records of the other stream count.

        Args:
            other: Where the earlier records are; of several with one key and time the last to come counts.
            joiner: `joiner(left, right)` or `joiner(key, left, right)`.
            within: How much older the other record may be.
            grace: How late records may be, of both streams; those that are later are dropped.
            joined: Names, serdes and settings of the stores.
            left: A record that finds no other is joined with None; otherwise it gives nothing.
            **option: Fields of `StreamJoined`, given directly.

        Raises:
            TopologyError: A negative duration, or the two sides are keyed by different serdes.
        """
        self._check_stream(other)
        fn, how = functions.joiner(joiner), one_option("as_of_join", StreamJoined, joined, option)
        return self._stream(join_as_of(self._graph, self._port, other._port, fn, within, grace, left, how))

    @overload
    def deduplicate(
        self,
        within: Duration,
        by: ValueMapper[V, Any] | None = None,
        grace: Duration = 0,
        key_serde: Serde[K] | None = None,
        named: NameLike = None,
    ) -> KStream[K, V]: ...

    @overload
    def deduplicate(
        self,
        within: Duration,
        by: KeyValueMapper[K, V, Any],
        grace: Duration = 0,
        key_serde: Serde[K] | None = None,
        named: NameLike = None,
    ) -> KStream[K, V]: ...

    def deduplicate(
        self,
        within: Duration,
        by: ValueMapper[V, Any] | KeyValueMapper[K, V, Any] | None = None,
        grace: Duration = 0,
        key_serde: Serde[K] | None = None,
        named: NameLike = None,
    ) -> KStream[K, V]:
        """Drops records that repeat one that has passed less than `within` away in event time, before or after.

        Args:
            within: How far apart repetitions may be.
            by: What a repetition repeats besides the key: `by(value)` or `by(key, value)` gives an id, any JSON value;
                None: the key alone. A record whose id is None always passes.
            grace: How late a record may be; one that is later is dropped, since what it may repeat is forgotten.
            key_serde: Of the key, where it was made anew.
            named: Name of the operator, its store and a repartition topic.

        Raises:
            TopologyError: `within` is not positive, or `grace` negative.
        """
        fn = None if by is None else functions.key_value(by, "id")
        name = operator_name("deduplicate", named)
        return self._stream(add_deduplicate(self._graph, self._port, within, fn, grace, key_serde, name))
