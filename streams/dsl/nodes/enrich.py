"""`enrich`: checks the arguments, and adds the operator to a head, where many records are read at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.retry import Retries
from streams.dsl.options.retry import Retry
from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.operators.enrich.calls import CallRules
from streams.operators.enrich.user_client import UserClient
from streams.topology.specs.streams import EnrichSpec

OnError: TypeAlias = "Literal['fail', 'drop'] | Retry | functions.Function"

CONCURRENCY = 16
TIMEOUT_MS = 30_000
"""What holds for an async function, unless something else is asked for."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The form of a user's function.

    Attributes:
        is_factory: Whether it is a class, or a partial of one, whose object is called.
        called: The function or method that is called, without `self`.
        is_async: Whether it is `async def`.
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
            # Without `self`, since an object of the class is called.
            return cls(True, partial(call, None), inspect.iscoroutinefunction(call))
        if not callable(function):
            raise TopologyError(f"enrich takes a function, or a class whose objects are called, not {function!r}.")
        called = made if inspect.isroutine(made) else type(made).__call__
        return cls(False, function, inspect.iscoroutinefunction(called))


@dataclass(frozen=True, slots=True)
class EnrichOptions:
    """The user's settings of an `enrich`.

    Attributes:
        batch_size: The most values in a call; None: one value per call.
        concurrency: The most calls at the same time; None: `CONCURRENCY`.
        timeout: The longest that a call may take; None: `TIMEOUT_MS`.
        retries: How often to repeat a failed call.
        backoff: The wait before the first retry.
        on_error: What to do with a record for which all calls have failed.
    """

    batch_size: int | None
    concurrency: int | None
    timeout: Duration | None
    retries: int
    backoff: Duration
    on_error: OnError

    def rules(self, shape: _Shape, stop: bool) -> CallRules:
        """The checked settings, with defaults; `stop`: a failed record ends the calls."""
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
        """Rejects settings for concurrency of a plain function, which runs in the reader's thread and cannot be stopped."""
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
    """Adds the node to the stream's head, or behind a repartition topic to the head of the next sub-topology."""
    shape = _Shape.of(function)
    options.check_sort(function, shape)
    failing = _on_error(options.on_error)
    rules = options.rules(shape, stop=failing == "fail")
    placed = graph.in_reader(port, name, graph.key_serde(port.key_serde), graph.value_serde(port.value_serde))
    client = UserClient(function, shape.is_factory, shape.is_async)
    if not isinstance(failing, Retry):
        return graph.stateless(EnrichSpec(client, rules, failing), placed, name, new_value=True)
    retries = Retries.begin(graph, placed, name, failing, "enrich")
    spec = EnrichSpec(client, rules, retries.attempts)
    made = graph.stateless(spec, placed, retries.name, others=(retries.port,), new_value=True)
    retries.end(graph)
    return made


def _whole(number: int, what: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise TopologyError(f"enrich({what}=...) must be a whole number from {least} on, not {number!r}.")
    return number


def _concurrency(concurrency: int | None) -> int:
    return CONCURRENCY if concurrency is None else _whole(concurrency, "concurrency", 1)


def _timeout_ms(timeout: Duration | None) -> int:
    return TIMEOUT_MS if timeout is None else _whole(to_ms(timeout, "enrich(timeout=...)"), "timeout", 1)


def _on_error(on_error: OnError) -> Literal["fail", "drop"] | Retry | Callable[[Any, Any, Exception], Any]:
    if isinstance(on_error, Retry):
        if on_error.keep_order:
            raise TopologyError(
                "enrich(on_error=Retry(keep_order=True)): enrich calls for many records at the same time, so a later record of a "
                "key may have its answer before an earlier one fails. Leave keep_order out, or make the call in a processor: "
                "process_values(..., on_error=Retry(keep_order=True))."
            )
        return on_error
    if not isinstance(on_error, str):
        return functions.on_error(on_error)
    if on_error not in ("fail", "drop"):
        raise TopologyError(
            f"enrich(on_error=...) must be 'fail', 'drop', a Retry or a function (value, error) -> value, not {on_error!r}."
        )
    return on_error
