"""Measurements: each workload is a command of its own that verifies its output and prints its figures."""
