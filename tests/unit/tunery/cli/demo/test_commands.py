"""A command that ends otherwise than expected ends the demo, and says what it printed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.tunery.cli.demo.test_context import context
from tunery.cli.demo import commands
from tunery.cli.demo.polling import DeadlineExceeded


async def test_a_commands_exit_code_must_be_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = []

    async def run(argv: tuple[str, ...], *_: object) -> tuple[int, str]:
        ran.append(argv[-4:])
        return 1, "adapter_model.safetensors differs"

    demo = context()
    demo.stack = SimpleNamespace(  # type: ignore[assignment]  # it only needs its folder
        folders=SimpleNamespace(root=tmp_path)
    )
    monkeypatch.setattr(commands, "run", run)
    assert "differs" in await commands.tunery(demo, "model", "verify", codes=(0, 1))
    assert ran == [("model", "verify", "--data-dir", str(tmp_path))]
    with pytest.raises(DeadlineExceeded, match="`tunery model verify` ended with 1: adapter"):
        await commands.tunery(demo, "model", "verify")
