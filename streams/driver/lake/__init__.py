"""Sinks of the lake: Delta tables and functions of `foreach_batch`."""
