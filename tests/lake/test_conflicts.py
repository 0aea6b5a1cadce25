"""Every conflict that Delta raises in Python counts as one."""

from __future__ import annotations

import pytest
from delta.exceptions import captured

from streams.spark.lake.delta_table import _CONFLICTS

RAISED = [
    found for name, found in vars(captured).items() if name.endswith("Exception") and name.startswith(("Con", "M", "P"))
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: raised.__name__)
def test_what_delta_raises_is_a_conflict(raised: type[Exception]) -> None:
    assert issubclass(raised, _CONFLICTS)


def test_delta_raises_several_kinds() -> None:
    assert {"ConcurrentAppendException", "ConcurrentTransactionException", "MetadataChangedException"} <= {
        raised.__name__ for raised in RAISED
    }
