"""The line of the user's code that an error comes from."""

from __future__ import annotations

import json

from state.tables.table import MemoryTable
from streams import StreamsBuilder
from streams.testing import TopologyTestDriver
from streams.users_code import users_line


def parse(text: str) -> object:
    return json.loads(text)


def failure_of(function) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_the_line_is_the_user_s_not_that_of_python_s_own_code() -> None:
    assert users_line(failure_of(lambda: parse("{"))) == f"{__file__}, line {parse.__code__.co_firstlineno + 1}"


def test_a_fault_of_ours_has_none() -> None:
    assert users_line(ValueError("never raised")) is None


def test_a_record_that_fails_names_the_line() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value["missing"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        error = failure_of(lambda: driver.create_input_topic("in").pipe_input("a", {"x": 1}, timestamp=1))
    assert f"KeyError: 'missing' ({__file__}, line 35). Fix the record or the code" in str(error)


def test_a_failure_inside_a_store_names_the_line_that_called_it() -> None:
    def look_up() -> object:
        return MemoryTable().get([])  # a list is no key

    assert users_line(failure_of(look_up)) == f"{__file__}, line {look_up.__code__.co_firstlineno + 1}"
