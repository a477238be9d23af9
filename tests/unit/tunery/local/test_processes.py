"""Process records: a reused pid is not our process; orphans end in order."""

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

from tunery.local import processes


def sleeper() -> "subprocess.Popen[bytes]":
    code = "import time; time.sleep(60)"
    return subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)


def test_a_record_knows_its_process_and_no_other() -> None:
    process = sleeper()
    entry = processes.record("x", process.pid)
    assert entry is not None
    assert entry.is_alive()
    assert not dataclasses.replace(entry, start_ticks=entry.start_ticks - 1).is_alive()
    assert not dataclasses.replace(entry, boot_id="another boot").is_alive()
    process.kill()
    process.wait()
    assert not entry.is_alive()
    assert processes.record("x", process.pid) is None


def test_orphans_end_and_stale_records_go(tmp_path: Path) -> None:
    first, second = sleeper(), sleeper()
    for name, process in (("gateway", first), ("kafka", second)):
        entry = processes.record(name, process.pid)
        assert entry is not None
        processes.write_record(tmp_path, entry)
    gone = processes.ProcessRecord("valkey", first.pid, start_ticks=1, boot_id=processes.boot_id())
    processes.write_record(tmp_path, gone)
    (tmp_path / "broken.pid").write_text("{")
    # No parent waits for them, so they stay zombies; a zombie counts as ended.
    assert processes.stop_orphans(tmp_path, ("gateway", "kafka")) == ["gateway", "kafka"]
    assert first.wait() == second.wait() == -signal.SIGTERM
    assert list(tmp_path.glob("*.pid")) == [tmp_path / "broken.pid"]


def test_descendants_are_found_through_sessions() -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    below = processes.descendants(process.pid)
    assert len(below) == 1
    for pid in (process.pid, *below):
        processes.send(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
