import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tunery.ml.free_memory import free_bytes

MEMINFO = "MemTotal:       24000 kB\nMemAvailable:    9000 kB\n"


@pytest.mark.parametrize(
    ("limit", "free"),
    [("max", 9000 * 1024), ("5000000", 4_000_000), ("900000", 0), (None, 9000 * 1024)],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, limit: str | None, free: int) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("1000000\n")
    assert free_bytes(tmp_path / "meminfo", tmp_path) == free


def test_a_kernel_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "meminfo", tmp_path) == 0


def test_this_machine_says_it() -> None:
    assert free_bytes() > 0


HEAPS: Final = """
import ctypes, sys, threading
from tunery.ml.free_memory import share_heap
if sys.argv[1] == "one":
    share_heap()
glibc = ctypes.CDLL(None)
for _ in range(3):
    thread = threading.Thread(target=lambda: (glibc.malloc(1_000), both.wait()))
    both = threading.Barrier(2)
    thread.start()
    both.wait()
glibc.fdopen.restype = ctypes.c_void_p
glibc.malloc_info(0, ctypes.c_void_p(glibc.fdopen(1, b"w")))
glibc.fflush(None)
"""


@pytest.mark.parametrize(("heaps", "is_one"), [("one", True), ("each", False)])
def test_threads_share_one_heap_on_request(heaps: str, is_one: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAPS, heaps], capture_output=True, text=True, check=True
    )
    assert (done.stdout.count("<heap nr=") == 1) is is_one, done.stdout


MAPPED: Final = """
import ctypes, sys
from tunery.ml.free_memory import map_large_blocks
if sys.argv[1] == "mapped":
    map_large_blocks()
glibc = ctypes.CDLL(None)
glibc.malloc.restype = ctypes.c_void_p
glibc.free(ctypes.c_void_p(glibc.malloc(8_000_000)))
glibc.malloc(8_000_000)
glibc.fdopen.restype = ctypes.c_void_p
glibc.malloc_info(0, ctypes.c_void_p(glibc.fdopen(1, b"w")))
glibc.fflush(None)
"""


@pytest.mark.parametrize(("blocks", "is_mapped"), [("mapped", True), ("kept", False)])
def test_large_blocks_go_back_to_the_machine_where_ranks_gather_layers(
    blocks: str, is_mapped: bool
) -> None:
    """A block as large as one that was freed before."""
    done = subprocess.run(
        [sys.executable, "-c", MAPPED, blocks], capture_output=True, text=True, check=True
    )
    mapped = re.search(r'<total type="mmap" count="\d+" size="8\d{6}"', done.stdout)
    assert bool(mapped) is is_mapped, done.stdout
