from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace

from tunery.ml.base_scores import KEPT_MAX, BaseScoreCache, BaseScores
from tunery.work.scores import NO_CHOICE
from tunery.work.spec import ScoreSpec

pytestmark = pytest.mark.train
CPU = torch.device("cpu")
SPEC = ScoreSpec(base_dir="base", base_sha256="0" * 64, adapter_dir="adapter", out="scores.json")


@pytest.fixture(name="spec")
def with_folder(tmp_path: Path) -> ScoreSpec:
    return replace(SPEC, base_scores_dir=str(tmp_path / "kept"))


def test_scores_are_those_of_a_base_a_precision_and_a_task(spec: ScoreSpec) -> None:
    BaseScoreCache(spec, "float32", CPU).save_choices(b"task", [1, 0, 3])
    assert BaseScoreCache(spec, "float32", CPU).load_choices(b"task") == (1, 0, 3)
    others = (
        (spec, "float32", b"another task"),
        (spec, "bfloat16", b"task"),
        (replace(spec, base_sha256="1" * 64), "float32", b"task"),
        (replace(spec, adaptation="qlora"), "float32", b"task"),
    )
    for other, precision, task in others:
        assert BaseScoreCache(other, precision, CPU).load_choices(task) is None


def test_bases_f7_answers_to_another_template_are_kept_apart(
    spec: ScoreSpec, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "base" / "chat_template.jinja").write_text("a")
    (tmp_path / "own" / "chat_template.jinja").write_text("b")
    spec = replace(spec, base_dir=str(tmp_path / "base"))
    own = replace(spec, tokenizer_dir=str(tmp_path / "own"))
    BaseScoreCache(spec, "float32", CPU).save_answers(["Who?"], 40, ["I."])
    assert BaseScoreCache(own, "float32", CPU).load_answers(["Who?"], 40) is None
    (tmp_path / "own" / "chat_template.jinja").write_text("a")
    assert BaseScoreCache(own, "float32", CPU).load_answers(["Who?"], 40) == ("I.",)


def test_shares_are_kept_and_files_from_before_them_are_read(spec: ScoreSpec) -> None:
    cache = BaseScoreCache(spec, "float32", CPU)
    shares = BaseScores(choices=(0, NO_CHOICE), shares=(0.25, None))
    cache.save_scores(b"task", shares)
    assert cache.load_scores(b"task") == shares
    before = b'{"choices":[1,0],"answers":[]}'
    assert msgspec.json.encode(BaseScores(choices=(1, 0))) == before, "their hash is of these bytes"


def test_a_file_that_was_changed_is_ignored(spec: ScoreSpec, tmp_path: Path) -> None:
    cache = BaseScoreCache(spec, "float32", CPU)
    cache.save_answers(["Who?"], 40, ["I."])
    assert cache.load_answers(["Who?"], 40) == ("I.",)
    assert cache.load_answers(["Who?"], 41) is None
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes().replace(b"I.", b"X."))
    assert cache.load_answers(["Who?"], 40) is None
    file.write_bytes(b"{")
    assert cache.load_answers(["Who?"], 40) is None


def test_the_oldest_files_go(spec: ScoreSpec, tmp_path: Path) -> None:
    cache = BaseScoreCache(spec, "float32", CPU)
    for number in range(KEPT_MAX + 3):
        cache.save_choices(str(number).encode(), [0])
    assert len(list((tmp_path / "kept").iterdir())) == KEPT_MAX
    assert cache.load_choices(str(KEPT_MAX + 2).encode()) == (0,)


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    cache = BaseScoreCache(SPEC, "float32", CPU)
    cache.save_choices(b"task", [1])
    assert cache.load_choices(b"task") is None
    spoilt = tmp_path / "file"
    spoilt.write_text("no folder")
    unwritable = BaseScoreCache(replace(SPEC, base_scores_dir=str(spoilt)), "float32", CPU)
    unwritable.save_choices(b"task", [1])
    assert unwritable.load_choices(b"task") is None
