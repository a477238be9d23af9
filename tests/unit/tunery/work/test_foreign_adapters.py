"""Imported adapters, and each reason for a refusal."""

import io
import json
import pickle
import struct
import zipfile
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.work.artifact import Unpublishable, check_header, read_config, read_tensors
from tunery.work.foreign_adapters import canonical_settings, check_layers, refuse_pickle

LAYERS = {"model.layers.0.self_attn.q_proj.weight": (16, 8), "model.embed_tokens.weight": (32, 8)}


def settings(**changes: Any) -> bytes:
    """As PEFT 0.21 writes them."""
    return json.dumps(
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "peft_version": "0.21.2",
            "base_model_name_or_path": "their/base",
            "auto_mapping": {"parent_library": "os"},
            "revision": "main",
            "inference_mode": True,
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["v_proj", "q_proj"],
            "bias": "none",
            "megatron_core": "megatron.core",
            "eva_config": None,
            "loftq_config": {},
            "use_qalora": False,
            **changes,
        }
    ).encode()


def header(**weights: tuple[int, ...]) -> bytes:
    end, tensors = 0, {}
    for name, shape in weights.items():
        begin, end = end, end + 4 * shape[0] * shape[1]
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    return json.dumps(tensors).encode()


def test_settings_are_taken_in_the_form_that_is_published() -> None:
    data, values = canonical_settings(settings(), "small")
    assert read_config(data, "small", "a" * 64) == values
    assert values["target_modules"] == ["q_proj", "v_proj"]
    assert (values["auto_mapping"], values["base_model_name_or_path"]) == (None, "small")
    assert "megatron_core" not in values
    assert canonical_settings(data, "small") == (data, values), "it is read again as it is"


@pytest.mark.parametrize(
    "changes",
    [
        {"peft_type": "IA3"},
        {"task_type": "SEQ_CLS"},
        {"bias": "all"},
        {"init_lora_weights": "pissa"},
        {"megatron_config": {"a": 1}},
        {"layer_replication": [[0, 4]]},
        {"trainable_token_indices": [1]},
        {"some_later_setting": 1},
        {"target_modules": ".*(q|v)_proj"},
        {"target_modules": ["(a+)+$"]},
        {"rank_pattern": {"(a+)+$": 8}},
        {"modules_to_save": [1]},
    ],
    ids=str,
)
def test_a_setting_that_is_not_taken_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(Unpublishable, match=next(iter(changes))):
        canonical_settings(settings(**changes), "small")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"[" * 100_000, b"\xff", b" " * (1 << 20) + b"{}"]
)
def test_what_is_no_settings_is_refused(data: bytes) -> None:
    with pytest.raises(Unpublishable):
        canonical_settings(data, "small")


def test_a_pickle_is_refused_by_its_content() -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("taken over",))

    torch_file = io.BytesIO()
    with zipfile.ZipFile(torch_file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Attack()))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(Unpublishable, match="pickle"):
            refuse_pickle(pickle.dumps(Attack(), protocol)[:9])
    with pytest.raises(Unpublishable, match="pickle"):
        refuse_pickle(torch_file.getvalue()[:9])
    for length in (0x280, 0x580, 0x4B50):  # lengths whose bytes begin as a pickle or a zip does
        refuse_pickle(struct.pack("<Q", length) + b"{")


@given(st.binary(max_size=64))
def test_any_bytes_are_a_header_or_are_refused(data: bytes) -> None:
    for check in (lambda: read_tensors(data), lambda: check_header(data, len(data), None)):
        with suppress(Unpublishable):
            check()


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(Unpublishable, match="twice"):
        read_tensors(b'{"a": {"shape": [1]}, "a": {"shape": [2]}}')


def test_each_weight_fits_a_layer_of_the_base_model() -> None:
    q = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    check_layers(header(**{q.format("A"): (4, 8), q.format("B"): (16, 4)}), "small", LAYERS)
    head = "base_model.model.lm_head.lora_A.weight"
    check_layers(header(**{head: (4, 8)}), "small", LAYERS)  # tied to the embedding
    for wrong in (
        {q.format("A"): (4, 9)},
        {q.format("B"): (17, 4)},
        {q.format("A").replace("layers.0", "layers.9"): (4, 8)},
        {q.format("A").removeprefix("base_model."): (4, 8)},
    ):
        with pytest.raises(Unpublishable):
            check_layers(header(**wrong), "small", LAYERS)
