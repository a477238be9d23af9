"""The kernel's count of processes killed for lack of memory, as the kernel writes it."""

from pathlib import Path

import pytest

from services.trainer.adapters.memory_kills import count_memory_kills

VMSTAT = "nr_free_pages 5183360\noom_kill 7\nthp_fault_alloc 12\n"
EVENTS = "low 0\nhigh 0\nmax 312\noom 4\noom_kill 2\noom_group_kill 0\n"


def kernel(folder: Path, **files: str) -> tuple[Path, Path]:
    """Folders like /proc and /sys/fs/cgroup with the files that are given."""
    paths = {
        "vmstat": folder / "proc" / "vmstat",
        "group": folder / "proc" / "self" / "cgroup",
        "events": folder / "cgroup" / "pod" / "agent" / "memory.events",
    }
    for name, text in files.items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_text(text)
    return folder / "proc", folder / "cgroup"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"vmstat": VMSTAT, "group": "0::/pod/agent\n", "events": EVENTS}, 2),
        ({"vmstat": VMSTAT, "group": "0::/pod/agent\n", "events": "low 0\n"}, 7),
        ({"vmstat": VMSTAT, "group": "0::/\n"}, 7),  # the root group has no such file
        ({"vmstat": VMSTAT, "group": "4:memory:/pod\n"}, 7),  # version 1
        ({"vmstat": VMSTAT}, 7),
        ({"vmstat": "nr_free_pages 1\n"}, None),
        ({"vmstat": "oom_kill many\n"}, None),
        ({}, None),
    ],
)
def test_training_m11_kills_are_counted_in_the_group_or_on_the_machine(
    files: dict[str, str], count: int | None, tmp_path: Path
) -> None:
    assert count_memory_kills(*kernel(tmp_path, **files)) == count


def test_training_m11_the_kernel_of_this_machine_counts() -> None:
    count = count_memory_kills()
    assert count is not None
    assert count >= 0
