"""Hints for names that do not exist here: "KStream has no 'through': use repartition(), or ...".

Users write programs from memory of Kafka Streams in Java, of its older versions, or of other libraries. The tables give the names
used here; for other names, the most similar ones are suggested. A key of a table is a name as in Java, or with underscores, which
then stands for both forms; names that differ only in their spelling (`mapValues`, `map_values`) need no entry.

`AnswersUnknownNames` is a base class for the classes that users build topologies with. Python calls `__getattr__` only for missing
attributes, so `hasattr`, `copy` and `pickle` work as always, and existing names cost nothing. Classes that process every record
do not inherit from it, because attributes of a class with `__getattr__` are a little slower to read.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from streams.errors import UnknownNameError

T = TypeVar("T")


def _all(names: str, hint: T) -> dict[str, T]:
    """Gives several names one hint, or one table of hints."""
    return dict.fromkeys(names.split(), hint)


# --- Methods of streams, tables, groups and builders, by class.

_GROUP_FIRST = "group first, with group_by_key() or group_by(...), as in group_by_key().{}"
_WINDOWS_FIRST = "group first, then group_by_key().windowed_by({}).count()"
_TO = "use to('topic')"
_PROCESS = "use process(...), with a Processor"
_PROCESS_VALUES = "use process_values(...), with a Processor"
_MAP_VALUES = "use map_values(...)"
_FOREACH = "use foreach(...), or peek(...) to continue with the stream"
_GRACE = "the windows define how late records may be, as in TimeWindows.of_size_and_grace(size, grace)"

_KSTREAM = {
    # Kafka Streams: older versions, and methods of other classes.
    "through": "use repartition(), or to('topic') followed by builder.stream('topic')",
    "branch": "use split().branch(predicate, Branched('name')).default_branch(Branched('rest'))",
    **_all("transform flat_transform", _PROCESS),
    **_all("transform_values flat_transform_values", _PROCESS_VALUES),
    "join_table": "use join(table, joiner)",
    **_all("join_stream join_interval", "use join(other, joiner, JoinWindows.of_time_difference_with_no_grace(...))"),
    "join_global": "use join(global_table, joiner, key_selector=...)",
    "write_as_text": "use print(), or foreach(...) with a function that writes",
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
    "apply": "use map_values(...), or flat_map_values(...) for several results",
    "update": "use map_values(...) with a function that gives the new value, or peek(...) to look at it",
    **_all("to_topic write_stream sink_to add_sink sink", _TO),
    **_all("concat union union_all", "use merge(other)"),
    **_all("tumbling_window tumbling window", _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size)")),
    **_all("hopping_window hopping", _WINDOWS_FIRST.format("TimeWindows.of_size_with_no_grace(size).advance_by(step)")),
    "sliding_window": _WINDOWS_FIRST.format("SlidingWindows.of_time_difference_with_no_grace(size)"),
    "session_window": _WINDOWS_FIRST.format("SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    "join_asof": "use as_of_join(other, joiner, within)",
    "join_lookup": "use join(global_table, joiner, key_selector=...), or enrich(...) to call another system",
    "set_timestamp": "the time is set where the topic is read: Consumed(timestamp_extractor=timestamp_field('at'))",
    # Faust.
    **_all("take map_partitions", "use enrich(function_of_a_list, batch_size=...)"),
    **_all("events items for_each", _FOREACH),
    # Bytewax.
    "key_on": "use select_key(...)",
    **_all("map_value select", _MAP_VALUES),
    **_all("filter_value where", "use filter(...)"),
    **_all("flat_map_value explode", "use flat_map_values(...)"),
    "inspect": "use peek(...), or print()",
    "count_window": _WINDOWS_FIRST.format("windows"),
    "collect_window": "group first, then group_by_key().windowed_by(windows).aggregate(list, add_to_the_list)",
    # Spark and Flink.
    "with_column": "use map_values(lambda value: {**value, 'column': ...})",
    "agg": "use group_by(...).aggregate(name=agg.sum('field'))",
    "with_watermark": _GRACE,
    **_all("drop_duplicates distinct", "use deduplicate(within=...)"),
    "key_by": "use group_by(...) to aggregate, or select_key(...)",
    "connect": "use merge(other) or join(other, joiner, windows)",
    "assign_timestamps_and_watermarks": "use Consumed(timestamp_extractor=...), where the topic is read",
}

_STREAM_FIRST = "a table has no {0}, its updates have: to_stream().{0}(...)"
_TABLE_GROUP_FIRST = "a table is grouped first, as in group_by(lambda key, value: (new_key, value)).{}"

_KTABLE = {
    **_all("to to_topic write_stream", "a table is written by to_stream().to('topic')"),
    "through": "use to_stream().to('topic') followed by builder.table('topic')",
    **{
        name: _STREAM_FIRST.format(name)
        for name in ("peek", "foreach", "print", "process", "process_values", "flat_map", "flat_map_values", "map",
                     "merge", "split", "select_key", "repartition", "deduplicate", "enrich")
    },
    "branch": "use to_stream().split().branch(...)",
    "to_table": "it is a table already",
    "group_by_key": "use group_by(lambda key, value: (key, value))",
    "count": _TABLE_GROUP_FIRST.format("count()"),
    "aggregate": _TABLE_GROUP_FIRST.format("aggregate(initializer, adder, subtractor)"),
    "reduce": _TABLE_GROUP_FIRST.format("reduce(adder, subtractor)"),
    "top": _TABLE_GROUP_FIRST.format("top(n, by)"),
    "windowed_by": "only streams have windows: to_stream().group_by_key().windowed_by(...)",
    "queryable_store_name": "use store_name",
    "join_on": "use join(other, joiner, foreign_key=...)",
    "get": "a topology only describes the table; rows are read by `streams state`, or in a processor",
}  # fmt: skip

_GLOBAL_TABLE = {
    "queryable_store_name": "use store_name",
    "join": "a stream joins with it: stream.join(global_table, joiner, key_selector=...)",
    "left_join": "a stream joins with it: stream.left_join(global_table, joiner, key_selector=...)",
    "to_stream": "it has no updates to process; builder.table('topic') has",
    "filter": "it is a topic, unchanged; builder.table('topic') can be filtered",
    "map_values": "it is a topic, unchanged; builder.table('topic') can be changed",
}

_AGGREGATE_FIRST = "aggregate the group first, as in count().to_stream()"

_GROUPED = {
    "agg": "use aggregate(name=agg.sum('field'))",
    "avg": "use mean('field')",
    "fold": "use aggregate(initializer, aggregator)",
    "collect": "use aggregate(list, aggregator)",
    "window": "use windowed_by(windows)",
    "session_windowed_by": "use windowed_by(SessionWindows...)",
    "to_stream": _AGGREGATE_FIRST,
    "to": "aggregate the group first, as in count().to_stream().to('topic')",
    "map_values": "aggregate the group first, as in count().map_values(...)",
    "filter": "filter the stream before it is grouped, or the table that the aggregation gives",
    "suppress": "aggregate first, as in count().suppress(Suppressed.until_window_closes())",
    **_all("grace with_watermark", _GRACE),
    "final": "use emit_strategy(EmitStrategy.on_window_close()), before the aggregation",
    "current": "that is the default; explicitly: emit_strategy(EmitStrategy.on_window_update())",
}

_BRANCHED_STREAM = {
    "otherwise": "use default_branch(Branched('rest'))",
    "default": "use default_branch(Branched('rest'))",
    "end": "use default_branch() or no_default_branch()",
    **_all(
        "to get items values keys",
        "end the split first: default_branch() or no_default_branch() give the dict",
    ),
}

_BUILDER = {
    **_all("from_topic topic read_stream from_source add_source", "use stream('topic')"),
    "dataframe": "use stream('topic')",
    "kstream": "use stream('topic')",
    "ktable": "use table('topic')",
    "agent": "use stream('topic').process(...), or foreach(...)",
    "add_processor": "use stream('topic').process(...); TopologyBuilder builds node by node",
    "add_sink": "use stream.to('topic'); TopologyBuilder builds node by node",
    **_all("run start execute", "build() gives the topology, and `streams run module:topology` runs it"),
}

_TOPOLOGY_BUILDER = {
    "stream": "use add_source(name, 'topic'); StreamsBuilder has stream('topic')",
    "table": "StreamsBuilder has table('topic')",
    "add_read_only_state_store": "StreamsBuilder has it",
    "connect_sources_and_processors": "use the argument parents of add_processor",
    **_all("run start execute", "build() gives the topology, and `streams run module:topology` runs it"),
}

_CONTEXT = {
    "commit": "the engine commits after every step, by itself",
    "timestamp": "use record.timestamp",
    "offset": "use record_metadata.offset",
    "partition": "use record_metadata.partition",
    "get_state": "use store(name)",
}

_AT_ITSELF = "functions are methods of the expression, as in col('x').{}"

_NOT_AN_EXPRESSION = "expressions do not have it: write a function, as in map_values(lambda value: ...)"
_OF_A_STREAM = "streams have that, as in {}"
_AGGREGATE = "use an aggregate, as in aggregate(x={})"
_OTHER_ROWS = (
    "other records are seen by windows, as in group_by_key().windowed_by(...), or by process(...) with a store"
)

_EXPRESSION = {
    **_all("alias name", "the name is that of the argument, as in fields(total=col('a') * 2)"),
    **_all("and_ bitwise_and", "use &"),
    **_all("or_ bitwise_or", "use |"),
    "not_": "use ~",
    **_all("eq eq_missing eq_null_safe ne lt le gt ge", "use Python's operator, as in col('x') == 1"),
    **_all("add sub mul truediv floordiv mod neg", "use Python's operator, as in col('x') + 1"),
    "abs": "use Python's function of that name",
    **_all("concat append", "use + of two texts"),
    "clip": "use greatest(low).least(high)",
    "try_cast": "use cast(int); a value that cannot be converted fails its record",
    "to_integer": "use cast(int)",
    "to_decimal": "use cast(Decimal)",
    **_all("is_nan isnan is_finite fill_nan nanvl", "JSON has no NaN: is_null() finds what is missing"),
    **_all("with_field with_fields drop_fields rename_fields", "use fields('a', 'b', c=...), or fields('*', c=...)"),
    **_all("get_json_object json_path_match json_decode from_json", "values are read as JSON already: col('a.b')"),
    **_all("map_elements map_batches transform udf", "use a function, as in map_values(lambda value: ...)"),
    **_all(
        "round ceil floor sqrt pow exp log sign hash reverse zfill pad_start pad_end lpad rpad initcap",
        _NOT_AN_EXPRESSION,
    ),
    **_all("replace_strict", "use when(condition, value).otherwise(value), a separate function"),
    **_all("filter where", _OF_A_STREAM.format("filter(col('x') > 1); an aggregate has where=col('x') > 1")),
    **_all("explode flatten outer", _OF_A_STREAM.format("flat_map_values(lambda value: value['items'])")),
    **_all(
        "unique is_unique is_duplicated is_first_distinct drop_nulls",
        _OF_A_STREAM.format("deduplicate(...) or filter(...)"),
    ),
    **_all("asc desc sort head limit top_k", "use top, as in group_by_key().top(3, by=col('x'))"),
    **_all("over shift diff rank cum_sum cum_max rolling_mean rolling_sum lag lead", _OTHER_ROWS),
    **_all("n_unique", _AGGREGATE.format("agg.count_distinct('x')")),
    "arg_max": _AGGREGATE.format("agg.max_by('value', by='x')"),
    "arg_min": _AGGREGATE.format("agg.min_by('value', by='x')"),
    "implode": _AGGREGATE.format("agg.collect('x', last=10)"),
    **_all("date", "use date_format('%Y-%m-%d')"),
    **_all("epoch timestamp", "use to_timestamp()"),
    **_all("weekday dayofweek day_of_week", "use date_format('%u').cast(int)"),
    **_all("str list struct arr", _AT_ITSELF.format("lower()")),
    "dt": _AT_ITSELF.format("hour()"),
    "to_lowercase": "use lower()",
    "to_uppercase": "use upper()",
    **_all("trim strip_chars", "use strip()"),
    **_all("len len_chars size", "use length()"),
    **_all("substr slice", "use [start:stop] as in Python, or substring(position, length) as in SQL"),
    **_all("get_item get list_get", "use [0]"),
    **_all("get_field field", "use col('a.b')"),
    "is_in": "use isin([...])",
    "is_between": "use between(low, high)",
    "astype": "use cast(int)",
    **_all("fill_null fillna coalesce if_null nvl", "use otherwise(value)"),
    **_all("rlike regexp_like matches like ilike", "use regexp_extract(pattern, 0).is_not_null()"),
    "extract": "use regexp_extract(pattern, group)",
    **_all("regexp_replace replace_all", "use replace(old, new), of constant texts"),
    **_all("starts_with", "use startswith('a')"),
    **_all("ends_with", "use endswith('a')"),
    **_all("strptime to_datetime to_date unix_timestamp", "use to_timestamp(format)"),
    **_all("strftime to_string", "use date_format(format)"),
    **_all("year month day minute second dayofmonth", "use date_format('%Y').cast(int), or another format"),
    **_all(
        "when then",
        "use when(condition, value).otherwise(value), a separate function: from streams import when",
    ),
    **_all("sum mean avg min max count first last", "use an aggregate, as in aggregate(total=agg.sum(col('x')))"),
}

OPERATORS: dict[str, dict[str, str]] = {
    "Expression": _EXPRESSION,
    "KStream": _KSTREAM,
    "KTable": _KTABLE,
    "GlobalKTable": _GLOBAL_TABLE,
    **_all(
        "KGroupedStream TimeWindowedKStream SessionWindowedKStream "
        "CogroupedKStream TimeWindowedCogroupedKStream SessionWindowedCogroupedKStream",
        _GROUPED,
    ),
    "KGroupedTable": {
        **_GROUPED,
        "windowed_by": "only streams have windows: table.to_stream().group_by_key().windowed_by(...)",
    },
    "BranchedKStream": _BRANCHED_STREAM,
    "StreamsBuilder": _BUILDER,
    "TopologyBuilder": _TOPOLOGY_BUILDER,
}
"""Class -> name that it does not have -> what to write instead."""

_WINDOWED = {
    "to_string": "use str(windowed)",
    "start": "use windowed.window.start",
    "end": "use windowed.window.end",
}
_WINDOW = {
    "key": "a row of one key is (window, value)",
    "window": "it is the window: a row of one key is (window, value)",
}

_ONLY_READ = "a test writes only to key-value stores: pipe in records that create the initial state"

CONTEXTS: dict[str, dict[str, str]] = {
    **_all("UserContext MockProcessorContext", _CONTEXT),
    "DriverStore": dict.fromkeys(("put", "delete", "put_all", "put_if_absent", "remove"), _ONLY_READ),
    "Windowed": _WINDOWED,
    "Window": _WINDOW,
}
"""Contexts of processors, windowed keys and other classes used with every record -> missing name -> what to write instead."""

_ITERATOR = "a scan is an iterator of Python: for key, value in store.all()"
_ROW = "a row is a tuple of Python: for key, value in store.all()"

BUILT_IN: dict[str, dict[str, str]] = {
    **_all("generator map list_iterator", dict.fromkeys(("has_next", "next", "peek_next_key", "remove"), _ITERATOR)),
    "tuple": dict.fromkeys(("key", "value"), _ROW),
}
"""Built-in classes of the objects that stores return -> missing name -> what to write instead."""

CALLS = {
    "object does not support the context manager protocol": f"{_ITERATOR}, and nothing has to be closed",
    "object is not callable": "if that was key(), value() or window(): these are attributes, as in windowed.key",
}
"""End of a `TypeError`'s message -> what to write instead."""

