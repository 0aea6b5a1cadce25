"""Runs cases of the oracle (a topology as JSON, records, expected results) on the test driver.

Only the operators of this DSL so far are built; `Unsupported` tells what a case needs besides.
"""

import json
from collections import defaultdict
from functools import reduce

from streams import (
    Branched,
    Consumed,
    JoinWindows,
    JsonSerde,
    Materialized,
    Repartitioned,
    StreamsBuilder,
    TimeWindows,
    Windowed,
)
from streams.testing import TopologyTestDriver

LONG = 30 * 86_400_000


class Unsupported(Exception):
    pass


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value):
    return value if is_number(value) else 0


def text(value):
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def plain_key(key):
    if isinstance(key, Windowed):
        return {"key": key.key, "window": {"start": key.window.start, "end": key.window.end}}
    return key


def spec_of(spec):
    return {"fn": spec} if isinstance(spec, str) else spec


def value_fn(spec):
    """F: (key, value) -> value."""
    spec = spec_of(spec)
    name = spec["fn"]
    if name == "compose":
        parts = [value_fn(part) for part in spec["of"]]
        return lambda k, v: reduce(lambda x, part: part(k, x), parts, v)
    if name == "array":
        parts = [value_fn(part) for part in spec["of"]]
        return lambda k, v: [part(k, v) for part in parts]
    if name == "object":
        fields = {field: value_fn(part) for field, part in spec["fields"].items()}
        return lambda k, v: {field: part(k, v) for field, part in fields.items()}
    if name == "if":
        test, yes, no = predicate(spec["predicate"]), value_fn(spec["then"]), value_fn(spec["else"])
        return lambda k, v: yes(k, v) if test(k, v) else no(k, v)
    simple = {
        "identity": lambda k, v: v,
        "value": lambda k, v: v,
        "key": lambda k, v: plain_key(k),
        "window_key": lambda k, v: k.key if isinstance(k, Windowed) else k,
        "window_start": lambda k, v: k.window.start if isinstance(k, Windowed) else None,
        "window_end": lambda k, v: k.window.end if isinstance(k, Windowed) else None,
        "const": lambda k, v: spec["value"],
        "null": lambda k, v: None,
        "field": lambda k, v: v.get(spec["name"]) if isinstance(v, dict) else None,
        "index": lambda k, v: v[spec["i"]] if isinstance(v, list) and spec["i"] < len(v) else None,
        "add": lambda k, v: v + spec["n"] if is_number(v) else None,
        "mul": lambda k, v: v * spec["n"] if is_number(v) else None,
        "neg": lambda k, v: -v if is_number(v) else None,
        "mod": lambda k, v: v % spec["n"] if is_number(v) else None,
        "words": lambda k, v: v.split() if isinstance(v, str) else [],
        "upper": lambda k, v: v.upper() if isinstance(v, str) else None,
        "lower": lambda k, v: v.lower() if isinstance(v, str) else None,
        "length": lambda k, v: len(v) if isinstance(v, str | list | dict) else None,
        "text": lambda k, v: None if v is None else text(v),
        "affix": lambda k, v: None if v is None else spec.get("prefix", "") + text(v) + spec.get("suffix", ""),
        "before": lambda k, v: v.split(spec["sep"])[0] if isinstance(v, str) else None,
        "after": lambda k, v: v.split(spec["sep"], 1)[1] if isinstance(v, str) and spec["sep"] in v else None,
        "range": lambda k, v: list(range(v)) if is_number(v) else [],
        "repeat": lambda k, v: [v] * spec["n"],
    }
    if name not in simple:
        raise Unsupported(name)
    return simple[name]


def predicate(spec):
    """P: (key, value) -> bool."""
    spec = spec_of(spec)
    name = spec["fn"]
    if name == "not":
        inner = predicate(spec["of"])
        return lambda k, v: not inner(k, v)
    if name in ("and", "or"):
        parts = [predicate(part) for part in spec["of"]]
        return lambda k, v: (all if name == "and" else any)(part(k, v) for part in parts)
    if name == "on":
        fn, test = value_fn(spec["of"]), predicate(spec["is"])
        return lambda k, v: test(k, fn(k, v))
    return {
        "always": lambda k, v: True,
        "never": lambda k, v: False,
        "is_null": lambda k, v: v is None,
        "not_null": lambda k, v: v is not None,
        "gt": lambda k, v: is_number(v) and v > spec["n"],
        "ge": lambda k, v: is_number(v) and v >= spec["n"],
        "lt": lambda k, v: is_number(v) and v < spec["n"],
        "le": lambda k, v: is_number(v) and v <= spec["n"],
        "eq": lambda k, v: v == spec["value"] and isinstance(v, bool) == isinstance(spec["value"], bool),
        "ne": lambda k, v: not (v == spec["value"] and isinstance(v, bool) == isinstance(spec["value"], bool)),
        "even": lambda k, v: is_number(v) and v % 2 == 0,
        "odd": lambda k, v: is_number(v) and v % 2 == 1,
        "has_field": lambda k, v: isinstance(v, dict) and spec["name"] in v,
        "starts_with": lambda k, v: isinstance(v, str) and v.startswith(spec["prefix"]),
    }[name]


