"""Both kinds are measured, on a processor, and have the same gradients."""

from pathlib import Path

import pytest

from bench.offload import measure, write_base

pytestmark = [
    pytest.mark.train,
    # peft and transformers 5 call it by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_both_kinds_are_measured(tmp_path: Path) -> None:
    write_base(tmp_path, layers=4, hidden=64, inner=128)
    kept, streamed = (measure(tmp_path, 2, 32, offload=offload) for offload in (False, True))
    assert kept["gradients"] == streamed["gradients"]
    assert min(kept["tokens_s"], streamed["tokens_s"], streamed["copy_gb_s"]) > 0
