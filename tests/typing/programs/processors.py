"""Processors of one's own: records, what is forwarded, and stores have types."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from typing_extensions import assert_type

from streams import (
    Int64Serde,
    JsonSerde,
    KeyValueStore,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TopologyBuilder,
    ValueTransformer,
    Windowed,
    WindowStore,
)


@dataclass
class Payment:
    account: str
    cents: int


class Fraud(Processor[str, Payment, str, int]):
    def init(self, ctx: ProcessorContext[str, int]) -> None:
        super().init(ctx)
        self.spent: KeyValueStore[str, int] = ctx.store("spent")
        ctx.schedule(timedelta(minutes=1), "wall_clock_time", self.report)

    def process(self, record: Record[str, Payment]) -> None:
        assert_type(record.value, Payment)
        total = (self.spent.get(record.key) or 0) + record.value.cents
        self.spent.put(record.key, total)
        self.ctx.forward(record.with_value(total))

    def report(self, now_ms: int) -> None:
        for account, cents in self.spent.all():
            self.ctx.forward(Record(account, cents, now_ms))


class Recent(Processor[str, Payment, str, Payment]):
    def process(self, record: Record[str, Payment]) -> None:
        seen: WindowStore[str, int] = self.ctx.store("seen")
        seen.put(record.key, record.value.cents, record.timestamp)
        self.ctx.forward(record)


class Untyped(Processor):
    def process(self, record: Record) -> None:
        self.ctx.forward(record.with_value(record.value["anything"]))


class Dollars(ValueTransformer[str, int, float]):
    def transform(self, key: str, value: int | None) -> float | None:
        return None if value is None else value / 100


builder = StreamsBuilder()
builder.add_state_store(Stores.key_value_store("spent", StringSerde(), Int64Serde()))
builder.add_state_store(Stores.window_store("seen", StringSerde(), Int64Serde(), retention=timedelta(hours=1)))
payments = builder.stream("payments", key_serde=StringSerde(), value_serde=JsonSerde(Payment))
assert_type(payments.process(Fraud, "spent"), KStream[str, int])
assert_type(payments.process(lambda: Fraud(), ["spent"]), KStream[str, int])
assert_type(payments.process_values(Recent, "seen"), KStream[str, Payment])
assert_type(payments.process(Untyped), KStream[Any, Any])
totals = payments.process(Fraud, "spent", "totals").to_table("totals", value_serde=Int64Serde())
assert_type(totals.transform_values(Dollars), KTable[str, float])


def label(windowed: Windowed[str], count: int) -> str:
    return f"{windowed.key} from {windowed.window.start}: {count}"


topology = TopologyBuilder()
topology.add_source("payments", "payments", key_serde=StringSerde(), value_serde=JsonSerde(Payment))
topology.add_processor("fraud", Fraud, "payments")
topology.add_state_store(Stores.key_value_store("spent", StringSerde(), Int64Serde()), "fraud")
topology.add_sink("out", "spent", "fraud", value_serde=Int64Serde())
