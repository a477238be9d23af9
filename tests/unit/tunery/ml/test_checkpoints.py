from collections.abc import Callable
from pathlib import Path

import pytest

from tunery.ml import checkpoints
from tunery.ml.checkpoints import (
    CheckpointManifest,
    Written,
    choose,
    first_difference,
    keep_newest,
    verify,
)
from tunery.work.spec import ResumeCandidate

RUN = {"base": "b", "data": "d"}
HERE = {"threads": "2"}


def fill(directory: Path) -> None:
    (directory / "adapter_model.safetensors").write_bytes(b"w" * 100)
    (directory / "progress.json").write_text("{}")


def written(out_dir: Path, step: int) -> Written:
    return checkpoints.write(out_dir, fill, step=step, tokens=10 * step, run=RUN, environment=HERE)


def candidate(checkpoint: Written) -> ResumeCandidate:
    return ResumeCandidate(dir=checkpoint.dir, manifest_sha256=checkpoint.manifest_sha256)


def any_run(manifest: CheckpointManifest) -> None:
    return None


def test_a_checkpoint_names_every_byte(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, 7)
    manifest = verify(Path(checkpoint.dir), checkpoint.manifest_sha256)
    assert (manifest.step, manifest.tokens, manifest.run, manifest.environment) == (
        7,
        70,
        RUN,
        HERE,
    )
    assert [file.name for file in checkpoint.files] == [
        "adapter_model.safetensors", "progress.json", "MANIFEST.json",
    ]  # fmt: skip
    assert sum(file.bytes for file in checkpoint.files) == sum(
        path.stat().st_size for path in Path(checkpoint.dir).iterdir()
    )


def test_equal_runs_write_equal_checkpoints(tmp_path: Path) -> None:
    here, there = written(tmp_path / "a", 3), written(tmp_path / "b", 3)
    assert here.manifest_sha256 == there.manifest_sha256
    assert written(tmp_path / "a", 3).manifest_sha256 == here.manifest_sha256


def flip(directory: Path) -> None:
    path = directory / "adapter_model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(directory: Path) -> None:
    path = directory / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:50])


def lose(directory: Path) -> None:
    (directory / "progress.json").unlink()


def reword(directory: Path) -> None:
    path = directory / "MANIFEST.json"
    path.write_text(path.read_text().replace('"step": 4', '"step": 5'))


def vanish(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip, "adapter_model.safetensors does not match its SHA-256"),
        (cut, "adapter_model.safetensors has 50 bytes, not 100"),
        (lose, "progress.json is missing"),
        (reword, "MANIFEST.json is not the one that was accepted"),
        (vanish, "MANIFEST.json cannot be read: No such file or directory"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_and_the_older_one_used(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    older, newer = written(tmp_path, 2), written(tmp_path, 4)
    damage(Path(newer.dir))
    chosen, skipped = choose([candidate(newer), candidate(older)], any_run)
    assert chosen is not None
    assert (chosen[0].dir, chosen[1].step) == (older.dir, 2)
    assert [(skip.dir, skip.manifest_sha256, skip.reason) for skip in skipped] == [
        (newer.dir, newer.manifest_sha256, reason)
    ]


def test_a_checkpoint_of_another_run_is_skipped(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, 2)
    chosen, skipped = choose(
        [candidate(checkpoint)], lambda m: first_difference({"data": "e"}, m.run)
    )
    assert chosen is None
    assert [skip.reason for skip in skipped] == ["base was b, is None"]


def test_nothing_to_resume_from_is_no_error(tmp_path: Path) -> None:
    assert choose([], any_run) == (None, ())
    assert first_difference(RUN, dict(RUN)) is None


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (8, 9, 10, 11):
        written(tmp_path, step)
    (tmp_path / "adapter").mkdir()
    keep_newest(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "adapter", "step-00000010", "step-00000011",
    ]  # fmt: skip
    checkpoints.prepare(tmp_path)
    keep_newest(tmp_path, 5)
    assert (tmp_path / "step-00000010").exists()
