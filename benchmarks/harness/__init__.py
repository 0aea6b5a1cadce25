"""Runs a peer as processes of its own, measures it from outside, and has its output verified."""
