"""A node without a container engine: starts the command of each pod as a process of this machine.

It does of a kubelet what pods of leases need: Secrets and empty folders, SIGTERM and SIGKILL after
the pod's grace period, exit codes, the reason OOMKilled, images that cannot be pulled. There are no
images, networks or control groups: containers are not confined by it.
"""

import asyncio
import base64
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, NodeStatus, Pod, PodStatus, Secret
from lightkube.types import PatchType

POLL_S: Final = 0.3
MISSING: Final = 404
NO_IMAGE: Final = "no-such-image"  # in the name of an image that cannot be pulled
Json = dict[str, Any]


@dataclass
class Container:
    """The process of a pod. killed_for_memory: set by a test that kills it."""

    process: asyncio.subprocess.Process
    folder: Path
    log: Path
    started_at: str
    killed_for_memory: bool = False
    kill_at_s: float | None = None
    is_reported: bool = False


@dataclass
class Kubelet:
    """One node. command: what is started in place of the containers' own; None: their own."""

    client: AsyncClient
    name: str
    folder: Path
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    command: Sequence[str] | None = None
    containers: dict[str, Container] = field(default_factory=dict)

    async def register(self) -> None:
        """Make the Node, ready."""
        labels = {"kubernetes.io/hostname": self.name, **self.labels}
        metadata = ObjectMeta(name=self.name, labels=labels)
        await self.client.create(Node(metadata=metadata))
        now = timestamp()
        status = {
            "capacity": dict(self.capacity),
            "allocatable": dict(self.capacity),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "ready",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        }
        await self.client.patch(
            NodeStatus, self.name, {"status": status}, patch_type=PatchType.MERGE
        )

    async def run(self) -> None:
        """Work until cancelled; an API server that is away is asked again."""
        while True:
            try:
                await self.sync()
            except Exception as error:  # as a kubelet does
                print(f"kubelet {self.name}: {type(error).__name__}: {error}")
            await asyncio.sleep(POLL_S)

    async def sync(self) -> None:
        """Make processes agree with pods, and pods with processes."""
        fields, seen = {"spec.nodeName": self.name}, set[str]()
        async for pod in self.client.list(Pod, namespace="*", fields=fields):
            uid = str(pod.metadata.uid)
            seen.add(uid)
            container = self.containers.get(uid)
            if container is None:
                if pod.metadata.deletionTimestamp:
                    await self._forget(pod)
                elif pod.status.phase == "Pending":
                    await self._start(pod)
                continue
            if pod.metadata.deletionTimestamp and container.process.returncode is None:
                self._end(pod, container)
            if container.process.returncode is not None:
                if not container.is_reported:
                    await self._report_end(pod, container)
                if pod.metadata.deletionTimestamp:
                    await self._forget(pod)
        for uid, container in self.containers.items():
            if uid not in seen and container.process.returncode is None:  # deleted by force
                os.killpg(container.process.pid, signal.SIGKILL)

    def kill_for_memory(self, pod: str) -> None:
        """Kill a pod's processes as the kernel does when its memory limit is reached."""
        container = next(each for each in self.containers.values() if each.folder.name == pod)
        container.killed_for_memory = True
        os.killpg(container.process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Kill all processes."""
        for container in self.containers.values():
            if container.process.returncode is None:
                os.killpg(container.process.pid, signal.SIGKILL)
                await container.process.wait()

    async def _start(self, pod: Any) -> None:
        (spec,) = pod.spec.containers
        if NO_IMAGE in spec.image:
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling {spec.image}"}
            await self._status(pod, "Pending", {"waiting": waiting})
            return
        folder = self.folder / str(pod.metadata.name)
        mounts: dict[str, str] = {}
        for mount in spec.volumeMounts or ():
            volume = next(each for each in pod.spec.volumes if each.name == mount.name)
            local = folder / mount.name
            local.mkdir(parents=True, exist_ok=True)
            if volume.secret is not None:
                try:
                    secret = await self.client.get(
                        Secret, volume.secret.secretName, namespace=pod.metadata.namespace
                    )
                except ApiError:
                    return  # it comes; a kubelet tries again
                for name, value in (secret.data or {}).items():
                    (local / name).write_bytes(base64.b64decode(value))
            if mount.mountPath.startswith(("/work", "/run/tunery")):
                mounts[mount.mountPath] = str(local)
        command = [*(self.command or (*spec.command, *(spec.args or ())))]
        if command[0] == "python":
            command[0] = sys.executable
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            # Values from fields of the pod, as its index, are not needed here.
            **{
                each.name: mounts.get(each.value, each.value)
                for each in spec.env or ()
                if each.value is not None
            },
        }
        log = folder / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.containers[str(pod.metadata.uid)] = Container(process, folder, log, timestamp())
        await self._status(pod, "Running", {"running": {"startedAt": timestamp()}}, ready=True)

    def _end(self, pod: Any, container: Container) -> None:
        """SIGTERM when the pod is deleted, SIGKILL when its grace period is over."""
        grace_s = pod.metadata.deletionGracePeriodSeconds or 0
        if container.kill_at_s is None:
            container.kill_at_s = time.monotonic() + grace_s
            if grace_s:
                os.killpg(container.process.pid, signal.SIGTERM)
        if time.monotonic() >= container.kill_at_s or not grace_s:
            os.killpg(container.process.pid, signal.SIGKILL)

    async def _report_end(self, pod: Any, container: Container) -> None:
        status = container.process.returncode or 0
        code = 128 - status if status < 0 else status
        reason = "Completed" if code == 0 else "Error"
        if container.killed_for_memory:
            reason = "OOMKilled"
        terminated = {
            "exitCode": code,
            "reason": reason,
            "startedAt": container.started_at,
            "finishedAt": timestamp(),
        }
        phase = "Failed" if code else "Succeeded"
        await self._status(pod, phase, {"terminated": terminated})
        container.is_reported = True

    async def _status(self, pod: Any, phase: str, state: Json, *, ready: bool = False) -> None:
        (spec,) = pod.spec.containers
        now = timestamp()
        truth = "True" if ready else "False"
        container = {
            "name": spec.name,
            "image": spec.image,
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
        kinds = ("Initialized", "ContainersReady", "Ready")
        conditions = [{"type": kind, "status": truth, "lastTransitionTime": now} for kind in kinds]
        status = {
            "phase": phase,
            "hostIP": "10.0.0.1",
            "podIP": "10.0.0.1",  # required but unused; a loopback address is refused
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [container],
        }
        await self._unless_gone(
            self.client.patch(
                PodStatus,
                pod.metadata.name,
                {"status": status},
                patch_type=PatchType.STRATEGIC,
                namespace=pod.metadata.namespace,
            )
        )

    async def _forget(self, pod: Any) -> None:
        """Delete the object of a pod that has ended."""
        await self._unless_gone(
            self.client.delete(
                Pod, pod.metadata.name, namespace=pod.metadata.namespace, grace_period=0
            )
        )
        container = self.containers.get(str(pod.metadata.uid))
        if container is not None:
            shutil.rmtree(container.folder / "work", ignore_errors=True)

    async def _unless_gone(self, request: Any) -> None:
        try:
            await request
        except ApiError as error:
            if error.status.code != MISSING:
                raise


@asynccontextmanager
async def kubelet(
    client: AsyncClient,
    name: str,
    folder: Path,
    labels: Mapping[str, str],
    capacity: Mapping[str, str],
    command: Sequence[str] | None = None,
) -> AsyncIterator[Kubelet]:
    """A node that runs pods until the end of the block."""
    node = Kubelet(client, name, folder, labels, {"pods": "110", **capacity}, command)
    await node.register()
    running = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await node.stop()
        await client.delete(Node, name)


def timestamp() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
