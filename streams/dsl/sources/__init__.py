"""What begins a stream besides topics."""
