"""A log line for each step, with all of its figures: the smallest unit that Kafka commits, and so the one to search for.

A step with records is a line at INFO, because the questions of every day are about such steps: where the time went, what was read
and written. A step without records (a tick of the clock, a repeated step that was committed already) is a line at DEBUG: there may
be many in a second, and they say nothing but that the task lives.
"""

from __future__ import annotations

import logging
from dataclasses import fields

from streams.metrics.figures import MicroBatchFigures, StepFigures

log = logging.getLogger("streams.steps")


def log_steps(batch: MicroBatchFigures) -> None:
    """Logs a line for each step of a micro-batch; a listener of `MetricsRecorder`."""
    for step in batch.steps:
        level = logging.INFO if step.records_in and not step.skipped else logging.DEBUG
        if log.isEnabledFor(level):
            about = {"application": batch.application_id, "sub_topology": batch.sub_topology}
            figures = {field.name: getattr(step, field.name) for field in fields(step)}
            log.log(level, "%s", _sentence(step), extra={"event": "step", "fields": {**about, **figures}})


def _sentence(step: StepFigures) -> str:
    return (
        f"step {step.version}: {step.records_in:,} records in, {step.records_out:,} out, "
        f"{step.changelog_records:,} changelog records in {step.total_s:.3f} s"
    )
