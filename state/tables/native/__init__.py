"""RocksDB through its C API: whole columns in, whole columns out."""
