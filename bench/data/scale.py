"""Many made-up rows through the whole pipeline: check, duplicates, split, tokenise, pack.

    python -m bench.data.scale [--rows N] [--kill] [--json]

With --kill the run is killed with -9 in the midst of tokenising and started again; the result must
have the hash of an undisturbed run's. Memory is what the process has for itself (anonymous), taken
every half second; files mapped into memory are not counted.
"""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.data.synthetic_texts import Maker
from tunery.data.findings.limits import CHUNK_ROWS
from tunery.data.preparing import FILES, prepare
from tunery.local.paths import base_model_dir

ROWS: Final = 1_000_000
MAX_LENGTH: Final = 2_048
SAMPLE_S: Final = 0.5
SAY_S: Final = 10
MADE_AT_ONCE: Final = 20_000
MIB: Final = 1024 * 1024


def run(quick: bool) -> dict[str, float]:
    """The stage as `bench.data` runs it: small."""
    return measure(2_000 if quick else 20_000, kill=False)


def measure(rows: int, *, kill: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.jsonl", Path(folder) / "out"
        _write_rows(path, rows)
        began = time.monotonic()
        peak = _watched(path, out)
        taken = time.monotonic() - began
        found = {
            "scale_rows": float(rows),
            "scale_bytes": float(path.stat().st_size),
            "scale_seconds": taken,
            "scale_rows_per_s": rows / taken,
            "scale_anonymous_mib": peak / MIB,
        }
        if kill:
            again = Path(folder) / "again"
            _killed(path, again, rows)
            began = time.monotonic()
            _watched(path, again)
            found["scale_resume_seconds"] = time.monotonic() - began
            found["scale_resume_same"] = float(_hash(again) == _hash(out))
        return found


def _write_rows(path: Path, rows: int) -> None:
    """Chats of 200 bytes, 3 % of them near-duplicates."""
    maker = Maker(seed=7)
    with path.open("wb") as file:
        for start in range(0, rows, MADE_AT_ONCE):
            for text in maker.short(min(MADE_AT_ONCE, rows - start)):
                asked, answer = text[:80], text[80:]
                said = [("user", asked), ("assistant", answer)]
                row = {"messages": [{"role": role, "content": words} for role, words in said]}
                file.write(msgspec.json.encode(row) + b"\n")


def _start(path: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "bench.data.scale", "--prepare", str(path), str(out)]
    return subprocess.Popen(command)


def _watched(path: Path, out: Path) -> int:
    """Prepare in a process of its own; the most anonymous memory it had, in bytes."""
    process = _start(path, out)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _anonymous(process.pid))
        time.sleep(SAMPLE_S)
    if process.returncode != 0:
        raise RuntimeError(f"the preparation ended with {process.returncode}")
    return peak


def _anonymous(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return 1024 * int(lines.get("RssAnon", "0 kB").split()[0])


def _killed(path: Path, out: Path, rows: int) -> None:
    """Start, and kill with -9 once half of the pieces are there."""
    process = _start(path, out)
    wanted = max(1, rows // CHUNK_ROWS // 2)
    while process.poll() is None and len(list(out.parent.glob(".again.work/*/train-*"))) < wanted:
        time.sleep(SAMPLE_S)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError("the preparation ended before it was killed: take more rows")


def _hash(out: Path) -> str:
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((out / name).read_bytes())
    return digest.hexdigest()


def _prepare(path: Path, out: Path) -> None:
    began, said = time.monotonic(), 0.0

    def progress(done: int, total: int) -> None:
        nonlocal said
        taken = time.monotonic() - began
        if done and taken - said >= SAY_S:
            said = taken
            left_s = taken * (total - done) / done
            print(
                f"{done / MIB:,.0f} of {total / MIB:,.0f} MiB read, about {left_s:,.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    prepare(path, base_model_dir(), out, max_length=MAX_LENGTH, progress=progress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--kill", action="store_true", help="also a run that is killed half-way")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--prepare", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        _prepare(*arguments.prepare)
        return
    found = measure(arguments.rows, kill=arguments.kill)
    if arguments.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:28} {value:16,.1f}")


if __name__ == "__main__":
    main()
