"""From a file to shards: the same bytes every time, nothing lost, nothing that cannot be learnt."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.numpy import load, load_file, save

from schemas.dataset import RowKind
from tunery.data import preparing
from tunery.data.checking import check
from tunery.data.dialects.conversation import Conversation
from tunery.data.preparing import DataRefused, PreparedDirectory, find_prepared, prepare
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.screening.screening import ScreeningPolicy
from tunery.data.tokens import chunks
from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.tokenizer import Encoded, Tokenizer

Writer = Callable[..., Path]
ROOT = Path(__file__).parents[4]


def chat(number: int, words: int = 3) -> dict[str, Any]:
    question = {"role": "user", "content": f"Question {number}?"}
    return {"messages": [question, {"role": "assistant", "content": "yes " * words}]}


def tensors(path: Path) -> dict[str, list[int]]:
    return {name: tensor.tolist() for name, tensor in load_file(path).items()}


def documents(path: Path) -> list[tuple[list[int], list[int]]]:
    """Ids and mask of every sequence."""
    parts, sequences, at = tensors(path), [], 0
    for length in parts["seq_lengths"]:
        span = slice(at, at + length)
        sequences.append((parts["input_ids"][span], parts["loss_mask"][span]))
        at += length
    assert at == len(parts["input_ids"]) == len(parts["loss_mask"])
    assert sum(parts["row_lengths"]) == len(parts["seq_lengths"])
    return sequences


@pytest.fixture
def prepared(write: Writer, base_dir: Path, tmp_path: Path) -> PreparedDirectory:
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    return prepare(path, base_dir, tmp_path / "out", max_length=128)


def test_sums_agree_with_the_shards(prepared: PreparedDirectory, tokenizer: Tokenizer) -> None:
    train, validation = prepared.manifest.train, prepared.manifest.validation
    assert (train.rows, validation.rows) == (180, 20)
    for side, path in ((train, prepared.train_path), (validation, prepared.validation_path)):
        sequences = documents(path)
        parts = tensors(path)
        assert side.rows == len(sequences)
        assert side.packed_rows == len(parts["row_lengths"])
        assert side.tokens == len(parts["input_ids"])
        assert side.trainable_tokens == sum(parts["loss_mask"])
        assert side.longest == max(parts["seq_lengths"]) <= 128
        for ids, mask in sequences:
            assert mask[0] == 0
            answer = tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
            assert answer.startswith("yes ")
            assert answer.endswith("<|im_end|>")


def test_packed_rows_are_full_and_within_max_length(prepared: PreparedDirectory) -> None:
    parts = tensors(prepared.train_path)
    lengths = iter(parts["seq_lengths"])
    sizes = [sum(next(lengths) for _ in range(count)) for count in parts["row_lengths"]]
    assert max(sizes) <= 128
    assert sum(sizes) / (128 * len(sizes)) > 0.85


def test_the_bytes_are_those_of_safetensors(prepared: PreparedDirectory) -> None:
    for path in (prepared.train_path, prepared.validation_path):
        content = path.read_bytes()
        assert save(load(content)) == content


def test_validation_prompts_end_where_the_answer_begins(
    prepared: PreparedDirectory, tokenizer: Tokenizer
) -> None:
    lines = prepared.prompts_path.read_bytes().splitlines()
    assert len(lines) == 20
    for line in map(msgspec.json.decode, lines):
        assert line["prompt"].endswith("<|im_start|>assistant\n")
        assert tokenizer.decode(line["prompt_ids"]) == line["prompt"]
        assert line["reference"].startswith("yes")
        assert f"Question {line['row'] - 1}?" in line["prompt"]


def test_a_second_preparation_tokenises_nothing(
    prepared: PreparedDirectory, write: Writer, base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", None)
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    again = prepare(path, base_dir, prepared.directory, max_length=128)
    assert again.reused
    assert again.manifest == prepared.manifest


def test_the_same_bytes_every_time(
    prepared: PreparedDirectory, write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write((chat(number, words=number % 30 + 1) for number in range(200)), "other-name")
    again = prepare(path, base_dir, tmp_path / "again", max_length=128)
    assert not again.reused
    for name in (*preparing.FILES, preparing.MANIFEST):
        assert (again.directory / name).read_bytes() == (prepared.directory / name).read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        {"max_length": 256},
        {"length_policy": "truncate"},
        {"length_policy": "split"},
        {"seed": 1},
        {"validation": 200_000},
    ],
)
def test_the_key_covers_everything_that_determines_the_bytes(
    prepared: PreparedDirectory, tokenizer: Tokenizer, other: dict[str, Any]
) -> None:
    manifest = prepared.manifest
    if "validation" in other:
        other = {"validation_fraction_ppm": other["validation"]}
    policy = msgspec.structs.replace(manifest.policy, **other)
    assert find_prepared(prepared.directory, manifest.key) is not None
    assert preparing.cache_key(manifest.content_sha256, None, tokenizer, policy) != manifest.key
    same = preparing.cache_key(manifest.content_sha256, None, tokenizer, manifest.policy)
    assert same == manifest.key


def test_a_damaged_directory_is_prepared_again(
    prepared: PreparedDirectory, write: Writer, base_dir: Path
) -> None:
    whole = prepared.train_path.read_bytes()
    prepared.train_path.write_bytes(whole[:-1])
    assert find_prepared(prepared.directory, prepared.key) is None
    path = write(chat(number, words=number % 30 + 1) for number in range(200))
    again = prepare(path, base_dir, prepared.directory, max_length=128)
    assert not again.reused
    assert again.train_path.read_bytes() == whole


def test_counts_without_splitting_are_those_of_the_check(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write(chat(number) for number in range(50))
    counts = check(path, base_dir=base_dir).tokens
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
    monkeypatch.setattr(chunks, "ENCODE_ROWS", 3)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 11)
    windows = prepare(path, base_dir, tmp_path / "windows", **options)
    assert sorted(documents(whole.train_path)) == sorted(documents(windows.train_path))
    assert windows.manifest.train.packed_rows >= whole.manifest.train.packed_rows


@pytest.mark.train
def test_the_trainer_can_read_the_shards(prepared: PreparedDirectory) -> None:
    from tunery.ml.packed import read_rows

    rows = read_rows([str(prepared.train_path)], vocabulary=49_152)
    assert rows.n_sequences == prepared.manifest.train.rows
    assert rows.n_labels == prepared.manifest.train.trainable_tokens
    assert sum(rows.row_tokens) == prepared.manifest.train.tokens


def test_the_manifest_is_plain_json(prepared: PreparedDirectory) -> None:
    manifest = json.loads((prepared.directory / preparing.MANIFEST).read_text())
    assert manifest["key"] == prepared.key
    assert manifest["files"].keys() == set(preparing.FILES)


def test_plain_text_is_trained_whole_without_a_template(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write({"text": f"Rock {number} has a lamp."} for number in range(20))
    result = prepare(path, base_dir, tmp_path / "out", max_length=64)
    for ids, mask in documents(result.train_path):
        assert all(mask[1:])
        assert tokenizer.decode(ids).startswith("Rock ")
        assert tokenizer.decode(ids).endswith(f"has a lamp.{tokenizer.eos}")


def test_dialects_without_training_are_refused(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"Q {n}?", "chosen": "Yes.", "rejected": "No."} for n in range(20)]
    with pytest.raises(DataRefused) as caught:
        prepare(write(rows), base_dir, tmp_path / "out", max_length=64)
    assert [finding.code for finding in caught.value.findings] == ["not_trainable"]


DIES = """
import os, signal, sys
from pathlib import Path
from schemas.dataset import RowKind
from tunery.data import preparing
from tunery.data.tokens import chunks
chunks.CHUNK_ROWS = 20
make, left = chunks.ChunkTokeniser.tokenise, [int(sys.argv[3])]
def last_words(self, name, rows):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return make(self, name, rows)
chunks.ChunkTokeniser.tokenise = last_words
out, base = Path(sys.argv[2]), Path(sys.argv[4])
preparing.prepare(Path(sys.argv[1]), base, out, max_length=128)
"""


@pytest.mark.parametrize(
    "after", [0, *(pytest.param(after, marks=pytest.mark.long) for after in (3, 9))]
)
def test_a_killed_run_resumes_and_gives_the_same_bytes(
    prepared: PreparedDirectory,
    base_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "killed"
    words = [str(path), str(out), str(after), str(base_dir)]
    died = subprocess.run([sys.executable, "-c", DIES, *words], check=False, cwd=ROOT)
    assert died.returncode == -signal.SIGKILL
    assert not out.exists()
    encoded: list[int] = []
    encode = Tokenizer.encode

    def counting(self: Tokenizer, rows: Sequence[Rendered]) -> list[Encoded]:
        encoded.append(len(rows))
        return encode(self, rows)

    monkeypatch.setattr(Tokenizer, "encode", counting)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 20)
    again = prepare(path, base_dir, out, max_length=128)
    assert sum(encoded) == 200 - 20 * after
    for name in (*preparing.FILES, preparing.MANIFEST):
        assert (again.directory / name).read_bytes() == (prepared.directory / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out", "killed"}


STORY = "The keeper climbs the stairs at dusk and lights the lamp for the ships that pass by. " * 3


def test_near_duplicates_stay_on_one_side(write: Writer, base_dir: Path, tmp_path: Path) -> None:
    rows = [chat(number, words=2) for number in range(30)]
    for number in range(60):
        question = f"{number // 2:05} {sha256(str(number // 2).encode()).hexdigest() * 3}"
        rows.append({"prompt": question, "completion": f"{STORY} {'!' * (number % 2)}"})
    path = write(rows[30:])
    result = prepare(
        path, base_dir, tmp_path / "out", max_length=512, validation_fraction_ppm=200_000
    )
    held = [
        msgspec.json.decode(line)["row"] for line in result.prompts_path.read_bytes().splitlines()
    ]
    assert len(held) == 12
    assert {(row - 1) ^ 1 for row in held} == {row - 1 for row in held}


def test_rows_removed_by_policy_are_left_out(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    rows = [chat(number) for number in range(20)]
    rows += [{"messages": [{"role": "user", "content": STORY}, *chat(0)["messages"][1:]]}]
    rows += [{"messages": [{"role": "user", "content": f"{STORY}."}, *chat(0)["messages"][1:]]}]
    exam = [BenchmarkItem(benchmark="exam", source="1", question=STORY)]
    path = write(rows)
    options: dict[str, Any] = {"max_length": 128, "benchmarks": exam}
    kept = prepare(path, base_dir, tmp_path / "kept", **options)
    once = ScreeningPolicy(repeats="remove")
    single = prepare(path, base_dir, tmp_path / "single", screen=once, **options)
    clean = ScreeningPolicy(benchmarks="remove")
    without = prepare(path, base_dir, tmp_path / "clean", screen=clean, **options)
    assert [result.manifest.left_out for result in (kept, single, without)] == [0, 1, 2]
    assert len({result.key for result in (kept, single, without)}) == 3
    assert "lamp" in str([tokenizer.decode(ids) for ids, _ in documents(kept.train_path)])
    assert "lamp" not in str([tokenizer.decode(ids) for ids, _ in documents(without.train_path)])


def test_personal_data_is_scrubbed_or_refused(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    row = chat(3)
    row["messages"][0]["content"] = "Write to ann@mail.example"
    path = write([chat(1), chat(2), row])
    options: dict[str, Any] = {"max_length": 128, "validation_fraction_ppm": 0}
    result = prepare(
        path, base_dir, tmp_path / "out", screen=ScreeningPolicy(personal="scrub"), **options
    )
    texts = str([tokenizer.decode(ids) for ids, _ in documents(result.train_path)])
    assert "[email]" in texts
    assert "ann@" not in texts
    with pytest.raises(DataRefused, match=r"row 3 /messages/0: .*email \(personal_data_refused\)"):
        prepare(
            path, base_dir, tmp_path / "no", screen=ScreeningPolicy(personal="block"), **options
        )


def texts(number: int, words: int) -> dict[str, str]:
    return {"text": " ".join(f"Lamp{number} {word}." for word in range(words))}


def test_long_texts_are_split_and_every_token_is_a_label_once(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    rows = [texts(1, 3), texts(2, 200), texts(3, 40)]
    counts = check(write(rows), base_dir=base_dir).tokens
    options: dict[str, Any] = {"max_length": 64, "length_policy": "split"}
    done = prepare(write(rows), base_dir, tmp_path / "out", validation_fraction_ppm=0, **options)
    train, sequences = done.manifest.train, documents(done.train_path)
    assert counts is not None
    assert (train.rows, train.sequences, train.truncated) == (3, len(sequences), 0)
    assert train.trainable_tokens == counts.trainable_tokens
    assert train.tokens == counts.tokens + train.sequences - train.rows
    assert train.longest == max(len(ids) for ids, _ in sequences) == 64
    assert all(any(mask) for _, mask in sequences)
    learnt = sorted(
        token for ids, mask in sequences for token, label in zip(ids, mask, strict=True) if label
    )
    whole = tokenizer.encode([_rendered(tokenizer, row["text"]) for row in rows])
    assert learnt == sorted(token for each in whole for token in each.ids[1:])


def _rendered(tokenizer: Tokenizer, text: str) -> Rendered:
    rendered = tokenizer.render(Conversation([], [], pair=("", text), plain=True))
    assert isinstance(rendered, Rendered)
    return rendered


def test_plain_texts_give_no_validation_prompts(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write(texts(number, words=3) for number in range(20))
    held = write([texts(90, words=3), texts(91, words=200)], "held.jsonl")
    options: dict[str, Any] = {"max_length": 64, "length_policy": "split"}
    done = prepare(path, base_dir, tmp_path / "out", validation_path=held, **options)
    assert (done.manifest.validation.rows, done.manifest.validation.sequences > 10) == (2, True)
    assert done.prompts_path.read_bytes() == b""


def test_only_plain_text_is_split(write: Writer, base_dir: Path, tmp_path: Path) -> None:
    path = write(chat(number) for number in range(20))
    with pytest.raises(DataRefused) as caught:
        prepare(path, base_dir, tmp_path / "out", max_length=64, length_policy="split")
    assert [finding.code for finding in caught.value.findings] == ["split_not_text"]


def pair(number: int, words: int = 3) -> dict[str, Any]:
    """As OpenAI has it."""
    answers = {
        "preferred_output": [{"role": "assistant", "content": "yes " * words}],
        "non_preferred_output": [{"role": "assistant", "content": f"no {number}"}],
    }
    return {"input": {"messages": [{"role": "user", "content": f"Question {number}?"}]}, **answers}


def test_method_dpo_both_answers_of_a_pair_are_in_one_packed_row(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write(pair(number, words=number % 5 + 1) for number in range(40))
    prepared = prepare(path, base_dir, tmp_path / "out", max_length=256, rows="pairs")
    train, validation = prepared.manifest.train, prepared.manifest.validation
    assert (train.rows, train.sequences, validation.sequences) == (36, 72, 8)
    for shard in (prepared.train_path, prepared.validation_path):
        parts = tensors(shard)
        roles, sequences = parts["seq_roles"], documents(shard)
        assert roles == [1, 2] * (len(roles) // 2)
        assert all(count % 2 == 0 for count in parts["row_lengths"])
        for chosen, rejected in zip(sequences[::2], sequences[1::2], strict=True):
            texts = [tokenizer.decode(ids) for ids, _ in (chosen, rejected)]
            question = texts[0].split("yes ")[0]
            assert texts[1].startswith(question)
            learnt = [
                tokenizer.decode([i for i, m in zip(*side, strict=True) if m])
                for side in (chosen, rejected)
            ]
            assert learnt[0].startswith("yes ")
            assert learnt[1].startswith("no ")
    references = [json.loads(line) for line in prepared.prompts_path.read_bytes().splitlines()]
    assert all(line["reference"].startswith("yes") for line in references)
    counted = check(path, base_dir=base_dir).tokens
    assert counted is not None
    assert counted.tokens == train.tokens + validation.tokens
    plans = {(p.max_length, p.validation_fraction_ppm): p for p in counted.plans}
    assert plans[256, 100_000].packed_rows == train.packed_rows


def labelled(number: int) -> dict[str, Any]:
    turns = ["Hi", "Hello.", f"Question {number}?", "yes" if number % 2 else "no"]
    roles = ("user", "assistant") * 2
    messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]
    return {"messages": messages, "label": bool(number % 2)}


@pytest.mark.parametrize("make", [labelled, pair])
def test_method_kto_each_answer_has_its_label(
    write: Writer,
    base_dir: Path,
    tmp_path: Path,
    tokenizer: Tokenizer,
    make: Callable[[int], dict[str, Any]],
) -> None:
    """A conversation's last answer has the label; a pair is two labelled answers."""
    path = write(make(number) for number in range(20))
    prepared = prepare(path, base_dir, tmp_path / "out", max_length=256, rows="labels")
    for shard in (prepared.train_path, prepared.validation_path):
        roles, sequences = tensors(shard)["seq_roles"], documents(shard)
        assert len(roles) == len(sequences)
        for role, sequence in zip(roles, sequences, strict=True):
            learnt = tokenizer.decode([i for i, m in zip(*sequence, strict=True) if m])
            assert learnt.startswith("yes" if role == 3 else "no")
    references = [json.loads(line) for line in prepared.prompts_path.read_bytes().splitlines()]
    assert all(line["reference"].startswith("yes") for line in references), "none that is unwanted"


