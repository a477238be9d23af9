"""A Kubernetes control plane on loopback: API server, etcd, controllers, scheduler, JobSet, Kueue.

All webhooks are on. There are no nodes: tests add them, see `kubelet`.
"""

import asyncio
import base64
import datetime
import ipaddress
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tunery.confinement.libc import end_with_parent
from tunery.local.errors import LocalError

ADMIN: Final = "token-of-the-administrator"
START_S_MAX: Final = 300.0
FIX: Final = "read its logs in the folder `log` beside its kubeconfig, then start it again"
POLL_S: Final = 0.1
KUEUE_SECRET: Final = "kueue-webhook-server-cert"  # noqa: S105  # a name
NAMES: Final = (
    "localhost",
    "kueue-webhook-service.kueue-system.svc",
    "jobset-webhook-service.jobset-system.svc",
)
PORTS: Final = ("api", "etcd", "etcd-peer", "jobset", "kueue", "jobset-health", "kueue-health")
COLLECTIONS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    ),
}
Json = dict[str, Any]


class KubernetesServers:
    """Servers by name, each a process that tests may kill and start again.

    programs: folder of `folder_of_programs`; folder: of its data, logs and certificates
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[str, ...]] = {}
        self._ports = _free_ports(*PORTS)
        self.kubeconfig = folder / "kubeconfig"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports['api']}"

    async def start(self) -> None:
        """Start everything, in an order in which nothing has to wait for a webhook."""
        for name in ("log", "tmp", "etcd", "pki"):
            (self._folder / name).mkdir(parents=True)
        self._write_certificates()
        self._write_configuration()
        self._run_servers()
        await self._until(f"{self.url}/readyz")
        async with self.administrator() as client:
            webhooks = []
            for each in self._manifests():
                if each["kind"].endswith("WebhookConfiguration"):
                    webhooks.append(each)
                else:
                    await _create(client, each)
            await established(client)
            for each in webhooks:  # Kueue waits for its own, to put its certificate in
                await _create(client, each)
        self._run_controllers()
        await self._controllers_are_ready()

    async def _controllers_are_ready(self) -> None:
        for name in ("jobset-health", "kueue-health"):
            await self._until(f"http://127.0.0.1:{self._ports[name]}/readyz")

    def administrator(self) -> httpx.AsyncClient:
        """Return a client of the API that may do everything."""
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {ADMIN}"},
            verify=self._context(),
            trust_env=False,
            timeout=60,
        )

    def stop(self) -> None:
        """End all processes; nothing of them is kept, and in order they would take 20 s."""
        for name in reversed(self._processes):
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kill a server with SIGKILL, and wait until it is gone."""
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def restart(self, name: str) -> None:
        """Start a killed server again, and wait until the API server is ready, if there is one."""
        self._spawn(name, *self._commands[name])
        if "apiserver" in self._processes:
            await self._until(f"{self.url}/readyz")

    async def back_up(self, folder: Path) -> None:
        """Copy the files of etcd, which is killed for it."""
        self.kill("etcd")
        shutil.copytree(self._folder / "etcd", folder)
        await self.restart("etcd")

    async def restore(self, folder: Path) -> None:
        """Bring etcd back as it was, and start everything again, as one has to after that."""
        names = tuple(self._processes)
        for name in names:
            self.kill(name)
        self._processes.clear()
        shutil.rmtree(self._folder / "etcd")
        shutil.copytree(folder, self._folder / "etcd")
        for name in names:
            await self.restart(name)
        await self._controllers_are_ready()

    def log(self, name: str) -> str:
        return (self._folder / "log" / f"{name}.log").read_text(errors="replace")

    def _spawn(self, name: str, *command: str) -> None:
        self._commands[name] = command
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "TMPDIR": str(self._folder / "tmp"),
        }
        with (self._folder / "log" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                (str(self._programs / command[0]), *command[1:]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509  # no threads yet
            )

    def _run_servers(self) -> None:
        pki, ports = self._folder / "pki", self._ports
        client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer"))
        self._spawn(
            *("etcd", "etcd", f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            *(f"--initial-cluster=default={peer}", "--log-level=warn"),
        )
        self._spawn(
            *("apiserver", "kube", "apiserver", f"--etcd-servers={client}"),
            *("--bind-address=127.0.0.1", f"--secure-port={ports['api']}"),
            *(f"--tls-cert-file={pki / 'tls.crt'}", f"--tls-private-key-file={pki / 'tls.key'}"),
            *(f"--token-auth-file={self._folder / 'tokens.csv'}", "--authorization-mode=RBAC"),
            *("--service-cluster-ip-range=10.96.0.0/16", "--feature-gates=ImageVolume=true"),
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'sa.key'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--profiling=false",
        )

    def _run_controllers(self) -> None:
        pki = self._folder / "pki"
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        self._spawn(
            *("controller-manager", "kube", "controller-manager", *common, "--profiling=false"),
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            # A machine that slept has not lost its node. No node of ours sends heartbeats.
            "--node-monitor-grace-period=24h",
        )
        self._spawn("scheduler", "kube", "scheduler", *common, "--profiling=false")
        for name in ("jobset", "kueue"):
            self._spawn(name, name, f"--config={self._folder / name}.yaml")

    def _write_configuration(self) -> None:
        folder, ports = self._folder, self._ports
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
        authority = str(folder / "pki" / "ca.crt")
        cluster = {"server": self.url, "certificate-authority": authority}
        _write(
            self.kubeconfig,
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": ADMIN}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            },
        )

        def controller(name: str) -> Json:
            health = f"127.0.0.1:{ports[f'{name}-health']}"
            return {
                "leaderElection": {"leaderElect": False},
                "metrics": {"bindAddress": "0"},
                "health": {"healthProbeBindAddress": health},
                "webhook": {
                    "host": "127.0.0.1",
                    "port": ports[name],
                    "certDir": str(folder / "pki"),
                },
            }

        _write(
            folder / "jobset.yaml",
            {
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "kind": "Configuration",
                **controller("jobset"),
                "internalCertManagement": {"enable": False},
            },
        )
        _write(
            folder / "kueue.yaml",
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": "kueue-system",
                **controller("kueue"),
                # Without it Kueue would not start its webhooks with our certificate.
                "internalCertManagement": {
                    "enable": True,
                    "webhookServiceName": "kueue-webhook-service",
                    "webhookSecretName": KUEUE_SECRET,
                },
                "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
                "featureGates": {"VisibilityOnDemand": False},
            },
        )

    def _manifests(self) -> list[Json]:
        """Namespaces, CRDs and webhooks of JobSet and Kueue, which answer on loopback."""
        pki, manifests = self._folder / "pki", self._programs / "manifests"
        bundle = base64.b64encode((pki / "ca.crt").read_bytes()).decode()

        def address(name: str, path: str) -> Json:
            return {"url": f"https://127.0.0.1:{self._ports[name]}{path}", "caBundle": bundle}

        objects: list[Json] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{name}-system"}}
            for name in ("kueue", "jobset")
        ]
        crds = manifests / "kueue" / "crd"
        (customization,) = _read(crds / "kustomization.yaml")
        patches = [each["path"] for each in customization["patches"] if "webhook" in each["path"]]
        converted = {_read(crds / path)[0]["metadata"]["name"] for path in patches}
        for path in sorted(manifests.glob("*/crd/bases/*.yaml")):
            for crd in _read(path):
                if crd["metadata"]["name"] in converted:
                    crd["spec"]["conversion"] = {
                        "strategy": "Webhook",
                        "webhook": {
                            "clientConfig": address("kueue", "/convert"),
                            "conversionReviewVersions": ["v1"],
                        },
                    }
                objects.append(crd)
        for name in ("kueue", "jobset"):
            for each in _read(manifests / name / "webhook" / "manifests.yaml"):
                each["metadata"]["name"] = f"{name}-{each['metadata']['name']}"
                for hook in each["webhooks"]:
                    path_of_hook = hook["clientConfig"]["service"]["path"]
                    hook["clientConfig"] = address(name, path_of_hook)
                    if name == "jobset" and hook["name"] in ("mpod.kb.io", "vpod.kb.io"):
                        # As in its release: pods of others are none of its business.
                        of_jobsets = {
                            "key": "jobset.sigs.k8s.io/jobset-name",
                            "operator": "Exists",
                        }
                        hook["objectSelector"] = {"matchExpressions": [of_jobsets]}
                objects.append(each)
        files = ("ca.crt", "ca.key", "tls.crt", "tls.key")
        data = {name: base64.b64encode((pki / name).read_bytes()).decode() for name in files}
        metadata = {"name": KUEUE_SECRET, "namespace": "kueue-system"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        return [*objects, secret]

    def _write_certificates(self) -> None:
        """An authority, a server's certificate, and the key that signs service accounts' tokens."""
        pki, now = self._folder / "pki", datetime.datetime.now(datetime.UTC)
        # Kueue's own check of the authority looks for its name among its DNS names.
        authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca")])

        def certificate(name: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
            return (
                x509.CertificateBuilder(authority, name, key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(hours=1))
                # Kueue replaces what ends within the next 90 days.
                .not_valid_after(now + datetime.timedelta(days=365))
            )

        root, own, accounts = (rsa.generate_private_key(65_537, 2_048) for _ in range(3))
        usage = x509.KeyUsage(True, False, True, False, False, True, True, False, False)
        ca = (
            certificate(authority, root)
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("kueue-ca")]), critical=False)
            .sign(root, SHA256())
        )
        names = [
            *(x509.DNSName(name) for name in NAMES),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        server = (
            certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]), own)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(usages, critical=False)
            .sign(root, SHA256())
        )
        for file, signed in (("ca.crt", ca), ("tls.crt", server)):
            (pki / file).write_bytes(signed.public_bytes(Encoding.PEM))
        for file, key in (("ca.key", root), ("tls.key", own), ("sa.key", accounts)):
            encoded = key.private_bytes(
                Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
            )
            (pki / file).write_bytes(encoded)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._folder / "pki" / "ca.crt")

    async def _until(self, url: str) -> None:
        """Wait until it answers with 200. Fails at once when a process has ended."""

        def answers() -> bool:
            try:
                headers = {"Authorization": f"Bearer {ADMIN}"}
                return httpx.get(
                    url, headers=headers, verify=self._context(), trust_env=False
                ).is_success
            except httpx.TransportError:
                return False

        await until(url, lambda: self._lives() and answers(), START_S_MAX)

    def _lives(self) -> bool:
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                log = self.log(name)[-3_000:]
                raise LocalError(f"{name} of the cluster ended with {status}: {log}", FIX)
        return True


