"""Orders from standard input, and the place in the file system that they name."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tunery.work.orders import Order, encode_order

READS: Final = """
import os, tempfile
from tunery.ml.orders import become, read_order
first = read_order()
if first is None:
    print("gone")
    raise SystemExit
become(first)
print(os.getcwd(), os.environ["TMPDIR"], tempfile.gettempdir())
print(read_order(60))
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


def test_without_its_agent_there_is_no_order(tmp_path: Path) -> None:
    assert said(b"", tmp_path) == "gone\n"


def test_it_works_in_the_folder_that_the_order_names(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    order = encode_order(Order(spec="spec.json", folder=str(tmp_path)))
    assert said(order, tmp_path) == f"{tmp_path} {tmp_path / 'tmp'} {tmp_path / 'tmp'}\nNone\n"
