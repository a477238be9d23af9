"""Deployments: which versions share a stage's traffic, and what they have answered. Pure."""

from typing import Final

from immutables import Map
from msgspec.structs import asdict, replace

from schemas import errors
from schemas.deployments import (
    BUCKETS,
    Arm,
    ArmRole,
    ArmTraffic,
    CountTraffic,
    Deploy,
    Deployed,
    Deployment,
    TrafficCounted,
)
from schemas.envelope import Reason, Rejected
from schemas.model import Event, StageMoved
from schemas.reasons import refusing
from services.registry.domain.state import (
    EXCLUSIVE,
    ActiveDeployment,
    Registry,
    TenantModels,
    holder_key,
)
from services.registry.domain.trust import refuse_stage, refuse_stale

ROLES: Final[tuple[ArmRole, ...]] = ("first", "second", "shadow")


def decide_deployment(
    state: Registry, models: TenantModels, command: Deploy, moved: tuple[Event, ...]
) -> tuple[Event, ...]:
    """The deployment of a stage, after the events by which its first version comes to hold it."""
    wanted = command.deployment
    if refused := _refuse_shares(wanted) or _refuse_versions(state, models, wanted):
        return refused
    active = models.deployments.get(holder_key(wanted.series, wanted.stage))
    known = None if active is None or moved else active.deployment
    following = _following(known, wanted)
    return moved if following == known else (*moved, Deployed(deployment=following))


def _following(known: Deployment | None, wanted: Deployment) -> Deployment:
    """The deployment after `known`: the same callers stay where they were while shares change."""
    if known is None:
        return replace(wanted, phase=1)
    same = _name(known.second) == _name(wanted.second)
    wanted = replace(wanted, salt=known.salt if same else wanted.salt, phase=known.phase)
    return wanted if wanted == known else replace(wanted, phase=known.phase + 1)


def _name(arm: Arm | None) -> str | None:
    return None if arm is None else arm.model_id


def _refuse_shares(wanted: Deployment) -> tuple[Rejected, ...]:
    arms = [arm for arm in (wanted.second, wanted.shadow) if arm is not None]
    if len({wanted.model_id, *(arm.model_id for arm in arms)}) <= len(arms):
        return _reject(refusing("deployment_same"), errors.MALFORMED, "traffic")
    highest = (BUCKETS - 1, BUCKETS)  # a second version leaves the first one something
    for arm, most in zip((wanted.second, wanted.shadow), highest, strict=True):
        if arm is not None and not 1 <= arm.buckets <= most:
            share = refusing("deployment_share", model_id=arm.model_id, limit=most)
            return _reject(share, errors.MALFORMED, "traffic")
    return ()


def _refuse_versions(
    state: Registry, models: TenantModels, wanted: Deployment
) -> tuple[Rejected, ...]:
    for arm in (wanted.second, wanted.shadow):
        if arm is None:
            continue
        version = models.versions.get(arm.model_id)
        if version is None:
            unknown = refusing("model_missing", model_id=arm.model_id)
            return _reject(unknown, errors.NOT_FOUND)
        if not version.published:
            return _reject(refusing("model_publishing", model_id=arm.model_id))
        if version.quarantined:
            return _reject(refusing("model_quarantined", model_id=arm.model_id))
        if version.stage == "archived":
            return _reject(refusing("model_archived", model_id=arm.model_id))
        # answers of a shadow reach no caller: it needs no approval
        seen = arm is wanted.second
        refused = (
            refuse_stage(state, models, version, wanted.stage)
            if seen
            else refuse_stale(state, version)
        )
        if refused:
            return refused
    return ()


def refuse_deployed(models: TenantModels, model_id: str) -> tuple[Rejected, ...]:
    """Why a version may not go: it has a share of a stage. Empty: it has none."""
    for active in models.deployments.values():
        deployed = active.deployment
        if model_id in (_name(deployed.second), _name(deployed.shadow)):
            shared = refusing("model_deployed", model_id=model_id, stage=deployed.stage)
            return _reject(shared)
    return ()


def count_traffic(models: TenantModels, command: CountTraffic) -> tuple[Event, ...]:
    """Add what a gateway has seen to the counts of the deployment that it saw."""
    active = models.deployments.get(holder_key(command.series, command.stage))
    if active is None:
        return ()
    deployed = active.deployment
    if (deployed.salt, deployed.phase) != (command.salt, command.phase):
        return ()
    new = tuple(
        sorted(
            {
                bucket
                for bucket in command.buckets
                if 0 <= bucket < BUCKETS and not _is_seen(active.seen, bucket)
            }
        )
    )
    added = {arm.role: arm for arm in command.arms}
    border = 0 if deployed.second is None else deployed.second.buckets
    seen = {
        "second": sum(bucket < border for bucket in new),
        "first": sum(bucket >= border for bucket in new),
    }
    totals = tuple(
        _sum(arm, added.get(arm.role), seen.get(arm.role, 0)) for arm in traffic_of(active)
    )
    if not new and totals == active.traffic:
        return ()
    return (TrafficCounted(series=command.series, stage=command.stage, arms=totals, buckets=new),)


def traffic_of(active: ActiveDeployment) -> tuple[ArmTraffic, ...]:
    """The counts of each version of a deployment, from 0."""
    if active.traffic:
        return active.traffic
    deployed = active.deployment
    names = (deployed.model_id, _name(deployed.second), _name(deployed.shadow))
    return tuple(
        ArmTraffic(model_id=name, role=role)
        for role, name in zip(ROLES, names, strict=True)
        if name is not None
    )


def _sum(arm: ArmTraffic, added: ArmTraffic | None, subjects: int) -> ArmTraffic:
    arm = replace(arm, subjects=arm.subjects + subjects)
    if added is None or added.model_id != arm.model_id:
        return arm
    counts = {
        name: count + getattr(added, name)
        for name, count in asdict(arm).items()
        if isinstance(count, int) and name != "subjects"
    }
    return replace(arm, **counts)


def _is_seen(seen: bytes, bucket: int) -> bool:
    return bool(seen) and bool(seen[bucket // 8] >> bucket % 8 & 1)


def evolve_deployment(models: TenantModels, event: Deployed | TrafficCounted) -> TenantModels:
    """The tenant's models after a change or a count of a deployment."""
    if isinstance(event, Deployed):
        deployed = event.deployment
        key = holder_key(deployed.series, deployed.stage)
        begun = ActiveDeployment(deployment=deployed)
        return replace(models, deployments=models.deployments.set(key, begun))
    key = holder_key(event.series, event.stage)
    active = models.deployments.get(key)
    if active is None:
        return models
    seen = bytearray(active.seen or bytes(BUCKETS // 8))
    for bucket in event.buckets:
        seen[bucket // 8] |= 1 << bucket % 8
    counted = replace(active, traffic=event.arms, seen=bytes(seen))
    return replace(models, deployments=models.deployments.set(key, counted))


def end_deployments(models: TenantModels, event: StageMoved) -> Map[str, ActiveDeployment]:
    """Deployments once a version moves: that of the stage it left, and of the one it takes, end."""
    ended = [
        key
        for key, active in models.deployments.items()
        if active.deployment.model_id == event.model_id
        or (event.stage in EXCLUSIVE and key == holder_key(event.series, event.stage))
    ]
    deployments = models.deployments
    for key in ended:
        deployments = deployments.delete(key)
    return deployments


def _reject(
    reason: Reason, code: str = errors.ILLEGAL_STATE, param: str = "model"
) -> tuple[Rejected, ...]:
    return (Rejected(code=code, reason=reason, param=param),)