# --- Arguments of operators: options, windows, stores and `Suppressed`, by class. Names such as `with_key_serde` need no entry.

_LOGGING = {
    "with_caching_enabled": "caching is on unless {0}(caching=False) turns it off",
    "with_caching_disabled": "use {0}(caching=False)",
    "with_logging_enabled": "logging is on unless {0}(logging=False) turns it off; topic settings: changelog_config={{...}}",
    "with_logging_disabled": "use {0}(logging=False)",
    "with_store_type": "use {0}(persistent=True) for RocksDB, or persistent=False for memory",
}
_STREAM_PARTITIONER = "use {0}(partitioner=...)"

_OPTIONS: dict[str, dict[str, str]] = {
    "Consumed": {
        "with_offset_reset_policy": "use Consumed(offset_reset='earliest')",
        "with_auto_offset_reset": "use Consumed(offset_reset='earliest')",
    },
    "Produced": {"with_stream_partitioner": _STREAM_PARTITIONER, "stream_partitioner": _STREAM_PARTITIONER},
    "Grouped": {},
    "Repartitioned": {
        "with_stream_partitioner": _STREAM_PARTITIONER,
        "stream_partitioner": _STREAM_PARTITIONER,
        "with_number_of_partitions": "use Repartitioned(partitions=...)",
        "number_of_partitions": "use Repartitioned(partitions=...)",
    },
    "Materialized": _LOGGING,
    "Joined": {"with_grace_period": "use Joined(grace=...)"},
    "StreamJoined": {
        **_LOGGING,
        "with_this_store_supplier": "use StreamJoined(persistent=...), and store_name=... for the names",
        "with_other_store_supplier": "use StreamJoined(persistent=...), and store_name=... for the names",
        "with_dsl_store_suppliers": "use StreamJoined(persistent=...)",
    },
    "Branched": {
        "with_function": "use Branched(function=...)",
        "with_consumer": "use Branched(consumer=...)",
    },
}


