"""Variables of ranks: alone on a node they meet by a file, over nodes at the first one."""

from pathlib import Path

import pytest

from tunery.ranks.launching import RENDEZVOUS, RankLayout

FOLDER = Path("/of/the/lease")


def test_ranks_of_one_node_meet_in_the_folder_of_their_lease() -> None:
    variables = RankLayout(2, range(2)).environment(1, FOLDER, shares_memory=True)
    assert variables[RENDEZVOUS] == "file:///of/the/lease/rendezvous"
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["GLOO_SOCKET_IFNAME"]) == (
        "1",
        "1",
        "lo",
    )
    assert variables["NCCL_IB_DISABLE"] == "1"


@pytest.mark.parametrize(
    ("here", "shares_memory", "disabled"),
    [
        (range(2), True, set()),
        (range(2), False, {"NCCL_CUMEM_ENABLE", "NCCL_SHM_DISABLE"}),
        (range(2, 4), True, {"NCCL_CUMEM_ENABLE"}),
    ],
)
def test_nccl_takes_no_way_that_walls_refuse(
    here: range, shares_memory: bool, disabled: set[str]
) -> None:
    layout = RankLayout(2 if here.start == 0 else 4, here, store="tcp://192.0.2.1:29500")
    variables = layout.environment(here.start, FOLDER, shares_memory=shares_memory)
    assert variables.keys() & {"NCCL_CUMEM_ENABLE", "NCCL_SHM_DISABLE"} == disabled