def nulled(spec, fn):
    if "null_if" not in spec:
        return fn
    test = predicate(spec["null_if"])

    def result(*args):
        value = fn(*args)
        return None if test(None, value) else value

    return result


def reducer(spec):
    """R: (aggregate, value) -> aggregate."""
    spec = spec_of(spec)
    name = spec["fn"]

    def extreme(pick):
        return lambda a, v: a if not is_number(v) else v if not is_number(a) else pick(a, v)

    fn = {
        "sum": lambda a, v: number(a) + number(v),
        "sub": lambda a, v: number(a) - number(v),
        "max": extreme(max),
        "min": extreme(min),
        "first": lambda a, v: a,
        "last": lambda a, v: v,
        "concat": lambda a, v: text(a) + spec.get("sep", "") + text(v),
        "null": lambda a, v: None,
    }[name]
    return nulled(spec, fn)


def aggregation(spec):
    """A: initial value, (value, aggregate) -> aggregate."""
    spec = spec_of(spec)
    name = spec["fn"]

    def avg(v, a):
        a = a if isinstance(a, dict) else {"sum": 0, "count": 0}
        return {"sum": a["sum"] + number(v), "count": a["count"] + 1}

    initial, add = {
        "sum": (0, lambda v, a: number(a) + number(v)),
        "count": (0, lambda v, a: number(a) + 1),
        "min": (None, lambda v, a: reducer("min")(a, v)),
        "max": (None, lambda v, a: reducer("max")(a, v)),
        "last": (None, lambda v, a: v),
        "collect": ([], lambda v, a: [*(a if isinstance(a, list) else []), v]),
        "avg": ({"sum": 0, "count": 0}, avg),
        "concat": ("0", lambda v, a: text(a) + spec.get("add", "+") + text(v)),
    }[name]
    initial = spec.get("init", initial)
    return (lambda: initial), nulled(spec, add)


def joiner(spec):
    """J: (key, left, right) -> value."""
    spec = spec_of(spec or "pair")
    fn = {
        "pair": lambda k, a, b: [a, b],
        "pair_with_key": lambda k, a, b: [plain_key(k), a, b],
        "left": lambda k, a, b: a,
        "right": lambda k, a, b: b,
        "sum": lambda k, a, b: number(a) + number(b),
        "concat": lambda k, a, b: text(a) + spec.get("sep", "+") + text(b),
    }[spec["fn"]]
    return nulled(spec, fn)


def build(case):
    """The case's topology."""
    json_serde = JsonSerde()
    builder = StreamsBuilder(default_key_serde=json_serde, default_value_serde=json_serde)
    nodes = {}
    kinds = {}
    for node in case["topology"]:
        op = node["op"]
        ident = node["id"]
        source = nodes.get(node["in"]) if isinstance(node.get("in"), str) else None
        kind = kinds.get(node["in"]) if isinstance(node.get("in"), str) else None
        if any(name in node for name in ("history_retention_ms", "foreign_key", "aggregators")):
            raise Unsupported(op)
        if op == "to":
            source.to(node["topic"])
            continue
        made = _node(builder, op, node, source, kind, nodes, kinds, ident)
        nodes[ident], kinds[ident] = made
    return builder.build()


