"""Published adapters, and each reason for a refusal."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.platform.blobs.base_files import TOKENIZER_NAMES
from tunery.work.artifact import (
    BESIDE,
    CONFIG,
    WEIGHTS,
    WHOLE_CONFIG,
    WHOLE_WEIGHTS,
    Unpublishable,
    check_header,
    check_names,
    header_length,
    read_config,
    read_whole_config,
)

BASE, SHA = "small", "a" * 64
RANK = 4
Tensors = dict[str, Any]


def config(**changes: Any) -> bytes:
    values = {
        "base_model_name_or_path": BASE,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": ["down_proj", "up_proj"],
    }
    values.update(changes)
    return (json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def tensors() -> Tensors:
    return {
        "base.up.lora_A.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]},
        "base.up.lora_B.weight": {"dtype": "F32", "shape": [8, 4], "data_offsets": [128, 256]},
    }


def check(described: Tensors, payload: int = 256, **settings: Any) -> int:
    header = json.dumps(described).encode()
    return check_header(header, 8 + len(header) + payload, {"r": RANK, **settings})


def test_a_canonical_adapter_passes() -> None:
    check_names((WEIGHTS, CONFIG))
    for name in (BASE, f"{BASE}@{SHA}"):  # as it is written, and as it was written
        assert read_config(config(base_model_name_or_path=name), BASE, SHA)["r"] == RANK
    assert check({"__metadata__": {"format": "pt"}, **tensors()}) == 2


@pytest.mark.parametrize(
    ("name", "shape", "settings"),
    [
        ("base.lm_head.weight", [4, 2], {"modules_to_save": ["lm_head"]}),
        ("base.up.lora_magnitude_vector", [8], {"use_dora": True}),
        ("base.up.lora_A.weight", [2, 4], {"rank_pattern": {"up": 2}}),
        ("base.mlp.experts.lora_A.weight", [8, 1], {}),
    ],
)
def test_training_what_a_knob_adds_to_an_adapter_is_published_where_its_config_says_so(
    name: str, shape: list[int], settings: dict[str, Any]
) -> None:
    """Such jobs were trained, billed, and then not published."""
    described = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 32]}}
    assert check(described, 32, **settings) == 1
    if settings:
        with pytest.raises(Unpublishable):
            check(described, 32)


@pytest.mark.parametrize(
    "names", [(), (CONFIG,), (WEIGHTS, CONFIG, "adapter_model.bin"), (WEIGHTS, CONFIG, CONFIG)]
)
def test_other_files_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(Unpublishable, match="an adapter is"):
        check_names(names)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (json.dumps(json.loads(config())).encode(), "canonical form"),
        (config(base_model_name_or_path="/models/small"), "base_model_name_or_path"),
        (config(base_model_name_or_path=f"{BASE}@{'b' * 64}"), "base_model_name_or_path"),
        (config(auto_mapping="/home/someone/x"), "training machine"),
        (config(target_modules=["up_proj", "down_proj"]), "not sorted"),
        (config(r=0), "whole number"),
    ],
)
def test_other_configs_are_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(Unpublishable, match=reason):
        read_config(data, BASE, SHA)


def test_a_whole_model_may_have_all_that_a_base_has_beside_its_weights() -> None:
    assert frozenset(TOKENIZER_NAMES) == BESIDE


def test_bases_f7_an_adapter_may_have_a_tokenizer_of_its_own_beside_it() -> None:
    check_names((WEIGHTS, CONFIG, "tokenizer.json", "chat_template.jinja"))


def test_a_whole_model_passes_with_its_tokenizer() -> None:
    check_names((WHOLE_WEIGHTS, WHOLE_CONFIG, "tokenizer.json", "chat_template.jinja"))
    assert read_whole_config(b'{"model_type": "llama", "vocab_size": 8}')["vocab_size"] == 8
    header = json.dumps(tensors()).encode()
    assert check_header(header, 8 + len(header) + 256, None) == 2


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ((WHOLE_WEIGHTS, "tokenizer.json"), "fewer of them"),
        ((WHOLE_WEIGHTS, WHOLE_CONFIG, "pytorch_model.bin"), "not pytorch_model.bin"),
        ((WHOLE_WEIGHTS, WHOLE_CONFIG, "modeling_llama.py"), "not modeling_llama.py"),
        ((WHOLE_WEIGHTS, WHOLE_CONFIG, WEIGHTS), f"not {WEIGHTS}"),
    ],
)
def test_other_files_of_a_whole_model_are_refused_by_name(
    names: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Unpublishable, match=reason):
        check_names(names)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"vocab_size": 8}', "model_type"),
        (b'{"model_type": "x", "auto_map": {"AutoModel": "x.X"}}', "code to be run"),
        (b'{"model_type": "x", "_name_or_path": "/home/x"}', "training machine"),
    ],
)
def test_other_configs_of_a_whole_model_are_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(Unpublishable, match=reason):
        read_whole_config(data)


def changed(change: Callable[[Tensors], None]) -> Tensors:
    altered = tensors()
    change(altered)
    return altered


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.clear(), "no tensors"),
        (lambda t: t.pop("base.up.lora_A.weight"), "begins at 128, not at 0"),
        (lambda t: t["base.up.lora_B.weight"].update(data_offsets=[64, 192]), "begins at 64"),
        (lambda t: t.pop("base.up.lora_B.weight"), "the file does not"),
        (lambda t: t["base.up.lora_B.weight"].update(shape=[8, 5]), "spans"),
        (lambda t: t["base.up.lora_B.weight"].update(shape=[4, 8]), "rank 4"),
        (lambda t: t["base.up.lora_B.weight"].update(dtype="I8"), "described wrongly"),
        (lambda t: t.update(x={"dtype": "F32"}), "described wrongly"),
        (
            lambda t: t.update(
                {"base.weight": {"dtype": "F32", "shape": [1], "data_offsets": [256, 260]}}
            ),
            "no LoRA weight",
        ),
    ],
)
def test_other_tensors_are_refused_by_name(change: Callable[[Tensors], None], reason: str) -> None:
    with pytest.raises(Unpublishable, match=reason):
        check(changed(change))


def test_a_header_that_cannot_be_right_is_refused() -> None:
    for prefix in (b"", struct.pack("<Q", 1), struct.pack("<Q", 1 << 40)):
        with pytest.raises(Unpublishable):
            header_length(prefix, 1000)
    assert header_length(struct.pack("<Q", 100), 1000) == 100


@given(st.binary(max_size=200))
def test_checks_accept_or_refuse_any_bytes(data: bytes) -> None:
    attempts: tuple[Callable[[], object], ...] = (
        lambda: read_config(data, BASE, SHA),
        lambda: read_whole_config(data),
        lambda: check_header(data, len(data) + 8, {"r": RANK}),
        lambda: header_length(data, len(data)),
    )
    for attempt in attempts:
        try:
            answer: object = attempt()
        except Unpublishable as refused:
            answer = str(refused)
        assert answer
