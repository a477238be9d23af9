"""How often an epoch sees the rows of a weighted file."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import PPM
from tests.unit.tunery.data.test_preparing import Writer, chat, documents, tensors
from tunery.data.mixing import MixedSource, times_seen
from tunery.data.preparing import DataRefused, find_prepared, prepare
from tunery.data.tokens import chunks
from tunery.data.tokens.tokenizer import Tokenizer

TRAINS = st.lists(st.booleans(), min_size=1, max_size=60)
WEIGHTS = st.integers(1_000, 10 * PPM)


@given(trains=TRAINS, weight_ppm=WEIGHTS, key=st.text(max_size=8))
def test_rows_that_train_are_seen_as_often_as_the_weight_says(
    trains: list[bool], weight_ppm: int, key: str
) -> None:
    rows = np.array(trains)
    times = times_seen(rows, weight_ppm, key)
    assert not times[~rows].any()
    count = int(rows.sum())
    if count:
        wanted = (count * weight_ppm + PPM // 2) // PPM
        assert times.sum() == max(1, wanted)
        of_rows = times[rows]
        assert of_rows.max() - of_rows.min() <= 1
    assert times.tolist() == times_seen(rows, weight_ppm, key).tolist()


@given(trains=TRAINS, weights=st.tuples(WEIGHTS, WEIGHTS))
def test_a_larger_weight_never_drops_a_row(trains: list[bool], weights: tuple[int, int]) -> None:
    smaller, larger = (times_seen(np.array(trains), weight, "k") for weight in sorted(weights))
    assert (smaller <= larger).all()


@pytest.mark.parametrize(("weight_ppm", "seen"), [(PPM, 10), (3 * PPM, 30), (300_000, 3)])
def test_other_files_and_seeds_draw_other_rows(weight_ppm: int, seen: int) -> None:
    drawn = [times_seen(np.full(10, True), weight_ppm, key) for key in ("42:a", "42:b", "7:a")]
    assert {int(times.sum()) for times in drawn} == {seen}
    differ = len({tuple(times.tolist()) for times in drawn}) > 1
    assert differ == (seen % 10 != 0)


def answers(path: Path, tokenizer: Tokenizer) -> list[list[str]]:
    """The answers of each packed row."""
    sequences = documents(path)
    texts = iter(
        tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m]).removesuffix(
            "<|im_end|>"
        )
        for ids, mask in sequences
    )
    return [[next(texts) for _ in range(count)] for count in tensors(path)["row_lengths"]]


def saying(text: str, rows: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Say {text} {number}.", "completion": f"{text} {number}"}
        for number in range(rows)
    ]


def test_mixture_each_file_is_seen_as_often_as_its_weight_says(
    write: Writer, base_dir: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    main = write(chat(number) for number in range(10))
    often, seldom = (write(saying(text, 20), f"{text}.jsonl") for text in ("often", "seldom"))
    mixture = (MixedSource(often, 2_500_000), MixedSource(seldom, 300_000))
    directories = [
        prepare(
            main,
            base_dir,
            tmp_path / name,
            max_length=256,
            mixture=mixture,
            validation_fraction_ppm=0,
        )
        for name in ("a", "b")
    ]
    rows = answers(directories[0].train_path, tokenizer)
    flat = [text.strip() for row in rows for text in row]
    assert sum(text.startswith("yes") for text in flat) == 10
    counts = Counter(text for text in flat if text.startswith("often"))
    assert (len(counts), sum(counts.values()), min(counts.values())) == (20, 50, 2)
    assert sum(text.startswith("seldom") for text in flat) == 6
    assert all(len({*row}) == len(row) for row in rows if not row[0].startswith("yes"))
    assert directories[0].manifest == directories[1].manifest
    assert directories[0].manifest.train.rows == 66
    other = (MixedSource(often, 2_000_000), MixedSource(seldom, 300_000))
    key = prepare(main, base_dir, tmp_path / "c", max_length=256, mixture=other).key
    assert key != directories[0].key
    assert find_prepared(tmp_path / "a", directories[0].key) is not None


def test_mixture_rows_that_validate_train_in_no_file(
    write: Writer, base_dir: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = saying("same", 60)
    main, further = write(rows), write([*rows[30:], *saying("other", 30)], "further.jsonl")
    directory = prepare(
        main,
        base_dir,
        tmp_path / "out",
        max_length=256,
        mixture=(MixedSource(further, 2_000_000),),
        validation_fraction_ppm=200_000,
    )
    train, valid = (
        {text for row in answers(path, tokenizer) for text in row}
        for path in (directory.train_path, directory.validation_path)
    )
    assert valid
    assert not train & valid
    assert directory.manifest.validation.rows + directory.manifest.train.rows // 2 <= 120


def test_mixture_what_is_wrong_with_a_further_file_names_it(
    write: Writer, base_dir: Path, tmp_path: Path
) -> None:
    main, long = write([chat(1)]), write([chat(1), chat(2, words=400)], "long.jsonl")
    with pytest.raises(DataRefused, match=r"^training\.mixture\.0: row 2: .*\(row_too_long\)"):
        prepare(
            main,
            base_dir,
            tmp_path / "out",
            max_length=128,
            mixture=(MixedSource(long, 1_000_000),),
            validation_fraction_ppm=0,
        )


def test_mixture_an_interrupted_preparation_goes_on_to_the_same_bytes(
    write: Writer, base_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, further = write(chat(n) for n in range(10)), write(saying("b", 10), "b.jsonl")
    options: dict[str, Any] = {"max_length": 256, "mixture": (MixedSource(further, 1_500_000),)}
    whole = prepare(main, base_dir, tmp_path / "whole", **options)
    work = tmp_path / "work"

    class Killed(BaseException):
        """As if the process had ended: nothing is cleaned up."""

    tokenise = chunks.ChunkTokeniser.tokenise

    def dies(self: Any, name: str, rows: Any) -> Any:
        if name.startswith("mixed-00-01"):
            raise Killed
        return tokenise(self, name, rows)

    with monkeypatch.context() as patched:
        patched.setattr(chunks.ChunkTokeniser, "tokenise", dies)
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            prepare(main, base_dir, tmp_path / "again", work_dir=work, **options)
    again = prepare(main, base_dir, tmp_path / "again", work_dir=work, **options)
    assert again.manifest == whole.manifest
