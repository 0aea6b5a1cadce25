"""`streams pause` and `streams resume`."""
