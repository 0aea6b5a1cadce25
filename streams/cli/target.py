"""The topology that a command is called with: `app.py`, `app.py:build`, `package.module` or `package.module:topology`.

Without an attribute, the topology is `build`, if the module has it, or else the only `Topology`, the only `StreamsBuilder`,
or the only function without arguments that is annotated to return one.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from streams.errors import StreamsError, TopologyError
from streams.wording import a_kind_of, did_you_mean

if TYPE_CHECKING:
    # Commands name their options quickly, and Java starts before the program is imported.
    from typing_extensions import TypeIs

    from streams.topology.topology import Topology

DEFAULT_ATTRIBUTE = "build"
Build: TypeAlias = "Callable[[], Topology]"

_known: dict[str, tuple[Build, str]] = {}
"""Registered functions of the running program, with their application ids: under spark-submit their module is `__main__`,
which must not be imported again."""


def register(build: Build, application_id: str) -> str:
    """Registers a function of the running program as a target, and returns the target's text."""
    text = f"{build.__module__}:{build.__qualname__}"
    _known[text] = build, application_id
    return text


@dataclass(frozen=True)
class TopologyTarget:
    """A target on the command line.

    Attributes:
        text: The target as it was typed.
        module: The module's name, as Python imports it.
        attribute: The name in the module; None: it is looked for.
        folder: The first folder to search for the module; None: Python's own search path.
    """

    text: str
    module: str
    attribute: str | None
    folder: Path | None = None

    @classmethod
    def parse(cls, text: str) -> TopologyTarget:
        """Parses the text of a target."""
        place, _, attribute = text.partition(":")
        if attribute and not attribute.isidentifier():
            raise TopologyError(f"{text!r} names no topology: {attribute!r} is not a Python identifier")
        if place.endswith(".py") or os.sep in place:
            folder, module = _module_of_file(text, Path(place))
            return cls(text, module, attribute or None, folder)
        if not all(part.isidentifier() for part in place.split(".")):
            raise TopologyError(
                f"{text!r} names no topology: write a file, such as app.py, or a module as Python imports it, such as "
                f"topologies.word_count; a name in it follows a colon, as in app.py:build"
            )
        return cls(text, place, attribute or None)

    def application_id(self) -> str:
        """The default application id: module and attribute, in characters that are valid in topic names.

        Raises:
            TopologyError: No attribute is given, and no topology is found.
        """
        if self.text in _known:
            return _known[self.text][1]
        attribute = self.attribute or self._as_written() or self._found()[0]
        return f"{self.module}-{attribute}".replace("_", "-")

    def load(self) -> Topology:
        """The topology, from the imported module."""
        found: Any = _known[self.text][0] if self.text in _known else self._found()[1]
        try:
            made = found() if callable(found) else found
            topology = made if _is_topology(made) or not _is_builder(made) else made.build()
        except Exception as error:
            raise _failed(self.text, error) from error
        if not _is_topology(topology):
            raise TopologyError(
                f"{self.text} is {a_kind_of(topology)}, not a Topology, a StreamsBuilder or a function that makes one"
            )
        return topology

    def mentions_delta(self) -> bool:
        """Whether the file names a source or sink of Delta tables.

        This only decides which jars Java is started with before the program is imported; a wrong guess costs another start of Java.
        """
        try:
            text = self._text()
        except (OSError, UnicodeDecodeError):
            return False
        return "to_delta(" in text or "from_delta(" in text

    def share_with_workers(self) -> None:
        """Adds the file's folder to `PYTHONPATH`, so that Spark's Python processes can import its module."""
        if self.folder is not None:
            before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if str(self.folder) not in before:
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.folder), *before]))

    def _as_written(self) -> str | None:
        """The attribute's name, if the file's text shows it. Java needs it to start, and importing the program takes long."""
        try:
            body = ast.parse(self._text()).body
        except (OSError, SyntaxError, ValueError):
            return None
        functions = {one.name for one in body if isinstance(one, ast.FunctionDef)}
        return DEFAULT_ATTRIBUTE if DEFAULT_ATTRIBUTE in functions else None

    def _text(self) -> str:
        """The text of the program, if it is a file of the folder; raises `OSError` or `UnicodeDecodeError` otherwise."""
        return Path(self.folder or "", *self.module.split(".")).with_suffix(".py").read_text(encoding="utf-8")

    def _found(self) -> tuple[str, Any]:
        """The attribute's name and value."""
        module = self._import()
        if self.attribute is None:
            return _only_topology(self.text, module)
        if not hasattr(module, self.attribute):
            known = [name for name in vars(module) if not name.startswith("_")]
            raise TopologyError(
                f"{self.text}: module {self.module!r} has no {self.attribute!r}.{did_you_mean(self.attribute, known)}"
            )
        return self.attribute, getattr(module, self.attribute)

    def _import(self) -> ModuleType:
        # The working directory is searched, as with python -m and spark-submit.
        for folder in ("", *([] if self.folder is None else [str(self.folder)])):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            raise TopologyError(self._no_module(str(error.name))) from error
        except Exception as error:
            raise _failed(self.text, error) from error
        self._check_same_file(module)
        return module

    def _no_module(self, name: str) -> str:
        if name != self.module:
            return f"{self.text}: there is no module {name!r}. Run from its folder, or install it."
        nearby = did_you_mean(f"{name}.py", (path.name for path in Path().glob("*.py")))
        return f"{self.text}: there is no module {name!r}.{nearby} Run from its folder, or install it."

    def _check_same_file(self, module: ModuleType) -> None:
        """Raises `TopologyError` if importing the file's module name loads another file."""
        if self.folder is None:
            return
        wanted = self.folder.joinpath(*self.module.split(".")).with_suffix(".py")
        if module.__file__ is None or Path(module.__file__).resolve() != wanted:
            raise TopologyError(
                f"{self.text}: the name {self.module!r} imports another module, {module.__file__ or 'a part of Python'}: "
                f"give the file another name"
            )


