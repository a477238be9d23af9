"""The environment of a rank: its number, and where it meets the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # numbers or names of devices, separated by commas
RENDEZVOUS: Final = "TUNERY_RENDEZVOUS"  # an `init_method` of `torch.distributed`
RENDEZVOUS_FILE: Final = "rendezvous"  # in the folder of the lease, where one node has all ranks
LOOPBACK: Final = "lo"


@dataclass(frozen=True)
class RankLayout:
    """The ranks of a training that this node starts, among those of all nodes."""

    count: int  # number of ranks on all nodes
    here: range  # numbers of the ranks on this node
    node: int = 0  # number of this node in the lease; GROUP_RANK of torchrun
    # `tcp://host:port` at which rank 0 listens; empty: a file, since all ranks are here
    store: str = ""
    interface: str = LOOPBACK  # network interface by which ranks reach each other
    # names of the accelerators of the ranks here; empty: they compute on CPUs
    devices: Sequence[str] = ()

    @property
    def spans_nodes(self) -> bool:
        return len(self.here) < self.count

    def environment(self, number: int, folder: Path, *, shares_memory: bool) -> dict[str, str]:
        """Return the variables of one rank, with the names of `torch.distributed`.

        folder: folder of the lease
        shares_memory: the ranks here have `/dev/shm` and abstract sockets in common
        """
        local, many = number - self.here.start, self.spans_nodes
        named = {
            "RANK": str(number),
            "WORLD_SIZE": str(self.count),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(self.here)),
            "GROUP_RANK": str(self.node),
            RENDEZVOUS: self.store or f"file://{folder / RENDEZVOUS_FILE}",
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
        }
        if not many:
            named["NCCL_IB_DISABLE"] = "1"
        if many or not shares_memory:  # abstract sockets are of the machine: refused
            named["NCCL_CUMEM_ENABLE"] = "0"
        if not shares_memory:
            named["NCCL_SHM_DISABLE"] = "1"
        return named
