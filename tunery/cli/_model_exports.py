"""A downloaded model in the formats of others: one model, files of llama.cpp, an OCI artifact."""

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tunery.local.errors import LocalError

GGUF: Final = ("gguf", "gguf-adapter", "gguf-base")
FORMATS: Final = ("transformers", *GGUF, "oci")
# of the specification of the CNCF for models: github.com/modelpack/model-spec
ARTIFACT: Final = "application/vnd.cncf.model.manifest.v1+json"
CONFIG: Final = "application/vnd.cncf.model.config.v1+json"
WEIGHTS: Final = "application/vnd.cncf.model.weight.v1.raw"
SETTINGS: Final = "application/vnd.cncf.model.weight.config.v1.raw"
DOCUMENT: Final = "application/vnd.cncf.model.doc.v1.raw"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
CHUNK_BYTES: Final = 1 << 20


def merge(folder: Path, base: Path, target: Path, dtype: str) -> dict[str, Any]:
    """Write adapter and base model as one model. Raises LocalError."""
    words = ("-m", "tunery.ml.merging", str(folder), str(base), str(target), dtype)
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or ["the process that merges it was killed"]
        raise LocalError(why[-1], f"nothing was written to {target}")
    return {"folder": str(target), **json.loads(done.stdout.splitlines()[-1])}


def write_gguf(folder: Path, base: Path, target: Path, kind: str, dtype: str) -> None:
    """Write one file of llama.cpp: of adapter and base model merged, or of one of them alone.

    Raises LocalError.
    """
    from services.engine.ports import Refusal

    if target.exists():
        raise LocalError(f"{target} exists", "name a file that does not")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=target.parent) as name:
        scratch = Path(name)
        try:
            if kind == "gguf":
                merged = scratch / "merged"
                merge(folder, base, merged, dtype)
                asyncio.run(_convert_model(merged, target, scratch))
            elif kind == "gguf-base":
                asyncio.run(_convert_model(base, target, scratch))
            else:
                asyncio.run(_convert_adapter(folder, base, target, scratch))
        except Refusal as refused:
            raise LocalError(refused.message, f"nothing was written to {target}") from refused


async def _convert_model(source: Path, target: Path, scratch: Path) -> None:
    from services.engine.adapters.weights import link_base, run_script

    linked = link_base(source, scratch / "base")
    options = [str(linked), "--outtype", "auto"]
    await run_script("convert_hf_to_gguf.py", options, target, scratch)


async def _convert_adapter(folder: Path, base: Path, target: Path, scratch: Path) -> None:
    from schemas.training import ADAPTER_FILES
    from services.engine.adapters.weights import link_base, run_script, with_plain_scale

    weights, settings = ADAPTER_FILES
    source = scratch / "adapter"
    source.mkdir()
    (source / weights).symlink_to((folder / weights).resolve())
    config = with_plain_scale(json.loads((folder / settings).read_bytes()))
    (source / settings).write_text(json.dumps(config), encoding="utf-8")
    linked = link_base(base, scratch / "base")
    options = [str(source), "--base", str(linked), "--outtype", "f32"]
    await run_script("convert_lora_to_gguf.py", options, target, scratch)


def write_oci(folder: Path, target: Path) -> str:
    """Write the files of a folder as an artifact in OCI's image layout; the digest of its manifest.

    The same files give the same digest. Raises LocalError.
    """
    if target.exists():
        raise LocalError(f"{target} exists", "name a folder that does not")
    names = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    if not names:
        raise LocalError(f"{folder} has no files", "name the folder of a downloaded model")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "blobs" / "sha256").mkdir(parents=True)
    layers = [_layer(part, path) for path in names]
    digests = [layer["digest"] for layer in layers]
    config = {
        "descriptor": {"title": folder.name},
        "config": {},
        "modelfs": {"type": "layers", "diffIds": digests},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": _blob(part, config, CONFIG),
        "layers": layers,
    }
    described = _blob(part, manifest, MANIFEST)
    tagged = {**described, "annotations": {"org.opencontainers.image.ref.name": "latest"}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [tagged]}
    (part / "index.json").write_bytes(_json(index))
    (part / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    part.replace(target)
    return str(described["digest"])


def _layer(layout: Path, path: Path) -> dict[str, Any]:
    """A file as a layer; its name is what tools give it when they fetch it."""
    kind = {".safetensors": WEIGHTS, ".md": DOCUMENT}.get(path.suffix, SETTINGS)
    digest = hashlib.sha256()
    copied = layout / "blobs" / "sha256" / "unnamed"
    with path.open("rb") as source, copied.open("wb") as stream:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            stream.write(chunk)
    size = copied.stat().st_size
    copied.rename(copied.with_name(digest.hexdigest()))
    names = ("org.opencontainers.image.title", "org.cncf.model.filepath")
    return {
        "mediaType": kind,
        "digest": f"sha256:{digest.hexdigest()}",
        "size": size,
        "annotations": dict.fromkeys(names, path.name),
    }


def _blob(layout: Path, document: dict[str, Any], media_type: str) -> dict[str, Any]:
    data = _json(document)
    sha256 = hashlib.sha256(data).hexdigest()
    (layout / "blobs" / "sha256" / sha256).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{sha256}", "size": len(data)}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True).encode()
