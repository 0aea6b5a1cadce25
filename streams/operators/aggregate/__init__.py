"""Aggregations of streams: over all time, in windows and sessions; what drops repetitions."""
