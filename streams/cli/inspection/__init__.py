"""The commands that look for what is wrong: `doctor`, `errors` and `transactions`."""
