"""Commands that take over other systems' applications."""
