"""Functions of every shape the DSL takes, and the errors for those it does not."""

import operator
from functools import partial

import pytest

from streams import TopologyError
from streams.dsl import functions


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, value):
        return value * self.factor

    def keyed(self, key, value):
        return key, value


@pytest.mark.parametrize(
    ("fn", "result"),
    [
        (lambda value: ("v", value), ("v", 2)),
        (lambda key, value: (key, value), ("k", 2)),
        (lambda value, scale=10: value * scale, 20),  # optional arguments are not filled with the value
        (lambda *args: args, (2,)),
        (lambda key, *rest: (key, rest), (2, ())),
        (str, "2"),  # a builtin type
        (float, 2.0),
        (Scale(3), 6),
        (Scale(3).keyed, ("k", 2)),
        (partial(lambda key, value, extra: (key, value, extra), extra=1), ("k", 2, 1)),
        (partial(pow, 3), 9),
    ],
)
def test_key_value(fn, result):
    assert functions.key_value(fn, "mapper")("k", 2) == result


def test_builtins_without_a_signature_get_the_value():
    assert functions.key_value(operator.itemgetter("a"), "mapper")("k", {"a": 1}) == 1


def test_joiner_aggregator_reducer():
    assert functions.joiner(lambda left, right: (left, right))("k", 1, 2) == (1, 2)
    assert functions.joiner(lambda key, left, right: (key, left, right))("k", 1, 2) == ("k", 1, 2)
    assert functions.aggregator(lambda value, total: total - value)("k", 1, 10) == 9
    assert functions.aggregator(lambda key, value, total: (key, total - value))("k", 1, 10) == ("k", 9)
    assert functions.reducer(lambda total, value: total - value)("k", 1, 10) == 9
    assert functions.initializer(dict)() == {}


def test_topic_extractor_and_timestamp_function():
    for fn in (lambda v: v, lambda k, v: v, lambda k, v, context: v):
        assert functions.topic_extractor(fn)("k", "topic", None) == "topic"
    assert functions.timestamp_function(lambda record: record)(5, 1) == 5
    assert functions.timestamp_function(lambda record, partition_time: partition_time)(5, 1) == 1


@pytest.mark.parametrize(
    ("adapt", "fn", "parts"),
    [
        (lambda fn: functions.key_value(fn, "predicate"), lambda: True, ["predicate", "(value) or (key, value)"]),
        (lambda fn: functions.key_value(fn, "mapper"), lambda a, b, c: 1, ["(a, b, c)"]),
        (lambda fn: functions.key_value(fn, "mapper"), lambda value, *, unit: 1, ["(value, *, unit)"]),
        (functions.joiner, lambda left: 1, ["joiner", "(left, right) or (key, left, right)"]),
        (functions.aggregator, lambda value: 1, ["(value, aggregate) or (key, value, aggregate)"]),
        (functions.reducer, lambda k, v, a: 1, ["(aggregate, value)"]),
        (functions.initializer, lambda value: 0, ["initializer", "()"]),
        (functions.initializer, 0, ["must be a function, not 0"]),
    ],
)
def test_wrong_arity_names_what_and_which_shapes(adapt, fn, parts):
    with pytest.raises(TopologyError) as error:
        adapt(fn)
    assert all(part in str(error.value) for part in parts), str(error.value)