def _of_option(kind: str, own: dict[str, str]) -> dict[str, str]:
    return {name: text.format(kind) for name, text in own.items()}


_NO_GRACE = "use {0}, or {1} for late records"
_OF_SIZE = _NO_GRACE.format("TimeWindows.of_size_with_no_grace(size)", "of_size_and_grace(size, grace)")
_OF_GAP = _NO_GRACE.format(
    "SessionWindows.of_inactivity_gap_with_no_grace(gap)", "of_inactivity_gap_and_grace(gap, grace)"
)
_OF_DIFFERENCE = (
    "use {0}.of_time_difference_with_no_grace(difference), or of_time_difference_and_grace(difference, grace)"
)
_RETENTION = "Materialized(retention=...) defines how long windows are stored"

_WINDOWS: dict[str, dict[str, str]] = {
    "TimeWindows": {
        **_all("of of_size tumbling with_size", _OF_SIZE),
        "hopping": "use TimeWindows.of_size_with_no_grace(size).advance_by(step)",
        "grace": "use TimeWindows.of_size_and_grace(size, grace)",
        "until": _RETENTION,
        "size": "use size_ms",
    },
    "SessionWindows": {
        **_all("of with_ with_gap of_gap of_inactivity_gap", _OF_GAP),
        "grace": "use SessionWindows.of_inactivity_gap_and_grace(gap, grace)",
        "until": _RETENTION,
        "inactivity_gap": "use gap_ms",
    },
    "SlidingWindows": {
        **_all("of of_size of_time_difference", _OF_DIFFERENCE.format("SlidingWindows")),
        "with_time_difference_and_grace": "use SlidingWindows.of_time_difference_and_grace(difference, grace)",
        "grace": "use SlidingWindows.of_time_difference_and_grace(difference, grace)",
    },
    "JoinWindows": {
        **_all("of_size of_time_difference", _OF_DIFFERENCE.format("JoinWindows")),
        "of": "use JoinWindows.of_time_difference_and_grace(difference, grace); Kafka Streams' of has 24 h of grace",
        "grace": "use JoinWindows.of_time_difference_and_grace(difference, grace)",
    },
    "UnlimitedWindows": {"of": "use UnlimitedWindows()"},
    "EmitStrategy": {"on_update": "use EmitStrategy.on_window_update()"},
    "Suppressed": {
        "with_name": "the name is an argument of suppress: suppress(..., named='name')",
        "BufferConfig": "it is a separate class: from streams import BufferConfig",
    },
    "AggregateFunctions": {
        **_all("avg average", "use agg.mean('field')"),
        **_all("percentile percentile_approx approx_percentile median", "use agg.quantile('field', 0.5)"),
        **_all("n_unique nunique", "use agg.count_distinct('field')"),
        **_all("approx_n_unique", "use agg.approx_count_distinct('field')"),
        **_all("collect_list array_agg implode string_agg", "use agg.collect('field', last=10)"),
        "collect_set": "use agg.count_distinct('field'), or group_by(col('field'))",
        "arg_max": "use agg.max_by('value', by='field')",
        "arg_min": "use agg.min_by('value', by='field')",
        **_all("any_value first_value", "use agg.first('field')"),
        "last_value": "use agg.last('field')",
        "len": "use agg.count()",
        "top": "use group_by_key().top(3, by=col('field'))",
        **_all(
            "std stddev var variance mode product sum_distinct",
            "there is no such aggregate: derive a class of your own from Aggregate",
        ),
    },
    "BufferConfig": {
        **_all("maxRecords with_max_records", "use BufferConfig.of_max_records(n)"),
        **_all("maxBytes with_max_bytes", "use BufferConfig.of_max_bytes(n)"),
        "with_no_bound": "use BufferConfig.unbounded()",
    },
}

