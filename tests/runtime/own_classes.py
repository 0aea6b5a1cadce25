"""A script with classes of its own: it writes a job of them into a folder."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from streams.engine.graph.values import dump_job


class Colour(Enum):
    RED = 1


@dataclass
class Reading:
    at: int


@dataclass(frozen=True, slots=True)
class Slim:
    at: int


class Place(NamedTuple):
    at: int


class Model(BaseModel):
    at: int
    colour: Colour = Colour.RED


class Base:
    at = 5

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) is True or type(other) is type(self)


class Child(Base):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [Reading(1)]


def in_a_function() -> Any:
    @dataclass
    class Local:
        at: int

    return Local


Local = in_a_function()


def make(at: int) -> dict[str, Any]:
    """A value of each kind."""
    return {
        "dataclass": Reading(at),
        "with slots": Slim(at),
        "NamedTuple": Place(at),
        "Enum": Colour.RED,
        "pydantic": Model(at=at),
        "subclass": Child(),
        "class in a function": Local(at),
        "closure": lambda: at,
    }


def check(values: dict[str, Any]) -> dict[str, bool]:
    """Whether they are of the classes that this function knows."""
    wanted = make(5)
    return {
        kind: value() == 5 if kind == "closure" else type(value) is type(wanted[kind]) and value == wanted[kind]
        for kind, value in values.items()
    }


if __name__ == "__main__":
    Path(sys.argv[1], "job").write_bytes(dump_job((make, check)))
