"""The installed version, read from the package's metadata when first asked for."""

from importlib.metadata import version

__version__ = version("streams-on-spark")
