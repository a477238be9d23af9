"""Orders from standard input, and the place in the file system that they name."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tunery.work.warm import GOES_ON, SCORE, Order, WarmModule, encode_order

READS: Final = """
import os, tempfile
from tunery.ml.orders import become, read_order
first = read_order()
if first is None:
    print("gone")
    raise SystemExit
become(first)
place = os.getcwd(), os.environ["TMPDIR"], tempfile.gettempdir()
print(*place, read_order(0.05) is None, flush=True)
print(getattr(read_order(60), "module", None))
"""


def said(lines: bytes, folder: Path) -> str:
    done = subprocess.run(
        (sys.executable, "-c", READS),
        input=lines,
        env={"TMPDIR": str(folder / "before" / "tmp"), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        timeout=400,
    )
    return done.stdout.decode()


def order(module: WarmModule, folder: Path) -> bytes:
    return encode_order(Order(module=module, spec="spec.json", folder=str(folder)))


def test_without_its_agent_there_is_no_order(tmp_path: Path) -> None:
    assert said(b"", tmp_path) == "gone\n"


@pytest.mark.parametrize("module", [SCORE, GOES_ON])
def test_it_works_in_the_folder_that_the_order_names(module: WarmModule, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    expected = f"{tmp_path} {tmp_path / 'tmp'} {tmp_path / 'tmp'}"
    assert said(order(module, tmp_path), tmp_path) == f"{expected} True\nNone\n"


def test_first_hour2_u14_only_a_training_that_goes_on_reads_a_second_order(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    lines = order(GOES_ON, tmp_path) + order(SCORE, tmp_path)
    with subprocess.Popen(
        (sys.executable, "-c", READS.replace("read_order(0.05) is None", "True")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first, second = lines.splitlines(keepends=True)
        process.stdin.write(first)
        process.stdin.flush()
        assert str(tmp_path).encode() in process.stdout.readline()
        process.stdin.write(second)
        process.stdin.close()
        assert process.stdout.readline() == f"{SCORE}\n".encode()
