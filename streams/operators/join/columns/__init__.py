"""Joins of streams over the columns of a whole step."""
