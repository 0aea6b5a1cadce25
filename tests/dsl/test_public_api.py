"""What `streams` exports is what it says, and nothing else."""

import types

import streams

LOADED_ON_USE = {"KafkaStreams"}


def test_all_is_the_public_names():
    public = {
        name
        for name, value in vars(streams).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(streams.__all__) == public | LOADED_ON_USE
    assert list(streams.__all__) == sorted(streams.__all__)


def test_public_things_are_documented():
    undocumented = [
        name for name in streams.__all__ if not (getattr(streams, name).__doc__ or "").strip() and name.isidentifier()
    ]
    assert undocumented == []
