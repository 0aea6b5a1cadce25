"""Operators of tables: what reads, computes, groups, suppresses and materialises them."""
