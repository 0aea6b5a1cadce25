"""How a drill ends other than well. None of these leaves `streams drill`: each becomes a row of its result."""

from __future__ import annotations


class DrillFailed(AssertionError):
    """Something that must hold does not, or the fault was not seen."""


class NotPossibleHere(Exception):
    """This machine cannot inject the fault; the text says what is missing. The drill is skipped, not passed."""


class SpoiledByBroker(Exception):
    """A known defect of the broker made the run inconclusive; another seed is needed."""
