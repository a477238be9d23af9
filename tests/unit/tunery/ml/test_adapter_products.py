"""Fused adapter layers have the values and gradients of PEFT, in fewer passes."""

from typing import Any

import pytest

pytestmark = pytest.mark.train


def adapted(**options: Any) -> Any:
    """Two linear layers, one of them with a bias, and an adapter that changes something."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    layers = torch.nn.Sequential(
        torch.nn.Linear(6, 10, bias=False), torch.nn.SiLU(), torch.nn.Linear(10, 4)
    )
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["0", "2"], **options)
    model = get_peft_model(layers, config)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight)
    return model.double()


def output_and_gradients(model: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(4)
    rows = torch.randn(2, 7, 6, dtype=torch.float64, requires_grad=True)
    output = model(rows)
    output.square().sum().backward()
    gradients = {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    return {"output": output.detach(), "rows": rows.grad, **gradients}


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_products_give_what_peft_gives(dropout: float) -> None:
    import torch

    from tunery.ml.adapter_products import Products, use_products

    model = adapted(lora_dropout=dropout)
    expected = output_and_gradients(model)
    model.zero_grad(set_to_none=True)
    use_products(model)
    assert sum(isinstance(v, Products) for m in model.modules() for v in variants(m)) == 2
    computed = output_and_gradients(model)
    assert computed.keys() == expected.keys()
    assert len(computed) == 6  # of two layers, two weights each
    for name, values in expected.items():
        torch.testing.assert_close(computed[name], values)


def test_an_adapter_of_another_form_stays_as_it_is() -> None:
    from tunery.ml.adapter_products import Products, use_products

    model = adapted(use_dora=True)
    use_products(model)
    kinds = [type(variant) for module in model.modules() for variant in variants(module)]
    assert kinds
    assert Products not in kinds


def test_a_model_whose_adapter_is_off_is_the_base() -> None:
    import torch

    from tunery.ml.adapter_products import use_products

    model = adapted()
    rows = torch.randn(3, 6, dtype=torch.float64)
    with model.disable_adapter():
        expected = model(rows)
    use_products(model)
    with model.disable_adapter():
        torch.testing.assert_close(model(rows), expected, rtol=0, atol=0)


def variants(module: Any) -> list[Any]:
    return list(getattr(module, "lora_variant", {}).values())
