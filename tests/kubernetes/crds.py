"""CRDs of tools beside Kueue and JobSet, for which the project has manifests."""

import json
import subprocess
from pathlib import Path
from typing import Final

from tunery.local.kubernetes.programs import go_program

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


def crds_of_others() -> list[Path]:
    """Files with the CRDs of tools beside Kueue and JobSet."""
    files: list[Path] = []
    for module, names in CRDS.items():
        command = (go_program(), "mod", "download", "-json", module)
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        said = json.loads(done.stdout or "{}")
        if "Dir" not in said:
            raise LookupError(f"{module}: {said.get('Error') or done.stderr}")
        files += [Path(said["Dir"]) / name for name in names]
    return files
