"""The plain Python counterpart of `native`, record by record: for tests, and where the C API is not available."""
