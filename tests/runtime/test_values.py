"""Values on their way to the tasks: of classes that nobody can import, with closures in them, and such as cannot be pickled."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import CodeType
from typing import Any

import cloudpickle
import pytest

from streams import Materialized, RecordError, StreamsBuilder, TopologyError, ValueNotPicklableError
from streams.engine.graph.values import dump_job, dump_value, load_job, load_value
from streams.model.ownership import snapshot
from streams.model.record import Change
from streams.testing import TopologyTestDriver

SCRIPT = Path(__file__).with_name("own_classes.py")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A script writes a job of its own classes, one process makes values by it, and another reads them; what that one says."""
    folder = tmp_path_factory.mktemp("values")
    command = [
        sys.executable,
        "-c",
        "import sys; from tests.runtime import process_of_a_job as p; p.main(*sys.argv[1:])",
    ]
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True)
    subprocess.run([*command, "write", str(folder)], check=True)
    read = subprocess.run([*command, "read", str(folder)], check=True, capture_output=True, text=True)
    return read.stdout.splitlines()


@pytest.mark.parametrize(
    "kind", ["dataclass", "with slots", "NamedTuple", "Enum", "pydantic", "subclass", "class in a function", "closure"]
)
def test_the_other_process_has_the_very_same_class(written: list[str], kind: str) -> None:
    assert f"{kind}: True" in written


def test_a_class_does_not_travel_with_each_value(written: list[str]) -> None:
    (size,) = [line for line in written if line.startswith("bytes: ")]
    assert int(size.removeprefix("bytes: ")) < 150


def test_plain_values_are_pickled_as_ever() -> None:
    for value in (None, 5, {"a": [1.5, "x"]}, (b"y", True)):
        assert load_value(dump_value(value)) == value
    assert dump_value({"a": 1}) == pickle.dumps({"a": 1}, protocol=5)


@dataclass
class Order:
    lines: list[Any]


class Lines(list[Any]):
    """A list of a program's own."""


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, {"b": (2, [3])}], 4: None},
        [[[]], ({},)],
        Order([1, [2]]),
        {"orders": [Order([{}])]},
        Lines([[1]]),
        defaultdict(list, {"a": [1]}),
        Change({"a": [1]}, [2], True),
    ],
)
def test_a_snapshot_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    copied = snapshot(value)
    assert copied == value
    assert type(copied) is type(value)
    assert _changing(value).isdisjoint(_changing(copied))


def _changing(value: Any) -> set[int]:
    """The identities of the objects within a value that can change."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(_changing, value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*map(_changing, value))
    if isinstance(value, tuple):
        return set[int]().union(*map(_changing, value))
    if isinstance(value, Order):
        return {id(value)} | _changing(value.lines)
    return set()


def test_a_snapshot_of_what_holds_itself() -> None:
    value: dict[str, Any] = {"list": [1]}
    value["self"] = value
    copied = snapshot(value)
    assert copied["self"] is copied
    assert copied["list"] == [1]
    assert copied["list"] is not value["list"]


def test_a_snapshot_shares_only_what_has_no_copy() -> None:
    lock, lines = threading.Lock(), [1]
    copied = snapshot({"lock": lock, "lines": lines})
    assert copied["lock"] is lock
    assert copied["lines"] == [1]
    assert copied["lines"] is not lines


def test_a_snapshot_of_what_cannot_change_is_itself() -> None:
    for value in ("a", 1.5, None, b"x", date(2026, 1, 1), Decimal(1)):
        assert snapshot(value) is value


def test_what_is_nested_too_deeply_is_the_records_fault() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RecordError, match="nested too deeply"):
        dump_value(value)


def test_a_topology_that_cannot_be_sent_is_one_sentence() -> None:
    lock = threading.Lock()
    with pytest.raises(TopologyError, match=r"cannot be sent .*cannot pickle '_thread.lock' object"):
        dump_job(lambda value: lock)


def seen_by_a_task(make: Any, **settings: Any) -> list[Any]:
    """Values made in the head, and looked at in a task."""
    builder = StreamsBuilder()
    stream = builder.stream("in").map_values(make).group_by_key()
    stream.aggregate(
        lambda: [],
        lambda value, seen: [*seen, value(1) if callable(value) else value.at],
        materialized=Materialized(name="seen"),
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build(), **settings) as driver:
        driver.create_input_topic("in").pipe_key_value_list([("k", 3), ("k", 4)], start_ms=1)
        return driver.create_output_topic("out").read_values_to_list()


def test_local_classes_and_closures_reach_the_task() -> None:
    @dataclass
    class Reading:
        at: int

    assert seen_by_a_task(Reading)[-1] == [3, 4]
    assert seen_by_a_task(lambda value: lambda more: value + more)[-1] == [4, 5]


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
def test_no_policy_swallows_what_cannot_be_pickled(policy: Any) -> None:
    with pytest.raises(ValueNotPicklableError, match=r"'KSTREAM-MAPVALUES.*' gives .*lock.* in-0 offset 0"):
        seen_by_a_task(
            lambda value: threading.Lock(), processing=policy, deserialization=policy, dead_letter_topic="dead"
        )


@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
def test_no_policy_swallows_what_cannot_be_made_again(policy: Any) -> None:
    with pytest.raises(ValueNotPicklableError, match=r"cannot be made again: RuntimeError: no"):
        seen_by_a_task(lambda value: Unreadable(), processing=policy, deserialization=policy, dead_letter_topic="dead")


class Unreadable:
    """It can be written only."""

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("no")

    def __getstate__(self) -> Any:
        return {"at": 1}


def test_code_that_is_sent_by_value_keeps_its_file_whatever_cloudpickle_does(monkeypatch):
    """cloudpickle 3.1.3 writes `<dynamic-code>` in place of the file, which error messages name."""
    table, at = cloudpickle.Pickler.dispatch_table, CodeType
    kept = table[at]

    def renamed(code):
        kind, arguments = kept(code)
        return kind, tuple("<dynamic-code>" if one == code.co_filename else one for one in arguments)

    monkeypatch.setitem(table.maps[0], at, renamed)
    namespace = {"__name__": "__main__"}
    exec(compile("def outer(x):\n    return [(lambda: x)() for _ in 'a']\n", "/home/me/app.py", "exec"), namespace)
    outer = namespace["outer"]
    assert cloudpickle.loads(cloudpickle.dumps(outer)).__code__.co_filename == "<dynamic-code>"
    back = load_job(dump_job(outer))
    assert back(5) == [5]
    codes = [back.__code__, *(one for one in back.__code__.co_consts if isinstance(one, CodeType))]
    assert {code.co_filename for code in codes} == {"/home/me/app.py"}
    assert len(codes) > 1
