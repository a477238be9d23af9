import html
import re
from pathlib import Path

from tunery.cli.demo import recording
from tunery.cli.demo.claims import CLAIMS, DemoResult
from tunery.cli.demo.display import Display


def recorded() -> Display:
    """A display that has shown nine short steps and a summary."""
    display = Display(to_stderr=True)
    for number in range(1, 10):
        display.step(f"Step {number}")
        display.claim(True, f"claim of step {number}")
    display.table(("row",), [("twelve",)])
    display.training("node A", {"step": 8, "total_steps": 32}, [2.0, 1.0])
    display.summary(DemoResult(held=dict.fromkeys(CLAIMS, True)))
    return display


def test_page_holds_the_whole_transcript(tmp_path: Path) -> None:
    page, *_ = recording.write(recorded(), tmp_path)
    text = page.read_text(encoding="utf-8")
    for expected in (
        "1. Step 1",
        "✓ claim of step 9",
        "twelve",
        "step   8/32",
        "All 26 claims held",
    ):
        assert expected in text
    assert recording.machine() in text


def test_pictures_show_the_chosen_steps_and_load_nothing(tmp_path: Path) -> None:
    _, *pictures = recording.write(recorded(), tmp_path)
    assert [path.name for path in pictures] == ["demo-light.svg", "demo-dark.svg"]
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        shown = html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\xa0", " ")
        assert "claim of step 7" in shown
        assert "claim of step 1" not in shown
        assert "url(" not in text.replace("url(#", "")
        assert "https" not in text.replace("https://www.textualize.io", "")
