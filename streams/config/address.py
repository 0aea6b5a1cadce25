"""The address that metrics are served at, as a setting: `HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`."""

from __future__ import annotations

import re
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
_FORM = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s\[\]]*):)?(?P<port>\d{1,5})")


class Address(NamedTuple):
    """Where a server listens; port 0: a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address from text. Without a host, only programs on this host can connect.

        Raises:
            ValueError: The text is no address.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None or int(found["port"]) > 65535:
            raise ValueError(f"{text!r} is no address: write HOST:PORT, or a port alone for programs on this host only")
        return cls((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))
