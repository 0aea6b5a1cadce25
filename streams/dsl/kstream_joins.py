"""The joins of `KStream`: with another stream, a table, a global table, or several streams.

The overloads tell type checkers which types a joiner receives: in a left join the right value may be None, in an outer join either
value. Arguments that do not fit together, and sides whose keys have different serdes, raise a `TopologyError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import one_option
from streams.dsl.facade import AbstractStream, JoinCall
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.stream_joins import check_names, join_all_streams, join_as_of, join_streams
from streams.dsl.options import Joined, JoinedKeywords, NameLike, StreamJoined, StreamJoinedKeywords
from streams.errors import TopologyError
from streams.model.typing import KO, VO, K, KeyValueJoiner, KeyValueMapper, LookUpJoiner, R, V, ValueJoiner, ValueMapper
from streams.model.windows import Duration, JoinWindows
from streams.serdes.base import Serde
from streams.wording import a_kind_of, described

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream
    from streams.dsl.ktable import GlobalKTable, KTable

OfStreams: TypeAlias = StreamJoined[K, V, VO] | NameLike
WithTable: TypeAlias = Joined[K, V] | NameLike
Selector: TypeAlias = KeyValueMapper[K, V, KO | None] | ValueMapper[V, KO | None]


class StreamJoins(AbstractStream, Generic[K, V]):
    """The joins of `KStream`. The class knows the graph under construction, and the stream's position in it."""

    def __init__(self, graph: GraphBuilder, port: Port) -> None:
        self._graph = graph
        self._port = port

    def _stream(self, port: Port) -> KStream[Any, Any]:
        """Returns the stream that another node of the same graph produces."""
        return cast("KStream[Any, Any]", type(self)(self._graph, port))

    def _check_stream(self, other: object) -> None:
        """Raises `TopologyError` unless `other` is a stream of the same builder."""
        self._check_same_builder(other)
        if not isinstance(other, StreamJoins):
            raise TopologyError(f"This argument takes a stream, not {a_kind_of(other)}: a table has to_stream().")

    # fmt: off
    @overload
    def join(self, other: KStream[K, VO], joiner: ValueJoiner[V, VO, R], windows: JoinWindows,
             joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def join(self, other: KStream[K, VO], joiner: KeyValueJoiner[K, V, VO, R], windows: JoinWindows,
             joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def join(self, other: KTable[K, VO], joiner: ValueJoiner[V, VO, R],
             joined: WithTable[K, V] = None, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: KTable[K, VO], joiner: KeyValueJoiner[K, V, VO, R],
             joined: WithTable[K, V] = None, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: GlobalKTable[KO, VO], joiner: ValueJoiner[V, VO, R], joined: WithTable[K, V] = None,
             *, key_selector: ValueMapper[V, KO | None], **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: GlobalKTable[KO, VO], joiner: ValueJoiner[V, VO, R],
             joined: WithTable[K, V] = None, *, key_selector: KeyValueMapper[K, V, KO | None],
             **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: GlobalKTable[KO, VO], joiner: KeyValueJoiner[K, V, VO, R], joined: WithTable[K, V] = None,
             *, key_selector: Selector[K, V, KO], **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: GlobalKTable[KO, VO], joiner: LookUpJoiner[K, KO, V, VO, R], joined: WithTable[K, V] = None,
             *, key_selector: Selector[K, V, KO], **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def join(self, other: GlobalKTable[KO, VO], key_selector: Callable[..., KO | None], joiner: Callable[..., R],
             joined: WithTable[K, V] = None, /, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    # fmt: on
    def join(  # type: ignore[misc]  # a table has no windows: `joined` has their place
        self,
        other: Any,
        joiner: Any,
        windows: Any = None,
        joined: Any = None,
        *,
        key_selector: Any = None,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins each record with records of another stream within `windows`, or with the current row of a table.

        A versioned table is read as of the record's timestamp. Records with a null value are dropped, and so are records with a
        null key (with a global table: a null key to look up). The result's timestamp is the larger one of two stream records; with
        a table, it is the stream record's. With windows of 10, a left record at 20 joins right records from 10 to 30.
        Source: Kafka Streams' `KStreamKStreamJoin`, `KStreamKTableJoin`, `KStreamGlobalKTableJoin`.

        Args:
            other: The stream (which needs `windows`) or the table (which has none).
            joiner: `joiner(left, right)` or `joiner(key, left, right)`; with a global table also `joiner(key, looked_up, left,
                right)`.
            windows: How far apart joined records of two streams may be. With a table, its `Joined` may be passed here.
            joined: `StreamJoined` for a stream, `Joined` for a table, or the name of either.
            key_selector: For a global table: `key_selector(value)` or `key_selector(key, value)` returns the key to look up.
                Kafka Streams' order of arguments is accepted, too: `join(table, key_selector, joiner)`.
            **option: Fields of `StreamJoined` or `Joined`, passed directly.
        """
        return self._join(other, JoinCall(self._port, "inner", joiner, windows, joined, key_selector, option))

    # fmt: off
    @overload
    def left_join(self, other: KStream[K, VO], joiner: ValueJoiner[V, VO | None, R], windows: JoinWindows,
                  joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: KStream[K, VO], joiner: KeyValueJoiner[K, V, VO | None, R], windows: JoinWindows,
                  joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: KTable[K, VO], joiner: ValueJoiner[V, VO | None, R],
                  joined: WithTable[K, V] = None, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: KTable[K, VO], joiner: KeyValueJoiner[K, V, VO | None, R],
                  joined: WithTable[K, V] = None, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: GlobalKTable[KO, VO], joiner: ValueJoiner[V, VO | None, R],
                  joined: WithTable[K, V] = None, *, key_selector: ValueMapper[V, KO | None],
                  **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: GlobalKTable[KO, VO], joiner: ValueJoiner[V, VO | None, R],
                  joined: WithTable[K, V] = None, *, key_selector: KeyValueMapper[K, V, KO | None],
                  **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: GlobalKTable[KO, VO], joiner: KeyValueJoiner[K, V, VO | None, R],
                  joined: WithTable[K, V] = None,
                  *, key_selector: Selector[K, V, KO], **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: GlobalKTable[KO, VO], joiner: LookUpJoiner[K, KO, V, VO | None, R],
                  joined: WithTable[K, V] = None,
                  *, key_selector: Selector[K, V, KO], **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    @overload
    def left_join(self, other: GlobalKTable[KO, VO], key_selector: Callable[..., KO | None], joiner: Callable[..., R],
                  joined: WithTable[K, V] = None, /, **option: Unpack[JoinedKeywords[K, V]]) -> KStream[K, R]: ...
    # fmt: on
    def left_join(  # type: ignore[misc]  # a table has no windows: `joined` has their place
        self,
        other: Any,
        joiner: Any,
        windows: Any = None,
        joined: Any = None,
        *,
        key_selector: Any = None,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins like `join`, but every record of this stream has a result; the joiner gets None if there is no match.

        With another stream, a result without a match is emitted once stream time has passed the record's window and grace, with the
        record's timestamp: with windows of 10 and a grace of 5, a left record at 20 without a match is emitted when stream time
        passes 35. A record with a null key has its result at once (KIP-962); a record with a null value is dropped.
        """
        return self._join(other, JoinCall(self._port, "left", joiner, windows, joined, key_selector, option))

    # fmt: off
    @overload
    def outer_join(self, other: KStream[K, VO], joiner: ValueJoiner[V | None, VO | None, R], windows: JoinWindows,
                   joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def outer_join(self, other: KStream[K, VO], joiner: KeyValueJoiner[K, V | None, VO | None, R], windows: JoinWindows,
                   joined: OfStreams[K, V, VO] = None, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    # fmt: on
    def outer_join(
        self, other: Any, joiner: functions.Function, windows: Any = None, joined: OfStreams = None, **option: Any
    ) -> KStream[Any, Any]:
        """Joins two streams like `left_join`, but every record of either stream has a result.

        With windows of 10, a left record at 20 and a right record at 40 have a result each, with None for the other side.
        Source: Kafka Streams' `KStreamKStreamJoin` with outer sides (KIP-633).
        """
        return self._join(other, JoinCall(self._port, "outer", joiner, windows, joined, None, option))

    def _join(self, other: AbstractStream, call: JoinCall) -> KStream[Any, Any]:
        self._check_same_builder(other)
        return self._stream(other._joined_by(call))

    def _joined_by(self, call: JoinCall) -> Port:
        call.check_by_key(self)
        if not isinstance(call.windows, JoinWindows):
            raise TopologyError(
                f"A join of two streams needs JoinWindows, not {described(call.windows)}: give "
                f"JoinWindows.of_time_difference_with_no_grace(...) or ..._and_grace(...)."
            )
        how = one_option(call.method, StreamJoined, call.joined, call.keywords)
        return join_streams(self._graph, call.kind, call.left, self._port, call.joiner, call.windows, how)

    # fmt: off
    @overload
    def join_all(self, others: Mapping[str, KStream[K, Any]], joiner: ValueMapper[dict[str, Any], R],
                 windows: JoinWindows, joined: OfStreams = None,
                 *, this: str = "this", value_serdes: Mapping[str, Serde[Any]] | None = None,
                 **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def join_all(self, others: Mapping[str, KStream[K, Any]], joiner: KeyValueMapper[K, dict[str, Any], R],
                 windows: JoinWindows, joined: OfStreams = None,
                 *, this: str = "this", value_serdes: Mapping[str, Serde[Any]] | None = None,
                 **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    # fmt: on
    def join_all(
        self,
        others: Mapping[str, KStream[K, Any]],
        joiner: functions.Function,
        windows: JoinWindows,
        joined: OfStreams = None,
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
        by the first stream's record, oldest first, then by the second stream's, and so on. This stream is the first; `others`
        follow.

        The cost is one result per combination. With m records per key and window in each of n streams, that is about
        `m ** (n - 1)` results per record: fine for keys that occur once or twice, impossible for frequent keys (four streams,
        100 records each: a million results per record). For frequent keys, aggregate the streams first, or use shorter windows.

        Args:
            others: Two to eight other streams by name. The same stream may be passed again; its records then join themselves.
            joiner: `joiner(values)` or `joiner(key, values)`; `values` is a new dict with the value of each stream by name.
                Do not change these values, which may be part of several results.
            windows: How far apart records may be, and the grace; the bounds before and after must be equal.
            joined: Names, key serde and settings of the stores.
            this: This stream's name in `values`. Stores are named after the streams' names, so choose names that can stay.
            value_serdes: Serdes of the values in the stores, by name, for streams whose values are made by an operator.
            **option: Fields of `StreamJoined`, passed directly.
        """
        check_names(this, others)
        for name, other in others.items():
            self._check_same_builder(other)
            if not isinstance(other, StreamJoins):
                raise TopologyError(
                    f"join_all joins streams, but '{name}' is {a_kind_of(other)}: join the result with it, or take its "
                    f"to_stream()."
                )
        ports = {this: self._port, **{name: other._port for name, other in others.items()}}
        how = one_option("join_all", StreamJoined, joined, option)
        return self._stream(join_all_streams(self._graph, ports, joiner, windows, how, value_serdes or {}))

    # fmt: off
    @overload
    def as_of_join(self, other: KStream[K, VO], joiner: ValueJoiner[V, VO, R],
                   within: Duration, grace: Duration = 0, joined: OfStreams[K, V, VO] = None,
                   *, left: Literal[False] = False, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def as_of_join(self, other: KStream[K, VO], joiner: KeyValueJoiner[K, V, VO, R],
                   within: Duration, grace: Duration = 0, joined: OfStreams[K, V, VO] = None,
                   *, left: Literal[False] = False, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def as_of_join(self, other: KStream[K, VO], joiner: ValueJoiner[V, VO | None, R],
                   within: Duration, grace: Duration = 0, joined: OfStreams[K, V, VO] = None,
                   *, left: bool, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    @overload
    def as_of_join(self, other: KStream[K, VO], joiner: KeyValueJoiner[K, V, VO | None, R],
                   within: Duration, grace: Duration = 0, joined: OfStreams[K, V, VO] = None,
                   *, left: bool, **option: Unpack[StreamJoinedKeywords]) -> KStream[K, R]: ...
    # fmt: on
    def as_of_join(
        self,
        other: KStream[Any, Any],
        joiner: functions.Function,
        within: Duration,
        grace: Duration = 0,
        joined: OfStreams = None,
        *,
        left: bool = False,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins each record with the newest record of the other stream that is not newer than the record itself.

        The latest quote for each trade: `trades.as_of_join(quotes, joiner, within=timedelta(seconds=10))`. A record waits
        until stream time has passed its timestamp by more than `grace`, so that late records of the other stream are found. With
        `within` 10, quotes at 5, 12 and 16, and a trade at 15, the result has the quote at 12.

        Args:
            other: The stream to look records up in. Of several with the same key and timestamp, the last to arrive counts.
            joiner: `joiner(left, right)` or `joiner(key, left, right)`.
            within: How much older the other record may be.
            grace: How late records of either stream may be; later records are dropped.
            joined: Names, serdes and settings of the stores.
            left: Whether a record without a match is joined with None; otherwise it has no result.
            **option: Fields of `StreamJoined`, passed directly.
        """
        self._check_stream(other)
        how = one_option("as_of_join", StreamJoined, joined, option)
        return self._stream(join_as_of(self._graph, self._port, other._port, joiner, within, grace, left, how))
