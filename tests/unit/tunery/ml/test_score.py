"""The bundled items and prompts, and specs that name their own."""

from tunery.ml.score import ITEMS, with_bundled_items
from tunery.work.spec import ScoreSpec

SPEC = ScoreSpec(base_dir="base", base_sha256="0" * 64, adapter_dir="adapter", out="scores.json")


def test_a_spec_without_items_gets_the_bundled_ones() -> None:
    spec = with_bundled_items(SPEC)
    assert spec.items == str(ITEMS / "capability.jsonl")
    assert len((ITEMS / "capability.jsonl").read_text().splitlines()) >= 200
    assert spec.prompts
    assert all(spec.prompts)


def test_a_spec_with_items_keeps_them() -> None:
    spec = ScoreSpec(
        base_dir="base",
        base_sha256="0" * 64,
        adapter_dir="adapter",
        out="scores.json",
        items="own.jsonl",
        prompts=(),
    )
    assert with_bundled_items(spec) == spec
