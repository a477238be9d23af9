"""Ports: preferred, remembered, moved when taken."""

import contextlib
import socket
from pathlib import Path

import pytest

from tunery.local import ports


def test_ports_are_kept_between_runs(tmp_path: Path) -> None:
    notices: list[str] = []
    first = ports.assign(tmp_path / "ports.json", notices.append, ports.ANY)
    second = ports.assign(tmp_path / "ports.json", notices.append, ports.ANY)
    assert first == second
    assert len(set(first.values())) == len(ports.PREFERRED)
    assert notices == []


def test_a_port_in_use_is_replaced_and_reported(tmp_path: Path) -> None:
    notices: list[str] = []
    with socket.socket() as other:
        other.bind((ports.HOST, 0))
        other.listen()
        occupied = other.getsockname()[1]
        chosen = ports.assign(tmp_path / "ports.json", notices.append, {"kafka": occupied})
    assert chosen["kafka"] != occupied
    assert notices == [
        f"port {occupied} for kafka is used by another program; using {chosen['kafka']}"
    ]


def test_a_malformed_ports_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text('{"kafka": 19', encoding="utf-8")
    chosen = ports.assign(file, lambda _text: None, {"kafka": 0})
    assert ports.read(file) == chosen


def test_ports_in_a_row_begin_behind_those_that_are_taken() -> None:
    busy = {9402, 9405}
    assert ports.find_block(9400, 3, lambda port: port not in busy) == 9406
    assert ports.find_block(9400, 2, lambda port: port not in busy) == 9400
    assert ports.find_block(0, 3) > 0
    for first in (9400, 65_530):
        with pytest.raises(OSError, match="no 10 free ports"):
            ports.find_block(first, 10, lambda port: port % 10 != 5)


def test_prometheus_gets_any_port_where_the_others_do() -> None:
    assert ports.with_prometheus(ports.ANY)["prometheus"] == 0
    preferred = ports.with_prometheus(ports.PREFERRED)
    assert preferred == {**ports.PREFERRED, "prometheus": ports.PROMETHEUS_PREFERRED}


def test_two_names_never_share_a_port(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text('{"kafka": 45001, "s3": 45001}', encoding="utf-8")
    chosen = ports.assign(file, lambda _text: None, {"kafka": 0, "s3": 0}, free=lambda _port: True)
    assert chosen["kafka"] == 45001
    assert chosen["s3"] != 45001


def test_first_hour2_u1_a_port_that_another_stack_has_chosen_is_not_free(tmp_path: Path) -> None:
    first, second, notices = ports.PortClaims(), ports.PortClaims(), list[str]()
    wanted = {"kafka": ports.find_free(set())}
    with contextlib.closing(second):
        with contextlib.closing(first):
            chosen = ports.assign(tmp_path / "a", notices.append, wanted, first.is_free)
            assert chosen == wanted
            other = ports.assign(tmp_path / "b", notices.append, wanted, second.is_free)
            assert other != wanted
            assert ports.assign(tmp_path / "a", notices.append, wanted, first.is_free) == wanted
        assert second.is_free(wanted["kafka"]), "a claim ends with its stack"
    assert len(notices) == 1


def test_first_hour2_u1_rows_of_ports_of_two_stacks_are_apart() -> None:
    with (
        contextlib.closing(ports.PortClaims()) as first,
        contextlib.closing(ports.PortClaims()) as second,
    ):
        start = ports.find_block(29_400, 5, first.is_free)
        assert abs(ports.find_block(29_400, 5, second.is_free) - start) >= 5
