"""Other names of the methods of streams, tables, groups and builders, by class.

Names that differ only in their spelling (`mapValues`, `map_values`) need no entry. A key is a name as in Java, or with underscores,
which then stands for both.
"""

from __future__ import annotations

_GROUP_FIRST = "group first, with group_by_key() or group_by(...), as in group_by_key().{}"
_WINDOWS_FIRST = "group first, then group_by_key().windowed_by({}).count()"
_TO = "here it is to('topic')"
_PROCESS = "here it is process(...), with a Processor"
_PROCESS_VALUES = "here it is process_values(...), with a Processor"
_MAP_VALUES = "here it is map_values(...)"
_FOREACH = "here it is foreach(...), or peek(...) to go on with the stream"
_GRACE = "how late records may be is said by the windows, as in TimeWindows.of_size_and_grace(size, grace)"

_KSTREAM = {
    # Kafka Streams: older versions, and methods of other classes.
    "through": "here it is repartition(), or to('topic') followed by builder.stream('topic')",
    "branch": "here it is split().branch(predicate, Branched('name')).default_branch(Branched('rest'))",
    "transform": _PROCESS,
    "flat_transform": _PROCESS,
    "transform_values": _PROCESS_VALUES,
    "flat_transform_values": _PROCESS_VALUES,
    "join_table": "here it is join(table, joiner)",
    "join_stream": "here it is join(other, joiner, JoinWindows.of_time_difference_with_no_grace(...))",
    "join_global": "here it is join(global_table, joiner, key_selector=...)",
    "write_as_text": "here it is print(), or foreach(...) with a function that writes",
    "to_stream": "it is a stream already",
    "count": _GROUP_FIRST.format("count()"),
    "aggregate": _GROUP_FIRST.format("aggregate(...)"),
    "reduce": _GROUP_FIRST.format("reduce(...)"),
    "sum": _GROUP_FIRST.format("sum('field')"),
    "min": _GROUP_FIRST.format("min('field')"),
    "max": _GROUP_FIRST.format("max('field')"),
    "mean": _GROUP_FIRST.format("mean('field')"),
    "top": _GROUP_FIRST.format("top(n, by)"),
    "cogroup": _GROUP_FIRST.format("cogroup(aggregator)"),
    "windowed_by": _GROUP_FIRST.format("windowed_by(...)"),
    "suppress": "only tables are suppressed: windowed_by(...).count().suppress(Suppressed.until_window_closes())",
    # Quix Streams.
    "apply": "here it is map_values(...), or flat_map_values(...) for several results",
    "update": "here it is map_values(...) with a function that gives the new value, or peek(...) to look at it",
    "to_topic": _TO,
    "concat": "here it is merge(other)",
    "tumbling_window": _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size)"),
    "hopping_window": _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size).advance_by(step)"),
    "sliding_window": _WINDOWS_FIRST.format("SlidingWindows.of_time_difference_with_no_grace(size)"),
    "session_window": _WINDOWS_FIRST.format("SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    "join_asof": "here it is as_of_join(other, joiner, within)",
    "join_interval": "here it is join(other, joiner, JoinWindows.of_time_difference_with_no_grace(...))",
    "join_lookup": "here it is join(global_table, joiner, key_selector=...), or enrich(...) to call another system",
    "set_timestamp": "the time is set where the topic is read: Consumed(timestamp_extractor=timestamp_field('at'))",
    # Faust.
    "take": "here it is enrich(function_of_a_list, batch_size=...)",
    "events": _FOREACH,
    "items": _FOREACH,
    "tumbling": _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size)"),
    "hopping": _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size).advance_by(step)"),
    # Bytewax.
    "key_on": "here it is select_key(...)",
    "map_value": _MAP_VALUES,
    "filter_value": "here it is filter(...)",
    "flat_map_value": "here it is flat_map_values(...)",
    "inspect": "here it is peek(...), or print()",
    "count_window": _WINDOWS_FIRST.format("windows"),
    "collect_window": "group first, then group_by_key().windowed_by(windows).aggregate(list, add_to_the_list)",
    # Spark and Flink.
    "with_column": "here it is map_values(lambda value: {**value, 'column': ...})",
    "select": _MAP_VALUES,
    "where": "here it is filter(...)",
    "explode": "here it is flat_map_values(...)",
    "union": "here it is merge(other)",
    "union_all": "here it is merge(other)",
    "agg": "here it is group_by(...).aggregate(name=agg.sum('field'))",
    "window": _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size)"),
    "with_watermark": _GRACE,
    "drop_duplicates": "here it is deduplicate(within=...)",
    "distinct": "here it is deduplicate(within=...)",
    "map_partitions": "here it is enrich(function_of_a_list, batch_size=...)",
    "for_each": _FOREACH,
    "write_stream": _TO,
    "sink_to": _TO,
    "add_sink": _TO,
    "sink": _TO,
    "key_by": "here it is group_by(...) to aggregate, or select_key(...)",
    "connect": "here it is merge(other) or join(other, joiner, windows)",
    "assign_timestamps_and_watermarks": "here it is Consumed(timestamp_extractor=...), where the topic is read",
}

