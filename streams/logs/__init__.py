"""Lifecycle events, and log lines as text or JSON."""