def load_topology(text: str) -> Topology:
    """The topology of a target.

    Raises:
        TopologyError: The target does not exist, or is not a topology.
    """
    return TopologyTarget.parse(text).load()


def _module_of_file(text: str, file: Path) -> tuple[Path, str]:
    """The folder to import from and the module's name there, dotted inside packages."""
    if not file.is_file():
        nearby = did_you_mean(file.name, (path.name for path in file.absolute().parent.glob("*.py")))
        raise TopologyError(f"{text}: there is no file {file}.{nearby}")
    path = file.resolve()
    if not path.stem.isidentifier():
        raise TopologyError(
            f"{text}: {path.stem!r} is not a name that Python can import: use letters, digits and _ in it"
        )
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names, folder = [folder.name, *names], folder.parent
    return folder, ".".join(names)


def _only_topology(text: str, module: ModuleType) -> tuple[str, Any]:
    """A module's topology: `build`, or the only candidate."""
    if hasattr(module, DEFAULT_ATTRIBUTE):
        return DEFAULT_ATTRIBUTE, getattr(module, DEFAULT_ATTRIBUTE)
    found = {name: value for name, value in vars(module).items() if _is_candidate(module, name, value)}
    # A builder and the topology that it has built count as one program.
    topologies = {name: value for name, value in found.items() if _is_topology(value)}
    found = topologies or {name: value for name, value in found.items() if _is_builder(value)} or found
    if len(found) == 1:
        return next(iter(found.items()))
    place = text.partition(":")[0]
    if found:
        raise TopologyError(f"{text}: which of them? Write {' or '.join(f'{place}:{name}' for name in found)}")
    raise TopologyError(
        f"{text}: there is no topology in it. Write a function `build() -> Topology`, or name one, as in {place}:NAME"
    )


def _is_candidate(module: ModuleType, name: str, value: Any) -> bool:
    if name.startswith("_"):
        return False
    if _is_topology(value) or _is_builder(value):
        return True
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty and p.kind not in _REST]
    returns = str(getattr(value, "__annotations__", {}).get("return", ""))
    return not needed and any(kind in returns for kind in ("Topology", "StreamsBuilder"))


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_topology(value: Any) -> TypeIs[Topology]:
    from streams.topology.topology import Topology

    return isinstance(value, Topology)


def _is_builder(value: Any) -> bool:
    from streams.dsl.builder import StreamsBuilder
    from streams.dsl.topology_builder import TopologyBuilder

    return isinstance(value, StreamsBuilder | TopologyBuilder)


def _failed(text: str, error: Exception) -> StreamsError:
    """The error of a user's module or function as one sentence, with the failing line."""
    from streams.users_code import users_line

    if isinstance(error, StreamsError):
        return error
    what = error.msg if isinstance(error, SyntaxError) else error
    # A function that cannot be called at all has no line, because none of it has run.
    hints = filter(None, (users_line(error), "STREAMS_TRACEBACK=1 shows the whole trace"))
    return TopologyError(f"{text}: {type(error).__name__}: {what} ({'; '.join(hints)})")
