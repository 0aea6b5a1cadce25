"""Where the packages go. All else is in pyproject.toml.

In the repository the engine is two packages, `streams` and `state`. In a wheel the second one is `streams._state`, because
`state` is a name that users' own modules have. The copies in the wheel import it by that name, so nothing is redirected when a
program runs. An editable installation (`pip install -e`) stays as the repository is.
"""

import ast
import os
import re
import sys

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

HOME = "streams._state"
is_editable = "editable_wheel" in sys.argv
streams, state = (
    find_namespace_packages(include=[name, f"{name}.*"], exclude=["*.__pycache__"]) for name in ("streams", "state")
)


def moved(source: str) -> str:
    """A module's text with `state` imported from its place in the wheel."""
    lines = source.encode().splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and f"{node.module}.".startswith("state."):
            old, new = rb"from state\b", f"from {HOME}".encode()
        elif isinstance(node, ast.Import) and any(f"{name.name}.".startswith("state.") for name in node.names):
            old, new = rb"import state$", b"from streams import _state as state"
        else:
            continue
        line, start = lines[node.lineno - 1], node.col_offset
        end = line[start:].rstrip(b"\r\n")
        if not re.match(old, end):
            raise ValueError(
                f"line {node.lineno}: write `from state... import ...` or `import state`, alone on its line"
            )
        lines[node.lineno - 1] = line[:start] + re.sub(old, new, line[start:], count=1)
    return b"".join(lines).decode()


class BuildWithStateBelowStreams(build_py):
    """Copies the packages and rewrites their imports of `state`."""

    def run(self):
        """Adds the page of errors for `streams errors`, which an editable installation reads from docs."""
        super().run()
        if not self.editable_mode:
            self.copy_file("docs/errors.md", os.path.join(self.build_lib, "streams", "cli", "errors.md"))

    def build_module(self, module, module_file, package):
        """Copies one module."""
        outfile, copied = super().build_module(module, module_file, package)
        if not self.editable_mode:
            with open(module_file, encoding="utf-8") as file:
                text = moved(file.read())
            with open(outfile, "w", encoding="utf-8") as file:
                file.write(text)
            # The copy keeps the time of its source, by which Python's and numba's caches know it.
            os.utime(outfile, (os.stat(module_file).st_atime, os.stat(module_file).st_mtime))
        return outfile, copied


setup(
    packages=streams + (state if is_editable else [re.sub(r"^state", HOME, name) for name in state]),
    package_dir={} if is_editable else {HOME: "state"},
    package_data={
        "streams": ["py.typed", "cli/templates/shared/*", "cli/templates/*/README.md", "ui/page/*"],
        ("state" if is_editable else HOME): ["py.typed"],
    },
    cmdclass={"build_py": BuildWithStateBelowStreams},
)
