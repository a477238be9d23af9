from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tunery.ml.tensor_files import LazyTensors, TensorFile

pytestmark = pytest.mark.train

TENSORS = {
    "b.step": torch.tensor(3.0),
    "ä.master": torch.arange(6, dtype=torch.float32).view(2, 3).T,
    "a.exp_avg": torch.arange(1_000, dtype=torch.float32),
    "none": torch.zeros(0, 4),
}


@pytest.mark.parametrize("names", [[], ["b.step"], ["none", "b.step"], list(TENSORS)])
def test_a_file_in_pieces_has_the_bytes_of_one_that_is_saved_at_once(
    names: list[str], tmp_path: Path
) -> None:
    tensors = {name: TENSORS[name] for name in names}
    save_file({name: each.contiguous() for name, each in tensors.items()}, tmp_path / "plain")
    with TensorFile(tmp_path / "pieces", {name: t.shape for name, t in tensors.items()}) as file:
        for name, tensor in tensors.items():
            flat = tensor.contiguous().view(-1)
            for begin in range(0, len(flat), 300):
                file.write(name, flat[begin : begin + 300], 4 * begin)
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "plain").read_bytes()
    assert load_file(tmp_path / "pieces").keys() == tensors.keys()


def test_a_file_in_bf16_has_the_bytes_of_a_model_that_is_saved(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(6.0).bfloat16(), "a": torch.ones(2, 2, dtype=torch.bfloat16)}
    metadata = {"format": "pt"}
    save_file(tensors, tmp_path / "plain", metadata=metadata)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    with TensorFile(tmp_path / "pieces", shapes, torch.bfloat16, metadata) as file:
        for name, tensor in tensors.items():
            file.write(name, tensor)
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "plain").read_bytes()


def test_tensors_are_read_one_by_one(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "file")
    tensors = LazyTensors(tmp_path / "file")
    assert (len(tensors), sorted(tensors)) == (2, ["a", "b"])
    assert torch.equal(tensors["b"], torch.zeros(3))
    with pytest.raises(KeyError):
        tensors["c"]