_STREAM_FIRST = "a table has no {0}, its updates have: to_stream().{0}(...)"
_TABLE_GROUP_FIRST = "a table is grouped first, as in group_by(lambda key, value: (new_key, value)).{}"

_KTABLE = {
    "to": "a table is written by to_stream().to('topic')",
    "to_topic": "a table is written by to_stream().to('topic')",
    "write_stream": "a table is written by to_stream().to('topic')",
    "through": "here it is to_stream().to('topic') followed by builder.table('topic')",
    **{
        name: _STREAM_FIRST.format(name)
        for name in ("peek", "foreach", "print", "process", "process_values", "flat_map", "flat_map_values", "map",
                     "merge", "split", "select_key", "repartition", "deduplicate", "enrich")
    },
    "branch": "here it is to_stream().split().branch(...)",
    "to_table": "it is a table already",
    "group_by_key": "here it is group_by(lambda key, value: (key, value))",
    "count": _TABLE_GROUP_FIRST.format("count()"),
    "aggregate": _TABLE_GROUP_FIRST.format("aggregate(initializer, adder, subtractor)"),
    "reduce": _TABLE_GROUP_FIRST.format("reduce(adder, subtractor)"),
    "top": _TABLE_GROUP_FIRST.format("top(n, by)"),
    "windowed_by": "windows are of streams: to_stream().group_by_key().windowed_by(...)",
    "queryable_store_name": "here it is store_name",
    "join_on": "here it is join(other, joiner, foreign_key=...)",
    "get": "a topology only describes the table; rows are read by `streams state`, or in a processor",
}  # fmt: skip

_GLOBAL_TABLE = {
    "queryable_store_name": "here it is store_name",
    "join": "a stream joins with it: stream.join(global_table, joiner, key_selector=...)",
    "left_join": "a stream joins with it: stream.left_join(global_table, joiner, key_selector=...)",
    "to_stream": "it has no updates to process; builder.table('topic') has",
    "filter": "it is a topic as it is; builder.table('topic') can be filtered",
    "map_values": "it is a topic as it is; builder.table('topic') can be changed",
}

_AGGREGATE_FIRST = "aggregate the group first, as in count().to_stream()"

_GROUPED = {
    "agg": "here it is aggregate(name=agg.sum('field'))",
    "avg": "here it is mean('field')",
    "fold": "here it is aggregate(initializer, aggregator)",
    "collect": "here it is aggregate(list, aggregator)",
    "window": "here it is windowed_by(windows)",
    "session_windowed_by": "here it is windowed_by(SessionWindows...)",
    "to_stream": _AGGREGATE_FIRST,
    "to": "aggregate the group first, as in count().to_stream().to('topic')",
    "map_values": "aggregate the group first, as in count().map_values(...)",
    "filter": "filter the stream before it is grouped, or the table that the aggregation gives",
    "suppress": "aggregate first, as in count().suppress(Suppressed.until_window_closes())",
    "grace": _GRACE,
    "with_watermark": _GRACE,
    "final": "here it is emit_strategy(EmitStrategy.on_window_close()), before the aggregation",
    "current": "that is the default; emit_strategy(EmitStrategy.on_window_update()) says it",
}

