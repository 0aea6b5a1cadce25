"""`enrich`: checks what it is given, and puts the operator where whole runs of records are read: into a head."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from streams.dsl import functions
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.operators.enrich.calls import CallRules
from streams.operators.enrich.user_client import UserClient
from streams.topology.specs.streams import EnrichSpec

OnError: TypeAlias = "Literal['fail', 'drop'] | functions.Function"

CONCURRENCY = 16
TIMEOUT_MS = 30_000
"""What holds for an async function, unless something else is asked for."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What sort of function it is.

    Attributes:
        is_factory: It is a class, or a partial of one, of which an object is called.
        called: What is called, with the arguments that it takes then.
        is_async: It is `async def`.
    """

    is_factory: bool
    called: functions.Function
    is_async: bool

    @classmethod
    def of(cls, function: functions.Function) -> _Shape:
        made = function.func if isinstance(function, partial) else function
        if isinstance(made, type):
            if not any("__call__" in vars(base) for base in made.__mro__):
                raise TopologyError(
                    f"enrich({made.__name__}): objects of this class cannot be called; give it a __call__."
                )
            call: Any = made.__call__
            # Without its self, as what is made is called.
            return cls(True, partial(call, None), inspect.iscoroutinefunction(call))
        if not callable(function):
            raise TopologyError(f"enrich takes a function, or a class whose objects are called, not {function!r}.")
        called = made if inspect.isroutine(made) else type(made).__call__
        return cls(False, function, inspect.iscoroutinefunction(called))


@dataclass(frozen=True, slots=True)
class EnrichOptions:
    """How the function of an `enrich` is called, as the user says it.

    Attributes:
        batch_size: How many values a call gets at most; None: calls are for one value.
        concurrency: How many calls may be under way; None: `CONCURRENCY`.
        timeout: How long a call may take; None: `TIMEOUT_MS`.
        retries: How often a call that fails is made again.
        backoff: How long to wait before the first of these.
        on_error: What becomes of a record for which all calls have failed.
    """

    batch_size: int | None
    concurrency: int | None
    timeout: Duration | None
    retries: int
    backoff: Duration
    on_error: OnError

    def rules(self, shape: _Shape, stop: bool) -> CallRules:
        """The same, checked, with defaults; `stop`: a record that fails ends the calls."""
        batch_size, is_async = self.batch_size, shape.is_async
        return CallRules(
            is_async=is_async,
            takes_key=functions.takes_key(shape.called, many=batch_size is not None),
            batch_size=None if batch_size is None else _whole(batch_size, "batch_size", 1),
            concurrency=_concurrency(self.concurrency) if is_async else 1,
            timeout_ms=_timeout_ms(self.timeout) if is_async else None,
            retries=_whole(self.retries, "retries", 0),
            backoff_ms=_whole(to_ms(self.backoff, "enrich(backoff=...)"), "backoff", 0),
            stop=stop,
        )

    def check_sort(self, function: functions.Function, shape: _Shape) -> None:
        """A plain function runs in the reader's own thread: nothing runs beside it, and nothing can stop it."""
        if shape.is_async:
            return
        name = getattr(function, "__name__", type(function).__name__)
        if self.batch_size is None:
            raise TopologyError(
                f"enrich({name}): a function that is called for each record must be `async def`, so that calls run side by side. "
                f"Or give a batch_size, and the function gets a list of values; for a plain function of one value there is "
                f"map_values."
            )
        if self.concurrency is not None or self.timeout is not None:
            raise TopologyError(
                f"enrich({name}): concurrency and timeout are for `async def` functions; a plain one is called for one batch after "
                f"the other, and cannot be stopped. Let its client have a timeout."
            )


def add_enrich(
    graph: GraphBuilder, port: Port, function: functions.Function, options: EnrichOptions, name: str | None
) -> Port:
    """A node in a head: in that of the stream, or behind a repartition topic in that of the next sub-topology."""
    shape = _Shape.of(function)
    options.check_sort(function, shape)
    failing = _on_error(options.on_error)
    rules = options.rules(shape, stop=failing == "fail")
    placed = graph.in_reader(port, name, graph.key_serde(port.key_serde), graph.value_serde(port.value_serde))
    client = UserClient(function, shape.is_factory, shape.is_async)
    return graph.stateless(EnrichSpec(client, rules, failing), placed, name, new_value=True)


def _whole(number: int, what: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise TopologyError(f"enrich({what}=...) must be a whole number from {least} on, not {number!r}.")
    return number


def _concurrency(concurrency: int | None) -> int:
    return CONCURRENCY if concurrency is None else _whole(concurrency, "concurrency", 1)


def _timeout_ms(timeout: Duration | None) -> int:
    return TIMEOUT_MS if timeout is None else _whole(to_ms(timeout, "enrich(timeout=...)"), "timeout", 1)


def _on_error(on_error: OnError) -> Literal["fail", "drop"] | Callable[[Any, Any, Exception], Any]:
    if not isinstance(on_error, str):
        return functions.on_error(on_error)
    if on_error not in ("fail", "drop"):
        raise TopologyError(
            f"enrich(on_error=...) must be 'fail', 'drop' or a function (value, error) -> value, not {on_error!r}."
        )
    return on_error
