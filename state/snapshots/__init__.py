"""Snapshots of tasks' stores: where they are kept (`location`), what they say (`manifest`), and when they are taken (`taking`)."""
