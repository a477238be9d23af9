"""The whole pipeline on many synthetic rows: check, duplicates, split, tokenise, pack.

    python -m bench.data.scale [--rows N] [--kill] [--json]

With --kill a run is killed while it tokenises, and started again; the result must have the same
hash as that of an undisturbed run. Memory is the anonymous memory of the process, sampled every
half second; files mapped into memory are not counted.
"""

import argparse
import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.data.synthetic_texts import TextGenerator
from bench.measures import print_figures
from tunery.data.findings.limits import CHUNK_ROWS
from tunery.data.preparing import FILES, prepare
from tunery.local.paths import base_model_dir

ROWS: Final = 1_000_000
MAX_LENGTH: Final = 2_048
SAMPLE_S: Final = 0.5
REPORT_S: Final = 10
ROWS_AT_ONCE: Final = 20_000
MIB: Final = 1024 * 1024


def run(quick: bool) -> dict[str, float]:
    """Measure a small run, as a stage of `bench.data`."""
    return measure(2_000 if quick else 20_000, kill=False)


def measure(rows: int, *, kill: bool) -> dict[str, float]:
    """Measure a run; with `kill` also the time to resume after half of the work was lost."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.jsonl", Path(folder) / "out"
        _write_rows(path, rows)
        began = time.monotonic()
        peak = _run_watched(path, out)
        seconds = time.monotonic() - began
        results = {
            "scale_rows": float(rows),
            "scale_bytes": float(path.stat().st_size),
            "scale_seconds": seconds,
            "scale_rows_per_s": rows / seconds,
            "scale_anonymous_mib": peak / MIB,
        }
        if kill:
            again = Path(folder) / "again"
            _run_and_kill(path, again, rows)
            began = time.monotonic()
            _run_watched(path, again)
            results["scale_resume_seconds"] = time.monotonic() - began
            results["scale_resume_same"] = float(_hash(again) == _hash(out))
        return results


def _write_rows(path: Path, rows: int) -> None:
    """Write chats of 200 bytes, 3 % of them near duplicates."""
    generator = TextGenerator(seed=7)
    with path.open("wb") as file:
        for start in range(0, rows, ROWS_AT_ONCE):
            for text in generator.short(min(ROWS_AT_ONCE, rows - start)):
                messages = [
                    {"role": "user", "content": text[:80]},
                    {"role": "assistant", "content": text[80:]},
                ]
                file.write(msgspec.json.encode({"messages": messages}) + b"\n")


def _start(path: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "bench.data.scale", "--prepare", str(path), str(out)]
    return subprocess.Popen(command)


def _run_watched(path: Path, out: Path) -> int:
    """Prepare in its own process and return its peak anonymous memory in bytes."""
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


def _run_and_kill(path: Path, out: Path, rows: int) -> None:
    """Start a run, and kill it once half of the chunks are written."""
    process = _start(path, out)
    half = max(1, rows // CHUNK_ROWS // 2)
    while process.poll() is None and len(list(out.parent.glob(".again.work/*/train-*"))) < half:
        time.sleep(SAMPLE_S)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError("the preparation ended before it was killed: use more rows")


def _hash(out: Path) -> str:
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((out / name).read_bytes())
    return digest.hexdigest()


def _prepare(path: Path, out: Path) -> None:
    began, reported_s = time.monotonic(), 0.0

    def progress(done: int, total: int) -> None:
        nonlocal reported_s
        seconds = time.monotonic() - began
        if done and seconds - reported_s >= REPORT_S:
            reported_s = seconds
            left_s = seconds * (total - done) / done
            print(
                f"{done / MIB:,.0f} of {total / MIB:,.0f} MiB read, about {left_s:,.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    prepare(path, base_model_dir(), out, max_length=MAX_LENGTH, progress=progress)


def main() -> None:
    """Measure a run with the arguments of the command line, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--kill", action="store_true", help="also kill and resume a run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--prepare", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        _prepare(*arguments.prepare)
        return
    figures = measure(arguments.rows, kill=arguments.kill)
    print_figures(figures, as_json=arguments.json, digits=1)


if __name__ == "__main__":
    main()
