"""Where the checkpoint of the new tasks begins, and what is refused because it is not at rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.application.rescale.plan import first_batch
from streams.application.start import Preflight
from streams.checkpoint.compare import SubIdentity
from streams.checkpoint.files import Checkpoint
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch, SourceOffsets, TopicOffsets
from tests.checkpoint.made import made_marker

SUB = SubIdentity("app", "in", 2, "hash")


def at(offset: int, now_ms: int | None = None) -> SourceOffsets:
    return SourceOffsets({"in": TopicOffsets("id", (offset,))}, now_ms=now_ms)


def checkpoint(logged: int, committed: int, first: FirstBatch | None = None) -> Checkpoint:
    offsets = {batch: at(10 * (batch + 1), now_ms=7) for batch in range(logged + 1)}
    return Checkpoint("query", logged, committed, offsets, first or FirstBatch(at(0)))


def test_reading_goes_on_where_the_last_micro_batch_ended():
    markers = {0: made_marker(0, batch_id=3), 1: None}
    assert first_batch(SUB, checkpoint(3, 3), markers) == FirstBatch(at(40), fixed=True)


def test_a_micro_batch_that_was_only_planned_is_planned_again():
    markers = {0: made_marker(0, batch_id=3), 1: made_marker(1, batch_id=2)}
    assert first_batch(SUB, checkpoint(4, 3), markers) == FirstBatch(at(40), fixed=True)
    assert first_batch(SUB, checkpoint(0, -1), {0: None, 1: None}) == FirstBatch(at(0))


def test_a_micro_batch_that_a_task_has_committed_must_be_finished_first():
    with pytest.raises(RescaleError, match="micro-batch 4 was begun and is not finished"):
        first_batch(SUB, checkpoint(4, 3), {0: made_marker(0, batch_id=4), 1: made_marker(1, batch_id=3)})


def test_the_micro_batch_that_an_adoption_repeats_must_be_finished_first():
    adopted = checkpoint(-1, -1, FirstBatch(at(0), at(10)))
    with pytest.raises(RescaleError, match="micro-batch 0 was begun and is not finished"):
        first_batch(SUB, adopted, {0: made_marker(0, batch_id=0), 1: made_marker(1, batch_id=-1)})


def test_a_checkpoint_without_a_micro_batch_begins_where_it_would_have_begun():
    assert first_batch(
        SUB, checkpoint(-1, -1, FirstBatch(at(5))), {0: made_marker(0, batch_id=-1), 1: None}
    ) == FirstBatch(at(5), fixed=True)
    assert first_batch(SUB, Checkpoint(), {0: None, 1: None}) is None


def test_where_state_ends_is_where_the_next_start_begins_though_nothing_is_logged():
    class Unlogged(Preflight):
        """Its sources would begin elsewhere, if they could choose."""

        def _planner(self, prepared: Any) -> Any:
            return SimpleNamespace(initial=lambda: at(0), max_records=None, max_bytes=None)

        def markers(self, prepared: Any) -> Any:
            return None

    read = FirstBatch.from_json(FirstBatch(at(40), fixed=True).to_json())
    preflight = Unlogged(None, None, None, print)  # type: ignore[arg-type]
    prepared = SimpleNamespace(sub=SimpleNamespace(name="in"))
    assert preflight._first(prepared, checkpoint(-1, -1, read)) == FirstBatch(at(40), fixed=True)
