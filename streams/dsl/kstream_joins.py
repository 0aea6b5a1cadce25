"""The part of `KStream` that joins it with another stream, a table or a global table.

The overloads tell type checkers which types a joiner receives: in a left join the right value may be None, in an outer join either
value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import one_option
from streams.dsl.global_table import GlobalKTable
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.nodes.abstract_stream import StreamBase
from streams.dsl.nodes.join import join_any
from streams.dsl.options import Joined, NameLike, Option, StreamJoined
from streams.dsl.options.keywords import JoinedKeywords, StreamJoinedKeywords
from streams.errors import TopologyError
from streams.model.typing import (
    KO,
    VO,
    K,
    KeyValueJoiner,
    KeyValueMapper,
    LookUpJoiner,
    R,
    V,
    ValueJoiner,
    ValueMapper,
)
from streams.model.windows import JoinWindows
from streams.operators.table.value_getter import JoinKind

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream
    from streams.dsl.ktable import KTable

OfStreams: TypeAlias = StreamJoined[K, V, VO] | NameLike
WithTable: TypeAlias = Joined[K, V] | NameLike
Selector: TypeAlias = KeyValueMapper[K, V, KO | None] | ValueMapper[V, KO | None]


class JoinMixin(KStreamPart[K, V]):
    """Joins of a `KStream`."""

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: ValueJoiner[V, VO, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: KeyValueJoiner[K, V, VO, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO, R],
        joined: WithTable[K, V] = None,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: KeyValueJoiner[K, V, VO, R],
        joined: WithTable[K, V] = None,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: ValueJoiner[V, VO, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: ValueMapper[V, KO | None],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: ValueJoiner[V, VO, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: KeyValueMapper[K, V, KO | None],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: Selector[K, V, KO],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: LookUpJoiner[K, KO, V, VO, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: Selector[K, V, KO],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: KeyValueMapper[K, V, KO | None],
        joiner: ValueJoiner[V, VO, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: ValueMapper[V, KO | None],
        joiner: ValueJoiner[V, VO, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: Selector[K, V, KO],
        joiner: KeyValueJoiner[K, V, VO, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: Selector[K, V, KO],
        joiner: LookUpJoiner[K, KO, V, VO, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    def join(  # type: ignore[misc]  # a table has no windows: `joined` has their place
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: functions.Function,
        windows: JoinWindows | Joined | StreamJoined | NameLike | functions.Function = None,
        joined: JoinWindows | Joined | StreamJoined | NameLike | functions.Function = None,
        *,
        key_selector: functions.Function | None = None,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins each record with records of another stream within `windows`, or with the current row of a table.

        A versioned table is read as of the record's timestamp. Records with a null value are dropped, and so are those with a null
        key (with a global table: a null key to look up). The result's timestamp is the larger one of two stream records, or that
        of the stream's record if the other side is a table.
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

        Raises:
            TopologyError: The arguments do not fit together, or the two sides have keys of different serdes.
        """
        return self._join("inner", other, joiner, windows, joined, key_selector, option)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: ValueJoiner[V, VO | None, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO | None, R],
        joined: WithTable[K, V] = None,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R],
        joined: WithTable[K, V] = None,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: ValueJoiner[V, VO | None, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: ValueMapper[V, KO | None],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: ValueJoiner[V, VO | None, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: KeyValueMapper[K, V, KO | None],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: Selector[K, V, KO],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: LookUpJoiner[K, KO, V, VO | None, R],
        joined: WithTable[K, V] = None,
        *,
        key_selector: Selector[K, V, KO],
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: KeyValueMapper[K, V, KO | None],
        joiner: ValueJoiner[V, VO | None, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: ValueMapper[V, KO | None],
        joiner: ValueJoiner[V, VO | None, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: Selector[K, V, KO],
        joiner: KeyValueJoiner[K, V, VO | None, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        key_selector: Selector[K, V, KO],
        joiner: LookUpJoiner[K, KO, V, VO | None, R],
        joined: WithTable[K, V] = None,
        /,
        **option: Unpack[JoinedKeywords[K, V]],
    ) -> KStream[K, R]: ...

    def left_join(  # type: ignore[misc]  # a table has no windows: `joined` has their place
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: functions.Function,
        windows: JoinWindows | Joined | StreamJoined | NameLike | functions.Function = None,
        joined: JoinWindows | Joined | StreamJoined | NameLike | functions.Function = None,
        *,
        key_selector: functions.Function | None = None,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins like `join`, but every record of this stream has a result; the joiner gets None if there is no match.

        With another stream, a result without a match is emitted once the record's window and grace have passed, with the record's
        timestamp. A record with a null key has its result at once (KIP-962); one with a null value is dropped.
        """
        return self._join("left", other, joiner, windows, joined, key_selector, option)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: ValueJoiner[V | None, VO | None, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: KeyValueJoiner[K, V | None, VO | None, R],
        windows: JoinWindows,
        joined: OfStreams[K, V, VO] = None,
        **option: Unpack[StreamJoinedKeywords],
    ) -> KStream[K, R]: ...

    def outer_join(
        self,
        other: KStream[Any, Any],
        joiner: functions.Function,
        windows: JoinWindows | StreamJoined | NameLike = None,
        joined: JoinWindows | StreamJoined | NameLike = None,
        **option: Any,
    ) -> KStream[Any, Any]:
        """Joins two streams like `left_join`, but every record of either stream has a result.

        Raises:
            TopologyError: The other side is a table, or there are no windows.

        Source: Kafka Streams' `KStreamKStreamJoin` with outer sides (KIP-633).
        """
        return self._join("outer", other, joiner, windows, joined, None, option)

    def _join(
        self,
        kind: JoinKind,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: functions.Function,
        windows: object,
        joined: object,
        key_selector: functions.Function | None,
        keywords: dict[str, Any],
    ) -> KStream[Any, Any]:
        self._check_same_builder(other)
        method = "join" if kind == "inner" else f"{kind}_join"
        if isinstance(other, GlobalKTable) and key_selector is None and _is_function(windows):
            # Kafka Streams' order: the table, the key to look up, the joiner.
            key_selector, joiner, windows = joiner, cast("functions.Function", windows), None
        elif _is_function(windows):
            raise TopologyError(
                f"{method}() with a {type(other).__name__} takes one function, the joiner: both sides are joined by key. Only a "
                f"global table is joined by a key_selector=..., and a table with a table by a foreign_key=...."
            )
        how: StreamJoined | Joined
        between, given = _apart(windows, joined)
        if isinstance(other, StreamBase):
            how = one_option(method, StreamJoined, given, keywords)
        else:
            how = one_option(method, Joined, given, keywords)
        port = join_any(self._graph, kind, self._port, other, joiner, between, how, key_selector)
        looked_up, theirs = ((None,), None) if isinstance(other, GlobalKTable) else ((), other._port.value_serde)
        return self._stream(
            self._graph.typed(port, joiner, self._port.key_serde, *looked_up, self._port.value_serde, theirs)
        )


def _is_function(given: object) -> bool:
    return callable(given) and not isinstance(given, type)


def _apart(windows: object, joined: object) -> tuple[object, object]:
    """The windows, which the join itself checks, and the other option, in either order."""
    if isinstance(windows, Option | str) and (joined is None or isinstance(joined, JoinWindows)):
        windows, joined = joined, windows
    return windows, joined
