"""Counters of steps, and where they are exported: Prometheus, OpenTelemetry, health."""
