"""Typed state stores for operators and processors, over the byte stores of `state.stores`."""
