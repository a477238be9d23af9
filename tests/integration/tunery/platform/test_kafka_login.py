"""Every way to log in to Kafka that settings offer, against a real broker with TLS."""

import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from schemas.topics import ACCOUNT
from tests.certificates import Authority
from tests.kafka_brokers import Broker, broker
from tests.stacks import temporary_data_dir
from tunery.local import ports
from tunery.platform.bus.broker_settings import Driver
from tunery.platform.bus.drivers import open_log
from tunery.platform.bus.preparation import prepare_kafka
from tunery.platform.connections import kafka_settings, patient_kafka_settings
from tunery.platform.settings import LogSettings
from tunery.runtime.bus.abstract import Unavailable

OPERATOR: Final = {"kafka_username": "operator", "kafka_password": "chosen-by-the-operator"}
DRIVERS: Final = ("aiokafka", "confluent")
SASL: Final = "org.apache.kafka.common.security."
MORE: Final = """
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},\\
  TLS://127.0.0.1:{tls},SASL://127.0.0.1:{sasl}
advertised.listeners=CLIENTS://127.0.0.1:{port},TLS://127.0.0.1:{tls},SASL://127.0.0.1:{sasl}
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,\\
  TLS:SSL,SASL:SASL_SSL
listener.name.tls.ssl.client.auth=required
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config={module}plain.PlainLoginModule required \\
  user_operator="chosen-by-the-operator";
listener.name.sasl.scram-sha-512.sasl.jaas.config={module}scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=\\
  {module}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
super.users=User:kafka;User:operator;User:CN=operator
"""

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class TlsBroker:
    """tls, sasl: ports; folder: of certificates and keys; driver: of those who log in."""

    running: Broker
    tls: int
    sasl: int
    folder: Path
    driver: Driver = "aiokafka"

    def settings(self, port: int, **login: Any) -> LogSettings:
        return LogSettings(
            kafka_bootstrap=f"127.0.0.1:{port}",
            kafka_driver=self.driver,
            kafka_ca_file=self.folder / "ca.pem",
            **login,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running_tls() -> AsyncIterator[TlsBroker]:
    with temporary_data_dir() as folder:
        authority = Authority(folder)
        pair = authority.issue("broker")
        (folder / "broker.pem").write_bytes(pair[1].read_bytes() + pair[0].read_bytes())
        authority.issue("operator")
        for driver in DRIVERS:  # each has a principal of its own
            authority.issue(f"gateway-{driver}")
        port = ports.find_free(set())
        controller = ports.find_free({port})
        tls = ports.find_free({port, controller})
        sasl = ports.find_free({port, controller, tls})
        more = MORE.format(
            port=port, controller=controller, tls=tls, sasl=sasl, module=SASL, folder=folder
        )
        async with broker(folder / "data", more, (port, controller)) as running:
            yield TlsBroker(running, tls, sasl, folder)


@pytest.fixture(params=DRIVERS)
def tls(running_tls: TlsBroker, request: pytest.FixtureRequest) -> TlsBroker:
    return replace(running_tls, driver=request.param)


def token(subject: str) -> str:
    """An unsigned token, as the broker's own validator for tests takes it."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": subject, "iat": now, "exp": now + 3_600}
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join((*encoded, b"")).decode()


async def ends(settings: LogSettings, *, is_let_in: bool = True) -> tuple[int, int]:
    """Raises Unavailable. is_let_in: whether to be patient, as the broker will answer."""
    reach = patient_kafka_settings if is_let_in else kafka_settings
    log = open_log(reach(settings))
    try:
        return await log.bounds(ACCOUNT.journal.name, 0)
    finally:
        await log.close()


async def test_passwords_over_tls(tls: TlsBroker) -> None:
    over = {"kafka_security_protocol": "SASL_SSL"}
    plain = {**over, "kafka_sasl_mechanism": "PLAIN", **OPERATOR}
    assert await ends(tls.settings(tls.sasl, **plain)) == (0, 0)
    scram: Mapping[str, Any] = {
        **over,
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_username": "gateway",
        "kafka_password": tls.running.keys.kafka_password("gateway"),
    }
    assert await ends(tls.settings(tls.sasl, **scram)) == (0, 0)
    with pytest.raises(Unavailable):
        await ends(tls.settings(tls.sasl, **{**plain, "kafka_password": "wrong"}), is_let_in=False)


async def test_a_token_of_oauth_is_read_from_its_file_each_time(
    tls: TlsBroker, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    login = {
        "kafka_security_protocol": "SASL_SSL",
        "kafka_sasl_mechanism": "OAUTHBEARER",
        "kafka_token_file": file,
    }
    settings = tls.settings(tls.sasl, **login)
    file.write_text("expired")
    with pytest.raises(Unavailable):
        await ends(settings, is_let_in=False)
    file.write_text(f"{token('operator')}\n")
    assert await ends(settings) == (0, 0)


async def test_a_certificate_of_the_client_names_the_principal(tls: TlsBroker) -> None:
    def login(name: str) -> dict[str, Any]:
        files = tls.folder / f"{name}.crt", tls.folder / f"{name}.key"
        return {
            "kafka_security_protocol": "SSL",
            "kafka_certificate_file": files[0],
            "kafka_key_file": files[1],
        }

    assert await ends(tls.settings(tls.tls, **login("operator"))) == (0, 0)
    gateway = tls.settings(tls.tls, **login(f"gateway-{tls.driver}"))
    with pytest.raises(Unavailable):  # known to the authority, and without grants
        await ends(gateway, is_let_in=False)
    operator = kafka_settings(tls.settings(tls.tls, **login("operator")))
    await prepare_kafka(operator, {"gateway": f"CN=gateway-{tls.driver}", "billing": "billing"})
    assert await ends(gateway) == (0, 0)
    with pytest.raises(Unavailable):
        await ends(tls.settings(tls.tls, kafka_security_protocol="SSL"), is_let_in=False)


async def test_a_broker_whose_certificate_is_not_signed_by_the_authority_is_refused(
    tls: TlsBroker, tmp_path: Path
) -> None:
    Authority(tmp_path)
    other = LogSettings(
        kafka_driver=tls.driver,
        kafka_bootstrap=f"127.0.0.1:{tls.sasl}",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="PLAIN",
        kafka_ca_file=tmp_path / "ca.pem",
        kafka_username=OPERATOR["kafka_username"],
        kafka_password=OPERATOR["kafka_password"],
    )
    with pytest.raises(Unavailable):
        await ends(other, is_let_in=False)
