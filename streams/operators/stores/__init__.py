"""Typed state stores, as operators and processors use them, over the byte stores of `state.stores`."""
