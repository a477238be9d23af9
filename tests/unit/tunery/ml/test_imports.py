"""The garbage collector is off while libraries load, and on again afterwards."""

import gc

import pytest

from tunery.ml.imports import large_imports


@pytest.mark.train
def test_the_collector_is_off_only_while_libraries_load() -> None:
    with large_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    assert frozen > 0
