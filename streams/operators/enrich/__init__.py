"""Calls of outside services from a stream, with the order of each key kept."""