_IN_MEMORY = "use Stores.kept(Stores.{0}(...), persistent=False)"
_KINDS = (
    "key_value_store",
    "timestamped_key_value_store",
    "versioned_key_value_store",
    "window_store",
    "timestamped_window_store",
    "session_store",
)
_ON_DISK_ALONE = ("timestamped_key_value_store", "timestamped_window_store")

_STORES: dict[str, dict[str, str]] = {
    "Stores": {
        **{f"{kind}_builder": f"use Stores.{kind}(name, key_serde, value_serde, ...)" for kind in _KINDS},
        **{f"in_memory_{kind}": _IN_MEMORY.format(kind) for kind in _ON_DISK_ALONE},
        "lru_map": "there is no store that forgets the least used; Materialized(ttl=...) deletes rows by age",
    },
    "StoreNode": {
        "with_caching_enabled": "stores of processors have no cache; every write is in the store at once",
        "with_caching_disabled": "stores of processors have no cache, so there is nothing to disable",
        "with_logging_enabled": "logging is on; topic settings: Stores.kept(store, changelog_config={...})",
        "with_logging_disabled": "use Stores.kept(store, logging=False)",
        "build": "it is the store already: add_state_store(store)",
    },
}

_ALWAYS_EXACTLY_ONCE = "every application is exactly once, without a setting"
_BAD_RECORDS = "the setting {} is 'fail', 'skip' or 'dlq'"

