"""The state file: what it tells, and what it makes of a broken one."""

from pathlib import Path

from tunery.local import ports, secrets, state
from tunery.local.events import Changed, Notice, Phase
from tunery.local.paths import DataDir
from tunery.local.state import ApiAddress, StackPhase, StateFile


def folders_in(tmp_path: Path) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    return folders


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    file = StateFile(folders)
    file.record(Changed("kafka", Phase.READY, pid=7, address="127.0.0.1:1"))
    file.record(Notice("port 1 is taken"))
    file.enter(StackPhase.READY)
    read = state.read(folders)
    assert read == file.state
    assert read.is_alive()
    assert read.children["kafka"].phase is Phase.READY


def test_notes_are_bounded(tmp_path: Path) -> None:
    file = StateFile(folders_in(tmp_path))
    for number in range(state.NOTES_MAX + 5):
        file.record(Notice(str(number)))
    assert len(file.state.notes) == state.NOTES_MAX
    assert file.state.notes[-1] == str(state.NOTES_MAX + 4)


def test_no_file_and_a_broken_file_read_as_stopped(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    assert state.read(folders).phase is StackPhase.STOPPED
    state.path(folders).write_text('{"phase": "sleepy"}')
    assert not state.read(folders).is_alive()


def test_a_connection_is_the_environments_or_the_stacks(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    assert state.connection(folders, {}) is None
    chosen = ports.assign(folders.ports, lambda _text: None, ports.ANY)
    keys = secrets.load_or_create(folders.secrets)
    url = f"http://127.0.0.1:{chosen['gateway']}"
    assert state.connection(folders, {}) == ApiAddress(url, keys.admin_key)
    environ = {"TUNERY_API_URL": "http://h/", "TUNERY_API_KEY": "k"}
    assert state.connection(folders, environ) == ApiAddress("http://h", "k")
