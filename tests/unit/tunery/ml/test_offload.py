"""Layers that pass through the device: the bytes are those of a training that keeps all of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.bases import Base
from tests.unit.tunery.ml.rank_trainings import go_ranks
from tests.unit.tunery.ml.trainings import figures, go, of, random_base, resumed, stop_after
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # as in test_fine_tuning; of experts, which "all-linear" does not name
    pytest.mark.filterwarnings("ignore:.*did not match any targeted module:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
LAYERS = 5
FAMILIES = (
    *("Llama", "Mistral", "Qwen2", "Qwen3", "Olmo2", "Phi3", "Granite", "SmolLM3"),
    "Qwen3Moe",
)
EXPERTS = {"num_experts_per_tok": 2, "num_experts": 4}


def deep_model(family: str) -> Any:
    """A random model of a few narrow layers, each of which needs to be copied more than once."""
    import transformers

    vocabulary = 50_000
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=1024,
        pad_token_id=0,
        **(EXPERTS | {"moe_intermediate_size": 16} if family.endswith("Moe") else {}),
    )
    torch.manual_seed(3)
    return getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16).train()


@pytest.fixture
def deep(spec: TrainSpec, tiny: Base, tmp_path: Path) -> TrainSpec:
    folder = tmp_path / "deep"
    sha256 = random_base(deep_model("Llama"), tiny.dir, folder)
    hyper = replace(spec.hyper, dropout=0.2)
    return replace(spec, base_dir=str(folder), base_sha256=sha256, hyper=hyper, precision="fp32")


def offloaded(spec: TrainSpec, **changes: Any) -> TrainSpec:
    hyper = replace(spec.hyper, offload=True, recompute=True)
    return replace(spec, hyper=hyper, **changes)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_offload_changes_no_byte_and_a_run_goes_on_with_or_without_it(
    deep: TrainSpec, precision: Any
) -> None:
    spec = replace(deep, precision=precision)
    _, whole = go(spec)
    code, events = go(resumed(offloaded(spec), out="streamed"))
    assert code == ExitCode.FINISHED
    assert figures(of(events, "step")) == figures(of(whole, "step"))
    assert [e["valid_loss"] for e in of(events, "eval")] == [
        e["valid_loss"] for e in of(whole, "eval")
    ]
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    manifests = [event["manifest_sha256"] for event in of(whole, "checkpoint")]
    assert [event["manifest_sha256"] for event in of(events, "checkpoint")] == manifests
    for number, (first, second) in enumerate(((spec, offloaded(spec)), (offloaded(spec), spec))):
        _, stopped = go(resumed(first, out=f"stopped-{number}"), stop_after(2))
        kept = of(stopped, "checkpoint")[-1]
        _, rest = go(resumed(second, kept, out=f"rest-{number}"))
        assert (rest[0]["skipped"], rest[0]["environment_changes"]) == ([], [])
        assert rest[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


def test_offload_ranks_train_to_the_bytes_of_ranks_that_keep_the_base(deep: TrainSpec) -> None:
    spec = replace(deep, ranks=2)
    _, whole = go_ranks(resumed(spec, out="whole"))
    codes, events = go_ranks(resumed(offloaded(spec), out="streamed"))
    assert codes == [ExitCode.FINISHED] * 2
    assert figures(of(events[0], "step")) == figures(of(whole[0], "step"))
    assert events[0][-1]["adapter_sha256"] == whole[0][-1]["adapter_sha256"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_offload_on_a_gpu_changes_no_byte(deep: TrainSpec, precision: Any) -> None:
    spec = replace(deep, precision=precision)
    _, whole = go(replace(spec, hyper=replace(spec.hyper, recompute=True)))
    _, events = go(resumed(offloaded(spec), out="streamed"))
    assert figures(of(events, "step")) == figures(of(whole, "step"))
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"adaptation": "full"}, "every weight is trained"),
        ({"adaptation": "qlora"}, "makes the four bits"),
        ({"dora": True}, "measures the weights"),
    ],
)
def test_offload_what_is_not_streamed_is_refused_with_the_reason(
    deep: TrainSpec, changes: dict[str, Any], why: str
) -> None:
    spec = offloaded(deep)
    with pytest.raises(WorkError, match=f"training.offload .*{why}") as caught:
        go(replace(spec, hyper=replace(spec.hyper, **changes)))
    assert caught.value.cause == "user"


def test_offload_a_machine_with_less_memory_than_the_base_is_named(
    deep: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.ml.offload.machine_bytes", lambda: 1_000_000)
    with pytest.raises(WorkError, match=r"the machine has 0\.0 GB") as caught:
        go(offloaded(deep))
    assert caught.value.cause == "bad_node"


def test_offload_scoring_streams_a_base_that_outgrows_the_device(
    deep: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.ml.offload import outgrows

    folder = Path(deep.base_dir)
    size = (folder / "model.safetensors").stat().st_size
    for free, is_so in ((size, True), (2 * size, False)):
        monkeypatch.setattr("tunery.ml.offload.free_memory", lambda _, free=free: free)
        assert outgrows(folder, torch.device("cuda")) == is_so
        assert not outgrows(folder, torch.device("cpu"))


def test_offload_a_pass_that_would_meet_other_weights_is_refused() -> None:
    """Without recompute the backward pass finds the weights of the layers that came last."""
    from tunery.ml.offload import StreamedLayers

    base = deep_model("Llama")
    streamed = adapted(base)
    StreamedLayers(base, torch.device("cpu"))
    with pytest.raises(RuntimeError, match="trained with recompute only"):
        gradients(streamed)


def ids() -> torch.Tensor:
    return torch.arange(24).reshape(2, 12) * 37 % 1_000


def adapted(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(4)
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    logits = model(input_ids=ids(), use_cache=False).logits
    logits.float().logsumexp(-1).sum().backward()
    return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_offload_streams_each_family(family: str) -> None:
    """Two passes of each kind: the second begins with the layers that the first one left."""
    from tunery.ml.offload import StreamedLayers

    kept, base = adapted(deep_model(family)), deep_model(family)
    streamed = adapted(base)
    StreamedLayers(base, torch.device("cpu"))
    frozen = [w for w in base.model.layers.parameters() if not w.requires_grad]
    assert len({w.untyped_storage().data_ptr() for w in frozen}) == 2, "buffers of all layers"
    streamed.activation_checkpointing_enable({"use_reentrant": False})
    for _ in range(2):
        with torch.no_grad():
            assert streamed(input_ids=ids()).logits.equal(kept(input_ids=ids()).logits)
        for ours in (kept, streamed):
            ours.zero_grad()
        theirs, ours = gradients(kept), gradients(streamed)
        assert theirs.keys() == ours.keys()
        assert len(ours) > LAYERS
        assert all(ours[name].equal(theirs[name]) for name in theirs)
