"""What a newcomer writes with `TopologyTestDriver`, and what follows.

A text is what the error says (… stands for any text); a list has what the last line gives. `driver` runs a program that writes
topic `in` to topic `out` and counts it in each kind of store; `topic` and `out` are the ends of both (`newcomer.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.front_door.newcomer import name_of, run_test, says

TESTS: list[tuple[str, Any]] = [
    # Topics.
    ('driver.create_input_topic("inn")', "the topology does not read a topic 'inn': it has 'in', 'prices'. Did you mean 'in'?"),
    ('driver.create_output_topic("outt")', "does not write a topic 'outt': it has 'out'. Did you mean 'out'?"),
    ('topic.pipe_input(5)\nout.read_value()', [5]),
    ('topic.pipe_input("a", 5)\nout.read_key_value()', [("a", 5)]),
    ('topic.pipe_value_list([1, 2])\nout.read_values_to_list()', [[1, 2]]),
    ('topic.pipe_input(TestRecord("a", 1, 1000))\nrepr(out.read_record())', ["TestRecord('a', 1, timestamp=1000)"]),
    ('topic.pipe_input("a", 5)\nsorted(driver.produced_topic_names())[0]', ["out"]),
    ('topic.pipe_input(timestamp=5)', "pipe_input needs a value: pipe_input(value) or pipe_input(key, value)"),
    ('out.read_value()', "topic 'out' has no more records; is_empty and queue_size tell before"),
    # Times and headers.
    ('topic.pipe_input("a", 5, timedelta(seconds=1))\nout.read_record().timestamp', [1000]),
    ('topic.pipe_input("a", 5, datetime(1970, 1, 1, 0, 0, 1))\nout.read_record().timestamp', [1000]),
    ('topic.pipe_input("a", 5, "1s")', "a timestamp is whole milliseconds since the epoch (int), a datetime, or a timedelta"),
    ('topic.pipe_input("a", 5, headers={"x": b"y"})\nout.read_record().headers', [(("x", b"y"),)]),
    ('topic.pipe_input("a", 5, headers={"x": "y"})\nout.read_record().headers', [(("x", b"y"),)]),
    (
        'topic = driver.create_input_topic("in", auto_advance=timedelta(seconds=1))\n'
        'topic.pipe_value_list([1, 2])\n[record.timestamp for record in out.read_records_to_list()]',
        [[0, 1000]],
    ),
    ('driver.advance_wall_clock_time(timedelta(seconds=1))\ndriver.now_ms', [1000]),
    # Stores.
    ('topic.pipe_input("a", 5)\ndriver.get_key_value_store("counts").get("a")', [1]),
    ('topic.pipe_input("a", 5)\ndriver.get_store("counts").get("a").value', [1]),
    ('topic.pipe_input("a", 5)\nlist(driver.get_window_store("windowed").all())', [[("a", 0, 1)]]),
    ('topic.pipe_input("a", 5)\nlen(list(driver.get_store("windowed").all()))', [1]),
    ('topic.pipe_input("a", 5)\n[n for _, n in driver.get_session_store("sessions").fetch("a")]', [[1]]),
    ('driver.get_versioned_key_value_store("prices").get("a")', [None]),
    ('driver.get_key_value_store("windowed")', "use get_timestamped_window_store('windowed')"),
    ('driver.get_key_value_store("count")', "the topology has no store 'count': … Did you mean 'counts'?"),
    ('topic.pipe_input("a", 5)\ndriver.metrics()["KSTREAM-SOURCE-in"].records_in', [1]),
    # Settings, records that cannot be read, and Java's names.
    ('TopologyTestDriver(builder.build(), settings={"processing": "skip"}).close()', [None]),
    ('TopologyTestDriver(builder.build(), {"processing": "skip"}).close()', [None]),
    ('TopologyTestDriver(builder.build(), procesing="skip")', "no setting 'procesing' … Did you mean 'processing'"),
    ('TopologyTestDriver(builder.build(), processing="skpi")', "is 'fail' (the step fails), 'skip' (… or 'dlq'"),
    ('TopologyTestDriver(builder)', "takes a Topology, not a StreamsBuilder: write TopologyTestDriver(builder.build(), ...)"),
    ('topic.pipe_bytes(b"a", b"{bad")', "JsonSerde cannot read 4 bytes … set the policy 'deserialization' to 'skip' or 'dlq'"),
    ('topic.pipeInput("a", 5)', "TestInputTopic has no 'pipeInput': here it is pipe_input(...)."),
    ('out.readValue()', "TestOutputTopic has no 'readValue': here it is read_value(...)."),
    ('driver.getKeyValueStore("counts")', "here it is get_key_value_store(...)."),
    ('driver.advanceWallClockTime(5)', "here it is advance_wall_clock_time(...)."),
]  # fmt: skip


@pytest.mark.parametrize(("code", "follows"), TESTS, ids=map(name_of, TESTS))
def test_a_test_works_or_says_what_to_write(code: str, follows: str | list[Any]) -> None:
    if isinstance(follows, list):
        assert [run_test(code)] == follows
        return
    says(follows, lambda: run_test(code))