OF_THE_APPLICATION = {
    "num_stream_threads": "the threads are Spark's cores (`local[4]`), and 'tasks' sets into how many parts keys are divided",
    "processing_guarantee": _ALWAYS_EXACTLY_ONCE,
    "num_standby_replicas": "a standby is the command `streams replica` on each host",
    **_all(
        "default_deserialization_exception_handler deserialization_exception_handler",
        _BAD_RECORDS.format("'deserialization'"),
    ),
    "processing_exception_handler": _BAD_RECORDS.format("'processing'"),
    **_all("default_production_exception_handler production_exception_handler", _BAD_RECORDS.format("'production'")),
    **_all(
        "default_key_serde default_value_serde",
        "a serde belongs where it is used: Consumed(key_serde=..., value_serde=...); without one, keys are text and values JSON",
    ),
    "default_timestamp_extractor": "it belongs where a topic is read: Consumed(timestamp_extractor=...)",
    "auto_offset_reset": "it belongs where a topic is read: Consumed(offset_reset='earliest')",
    "max_task_idle_ms": "a task always waits for a partition if the brokers have more of its records, and for no other (KIP-695)",
}
"""A setting of Kafka Streams' application -> what replaces it here."""

SETTINGS: dict[str, dict[str, str]] = {
    **{kind: _of_option(kind, own) for kind, own in _OPTIONS.items()},
    **_WINDOWS,
    **_STORES,
}
"""Class -> name that it does not have -> what to write instead."""