@asynccontextmanager
async def control_plane(programs: Path, folder: Path) -> AsyncIterator[KubernetesServers]:
    """A control plane that is ready, stopped at the end of the block."""
    plane = KubernetesServers(programs, folder)
    try:
        await plane.start()
        yield plane
    finally:
        plane.stop()


async def until(what: str, holds: Callable[[], bool], seconds_max: float = START_S_MAX) -> None:
    """Wait until it holds; it is asked in a thread."""
    deadline = time.monotonic() + seconds_max
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline:
            raise LocalError(f"{what} of the cluster is not ready after {seconds_max} s", FIX)
        await asyncio.sleep(POLL_S)


async def _create(client: httpx.AsyncClient, manifest: Json) -> None:
    path = COLLECTIONS[manifest["kind"]].format(**manifest["metadata"])
    reply = await client.post(path, json=manifest)
    if not reply.is_success:
        name = manifest["metadata"]["name"]
        raise LocalError(f"{manifest['kind']} {name} was refused: {reply.text}", FIX)


async def established(client: httpx.AsyncClient) -> None:
    """Wait until all CRDs are served."""
    async with asyncio.timeout(START_S_MAX):
        while True:
            listed = (await client.get(COLLECTIONS["CustomResourceDefinition"])).json()["items"]
            conditions = [each["status"].get("conditions") or [] for each in listed]
            if all(any(c["type"] == "Established" for c in each) for each in conditions):
                return
            await asyncio.sleep(POLL_S)


def _free_ports(*names: str) -> dict[str, int]:
    """Ports that nothing listens on, all different."""
    opened = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    ports = {name: server.getsockname()[1] for name, server in opened.items()}
    for server in opened.values():
        server.close()
    return ports


def _read(path: Path) -> list[Json]:
    return [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]


def _write(path: Path, content: Json) -> None:
    path.write_text(yaml.safe_dump(content))
