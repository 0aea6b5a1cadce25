"""What tests of lake sinks share with those of commands."""

from tests.cli.conftest import streams

__all__ = ["streams"]