# --- Names that users may expect in the package itself.

_FUNCTION = "a plain function or lambda is taken wherever Kafka Streams has an interface for it"
_FROM_TESTING = "it is in streams.testing: from streams.testing import {0}"
_APPLICATION = "StreamsBuilder() begins a topology"

_ROWS = "a stream has no table's rows: {}"
_FUNCTIONS = {
    **{
        name: f"functions are methods of the expression, as in col('x').{name}()"
        for name in ("lower", "upper", "length", "hour", "to_timestamp")
    },
    **_all("trim ltrim rtrim", _AT_ITSELF.format("strip()")),
    **_all("substring substr", _AT_ITSELF.format("substring(1, 10)")),
    **_all("regexp_extract regexp_replace split replace", _AT_ITSELF.format("regexp_extract('a(.)', 1)")),
    **_all(
        "date_format to_date from_unixtime year month minute date_trunc", _AT_ITSELF.format("date_format('%Y-%m-%d')")
    ),
    **_all("isnull isnan", _AT_ITSELF.format("is_null()")),
    **_all("coalesce ifnull nvl", "use col('x').otherwise(value)"),
    **_all("greatest least", "use col('x').greatest(col('y'))"),
    **_all("concat concat_ws concat_str", "use + of two texts"),
    **_all("struct to_json", "use fields('a', 'b'), whose objects are written as JSON"),
    **_all("from_json get_json_object", "values are read as JSON already: col('a.b')"),
    **_all("expr sql", "use Python, as in col('x') * 2"),
    **_all("element", "use col('list')[0]"),
    **_all("explode posexplode", "use stream.flat_map_values(lambda value: value['items'])"),
    **_all("udf pandas_udf", "use a function, as in stream.map_values(lambda value: ...)"),
    **_all(
        "window session_window",
        "use group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(...))",
    ),
    **_all("avg mean", "use agg.mean('x')"),
    **_all("count sum min max first last max_by min_by", "use agg, as in agg.sum('x')"),
    **_all("countDistinct count_distinct n_unique", "use agg.count_distinct('x')"),
    "approx_count_distinct": "use agg.approx_count_distinct('x')",
    **_all("median quantile percentile_approx", "use agg.quantile('x', 0.5)"),
    **_all("collect_list array_agg implode", "use agg.collect('x', last=10)"),
    **_all("row_number rank dense_rank", "use group_by_key().top(3, by=col('x'), rank='rank')"),
    **_all("lag lead", _ROWS.format("process(...) with a store keeps the record before")),
    **_all("current_timestamp now", "no clock decides a result: record_timestamp() is the record's time"),
    **_all("broadcast", "use builder.global_table('topic')"),
}
"""Functions of PySpark and Polars."""

