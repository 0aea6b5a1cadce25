"""The part of `KStream` that Kafka Streams lacks: joins of many streams, as-of joins and deduplication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import one_option, operator_name
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.nodes.join_all import check_names, join_all_streams, port_of
from streams.dsl.nodes.stream_extras import add_deduplicate, join_as_of
from streams.dsl.options import NameLike, StreamJoined
from streams.dsl.options.keywords import StreamJoinedKeywords
from streams.model.typing import VO, K, KeyValueJoiner, KeyValueMapper, R, V, ValueJoiner, ValueMapper
from streams.model.windows import Duration, JoinWindows
from streams.serdes.base import Serde

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


class ExtrasMixin(KStreamPart[K, V]):
    """Stateful methods of a `KStream` that Kafka Streams lacks."""

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
        """Joins several streams: one result for each combination of one record per stream within one window.

        `orders.join_all({"payment": payments, "shipment": shipments}, joiner, windows, this="order")`. All records of a
        result have the same key, and the oldest and the newest are at most the windows' time difference apart. Each result is
        emitted once, when the last of its records arrives, with the timestamp of the newest record and the headers of the last
        to arrive. Null keys, null values and late records are dropped, as by `join`. Several results of one record are ordered
        by the first stream's record, oldest first, then the second's; this stream is the first, followed by `others`.

        The cost is one result per combination. With m records per key and window in each of n streams, that is about
        `m ** (n - 1)` results per record: fine for keys that occur once or twice, such as order numbers, and impossible
        for frequent keys (four streams, 100 records each: a million results per record). In that case, aggregate the streams
        first, or use shorter windows. A record is cheap as long as any other stream has no record of its key.

        Args:
            others: Two to eight other streams by name. The same stream may be passed again; its records then join themselves.
            joiner: `joiner(values)` or `joiner(key, values)`; `values` is a new dict with the value of each stream by name.
                Do not change these values, which may be part of several results.
            windows: How far apart records may be, and the grace; the bounds before and after must be equal.
            joined: Names, key serde and settings of the stores.
            this: This stream's name in `values`. Stores are named after the streams' names, so choose names that can stay.
            value_serdes: Serdes of the values in the stores, by name, for streams whose values are made by an operator.
            **option: Fields of `StreamJoined`, passed directly.

        Raises:
            TopologyError: Windows are asymmetric, there are too few or too many streams, a name occurs twice, an argument is a
                table, or the streams have keys of different serdes.
        """
        check_names(this, others)
        for other in others.values():
            self._check_same_builder(other)
        ports = {this: self._port, **{name: port_of(name, other) for name, other in others.items()}}
        how = one_option("join_all", StreamJoined, joined, option)
        port = join_all_streams(self._graph, ports, joiner, windows, how, value_serdes or {})
        return self._stream(self._graph.typed(port, joiner))

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
        """Joins each record with the newest record of the other stream that is no newer than the record itself.

        The latest quote for each trade: `trades.as_of_join(quotes, joiner, within=timedelta(seconds=10))`. A record waits
        until stream time has passed its timestamp by more than `grace`, so that late records of the other stream are found.

        Args:
            other: The stream to look records up in; of several with the same key and timestamp, the last to arrive counts.
            joiner: `joiner(left, right)` or `joiner(key, left, right)`.
            within: How much older the other record may be.
            grace: How late records of either stream may be; later ones are dropped.
            joined: Names, serdes and settings of the stores.
            left: Whether a record without a match is joined with None; otherwise it has no result.
            **option: Fields of `StreamJoined`, passed directly.

        Raises:
            TopologyError: A duration is negative, or the two sides have keys of different serdes.
        """
        self._check_stream(other)
        fn, how = functions.joiner(joiner), one_option("as_of_join", StreamJoined, joined, option)
        port = join_as_of(self._graph, self._port, other._port, fn, within, grace, left, how)
        mine, theirs = self._port.value_serde, other._port.value_serde
        return self._stream(self._graph.typed(port, joiner, self._port.key_serde, mine, theirs))

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
        """Drops duplicates: records that repeat one already processed, less than `within` before or after in event time.

        Args:
            within: How far apart in event time duplicates may be.
            by: `by(value)` or `by(key, value)` returns an id, any JSON value, in which duplicates agree besides the key; None:
                records with the same key are duplicates. A record whose id is None always passes.
            grace: How late a record may be. A later record is dropped, because what it may repeat is no longer stored.
            key_serde: The serde of the key, if an operator has made the key.
            named: Name of the operator, its store and its repartition topic.

        Raises:
            TopologyError: `within` is not positive, or `grace` negative.
        """
        fn = None if by is None else functions.key_value(by, "id")
        name = operator_name("deduplicate", named)
        return self._stream(add_deduplicate(self._graph, self._port, within, fn, grace, key_serde, name))
