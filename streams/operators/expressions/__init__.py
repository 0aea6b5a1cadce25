"""Expressions (`streams.model.expressions`) computed on columns, with exactly the results of record-by-record computation.

`vector` is a column of values with their kinds; `arithmetic`, `comparisons` and `logic` are the operations; each marks the
rows that it leaves to the definition; `evaluate` computes an expression for the rows of a `Frame`.
"""