def prompt(number: int) -> dict[str, Any]:
    turns = ["Hi", "Hello.", f"What is {number} plus {number}?"]
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]
    return {"messages": messages, "answer": str(2 * number), "steps": [number]}


def test_method_reinforcement_a_prompt_ends_where_its_answer_begins(
    write: Writer, base_dir: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write(prompt(number) for number in range(20))
    prepared = prepare(path, base_dir, tmp_path / "out", max_length=256, rows="prompts")
    items_of_texts: dict[str, dict[str, Any]] = {}
    for shard in (prepared.train_path, prepared.validation_path):
        parts, sequences = tensors(shard), documents(shard)
        assert set(parts["seq_roles"]) == {5}
        joined, items = bytes(parts["item_bytes"]), []
        for length in parts["item_lengths"]:
            items.append(json.loads(joined[:length]))
            joined = joined[length:]
        for sequence, item in zip(sequences, items, strict=True):
            ids, mask = sequence
            assert (sum(mask), mask[-1]) == (1, 1), "where the answer begins"
            items_of_texts[tokenizer.decode(ids)] = item
    assert len(items_of_texts) == 20
    for number in range(20):
        question = f"What is {number} plus {number}?<|im_end|>\n<|im_start|>assistant\n"
        [item] = [item for text, item in items_of_texts.items() if text.endswith(question)]
        assert item == {"answer": str(2 * number), "steps": [number]}
    assert prepared.prompts_path.read_bytes() == b"", "there is no answer to compare with"
    counted = check(path, base_dir=base_dir).tokens
    assert counted is not None
    sides = (prepared.manifest.train, prepared.manifest.validation)
    assert counted.tokens == sum(side.tokens for side in sides)
    assert counted.trainable_tokens == 20, "a prompt each: estimates count on it"


@pytest.mark.parametrize(
    ("rows", "make"),
    [("answers", pair), ("pairs", chat), ("labels", chat), ("prompts", chat), ("answers", prompt)],
)
def test_method_rows_that_it_does_not_learn_from_are_refused(
    write: Writer, base_dir: Path, tmp_path: Path, rows: RowKind, make: Callable[[int], Any]
) -> None:
    path = write(make(number) for number in range(10))
    with pytest.raises(DataRefused, match="not_trainable"):
        prepare(path, base_dir, tmp_path / "out", max_length=256, rows=rows)


def test_method_dpo_a_pair_that_does_not_fit_is_refused_or_cut(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    path = write([pair(number) for number in range(9)] + [pair(9, words=200)])
    with pytest.raises(DataRefused, match=r"row 10: .* both answers with their prompt have"):
        prepare(path, base_dir, tmp_path / "out", max_length=128, rows="pairs")
    cut = prepare(
        path,
        base_dir,
        tmp_path / "out",
        max_length=128,
        rows="pairs",
        length_policy="truncate",
        validation_fraction_ppm=0,
    )
    lengths = tensors(cut.train_path)["seq_lengths"]
    assert (cut.manifest.train.truncated, max(lengths)) == (1, 64)