def _node(builder, op, node, source, kind, nodes, kinds, ident):
    how = Materialized(name=f"store-{ident}", caching=False, retention=node.get("retention_ms"))
    if op == "stream":
        return builder.stream(node["topic"], Consumed()), "stream"
    if op == "table":
        return builder.table(node["topic"], materialized=how), "table"
    if op in ("filter", "filter_not", "map_values", "group_by", "suppress") and kind == "table":
        raise Unsupported(f"table {op}")
    if op in ("filter", "filter_not"):
        return getattr(source, op)(predicate(node["predicate"])), "stream"
    if op == "map_values":
        return source.map_values(value_fn(node["fn"])), "stream"
    if op == "map":
        key, value = value_fn(node["key_fn"]), value_fn(node["value_fn"])
        return source.map(lambda k, v: (key(k, v), value(k, v))), "stream"
    if op == "select_key":
        return source.select_key(value_fn(node["fn"])), "stream"
    if op == "flat_map_values":
        fn = value_fn(node["fn"])
        return source.flat_map_values(lambda k, v: x if isinstance(x := fn(k, v), list) else []), "stream"
    if op == "flat_map":
        fn = value_fn(node["fn"])

        def pairs(k, v):
            found = fn(k, v)
            return [p for p in found if isinstance(p, list) and len(p) == 2] if isinstance(found, list) else []

        return source.flat_map(pairs), "stream"
    if op == "merge":
        first, *others = [nodes[name] for name in node["in"]]
        return reduce(lambda a, b: a.merge(b), others, first), "stream"
    if op == "branch":
        split = source.split(f"split-{ident}-")
        for branch in node["branches"]:
            test = predicate(branch.get("predicate", "always"))
            split = split.branch(test, Branched(name=branch["id"]))
        for name, stream in split.no_default_branch().items():
            nodes[name.removeprefix(f"split-{ident}-")] = stream
            kinds[name.removeprefix(f"split-{ident}-")] = "stream"
        return None, None
    if op == "repartition":
        return source.repartition(Repartitioned(name=node.get("name", f"through-{ident}"))), "stream"
    if op == "peek":
        return source.peek(lambda k, v: None), "stream"
    if op == "to_table":
        return source.to_table(how), "table"
    if op == "to_stream":
        return source.to_stream(), "stream"
    if op == "group_by_key":
        return source.group_by_key(), "grouped"
    if op == "group_by":
        return source.group_by(value_fn(node["key_fn"])), "grouped"
    if op == "windowed_by":
        windows = node["windows"]
        if windows["type"] not in ("tumbling", "hopping") or node.get("emit") == "on_close":
            raise Unsupported("windows")
        made = TimeWindows.of_size_and_grace(windows["size_ms"], windows["grace_ms"])
        if windows["type"] == "hopping":
            made = made.advance_by(windows["advance_ms"])
        return source.windowed_by(made), "windowed"
    if op in ("count", "reduce", "aggregate") and kind in ("grouped", "windowed"):
        if op == "count":
            return source.count(materialized=how), "table"
        if op == "reduce":
            return source.reduce(reducer(node["fn"]), materialized=how), "table"
        initial, add = aggregation(node["aggregator"])
        return source.aggregate(initial, lambda value, agg: add(value, agg), materialized=how), "table"
    if op in ("join", "left_join"):
        left, right = nodes[node["left"]], nodes[node["right"]]
        sides = kinds[node["left"]], kinds[node["right"]]
        join = joiner(node.get("joiner"))
        if sides == ("stream", "stream") and op == "join":
            windows = JoinWindows(node["before_ms"], node["after_ms"], node["grace_ms"])
            return left.join(right, lambda k, a, b: join(k, a, b), windows), "stream"
        if sides == ("stream", "table") and "grace_ms" not in node:
            return getattr(left, op)(right, lambda k, a, b: join(k, a, b)), "stream"
    raise Unsupported(op)


def run(case, mode):
    """What the sinks got, in order by topic, in the form of `expected`; and the driver's count of late records."""
    topology = build(case)
    topics = [node["topic"] for node in case["topology"] if node["op"] == "to"]
    with TopologyTestDriver(topology, mode=mode) as driver:
        inputs = {}
        batch = case.get("config", {}).get("batch", False)
        open_batch = None
        for record in case["records"]:
            if "advance_wall_clock_ms" in record:
                driver.advance_wall_clock_time(record["advance_wall_clock_ms"])
                continue
            if "topic" in record:
                if batch and open_batch is None:
                    open_batch = driver.batch()
                    open_batch.__enter__()
                topic = record["topic"]
                if topic not in inputs:
                    inputs[topic] = driver.create_input_topic(topic)
                inputs[topic].pipe_input(record["key"], record["value"], record["timestamp"])
                continue
            if open_batch is not None:
                open_batch.__exit__(None, None, None)
                open_batch = None
            if "restart" in record:
                driver.restart()
        if open_batch is not None:
            open_batch.__exit__(None, None, None)
        found = []
        for topic in dict.fromkeys(topics):
            for r in driver.create_output_topic(topic).read_records_to_list():
                window = None
                key = r.key
                if isinstance(key, Windowed):
                    window = {"start": key.window.start, "end": key.window.end}
                    key = key.key
                found.append({"topic": topic, "key": key, "window": window, "value": r.value, "timestamp": r.timestamp})
        return found, driver.dropped("late")


def compare(found, expected, how):
    """None, or what differs."""
    if how == "multiset":
        a, b = (sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in (found, expected))
    elif how == "last":
        a, b = ({_place(row): row for row in rows} for rows in (found, expected))
        a, b = ({k: v for k, v in x.items() if v["value"] is not None} for x in (a, b))
    elif how == "per_key_order":
        a, b = (_grouped(rows, _place) for rows in (found, expected))
    else:
        a, b = (_grouped(rows, lambda row: row["topic"]) for rows in (found, expected))
    return None if a == b else (a, b)


def _place(row):
    return row["topic"], json.dumps(row["key"], sort_keys=True), json.dumps(row["window"])


def _grouped(rows, key):
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)
