"""Calls of outside services from a stream, which preserve the order of each key."""
