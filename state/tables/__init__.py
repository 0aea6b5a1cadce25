"""Ordered tables of bytes, in RocksDB or in memory, and the write buffer in front of them."""
