"""How and what a process logs; travels to the workers with their job."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum


class LogFormat(str, Enum):
    """The form of what appears on standard error: for people, or one JSON object a line for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Form and level of log lines.

    Attributes:
        form: Text or JSON.
        level: The level that the user has set; None: the default of the form.
    """

    form: LogFormat = LogFormat.TEXT
    level: LogLevel | None = None

    @property
    def json(self) -> bool:
        return self.form is LogFormat.JSON

    @property
    def number(self) -> int:
        """The level as `logging` counts: as text, lines at INFO would come between those of the progress display."""
        chosen = self.level or (LogLevel.INFO if self.json else LogLevel.WARNING)
        return int(getattr(logging, chosen.name))
