"""The command `streams` in this process."""

from tests.cli.conftest import streams

__all__ = ["streams"]
