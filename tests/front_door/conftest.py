"""The command `streams`, as in tests/cli."""

from tests.cli.conftest import streams

__all__ = ["streams"]
