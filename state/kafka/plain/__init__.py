"""The same as `native` in plain Python, record by record: its twin in tests, and where the C API cannot be had."""
