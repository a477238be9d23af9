"""`tunery doctor --production` on real servers: what is broken is wrong, and mended by its fix."""

import json
from typing import Any

from schemas.topics import JOB, MODEL
from tests.commands import run_tunery
from tunery.local.settings import log_settings
from tunery.local.stack import Stack
from tunery.platform.bus.grants import KafkaGrant, grants_of
from tunery.platform.bus.kafka_accounts import Account, provide_accounts
from tunery.platform.bus.kafka_configs import alter_topics
from tunery.platform.connections import patient_kafka_settings


async def findings(plane: Stack) -> dict[str, list[dict[str, Any]]]:
    """Problems that the doctor reports, by name."""
    out, _ = await run_tunery(plane.folders.root, "doctor", "--production", "--json", code=1)
    wrong: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(out):
        if each["fix"]:
            wrong.setdefault(each["name"], []).append(each)
    return wrong


async def test_what_is_broken_is_found_and_its_fix_mends_it(running: Stack) -> None:
    # one broker, and a machine whose disk others fill
    alone = {"brokers", "replicas", "disk"}
    assert (await findings(running)).keys() <= alone
    operator = patient_kafka_settings(log_settings(running.folders, {}))
    await alter_topics(operator, {JOB.journal.name: {"message.timestamp.type": "CreateTime"}})
    less = grants_of("eval") - {KafkaGrant("topic", MODEL.journal.name, "read")}
    await provide_accounts(operator.login, operator.bootstrap, {"eval": Account(less)})
    root = next(running.folders.keystore.iterdir())
    mode = root.stat().st_mode
    root.chmod(0o644)
    try:
        wrong = await findings(running)
        assert JOB.journal.name in wrong["topic time"][0]["detail"]
        assert wrong["rights"][0]["detail"] == f"eval may not read topic {MODEL.journal.name}"
        assert str(root) in wrong["keys"][0]["detail"]
        assert wrong.keys() <= alone | {"topic time", "rights", "keys"}
    finally:
        root.chmod(mode)
        fixes = {wrong[name][0]["fix"] for name in ("topic time", "rights")}
    assert all(fix.startswith("tunery kafka prepare") for fix in fixes)
    await run_tunery(running.folders.root, "kafka", "prepare")
    assert (await findings(running)).keys() <= alone
