"""Previews in processes of their own, with a real tokenizer."""

from pathlib import Path

import pytest

from services.gateway.adapters.previews import PreviewProcesses
from services.gateway.domain.errors import ApiError
from tests.unit.services.ingest.base import make_base, rows


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "base")


async def test_only_what_the_assistant_says_is_learnt(tmp_path: Path, base: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b'{"broken": \n' + rows(5))
    shown = await PreviewProcesses().show(file, str(base), 2, None)
    assert [row["row"] for row in shown["data"]] == [2, 3]
    first = shown["data"][0]
    texts = [(part["text"], part["learnt"]) for part in first["segments"]]
    assert "".join(text for text, learnt in texts if learnt) == "Light number 0.<|im_end|>"
    assert texts[0][0].startswith("<|im_start|>user\nWhat is lantern 0?")
    assert len(first["token_ids"]) == len(first["loss_mask"]) == first["tokens"]
    assert sum(first["loss_mask"]) == first["trainable_tokens"]
    assert sum(part["tokens"] for part in first["segments"]) == first["tokens"]
    (problem,) = shown["problems"]
    assert problem["row"] == 1


async def test_a_row_is_cut_where_training_would_cut_it(tmp_path: Path, base: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    (row,) = (await PreviewProcesses().show(file, str(base), 1, 5))["data"]
    assert (len(row["token_ids"]), row["truncated"]) == (5, True)
    assert row["tokens"] > 5


async def test_a_base_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    with pytest.raises(ApiError) as refused:
        await PreviewProcesses().show(file, str(tmp_path), 1, None)
    assert (refused.value.status, refused.value.param) == (400, "model")


async def test_what_takes_too_long_is_ended(tmp_path: Path, base: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    with pytest.raises(ApiError) as refused:
        await PreviewProcesses(wait_ms_max=1).show(file, str(base), 1, None)
    assert refused.value.param == "rows"
