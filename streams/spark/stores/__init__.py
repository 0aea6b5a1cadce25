"""Stores as Spark sees them."""