PACKAGE: dict[str, str] = {
    "StreamsConfig": "settings go into streams.toml, the environment or `streams run --set`",
    **_all("KeyValue KeyValuePair", "a pair is a tuple here: (key, value)"),
    **_all(
        "Aggregator ForeachAction Initializer KeyValueMapper Merger Predicate Punctuator Reducer StreamPartitioner "
        "TopicNameExtractor ValueJoiner ValueJoinerWithKey ValueMapper ValueMapperWithKey",
        _FUNCTION,
    ),
    **_all("ContextualProcessor AbstractProcessor", "use Processor, for KStream.process"),
    "ContextualFixedKeyProcessor": "use Processor, for KStream.process_values",
    "StoreBuilder": "use Stores, as in builder.add_state_store(Stores.key_value_store(name, key_serde, value_serde))",
    **_all("KeyValueIterator WindowStoreIterator", _ITERATOR),
    **_all(
        "QueryableStoreTypes StoreQueryParameters",
        "stores are read by `streams state`, over HTTP (`streams serve`), or as a DataFrame (KafkaStreams.store_dataframe)",
    ),
    **_all(
        "LogAndContinueExceptionHandler LogAndContinueProcessingExceptionHandler DefaultProductionExceptionHandler",
        "use the setting processing='skip' or deserialization='skip', or 'dlq' to keep the records",
    ),
    **_all(
        "LogAndFailExceptionHandler LogAndFailProcessingExceptionHandler",
        "use the setting processing='fail' or deserialization='fail', which is the default",
    ),
    "To": "use the argument: context.forward(record, child='name')",
    "ProcessorSupplier": "a subclass of Processor is its own supplier: process(MyProcessor)",
    **_all("Transformer TransformerSupplier", "use Processor, for KStream.process"),
    "ValueTransformerWithKey": "use ValueTransformer",
    "FixedKeyProcessor": "use Processor, for KStream.process_values",
    "FixedKeyRecord": "use Record",
    **{name: _FROM_TESTING.format(name) for name in ("TopologyTestDriver", "TestInputTopic", "TestOutputTopic")},
    "MockProcessorContext": _FROM_TESTING.format("MockProcessorContext"),
    **_all("StringSerializer StringDeserializer", "use StringSerde, which does both"),
    **_all("IntegerSerde IntSerde", "use Int32Serde, or Int64Serde for Java's long"),
    "LongSerde": "use Int64Serde",
    "ShortSerde": "use Int16Serde",
    "DoubleSerde": "use Float64Serde",
    "FloatSerde": "use Float32Serde, or Float64Serde for Java's double",
    "ByteArraySerde": "use BytesSerde",
    "ByteBufferSerde": "use BytesSerde",
    "UUIDSerde": "use UuidSerde",
    "JSONSerde": "use JsonSerde",
    **_all("SpecificAvroSerde GenericAvroSerde", "use AvroSerde"),
    "KafkaProtobufSerde": "use ProtobufSerde",
    "KafkaJsonSchemaSerde": "use JsonSchemaSerde",
    "AutoOffsetReset": "use a text: Consumed(offset_reset='earliest')",
    "Duration": "durations are datetime.timedelta, or whole milliseconds",
    "StreamBuilder": "use StreamsBuilder",
    "KStreamBuilder": "use StreamsBuilder",
    "App": _APPLICATION,
    "Application": _APPLICATION,
    "Dataflow": _APPLICATION,
    **_FUNCTIONS,
    "TumblingWindows": "use TimeWindows.of_size_with_no_grace(size)",
    "HoppingWindows": "use TimeWindows.of_size_with_no_grace(size).advance_by(step)",
}
"""Name -> what to write instead."""

# --- The answers.

_ANSWERS: dict[str, Mapping[str, str]] = {**OPERATORS, **SETTINGS, **CONTEXTS}


