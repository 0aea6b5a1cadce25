"""Where the driver takes in reports of running restores: at the address by which Spark's executors reach it anyway."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import SparkSession

from streams.config import StreamsConfig
from streams.metrics.recorder import MetricsRecorder
from streams.metrics.restores import RestoreReports

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"


def restore_reports(
    session: SparkSession, config: StreamsConfig, recorder: MetricsRecorder
) -> AbstractContextManager[RestoreReports | None]:
    """What takes in the reports within a `with` block; nothing does where no figures are served, or no port can be opened."""
    if config.metrics_address is None and not config.otel:
        return nullcontext()
    conf = session.sparkContext.getConf()
    local = session.sparkContext.master.startswith("local")
    host = _LOOPBACK if local else (conf.get("spark.driver.host") or _LOOPBACK).strip("[]")
    bind = host if local else (conf.get("spark.driver.bindAddress") or host).strip("[]")
    try:
        return RestoreReports(recorder, host, bind)
    except OSError as error:
        log.warning("restores are not in the metrics while they run: no port can be opened at %s: %s", bind, error)
        return nullcontext()
