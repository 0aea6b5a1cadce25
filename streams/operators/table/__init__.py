"""Operators of tables: reading, computing, grouping, suppressing and materialising them."""
