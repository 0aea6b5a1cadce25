"""The base of every command: groups of shared options, errors as sentences, and help without noise.

A parameter whose type is an `OptionGroup` stands for all options of the group, so a group is written once:

    @command
    def topics(cluster: ClusterOptions, internal: Annotated[bool, option("Also list Kafka's own topics.")] = False) -> None: ...
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from state.errors import StreamsError
from state.secrets import mask
from streams.cli.output import visible
from streams.errors import more_about
from streams.logs.json_lines import error_fields, was_logged
from streams.logs.output import is_json

if TYPE_CHECKING:
    # Typer's own copy of click; its classes are only needed as types here.
    from typer._click import Context, Parameter

NOT_SAFE = 3
"""Exit code for "not running" and "not safe": an answer for scripts, not a failure."""

_METAVARS: Mapping[Any, str] = {int: "N", float: "N", str: "TEXT", Path: "PATH"}

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def option(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option for `Annotated`: its help, names in addition to or instead of the parameter's, and arguments of `typer.Option`."""
    return typer.Option(..., *names, help=text, rich_help_panel=panel, **more)


def argument(text: str, **more: Any) -> Any:
    """An argument for `Annotated`."""
    return typer.Argument(help=text, show_default=False, **more)


class OptionGroup:
    """The base of frozen dataclasses whose fields are options; `panel` is their heading in the help."""

    panel: typing.ClassVar[str | None] = None

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turns a function into a command: option groups become options, and errors become sentences."""
    signature = inspect.signature(function, eval_str=True)
    groups = {name: one.annotation for name, one in signature.parameters.items() if _is_group(one.annotation)}
    parameters: list[inspect.Parameter] = []
    for name, one in signature.parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(_parameter(name, one.annotation, one.default))

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


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    types = typing.get_type_hints(group, include_extras=True)
    return [_parameter(field.name, types[field.name], field.default, group.panel) for field in fields(group)]


def _parameter(name: str, annotation: Any, default: Any, panel: str | None = None) -> inspect.Parameter:
    """A parameter as typer takes it. An option without a long name has its parameter's name; a flag has no `--no-` form."""
    if typing.get_origin(annotation) is Annotated:
        of, info = typing.get_args(annotation)
        if isinstance(info, OptionInfo):
            names = info.param_decls or ()
            if not any(one.startswith("--") for one in names) and (names or of is bool):
                names = (f"--{name.replace('_', '-')}", *names)
            info = copy.copy(info)
            info.param_decls, info.rich_help_panel = names, info.rich_help_panel or panel
        annotation = Annotated[of, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def readable_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Prints a `StreamsError` or a file error as a sentence, with exit code 1. `STREAMS_TRACEBACK=1` shows the stack trace."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (StreamsError, OSError) as error:
            if os.environ.get("STREAMS_TRACEBACK") or (isinstance(error, OSError) and error.filename is None):
                raise
            message = mask(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
            if not is_json():
                from rich.console import Console

                console = Console(stderr=True)
                console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
                more = f" (more: {more_about(error)})" if isinstance(error, StreamsError) else ""
                console.print(visible(message, keep="\n\t") + more, markup=False, highlight=False, soft_wrap=True)
            elif not was_logged(error):
                # The event `failed` has not reported it yet.
                log.error("%s: %s", type(error).__name__, message, extra={"fields": {"error": error_fields(error)}})
            raise typer.Exit(1) from error

    return wrapped


# Help without braces around arguments and without types of flags.


def _plain(parameters: list[Parameter]) -> list[Parameter]:
    """The parameters, each with a readable metavar: empty for a flag, a word in capitals for a plain value."""
    for one in typing.cast(Any, parameters):
        if one.param_type_name == "argument":
            # The name of an argument is enough.
            one.display_type_rich = lambda ctx: None
        elif one.metavar is None and getattr(one, "is_flag", False):
            one.metavar = ""
        elif one.metavar is None:
            annotation = one.type_descriptor.annotation
            of = typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation
            one.metavar = _METAVARS.get(of)
    return parameters


class PlainCommand(TyperCommand):
    """A command with plain help."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        return _plain(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class PlainGroup(TyperGroup):
    """A group of sub-commands with plain help."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        return _plain(super().get_params(ctx))


def application(text: str, commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """A group of sub-commands with a help text."""
    group = typer.Typer(cls=PlainGroup, no_args_is_help=True, add_completion=False, help=text)
    for name, function in commands.items():
        group.command(name, cls=PlainCommand)(function)
    return group
