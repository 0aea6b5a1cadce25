"""Random cases of tables: chains of joins of a table with itself and what is made of it, and versioned tables in groups and joins.

    python -m tests.conformance.random_tables [--seed 1] [--count 40] [--family NAME] [--out FILE]
    python -m tests.conformance.random_tables --check --seed 2 --count 750

Writes one case a line, in the form that tests/conformance reads, and without results, which Kafka Streams itself gives for compat
mode; some are in cases/random_tables.jsonl. With `--check` nothing is written: strict mode runs the cases, one in four with a
restart, and is compared with `table_model`. A case depends only on the seed, the family and its number, so that a larger count
only adds cases.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.case import parse
from tests.conformance.table_model import differences

Node = dict[str, Any]

_JOINS = ("join", "join", "left_join", "outer_join")
_HISTORIES = (5, 20, 300_000)
_NUMBERS = {"fn": "sum"}


class Chance:
    """One case in the making."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.topology: list[Node] = []
        self.topics: list[str] = []
        self.keys = self.of([["a", "b"], ["a"], ["a", "ab", "c"], ["k", {"id": 1}], [1, 2, 10]])

    def of(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def add(self, op: str, **more: Any) -> str:
        """Adds a node and returns its id; parameters that are None are left out."""
        name = f"{op}{len(self.topology)}"
        self.topology.append({"id": name, "op": op} | {key: value for key, value in more.items() if value is not None})
        return name

    def table(self, topic: str, **more: Any) -> str:
        self.topics.append(topic)
        return self.add("table", topic=topic, **more)

    def sink(self, table: str, topic: str) -> None:
        self.add("to", **{"in": self.add("to_stream", **{"in": table})}, topic=topic)

    def store(self, chance: float) -> str | None:
        return f"s{len(self.topology)}" if self.happens(chance) else None

    def derived(self, table: str, numbers: bool, stored: float = 0.3) -> str:
        """A filtered or mapped table."""
        how = {"in": table, "store": self.store(stored)}
        value: Any = (
            "identity"
            if numbers
            else {"fn": "if", "predicate": {"fn": "ge", "n": 0}, "then": "identity", "else": "length"}
        )
        if self.happens(0.6):
            test = self.of(["even", "odd", {"fn": "ge", "n": 3}, {"fn": "lt", "n": 7}])
            predicate = test if numbers else {"fn": "on", "of": {"fn": "index", "i": self.of([0, 1])}, "is": test}
            return self.add(self.of(["filter", "filter", "filter_not"]), predicate=predicate, **how)
        some = {"fn": "if", "predicate": {"fn": "eq", "value": 4}, "then": "null", "else": value}
        return self.add("map_values", fn=self.of([{"fn": "mul", "n": 10}, {"fn": "add", "n": 1}, some]), **how)

    def records(self, topics: list[str], nulls: float, scale: int) -> list[Node]:
        """Records with times in order, late, or those of an earlier record of the key, whose value it often deletes."""
        records: list[Node] = []
        last: dict[str, int] = {}
        time = self.of([0, 0, scale, 10 * scale])
        disorder = self.of([0, 0.2, 0.5])
        for _ in range(self.random.randint(8, 26)):
            topic, key, value = self.of(topics), self.of(self.keys), self.random.randint(0, 9)
            time += self.of([0, 0, 1, 1, scale // 2, scale])
            at, place = time, json.dumps([topic, key])
            if self.happens(disorder):
                at = max(0, time - self.random.randint(0, 3 * scale))
            if place in last and self.happens(0.25):
                at = last[place]
            last[place] = at
            gone = self.happens(nulls)
            records.append({"topic": topic, "key": key, "value": None if gone else value, "timestamp": at})
        return records


def chain(chance: Chance) -> list[Node]:
    """Two to four joins, of one table or two and of what was made of them."""
    made = {chance.table("in", store=chance.store(0.3)): True}
    if chance.happens(0.4):
        made[chance.table("other", store=chance.store(0.2))] = True
    for _ in range(chance.random.randint(1, 3)):
        above = chance.of(list(made))
        if chance.happens(0.6):
            above = chance.derived(above, made[above])
            made[above] = True
        joiner = chance.of(["pair", "pair", "left", _NUMBERS, {"fn": "sum", "null_if": {"fn": "gt", "n": 12}}])
        # The newest table with one that came before it, on either side.
        sides = [above, chance.of(list(made))]
        chance.random.shuffle(sides)
        how = {"left": sides[0], "right": sides[1], "store": chance.store(0.3)}
        joined = chance.add(chance.of(_JOINS), joiner=joiner, **how)
        made[joined] = joiner not in ("pair", "left")
        if chance.happens(0.2):
            derived = chance.derived(joined, made[joined])
            made[derived] = made[joined]
    last = list(made)[-1]
    if chance.happens(0.3):
        last = grouped(chance, last)
    chance.sink(last, "out")
    if chance.happens(0.15):
        chance.sink(chance.of(list(made)), "aside")
    return chance.records(chance.topics, chance.of([0.1, 0.3, 0.45]), chance.of([2, 4, 10]))


def grouped(chance: Chance, table: str) -> str:
    """An aggregate of a table grouped anew."""
    key = chance.of([{"fn": "const", "value": "all"}, "identity", "key", {"fn": "mod", "n": 2}, {"fn": "mod", "n": 3}])
    value = chance.of(["identity", "identity", {"fn": "mul", "n": 10}])
    group = chance.add("group_by", **{"in": table}, key_fn=key, value_fn=value)
    how = {"in": group, "store": chance.store(0.2)}
    kind = chance.of(["count", "reduce", "aggregate", "aggregate"])
    if kind == "count":
        return chance.add(kind, **how)
    if kind == "reduce":
        pairs = [("sum", "sub"), ("last", "first"), ({"fn": "concat", "sep": "+"}, {"fn": "concat", "sep": "-"})]
        adder, subtractor = chance.of(pairs)
        return chance.add(kind, adder=adder, subtractor=subtractor, **how)
    zero = {"fn": "sum", "null_if": {"fn": "eq", "value": 0}}
    return chance.add(kind, aggregator=chance.of(["sum", "collect", "avg", {"fn": "concat"}, zero]), **how)


def versioned(chance: Chance, topic: str) -> str:
    """A versioned table, or one made of it."""
    table = chance.table(topic, history_retention_ms=chance.of(_HISTORIES), store=chance.store(0.3))
    if chance.happens(0.3):
        table = chance.derived(table, True, stored=0)
    return table


def versioned_group(chance: Chance) -> list[Node]:
    """A versioned table grouped anew."""
    table = versioned(chance, "in")
    if chance.happens(0.2):
        chance.sink(table, "aside")
    last = grouped(chance, table)
    if chance.happens(0.2):
        last = grouped(chance, last)
    chance.sink(last, "out")
    return chance.records(chance.topics, 0.4, chance.of([2, 4, 10]))


def versioned_join(chance: Chance) -> list[Node]:
    """A versioned table joined with another table, or with itself, and perhaps grouped."""
    sides = [versioned(chance, "in")]
    sides.append(versioned(chance, "other") if chance.happens(0.4) else chance.of([chance.table("other"), sides[0]]))
    chance.random.shuffle(sides)
    joined = chance.add(chance.of(_JOINS), left=sides[0], right=sides[1], joiner="pair", store=chance.store(0.3))
    chance.sink(grouped(chance, joined) if chance.happens(0.3) else joined, "out")
    return chance.records(list(dict.fromkeys(chance.topics)), 0.35, chance.of([2, 4, 10]))


def versioned_lookup(chance: Chance) -> list[Node]:
    """A stream joined with a versioned table, with grace or without."""
    stream = chance.add("stream", topic="stream")
    history = chance.of([50, 300_000])
    table = chance.table("in", history_retention_ms=history)
    if chance.happens(0.3):
        table = chance.derived(table, True, stored=0)
    how = {"left": stream, "right": table, "grace_ms": chance.of([None, 0, 1, 5, 20])}
    joined = chance.add(chance.of(["join", "left_join"]), joiner="pair", **how)
    chance.add("to", **{"in": joined}, topic="out")
    return chance.records(["stream", "in", "in"], 0.3, chance.of([2, 4, 10]))


FAMILIES: dict[str, Callable[[Chance], list[Node]]] = {
    "table_chain": chain,
    "versioned_group": versioned_group,
    "versioned_join": versioned_join,
    "versioned_lookup": versioned_lookup,
}


def make(seed: int, family: str, number: int) -> dict[str, Any]:
    """A case without results."""
    chance = Chance(f"{seed}/{family}/{number}")
    records = FAMILIES[family](chance)
    return {"name": f"random/{family}/{number}", "family": family, "topology": chance.topology, "records": records}


def with_restarts(case: dict[str, Any], seed: int) -> dict[str, Any]:
    """The same case, one in four with a restart between two records."""
    chance = random.Random(f"{seed}/{case['name']}/restart")
    if chance.random() < 0.25:
        case["records"].insert(chance.randint(1, len(case["records"])), {"restart": True})
    return case


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.random_tables", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="of each family")
    parser.add_argument("--family", choices=sorted(FAMILIES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="compare strict mode with the model")
    given = parser.parse_args(arguments)
    names = [given.family] if given.family else list(FAMILIES)
    cases = (make(given.seed, name, number) for name in names for number in range(given.count))
    if given.check:
        found = [problem for case in cases for problem in differences(parse(with_restarts(case, given.seed)))]
        print(*found, f"{len(found)} cases differ", sep="\n")
        return int(bool(found))
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases]
    text = "".join(f"{line}\n" for line in lines)
    if given.out is None:
        sys.stdout.write(text)
    else:
        given.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
