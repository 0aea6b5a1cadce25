"""Other names in the arguments of operators: options, windows, stores and `Suppressed`, by class.

`with_key_serde` and similar names of options need no entry, because they contain the name of an argument.
"""

from __future__ import annotations

_LOGGING = {
    "with_caching_enabled": "caching is on unless {0}(caching=False) says otherwise",
    "with_caching_disabled": "here it is {0}(caching=False)",
    "with_logging_enabled": "logging is on unless {0}(logging=False) says otherwise; topic settings: changelog_config={{...}}",
    "with_logging_disabled": "here it is {0}(logging=False)",
    "with_store_type": "here it is {0}(persistent=True) for RocksDB, or persistent=False for memory",
}
_STREAM_PARTITIONER = "here it is {0}(partitioner=...)"

_OPTIONS: dict[str, dict[str, str]] = {
    "Consumed": {
        "with_offset_reset_policy": "here it is Consumed(offset_reset='earliest')",
        "with_auto_offset_reset": "here it is Consumed(offset_reset='earliest')",
    },
    "Produced": {"with_stream_partitioner": _STREAM_PARTITIONER, "stream_partitioner": _STREAM_PARTITIONER},
    "Grouped": {},
    "Repartitioned": {
        "with_stream_partitioner": _STREAM_PARTITIONER,
        "stream_partitioner": _STREAM_PARTITIONER,
        "with_number_of_partitions": "here it is Repartitioned(partitions=...)",
        "number_of_partitions": "here it is Repartitioned(partitions=...)",
    },
    "Materialized": _LOGGING,
    "Joined": {"with_grace_period": "here it is Joined(grace=...)"},
    "StreamJoined": {
        **_LOGGING,
        "with_this_store_supplier": "here it is StreamJoined(persistent=...), and store_name=... for the names",
        "with_other_store_supplier": "here it is StreamJoined(persistent=...), and store_name=... for the names",
        "with_dsl_store_suppliers": "here it is StreamJoined(persistent=...)",
    },
    "Branched": {
        "with_function": "here it is Branched(function=...)",
        "with_consumer": "here it is Branched(consumer=...)",
    },
}


def _of_option(kind: str, own: dict[str, str]) -> dict[str, str]:
    return {name: text.format(kind) for name, text in own.items()}


_NO_GRACE = "here it is {0}, or {1} for late records"
_OF_SIZE = _NO_GRACE.format("TimeWindows.of_size_with_no_grace(size)", "of_size_and_grace(size, grace)")
_OF_GAP = _NO_GRACE.format(
    "SessionWindows.of_inactivity_gap_with_no_grace(gap)", "of_inactivity_gap_and_grace(gap, grace)"
)
_OF_DIFFERENCE = (
    "here it is {0}.of_time_difference_with_no_grace(difference), or of_time_difference_and_grace(difference, grace)"
)
_RETENTION = "how long windows are stored is said by Materialized(retention=...)"

_WINDOWS: dict[str, dict[str, str]] = {
    "TimeWindows": {
        **dict.fromkeys(("of", "of_size", "tumbling", "with_size"), _OF_SIZE),
        "hopping": "here it is TimeWindows.of_size_with_no_grace(size).advance_by(step)",
        "grace": "here it is TimeWindows.of_size_and_grace(size, grace)",
        "until": _RETENTION,
        "size": "here it is size_ms",
    },
    "SessionWindows": {
        **dict.fromkeys(("of", "with_", "with_gap", "of_gap", "of_inactivity_gap"), _OF_GAP),
        "grace": "here it is SessionWindows.of_inactivity_gap_and_grace(gap, grace)",
        "until": _RETENTION,
        "inactivity_gap": "here it is gap_ms",
    },
    "SlidingWindows": {
        **dict.fromkeys(("of", "of_size", "of_time_difference"), _OF_DIFFERENCE.format("SlidingWindows")),
        "with_time_difference_and_grace": "here it is SlidingWindows.of_time_difference_and_grace(difference, grace)",
        "grace": "here it is SlidingWindows.of_time_difference_and_grace(difference, grace)",
    },
    "JoinWindows": {
        **dict.fromkeys(("of_size", "of_time_difference"), _OF_DIFFERENCE.format("JoinWindows")),
        "of": "here it is JoinWindows.of_time_difference_and_grace(difference, grace); Kafka Streams' of has 24 h of grace",
        "grace": "here it is JoinWindows.of_time_difference_and_grace(difference, grace)",
        "until": "how long records are stored follows from the windows: difference and grace",
    },
    "UnlimitedWindows": {"of": "here it is UnlimitedWindows()"},
    "EmitStrategy": {"on_update": "here it is EmitStrategy.on_window_update()"},
    "Suppressed": {
        "with_name": "the name is an argument of suppress: suppress(..., named='name')",
        "BufferConfig": "here it is a class of its own: from streams import BufferConfig",
    },
    "AggregateFunctions": dict.fromkeys(("avg", "average"), "here it is agg.mean('field')"),
    "BufferConfig": {
        **dict.fromkeys(("maxRecords", "with_max_records"), "here it is BufferConfig.of_max_records(n)"),
        **dict.fromkeys(("maxBytes", "with_max_bytes"), "here it is BufferConfig.of_max_bytes(n)"),
        "with_no_bound": "here it is BufferConfig.unbounded()",
    },
}

_IN_MEMORY = "here it is Stores.kept(Stores.{0}(...), persistent=False)"
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
        **{f"{kind}_builder": f"here it is Stores.{kind}(name, key_serde, value_serde, ...)" for kind in _KINDS},
        **{f"in_memory_{kind}": _IN_MEMORY.format(kind) for kind in _ON_DISK_ALONE},
        "lru_map": "there is no store that forgets the least used; Materialized(ttl=...) deletes rows by age",
    },
    "StoreNode": {
        "with_caching_enabled": "stores of processors have no cache; every write is in the store at once",
        "with_caching_disabled": "stores of processors have no cache, so there is nothing to disable",
        "with_logging_enabled": "logging is on; topic settings: Stores.kept(store, changelog_config={...})",
        "with_logging_disabled": "here it is Stores.kept(store, logging=False)",
        "build": "it is the store already: add_state_store(store)",
    },
}

OF_THE_APPLICATION = {
    "max_task_idle_ms": "no task waits: a micro-batch takes the records of all partitions that have some, cut at one time"
}
"""A setting of Kafka Streams' application -> why it is not here."""

SETTINGS: dict[str, dict[str, str]] = {
    **{kind: _of_option(kind, own) for kind, own in _OPTIONS.items()},
    **_WINDOWS,
    **_STORES,
}
"""Class -> name that it does not have -> what to write instead."""