_BRANCHED_STREAM = {
    "otherwise": "here it is default_branch(Branched('rest'))",
    "default": "here it is default_branch(Branched('rest'))",
    "end": "here it is default_branch() or no_default_branch()",
    **dict.fromkeys(
        ("to", "get", "items", "values", "keys"),
        "end the split first: default_branch() or no_default_branch() give the dict",
    ),
}

_BUILDER = {
    **dict.fromkeys(("from_topic", "topic", "read_stream", "from_source", "add_source"), "here it is stream('topic')"),
    "dataframe": "here it is stream('topic')",
    "kstream": "here it is stream('topic')",
    "ktable": "here it is table('topic')",
    "agent": "here it is stream('topic').process(...), or foreach(...)",
    "add_processor": "here it is stream('topic').process(...); TopologyBuilder builds node by node",
    "add_sink": "here it is stream.to('topic'); TopologyBuilder builds node by node",
    **dict.fromkeys(
        ("run", "start", "execute"), "build() gives the topology, and `streams run module:topology` runs it"
    ),
}

_TOPOLOGY_BUILDER = {
    "stream": "here it is add_source(name, 'topic'); StreamsBuilder has stream('topic')",
    "table": "StreamsBuilder has table('topic')",
    "add_read_only_state_store": "StreamsBuilder has it",
    "connect_sources_and_processors": "here it is the argument parents of add_processor",
    **dict.fromkeys(
        ("run", "start", "execute"), "build() gives the topology, and `streams run module:topology` runs it"
    ),
}

_CONTEXT = {
    "commit": "the engine commits after every step, by itself",
    "timestamp": "here it is record.timestamp",
    "offset": "here it is record_metadata.offset",
    "partition": "here it is record_metadata.partition",
    "get_state": "here it is store(name)",
}

OPERATORS: dict[str, dict[str, str]] = {
    "KStream": _KSTREAM,
    "KTable": _KTABLE,
    "GlobalKTable": _GLOBAL_TABLE,
    **dict.fromkeys(
        (
            "KGroupedStream",
            "TimeWindowedKStream",
            "SessionWindowedKStream",
            "CogroupedKStream",
            "TimeWindowedCogroupedKStream",
            "SessionWindowedCogroupedKStream",
        ),
        _GROUPED,
    ),
    "KGroupedTable": {
        **_GROUPED,
        "windowed_by": "windows are of streams: table.to_stream().group_by_key().windowed_by(...)",
    },
    "BranchedKStream": _BRANCHED_STREAM,
    "StreamsBuilder": _BUILDER,
    "TopologyBuilder": _TOPOLOGY_BUILDER,
}
"""Class -> name that it does not have -> what to write instead."""

_WINDOWED = {
    "to_string": "here it is str(windowed)",
    "start": "here it is windowed.window.start",
    "end": "here it is windowed.window.end",
}
_WINDOW = {
    "key": "a row of one key is (window, value)",
    "window": "it is the window: a row of one key is (window, value)",
}

_ONLY_READ = "a test only reads stores: pipe records in that give the state to begin with"

CONTEXTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("UserContext", "MockProcessorContext"), _CONTEXT),
    "DriverStore": dict.fromkeys(("put", "delete", "put_all", "put_if_absent", "remove"), _ONLY_READ),
    "Windowed": _WINDOWED,
    "Window": _WINDOW,
}
"""The same for what is used with every record: the contexts of processors, windowed keys."""

_ITERATOR = "a scan is an iterator of Python: for key, value in store.all()"
_ROW = "a row is a tuple of Python: for key, value in store.all()"

BUILT_IN: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        ("generator", "map", "list_iterator"), dict.fromkeys(("has_next", "next", "peek_next_key", "remove"), _ITERATOR)
    ),
    "tuple": dict.fromkeys(("key", "value"), _ROW),
}
"""The same for what stores give."""

CALLS = {
    "object does not support the context manager protocol": f"{_ITERATOR}, and nothing has to be closed",
    "object is not callable": "if that was key(), value() or window(): these are attributes, as in windowed.key",
}
"""End of a `TypeError`'s message -> what to write instead."""
