"""The part of ``KStream`` that brings records together: joins, and what tells repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streams.dsl import functions
from streams.dsl.build.abstract_stream import AbstractStream, StreamBase
from streams.dsl.build.graph_builder import Port
from streams.dsl.build.join import join_any
from streams.dsl.build.join_all import check_names, join_all_streams, port_of
from streams.dsl.build.stream_extras import add_deduplicate, join_as_of
from streams.dsl.options import Joined, NameLike, StreamJoined, option, plain_name
from streams.errors import TopologyError
from streams.model.windows import Duration, JoinWindows
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde
from streams.wording import a_kind_of

if TYPE_CHECKING:
    from streams.dsl.global_table import GlobalKTable
    from streams.dsl.kstream import KStream
    from streams.dsl.ktable import KTable


class JoinMixin(StreamBase):
    """What of a ``KStream`` needs state of its own to meet other records."""

    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: functions.Function,
        windows: JoinWindows | Joined | None = None,
        joined: StreamJoined | Joined | None = None,
        *,
        key_selector: functions.Function | None = None,
    ) -> KStream:
        """Joins with a stream, within ``windows``, or with a table as it is when the record comes.

        A versioned table is seen as it was at the record's time. Null values are dropped, and null keys (of a global table:
        keys to look up). The result's time is the larger one of two stream records', with a table the stream record's.
        Source: Kafka Streams' ``KStreamKStreamJoin``, ``KStreamKTableJoin``, ``KStreamGlobalKTableJoin``.

        Args:
            other: the stream (then ``windows`` is needed) or the table (then there are no windows).
            joiner: ``joiner(left, right)`` or ``joiner(key, left, right)``.
            windows: which records of the two streams meet; for a table, its ``Joined`` may stand here.
            joined: ``StreamJoined`` for a stream, ``Joined`` for a table.
            key_selector: for a global table: ``key_selector(value)`` or ``key_selector(key, value)`` gives the key to look
                up.

        Raises:
            TopologyError: the arguments do not fit together, or the two sides are keyed by different serdes.
        """
        return self._join("inner", other, joiner, windows, joined, key_selector)

    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: functions.Function,
        windows: JoinWindows | Joined | None = None,
        joined: StreamJoined | Joined | None = None,
        *,
        key_selector: functions.Function | None = None,
    ) -> KStream:
        """As ``join``, but every record of this stream gives a result; the joiner gets None where nothing was found.

        With another stream, the result without a partner comes when the record's window and grace have passed, with its own
        time. A null key gives its result at once (KIP-962); a null value is dropped.
        """
        return self._join("left", other, joiner, windows, joined, key_selector)

    def outer_join(
        self,
        other: KStream,
        joiner: functions.Function,
        windows: JoinWindows | None = None,
        joined: StreamJoined | None = None,
    ) -> KStream:
        """As ``left_join`` of two streams, for the records of both.

        Raises:
            TopologyError: the other is a table, or there are no windows.

        Source: Kafka Streams' ``KStreamKStreamJoin`` with outer sides (KIP-633).
        """
        return self._join("outer", other, joiner, windows, joined, None)

    def _join(
        self,
        kind: JoinKind,
        other: KStream | KTable | GlobalKTable,
        joiner: functions.Function,
        windows: JoinWindows | Joined | None,
        joined: StreamJoined | Joined | None,
        key_selector: functions.Function | None,
    ) -> KStream:
        self._check_same_builder(other)
        port = join_any(self._graph, kind, self._port, other, joiner, windows, joined, key_selector)
        return self._stream(port)

    def join_all(
        self,
        others: Mapping[str, KStream],
        joiner: functions.Function,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        this: str = "this",
        value_serdes: Mapping[str, Serde] | None = None,
    ) -> KStream:
        """Joins several streams: one result for each choice of one record per stream that lie within one window.

        ``orders.join_all({"payment": payments, "shipment": shipments}, joiner, windows, this="order")``. All records of a
        result have one key, and the oldest and the newest of them are at most the windows' time difference apart. The result
        comes once, when the last of them comes, with the time of the newest and the headers of the last to come. Null keys
        and values and late records are dropped, by the rules of ``join``. Of several results of one record the first stream's
        oldest record comes first, next the second's; this stream is the first, then ``others`` in their order.

        What it costs: a record gives as many results as there are choices. With m records of a key in a window, of each of n
        streams, that is about ``m ** (n - 1)`` per record: fine for keys that occur once or twice, such as an order's
        number, and beyond any machine for busy ones (four streams, 100 records each: a million results per record). Aggregate
        such streams first, or use a shorter window. A record is cheap while any other stream has nothing for its key.

        Args:
            others: two to eight other streams by name; the same stream may be given again, then its records meet themselves.
            joiner: ``joiner(values)`` or ``joiner(key, values)``; ``values`` is a new dict of name -> value of all streams.
                The values in it take part in several results: make a new one rather than change one.
            windows: how far apart records may be, and the grace; both bounds must be equal.
            joined: names, the key serde and settings of the stores.
            this: this stream's name among ``values``. Names are part of the names of stores, so they should last.
            value_serdes: serdes of values in the stores, by name, for streams whose values an operator has made anew.

        Raises:
            TopologyError: asymmetric windows, too few or too many streams, a name twice, a table, or streams that are keyed by
                different serdes.
        """
        check_names(this, others)
        for other in others.values():
            self._check_same_builder(other)
        ports = {this: self._port, **{name: port_of(name, other) for name, other in others.items()}}
        how = joined if joined is not None else StreamJoined()
        return self._stream(join_all_streams(self._graph, ports, joiner, windows, how, value_serdes or {}))

    def as_of_join(
        self,
        other: KStream,
        joiner: functions.Function,
        within: Duration,
        grace: Duration = 0,
        joined: StreamJoined | None = None,
        *,
        left: bool = False,
    ) -> KStream:
        """Joins each record with the newest one of the other stream that is not newer than itself (as-of join).

        ``quotes`` as of each trade: ``trades.as_of_join(quotes, joiner, within=timedelta(seconds=10))``. A record waits
        until stream time has passed its own by more than ``grace``, so that late records of the other stream count.

        Args:
            other: where the earlier records are; of several with one key and time the last to come counts.
            joiner: ``joiner(left, right)`` or ``joiner(key, left, right)``.
            within: how much older the other record may be.
            grace: how late records may be, of both streams; those that are later are dropped.
            joined: names, serdes and settings of the stores.
            left: a record that finds nobody is joined with None; otherwise it gives nothing.

        Raises:
            TopologyError: a negative duration, or the two sides are keyed by different serdes.
        """
        self._check_stream(other)
        fn, how = functions.joiner(joiner), option(joined, StreamJoined)
        return self._stream(join_as_of(self._graph, self._port, other._port, fn, within, grace, left, how))

    def deduplicate(
        self,
        within: Duration,
        by: functions.Function | None = None,
        grace: Duration = 0,
        key_serde: Serde | None = None,
        named: NameLike = None,
    ) -> KStream:
        """Drops records that repeat one that has passed less than ``within`` away in event time, before or after.

        Args:
            within: how far apart repetitions may be.
            by: what a repetition repeats besides the key: ``by(value)`` or ``by(key, value)`` gives an id, any JSON value;
                None: the key alone. A record whose id is None always passes.
            grace: how late a record may be; one that is later is dropped, since what it may repeat is forgotten.
            key_serde: of the key, where it was made anew.
            named: name of the operator, its store and a repartition topic.

        Raises:
            TopologyError: ``within`` is not positive, or ``grace`` negative.
        """
        fn = None if by is None else functions.key_value(by, "id")
        port = add_deduplicate(self._graph, self._port, within, fn, grace, key_serde, plain_name(named))
        return self._stream(port)

    def _stream(self, port: Port) -> KStream:
        from streams.dsl.kstream import KStream

        return KStream(self._graph, port)

    def _check_stream(self, other: Any) -> None:
        self._check_same_builder(other)
        if not isinstance(other, StreamBase):
            raise TopologyError(f"This argument takes a stream, not {a_kind_of(other)}: a table has to_stream().")

    def _check_same_builder(self, other: Any) -> None:
        if not isinstance(other, AbstractStream) or other._graph is not self._graph:
            known = isinstance(other, AbstractStream)
            what = "comes from another StreamsBuilder" if known else "is no stream or table"
            raise TopologyError(
                f"{type(other).__name__} {what}: join and merge take streams and tables of one builder."
            )
