"""Serves the state of an application: copies of its stores that hold whole commits only, read by key, range, window and time."""
