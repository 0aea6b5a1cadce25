"""Aggregations of streams, over all time, in windows and in sessions; and deduplication."""
