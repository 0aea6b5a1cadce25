"""`ctx.state` of processors and transformers: what would come back as something else is refused, and the state stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from streams import JsonSerde, Materialized, Processor, Record, StreamsBuilder, ValueTransformer
from streams.errors import RecordFailedError, SerdeError
from streams.testing import TopologyTestDriver

NOT_KEPT = [date(2026, 1, 1), (1, 2), {1: 2}, float("nan"), {1, 2}]


class Keeping(Processor[str, Any, str, Any]):
    """Keeps a value under a name, and forwards how many it has kept, and the last one."""

    def process(self, record: Record[str, Any]) -> None:
        state = self.ctx.state
        state["n"] = state.get("n", 0) + 1
        if record.value is not None:
            state["last"] = {"at": [NOT_KEPT[record.value]]} if record.value < len(NOT_KEPT) else record.value
        last = state.get("last")
        self.ctx.forward(record.with_value([state["n"], last if isinstance(last, int) else "?"]))


class Transforming(ValueTransformer):
    def transform(self, key: str, value: Any) -> Any:
        state = self.ctx.state
        state["n"] = state.get("n", 0) + 1
        state["last"] = (value,) if value == 0 else value
        return [state["n"], state["last"]]


def piped(build: Callable[[StreamsBuilder], Any], values: list[Any], anew: bool, **settings: Any) -> list[Any]:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), **settings) as driver:
        for at, value in enumerate(values):
            driver.create_input_topic("in").pipe_input("k", value, at)
            if anew:
                driver.restart()
        return driver.create_output_topic("out").read_values_to_list()


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("number", range(len(NOT_KEPT)))
def test_a_processor(number: int, anew: bool) -> None:
    found = piped(lambda b: b.stream("in").process(Keeping).to("out"), [77, number, 2**70], anew, processing="skip")
    assert found[0] == [1, 77]
    assert found[-1] == [2, 2**70]  # as if the record between them had not been


def test_the_error_names_the_node_the_field_and_the_cure() -> None:
    where = r"KSTREAM-PROCESSOR.* cannot keep something in ctx\.state, .*in \['last'\]\['at'\]\[0\], .* is a date"
    with pytest.raises(RecordFailedError, match=where):
        piped(lambda b: b.stream("in").process(Keeping).to("out"), [0], False)


@pytest.mark.parametrize("anew", [False, True])
def test_a_transformer_of_a_table(anew: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("in", value_serde=JsonSerde())
        table.transform_values(Transforming, materialized=Materialized("kept")).to_stream().to("out")

    assert piped(build, [7, 0, 8], anew, processing="skip") == [[1, 7], [2, 8]]


class Elsewhere(Processor[str, Any, str, Any]):
    """Writes to its state where there is no record."""

    where = ""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1, "stream_time", lambda now: self.spoil("punctuation"))
        self.spoil("init")

    def process(self, record: Record[str, Any]) -> None:
        self.ctx.forward(record)

    def flush(self) -> None:
        self.spoil("flush")

    def spoil(self, where: str) -> None:
        if where == self.where:
            self.ctx.state["day"] = date(2026, 1, 1)


@pytest.mark.parametrize("where", ["init", "punctuation", "flush"])
def test_where_there_is_no_record(where: str) -> None:
    class Spoilt(Elsewhere):
        pass

    Spoilt.where = where
    with pytest.raises((SerdeError, RecordFailedError), match=r"ctx\.state.*is a date"):
        piped(lambda b: b.stream("in").process(Spoilt).to("out"), [1, 2], False)
