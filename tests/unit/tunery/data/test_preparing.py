"""From a file to shards: the same bytes every time, nothing lost, nothing that cannot be learnt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.numpy import load, load_file, save

from tunery.data import preparing
from tunery.data.checking import count_tokens
from tunery.data.preparing import DataRefused, Prepared, find, prepare
from tunery.data.rendering import Tokenizer

Writer = Callable[..., Path]


def chat(number: int, words: int = 3) -> dict[str, Any]:
    question = {"role": "user", "content": f"Question {number}?"}
    return {"messages": [question, {"role": "assistant", "content": "yes " * words}]}


def tensors(path: Path) -> dict[str, list[int]]:
    return {name: tensor.tolist() for name, tensor in load_file(path).items()}


def documents(path: Path) -> list[tuple[list[int], list[int]]]:
    """Ids and mask of every sequence."""
    parts, found, at = tensors(path), [], 0
    for length in parts["seq_lengths"]:
        span = slice(at, at + length)
        found.append((parts["input_ids"][span], parts["loss_mask"][span]))
        at += length
    assert at == len(parts["input_ids"]) == len(parts["loss_mask"])
    assert sum(parts["row_lengths"]) == len(parts["seq_lengths"])
    return found


@pytest.fixture
def prepared(write: Writer, base_dir: Path, tmp_path: Path) -> Prepared:
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    return prepare(path, base_dir, tmp_path / "out", max_length=128)


def test_sums_agree_with_the_shards(prepared: Prepared, tokenizer: Tokenizer) -> None:
    train, validation = prepared.manifest.train, prepared.manifest.validation
    assert (train.rows, validation.rows) == (180, 20)
    for side, path in ((train, prepared.train_path), (validation, prepared.validation_path)):
        found = documents(path)
        parts = tensors(path)
        assert side.rows == len(found)
        assert side.packed_rows == len(parts["row_lengths"])
        assert side.tokens == len(parts["input_ids"])
        assert side.trainable_tokens == sum(parts["loss_mask"])
        assert side.longest == max(parts["seq_lengths"]) <= 128
        for ids, mask in found:
            assert mask[0] == 0
            answer = tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
            assert answer.startswith("yes ")
            assert answer.endswith("<|im_end|>")


def test_packed_rows_are_full_and_within_max_length(prepared: Prepared) -> None:
    parts = tensors(prepared.train_path)
    lengths = iter(parts["seq_lengths"])
    sizes = [sum(next(lengths) for _ in range(count)) for count in parts["row_lengths"]]
    assert max(sizes) <= 128
    assert sum(sizes) / (128 * len(sizes)) > 0.85


def test_the_bytes_are_those_of_safetensors(prepared: Prepared) -> None:
    for path in (prepared.train_path, prepared.validation_path):
        content = path.read_bytes()
        assert save(load(content)) == content


def test_validation_prompts_end_where_the_answer_begins(
    prepared: Prepared, tokenizer: Tokenizer
) -> None:
    lines = prepared.prompts_path.read_bytes().splitlines()
    assert len(lines) == 20
    for line in map(msgspec.json.decode, lines):
        assert line["prompt"].endswith("<|im_start|>assistant\n")
        assert tokenizer.decode(line["prompt_ids"]) == line["prompt"]
        assert line["reference"].startswith("yes")
        assert f"Question {line['row'] - 1}?" in line["prompt"]


def test_a_second_preparation_tokenises_nothing(
    prepared: Prepared, write: Writer, base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", None)
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    again = prepare(path, base_dir, prepared.directory, max_length=128)
    assert again.reused
    assert again.manifest == prepared.manifest


def test_the_same_bytes_every_time(
    prepared: Prepared, write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write((chat(number, words=number % 30 + 1) for number in range(200)), "other-name")
    again = prepare(path, base_dir, tmp_path / "again", max_length=128)
    assert not again.reused
    for name in (*preparing.FILES, preparing.MANIFEST):
        assert (again.directory / name).read_bytes() == (prepared.directory / name).read_bytes()


@pytest.mark.parametrize(
    "other",
    [{"max_length": 256}, {"length_policy": "truncate"}, {"seed": 1}, {"validation": 200_000}],
)
def test_what_decides_the_bytes_decides_the_key(
    prepared: Prepared, tokenizer: Tokenizer, other: dict[str, Any]
) -> None:
    manifest = prepared.manifest
    if "validation" in other:
        other = {"validation_fraction_ppm": other["validation"]}
    policy = msgspec.structs.replace(manifest.policy, **other)
    assert find(prepared.directory, manifest.key) is not None
    assert preparing.cache_key(manifest.content_sha256, None, tokenizer, policy) != manifest.key
    same = preparing.cache_key(manifest.content_sha256, None, tokenizer, manifest.policy)
    assert same == manifest.key


def test_a_damaged_directory_is_made_again(
    prepared: Prepared, write: Writer, base_dir: Path
) -> None:
    whole = prepared.train_path.read_bytes()
    prepared.train_path.write_bytes(whole[:-1])
    assert find(prepared.directory, prepared.key) is None
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    again = prepare(path, base_dir, prepared.directory, max_length=128)
    assert not again.reused
    assert again.train_path.read_bytes() == whole


def test_counts_without_splitting_are_those_of_the_check(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write(chat(number) for number in range(50))
    counts = count_tokens(path, base_dir)
    done = prepare(path, base_dir, tmp_path / "out", max_length=64, validation_fraction_ppm=0)
    assert counts is not None
    assert done.manifest.train.tokens == counts.tokens
    assert done.manifest.train.trainable_tokens == counts.trainable_tokens
    assert done.manifest.validation.rows == 0
    assert documents(done.validation_path) == []


def test_a_validation_file_of_its_own(write: Writer, base_dir: Path, tmp_path: Path) -> None:
    path = write(chat(number) for number in range(30))
    held_out = write((chat(number) for number in range(100, 107)), "held-out.jsonl")
    seen: list[tuple[int, int]] = []
    done = prepare(
        path,
        base_dir,
        tmp_path / "out",
        max_length=64,
        validation_path=held_out,
        progress=lambda at, total: seen.append((at, total)),
    )
    assert (done.manifest.train.rows, done.manifest.validation.rows) == (30, 7)
    assert seen == sorted(seen)
    assert seen[-1] == (seen[0][1], seen[0][1])


def test_long_rows_are_refused_by_name(write: Writer, base_dir: Path, tmp_path: Path) -> None:
    path = write([chat(1), chat(2, words=500), chat(3)])
    with pytest.raises(DataRefused, match=r"row 2: .*max_length is 64 \(row_too_long\)"):
        prepare(path, base_dir, tmp_path / "out", max_length=64)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def test_long_rows_are_cut(write: Writer, base_dir: Path, tmp_path: Path) -> None:
    path = write([chat(1), chat(2, words=500), chat(3)])
    options: dict[str, Any] = {"max_length": 64, "length_policy": "truncate"}
    done = prepare(path, base_dir, tmp_path / "out", validation_fraction_ppm=0, **options)
    assert (done.manifest.train.truncated, done.manifest.train.longest) == (1, 64)
    assert max(len(ids) for ids, _ in documents(done.train_path)) == 64


def test_a_row_with_nothing_left_to_learn_is_refused(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    long = {"role": "user", "content": "long " * 100}
    path = write([chat(1), {"messages": [long, {"role": "assistant", "content": "a"}]}])
    with pytest.raises(DataRefused, match=r"row 2: .*\(no_trainable_token\)") as refused:
        prepare(path, base_dir, tmp_path / "out", max_length=64, length_policy="truncate")
    assert refused.value.counts == {"no_trainable_token": 1}


def test_bad_rows_are_refused_before_any_work(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write([chat(1), *[b"{'a': 1}"] * 7])
    with pytest.raises(DataRefused, match="and 2 more"):
        prepare(path, base_dir, tmp_path / "out", max_length=64)


def test_small_windows_lose_nothing(
    write: Writer, base_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(chat(number, words=number % 9 + 1) for number in range(100))
    options: dict[str, Any] = {"max_length": 96, "validation_fraction_ppm": 0}
    whole = prepare(path, base_dir, tmp_path / "whole", **options)
    monkeypatch.setattr(preparing, "PACK_WINDOW_ROWS", 7)
    monkeypatch.setattr(preparing, "ENCODE_ROWS", 3)
    windows = prepare(path, base_dir, tmp_path / "windows", **options)
    assert sorted(documents(whole.train_path)) == sorted(documents(windows.train_path))
    assert windows.manifest.train.packed_rows >= whole.manifest.train.packed_rows


@pytest.mark.train
def test_the_trainer_reads_the_shards(prepared: Prepared) -> None:
    from tunery.ml.packed import read_rows

    rows = read_rows([str(prepared.train_path)], vocabulary=49_152)
    assert rows.n_sequences == prepared.manifest.train.rows
    assert rows.n_labels == prepared.manifest.train.trainable_tokens
    assert sum(rows.row_tokens) == prepared.manifest.train.tokens


def test_the_manifest_is_plain_json(prepared: Prepared) -> None:
    manifest = json.loads((prepared.directory / preparing.MANIFEST).read_text())
    assert manifest["key"] == prepared.key
    assert manifest["files"].keys() == set(preparing.FILES)


def test_plain_text_is_learnt_whole_and_without_a_template(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write({"text": f"Rock {number} has a lamp."} for number in range(20))
    made = prepare(path, base_dir, tmp_path / "out", max_length=64)
    for ids, mask in documents(made.train_path):
        assert all(mask[1:])
        assert tokenizer.decode(ids).startswith("Rock ")
        assert tokenizer.decode(ids).endswith(f"has a lamp.{tokenizer.eos}")


def test_what_nothing_trains_on_is_refused_by_name(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"Q {n}?", "chosen": "Yes.", "rejected": "No."} for n in range(20)]
    with pytest.raises(DataRefused) as caught:
        prepare(write(rows), base_dir, tmp_path / "out", max_length=64)
    assert [finding.code for finding in caught.value.findings] == ["not_trainable"]
