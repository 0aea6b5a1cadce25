"""The base of every command: groups of shared options, errors as sentences, and help without noise.

A parameter whose type is an `OptionGroup` represents all options of the group, so that a group is written once:

    @command
    def topics(cluster: ClusterOptions, internal: ... = False) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from streams.cli.errors import readable_errors

if TYPE_CHECKING:
    # Typer's own copy of click; its classes are only needed as types here.
    from typer._click import Context, Parameter

NOT_SAFE = 3
"""Exit code for "not running" and "not safe": an answer for scripts, not a failure."""

_METAVARS: Mapping[Any, str] = {int: "N", float: "N", str: "TEXT", Path: "PATH"}


class OptionGroup:
    """The base of frozen dataclasses whose fields are options, each `Annotated` with its `typer.Option`."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turns a function into a command: option groups become options, and errors become sentences."""
    signature = inspect.signature(function, eval_str=True)
    groups = {name: one.annotation for name, one in signature.parameters.items() if _is_group(one.annotation)}
    parameters = [
        part
        for name, one in signature.parameters.items()
        for part in (
            _options_of(groups[name]) if name in groups else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    ]

    @functools.wraps(function)
    def with_groups(**given: Any) -> None:
        for name, group in groups.items():
            members = [field.name for field in fields(group)]
            given[name] = group(**{member: given.pop(member) for member in members if member in given})
        function(**given)

    wrapped = readable_errors(with_groups)
    expose(wrapped, parameters)
    return wrapped


def expose(function: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Gives a function the signature that typer derives options and arguments from."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in parameters}


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options_of(group: type[OptionGroup]) -> list[inspect.Parameter]:
    assert is_dataclass(group)
    types = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(group)
    ]


def plain(parameters: list[Parameter]) -> list[Parameter]:
    """The parameters, each with a readable metavar."""
    for parameter in parameters:
        _name_value(parameter)
    return parameters


class PlainCommand(TyperCommand):
    """A command whose help shows neither braces around arguments nor types of flags."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Returns the parameters of `plain`."""
        return plain(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Returns the words of the usage line."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def _name_value(parameter: Any) -> None:
    """Sets the metavar of an option without one: empty for a flag, a word in capitals for a plain value."""
    if parameter.param_type_name == "argument":
        # The name of an argument is enough; a type beside it is noise.
        parameter.display_type_rich = _no_type
        return
    if parameter.metavar is not None:
        return
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
        return
    annotation = parameter.type_descriptor.annotation
    annotation = typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation
    parameter.metavar = _METAVARS.get(annotation)


class PlainGroup(TyperGroup):
    """A group of sub-commands whose help looks like that of `PlainCommand`."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Returns the parameters of `plain`."""
        return plain(super().get_params(ctx))


def _no_type(ctx: Context) -> None:
    return None


def application(text: str) -> typer.Typer:
    """A group of sub-commands with the given help text, to be filled by `add`."""
    return typer.Typer(cls=PlainGroup, no_args_is_help=True, add_completion=False, help=text)


def add(group: typer.Typer, name: str, function: Callable[..., None]) -> None:
    group.command(name, cls=PlainCommand)(function)
