"""Expressions of a value's fields: `col("temperature") * 1.8`, `fields("user", total=col("price") * col("count"))`.

`expression` has the expressions, `operations` what they compute, and `fields` what makes objects of them.
"""
