"""`python -m benchmarks`."""

from benchmarks.cli import app

app()
