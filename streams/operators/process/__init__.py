"""Runs users' processors: their context, their stores, and the checks that find mistakes early."""
