"""Each row of the failure table, as the cluster says it."""

from typing import Any

import msgspec
import pytest

from services.cluster.domain.stages import (
    NO_POD,
    Admitted,
    Ended,
    LeaseObjects,
    Runs,
    Stage,
    Waits,
    stage_of,
)

Json = dict[str, Any]


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def managed(*conditions: Json, **metadata: str) -> Json:
    return {
        "metadata": {"name": "t-default-7-a1", **metadata},
        "status": {"conditions": conditions},
    }


def pod(phase: str = "Running", state: Json | None = None, **status: Any) -> Json:
    containers = [] if state is None else [{"state": state}]
    return {
        "metadata": {"name": "pod"},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


RESERVED = condition("QuotaReserved")
ADMITTED = (RESERVED, condition("Admitted"))
LACKS_GPUS = (
    "couldn't assign flavors to pod set lease: insufficient unused quota for nvidia.com/gpu"
)
NO_RACK = 'topology "racks" doesn\'t allow to fit any of 2 pod(s)'
RUNNING = {"running": {"startedAt": "2026-11-29T01:00:00Z"}}
IN_CHECKS = condition("Admitted", "False", "NoReservation", "The workload has failed checks")


def ended(code: int, reason: str, message: str = "") -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("workload", "pods", "stage"),
    [
        (None, (), Waits("queue", "Kueue has made no Workload of it")),
        (managed(), (), Waits("queue", "Kueue has not looked at it")),
        (
            managed(condition("QuotaReserved", "False", "Pending", LACKS_GPUS)),
            (),
            Waits("quota", LACKS_GPUS),
        ),
        (
            managed(condition("QuotaReserved", "False", "Pending", NO_RACK)),
            (),
            Waits("topology", NO_RACK),
        ),
        (managed(RESERVED), (), Waits("provisioning", "Kueue waits for its admission checks")),
        (managed(RESERVED, IN_CHECKS), (), Waits("provisioning", IN_CHECKS["message"])),
        (managed(*ADMITTED), (), Admitted(NO_POD)),
        (managed(*ADMITTED), (pod("Pending"),), Admitted()),
        (
            managed(*ADMITTED),
            (pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no x:1"}}),),
            Admitted("ImagePullBackOff: no x:1"),
        ),
        (
            managed(*ADMITTED),
            (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}),),
            Admitted(),
        ),
        (
            managed(*ADMITTED),
            (
                pod(
                    "Pending",
                    conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")],
                ),
            ),
            Admitted("Unschedulable: 0/3 nodes"),
        ),
        (managed(*ADMITTED), (pod("Running", RUNNING),), Runs()),
        (
            managed(*ADMITTED, condition("Evicted", reason="Preempted", message="by premium")),
            (pod("Running", RUNNING),),
            Ended("evicted", "Preempted: by premium"),
        ),
        (
            managed(*ADMITTED, condition("Evicted", "False", "QuotaReserved", "again")),
            (pod("Running", RUNNING),),
            Runs(),
        ),
        (
            managed(*ADMITTED),
            (pod("Succeeded", ended(0, "Completed")),),
            Ended("exited", "Completed", 0),
        ),
        (managed(*ADMITTED), (pod("Failed", ended(1, "Error")),), Ended("exited", "Error", 1)),
        (
            managed(*ADMITTED),
            (pod("Failed", ended(137, "OOMKilled")),),
            Ended("oom", "OOMKilled", 137),
        ),
        (
            managed(*ADMITTED, condition("Evicted", reason="PodsReadyTimeout")),
            (pod("Failed", ended(137, "OOMKilled")),),
            Ended("oom", "OOMKilled", 137),
        ),
        (
            managed(*ADMITTED),
            (
                pod(
                    "Failed",
                    conditions=[condition("DisruptionTarget", reason="DeletionByTaintManager")],
                ),
            ),
            Ended("lost", "DeletionByTaintManager: "),
        ),
        (  # no kubelet says that it has ended
            managed(*ADMITTED),
            (
                pod(
                    "Running",
                    RUNNING,
                    conditions=[condition("DisruptionTarget", reason="EvictionByEvictionAPI")],
                ),
            ),
            Ended("lost", "EvictionByEvictionAPI: "),
        ),
        (
            managed(*ADMITTED),
            (pod("Failed", reason="NodeLost", message="unreachable"),),
            Ended("lost", "NodeLost: unreachable"),
        ),
        (managed(*ADMITTED), (pod("Unknown"),), Ended("lost", "the node is silent: ")),
    ],
)
def test_the_stage_follows_from_what_the_cluster_says(
    workload: Json | None, pods: tuple[Json, ...], stage: Stage
) -> None:
    assert stage_of(objects(managed(), workload, *pods)) == stage


def test_a_jobset_that_ends_or_goes_ends_its_lease() -> None:
    failed = managed(condition("Failed", reason="FailedJobs", message="jobset failed"))
    assert stage_of(objects(failed, None)) == Ended("lost", "FailedJobs: jobset failed")
    complete = managed(condition("Completed"))
    assert stage_of(objects(complete, None)) == Ended("exited", "the JobSet is complete", 0)
    deleted = Ended("deleted", "somebody deleted its JobSet")
    assert stage_of(objects(None, None)) == deleted
    going = managed(deletionTimestamp="2026-11-29T01:00:00Z")
    assert stage_of(objects(going, managed(*ADMITTED), pod("Running", RUNNING))) == deleted


def objects(jobset: Json | None, workload: Json | None, *pods: Json) -> LeaseObjects:
    return msgspec.convert({"jobset": jobset, "workload": workload, "pods": pods}, LeaseObjects)