def answer(kind: type, name: str) -> str | None:
    """Says what to write instead of a name that the class does not have; None if nothing is similar."""
    snake = snake_case(name)
    for base in kind.__mro__:
        answers = _ANSWERS.get(base.__name__, {})
        # `with` and `as` are Python keywords, so libraries write `with_`.
        if found := answers.get(name) or answers.get(snake) or answers.get(f"{snake}_"):
            return found
    settings = [
        one.name
        for one in _parameters(kind)
        if one.kind is one.KEYWORD_ONLY or (dataclasses.is_dataclass(kind) and one.default is not one.empty)
    ]
    if snake.removeprefix("with_") in settings:
        return f"use {kind.__name__}({snake.removeprefix('with_')}=...)"
    there = [one for one in dir(kind) if not one.startswith("_")]
    if snake != name and snake in there:
        return f"use {_as_written(kind, snake)}"
    return _alike(snake, {*there, *settings})


def _parameters(kind: type) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(kind).parameters.values()
    except ValueError:  # a class written in C
        return ()


def no_such_attribute(kind: type, name: str) -> UnknownNameError:
    """Makes the error for a name that neither the class nor its objects have."""
    return UnknownNameError(_sentence(kind.__name__, name, answer(kind, name)), name)


def answer_to(error: BaseException) -> str | None:
    """Says what to write instead if a user's code has read a missing attribute of one of the engine's objects.

    This is for objects that are used for every record, and therefore have no `__getattr__`.
    """
    if isinstance(error, TypeError):
        return next((hint for end, hint in CALLS.items() if str(error).endswith(end)), None)
    if not isinstance(error, AttributeError) or isinstance(error, UnknownNameError) or error.name is None:
        return None
    kind = type(error.obj)
    if (found := BUILT_IN.get(kind.__name__, {}).get(snake_case(error.name))) is not None:
        return found
    return answer(kind, error.name) if kind.__module__.startswith("streams.") else None


def _sentence(owner: str, name: str, instead: str | None) -> str:
    text = f"{owner} has no '{name}': {instead or f'help({owner}) shows what it has'}"
    return text if text.endswith("?") else f"{text}."


def snake_case(name: str) -> str:
    """Turns `mapValues` into `map_values`. An underscore that distinguishes a name from a Python keyword stays."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _as_written(kind: type, name: str) -> str:
    found = inspect.getattr_static(kind, name)
    return f"{name}(...)" if callable(found) or isinstance(found, classmethod | staticmethod) else name


def _alike(name: str, there: Collection[str]) -> str | None:
    close = difflib.get_close_matches(name, there, 3)
    *others, last = close or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if close else None


class _AnsweringType(ABCMeta):
    """Answers for attributes of the class itself, as in `Consumed.with_`; works with abstract base classes."""

    if not TYPE_CHECKING:  # a type checker would believe that every name exists

        def __getattr__(cls, name: str) -> Any:
            raise _missing(cls, name, f"type object {cls.__name__!r}")


class AnswersUnknownNames(metaclass=_AnsweringType):
    """A base class. If the class or one of its objects lacks an attribute, the error has a suggestion."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _missing(type(self), name, f"{type(self).__name__!r} object")


def _missing(kind: type, name: str, owner: str) -> AttributeError:
    """Makes the error for a missing name. Names that begin with an underscore are used by Python or the engine."""
    return (
        AttributeError(f"{owner} has no attribute {name!r}") if name.startswith("_") else no_such_attribute(kind, name)
    )


def names_of_package(
    package: str, home: str, late: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes `__getattr__` and `__dir__` for a package whose names are imported on first use (PEP 562).

    For a name that does not exist, as in `from streams import Serdes` or `streams.Serdes`, the error has a suggestion.
    """

    def names() -> list[str]:
        return sorted([*importlib.import_module(home).__all__, *late])

    def get(name: str) -> Any:
        if name == "__all__":
            return [one for one in names() if not one.startswith("_")]
        if name not in late and name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(late.get(name, home))
        if name not in late and name not in module.__all__:
            raise_missing(name)
        found = getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def raise_missing(name: str) -> None:
        # Names of modules and of Python's protocols are not names of classes.
        if not name[:1].isupper() and name not in PACKAGE:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        error = UnknownNameError(_sentence(package, name, PACKAGE.get(name) or _alike(name, names())), name)
        if sys._getframe(2).f_code.co_name == "_handle_fromlist":
            # The import would replace an AttributeError with a less informative error.
            raise ImportError(str(error), name=name) from None
        raise error

    return get, lambda: sorted({*vars(sys.modules[package]), *names()})
