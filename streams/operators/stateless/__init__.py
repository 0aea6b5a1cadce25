"""Operators without state: one record in, any number out."""
