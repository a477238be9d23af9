"""`tunery base`: base models that jobs may start from."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from schemas.units import PPM
from tunery.cli import _api, _options
from tunery.local.paths import cache_dir

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.data.template_proof import TemplateResult
    from tunery.local.hub import HubModel

S3 = "s3://"
PROOF_S_MAX = 900
NAME_CHARACTERS_MAX = 64
EPILOG = """\
\b
Examples:
  tunery base add HuggingFaceTB/SmolLM2-360M-Instruct       from the hub of HF_ENDPOINT
  tunery base add Qwen/Qwen2.5-0.5B-Instruct@v1 --into /srv/bases/qwen
  tunery base add s3://models/phi-4-mini --licence MIT        with the variables of the AWS tools
  tunery base add ~/models/SmolLM2-360M-Instruct --id smollm2-360m-instruct
  tunery base add ~/models/r1 --id r1-reasons --chat-template reasons.jinja
  tunery base add ~/models/Llama-3.1-8B --chat-template chat.jinja --eot-token '<|eot_id|>'
  tunery base add ~/models/phi --upload            to a service on another machine
  tunery base add ~/models/phi --alias gpt-4o-mini-2024-07-18
  tunery base alias smollm2-135m-instruct gpt-4o-mini-2024-07-18
  tunery base fetch smollm2-360m-instruct ./base            where the operator shares it
  tunery base list
  tunery base show smollm2-135m-instruct           what it was shown to do
  tunery base prove                                those proven with other libraries, again
  tunery base check smollm2-135m-instruct
"""


@click.group("base", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Add base models and list them."""


@command.command("add")
@click.argument("path", metavar="PATH|NAME[@REVISION]|s3://…")
@click.option("--id", "base_id", help="Its name in the API. [last part of its name, lower case]")
@click.option("--licence", help="Its licence, as SPDX writes it. [as the hub says]")
@click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), help="Where NAME is downloaded to."
)
@click.option(
    "--upload", "uploading", is_flag=True, help="Send the folder PATH to the service's machine."
)
@click.option(
    "--alias", "aliases", multiple=True, help="Another name of it in requests; repeatable."
)
@click.option(
    "--chat-template",
    "template",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="A Jinja template in place of its own.",
)
@click.option(
    "--eot-token",
    "eot_tokens",
    multiple=True,
    metavar="TOKEN",
    help="A token of its vocabulary that ends a turn; repeatable.",
)
@click.option("--source", help="Its name at a hub, where the public can load it from.")
@click.option("--revision", help="Its commit there.")
@click.option("--share/--no-share", "shared", default=None, help="Tenants may download it. [no]")
@click.option("--unchecked", is_flag=True, help="Add it without trying it first.")
@_api.asking
def add(
    api: "Api",
    path: str,
    base_id: str | None,
    licence: str | None,
    into: Path | None,
    uploading: bool,
    unchecked: bool,
    template: Path | None,
    eot_tokens: tuple[str, ...],
    as_json: bool,
    **more: Any,
) -> None:
    """Add the base model in the folder PATH, or download it by its NAME or out of object storage.

    PATH contains config.json, *.safetensors, the tokenizer and the chat template. NAME is looked up
    at HF_ENDPOINT, by default huggingface.co; HF_TOKEN opens models that ask for consent. Only
    safetensors are fetched, never code, and each file is checked by its hash.

    With --chat-template or --eot-token it is another base model, with a folder of its own next to
    PATH that shares its weights. Trainings, the gate and inference use what it has.

    The files are hashed. Services and nodes must be able to read the folder. With --upload it is
    sent to the service first, which keeps it in its folder of base models.

    It is loaded here and tried first: chat template, end token, likelihoods that are numbers, some
    easy questions, then steps of LoRA and of every weight, packed rows, layers for adapters, tools
    and reasoning, with a small random model of its kind where its weights are large. What fails is
    refused by name, jobs that it cannot do are refused when they are submitted; --unchecked leaves
    that out.
    """
    folder, name = Path(path).expanduser().resolve(), Path(path).expanduser().resolve().name
    if path.startswith(S3):
        from tunery.local import s3_folder

        bucket, prefix = s3_folder.parts_of(path)
        name = (prefix or bucket).rstrip("/").rpartition("/")[2]
        folder = (into or cache_dir() / "bases" / f"{bucket}--{name}").expanduser().resolve()
        with _shown_progress(path, None, quiet=as_json) as progress:
            s3_folder.download(path, folder, progress)
    elif not folder.is_dir():
        if folder.exists() or not _is_name(path):
            raise click.BadParameter(
                f"{path} is neither a folder nor the name of a model, like org/name@v1"
            )
        folder, model = _download(path, into, quiet=as_json)
        name = model.name.rpartition("/")[2]
        if template is None and not eot_tokens:  # else the hub has another template
            more |= {"source": model.name, "revision": model.commit}
        licence = licence or model.licence
    base_id = base_id or name.lower()
    if template is not None or eot_tokens:
        folder = _write_variant(folder, template, eot_tokens)
    if not unchecked:
        try:
            more["proof"] = _try(folder)
        except click.ClickException as error:
            text = f"{error.message}\n--unchecked adds it all the same"
            raise click.ClickException(text) from error
    if uploading:
        folder = _upload(api, folder, base_id, quiet=as_json)
    base = api.add_base(base_id, folder, licence or "unknown", **_set_options(more))
    _api.show_one(base, as_json, _pairs(base))


def _write_variant(folder: Path, template: Path | None, eot_tokens: tuple[str, ...]) -> Path:
    """The folder of the base model with another template or end tokens. Raises ClickException."""
    from tunery.data.tokens.base_variants import write_variant
    from tunery.data.tokens.tokenizer import BaseUnusable

    try:
        text = None if template is None else template.read_text(encoding="utf-8")
        return write_variant(folder, text, eot_tokens)
    except BaseUnusable as error:
        raise click.ClickException(f"[template_unusable] {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(
            f"[template_unusable] {error}\nIts folder is written next to {folder}, from a template "
            "in UTF-8"
        ) from error


def _try(folder: Path) -> dict[str, Any] | None:
    """Try a base model in processes of their own, and return what was proven of it; None: nothing.

    Raises ClickException where it is of no use.
    """
    if find_spec("torch") is None:
        click.echo("not tried: torch is not installed here", err=True)
        return None
    checked = run_program("tunery.ml.base_check", folder)
    if isinstance(checked, str):
        raise click.ClickException(f"{folder} was not tried: {checked}")
    _refuse_problems(checked)
    with TemporaryDirectory() as work:
        template = _try_template(folder, Path(work))
        encoded = msgspec.json.encode(template.proof)
        proven = run_program(
            "tunery.ml.base_proof", folder, template.shard, stdin=encoded, limit_s=PROOF_S_MAX
        )
    if isinstance(proven, str):
        click.echo(f"note: nothing was proven of it: {proven}", err=True)
        return None
    _refuse_problems(proven)
    proof: dict[str, Any] | None = proven["proof"]
    return proof


def _try_template(folder: Path, work: Path) -> "TemplateResult":
    """Try the chat template. Raises ClickException where plain rows are refused."""
    from tunery.data.preparing import DataRefused
    from tunery.data.template_proof import prove_template
    from tunery.data.tokens.tokenizer import BaseUnusable

    try:
        result = prove_template(folder, work)
    except (DataRefused, BaseUnusable) as error:
        raise click.ClickException(f"[rows_refused] {error}") from error
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    return result


def run_program(
    module: str, *paths: Path, stdin: bytes = b"", limit_s: float | None = None
) -> dict[str, Any] | str:
    """Run a module on a base model and return what it printed, or why it printed nothing."""
    words = (sys.executable, "-m", module, *map(str, paths))
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"it took longer than {limit_s} s"
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        return (why or ["its process was killed: too little memory?"])[-1]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def _refuse_problems(tried: dict[str, Any]) -> None:
    """Print notes. Raises ClickException for problems."""
    for note in tried["notes"]:
        click.echo(f"note: {note}", err=True)
    if problems := tried["problems"]:
        said = "\n".join(f"[{at['name']}] {at['text']}. {at['fix']}" for at in problems)
        raise click.ClickException(said)


def _upload(api: "Api", folder: Path, base_id: str, *, quiet: bool) -> Path:
    """Send the files of a base model; the path of its folder on the service's machine."""
    from tunery.local.errors import LocalError
    from tunery.platform.blobs.base_files import base_files

    try:
        paths = base_files(folder)
    except FileNotFoundError as error:
        raise LocalError(str(error), "name the folder with config.json in it") from error
    ids: dict[str, str] = {}
    total = sum(path.stat().st_size for path in paths)
    try:
        with _shown_progress(folder.name, total, quiet=quiet) as progress:
            for path in paths:
                sent = _additions(progress)
                ids[path.name] = api.upload_in_parts(path, "base-model", sent)["id"]
        name = base_id.rpartition("/")[2][:NAME_CHARACTERS_MAX]
        return Path(api.base_folder(name, ids)["path"])
    finally:
        for file_id in ids.values():  # the folder is a copy
            api.delete_file(file_id)


def _additions(progress: Callable[[int], None]) -> Callable[[int], None]:
    """Called with the bytes of a file sent so far; reports how many are new."""
    known = 0

    def tell(so_far: int) -> None:
        nonlocal known
        progress(so_far - known)
        known = so_far

    return tell


def _is_name(path: str) -> bool:
    """True if `path` can be a model's name on the hub, rather than a path."""
    from tunery.local.hub import REPOSITORY, split_name

    return REPOSITORY.fullmatch(split_name(path)[0]) is not None


def _download(name: str, into: Path | None, *, quiet: bool) -> tuple[Path, "HubModel"]:
    """Fetch a model from the hub."""
    from tunery.local.hub import Hub, split_name

    hub = Hub()
    model = hub.model(*split_name(name))
    folder = into or cache_dir() / "bases" / f"{model.name.replace('/', '--')}-{model.commit[:12]}"
    folder = folder.expanduser().resolve()
    with _shown_progress(model.name, model.bytes, quiet=quiet) as progress:
        hub.download(model, folder, progress)
    return folder, model


@contextmanager
def _shown_progress(
    name: str, total: int | None, *, quiet: bool
) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr if that is a terminal; called for each piece that came."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    screen = Console(stderr=True)
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn())
    with Progress(
        *columns,
        TransferSpeedColumn(),
        console=screen,
        transient=True,
        disable=quiet or not screen.is_terminal,
    ) as bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)


@command.command("fetch")
@click.argument("base_id", metavar="BASE")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_api.asking
def fetch(api: "Api", base_id: str, folder: Path, as_json: bool) -> None:
    """Download the base model BASE into FOLDER, checked by its hash.

    The operator decides which base models are shared (`tunery base add … --share`).
    """
    api.fetch_base(base_id, folder)
    _api.show_one({"id": base_id, "path": str(folder)}, as_json, [("base", folder)])


def _pairs(base: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = ("id", "sha256", "parameters", "context_length", "family", "licence")
    pairs = [(name.replace("_", " "), base[name]) for name in names]
    return [*pairs, ("aliases", ", ".join(base["aliases"])), ("source", _source(base))]


@command.command("show")
@click.argument("base_id", metavar="BASE")
@_api.shown(lambda base: [*_pairs(base), *_proof_pairs(base["proof"])])
def show(api: "Api", base_id: str) -> Any:
    """Show BASE, and what it was shown to do when it was added.

    Jobs that it cannot do are refused when they are submitted. Of a base model that was not tried
    nothing is known, and nothing is refused for it.
    """
    return api.model(base_id)


def _proof_pairs(proof: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """Label and value of each ability that was proven."""
    if proof is None:
        return [("proven", "nothing: `tunery base add` tries it")]
    libraries = [f"{name} {version}" for name, version in proof["libraries"].items()]
    weights = "its own weights" if proof["weights"] == "own" else "a small random model of its kind"
    others = ", ".join(_other_libraries(proof))
    return [
        ("proven with", ", ".join((weights, *libraries))),
        *([("installed here", f"{others}: `tunery base prove` tries it again")] if others else ()),
        ("trains by", ", ".join(proof["adaptations"]) or "nothing"),
        ("adapters on", ", ".join(proof["targets"])),
        ("answers end with", proof["end_token"]),
        *(
            (name, "yes" if proof[name] else "no")
            for name in ("packs", "streams", "tools", "reasoning")
        ),
        *([("memory", _memory(proof))] if proof["step_tokens"] else ()),
    ]


def _memory(proof: Mapping[str, Any]) -> str:
    """Format the memory that the steps of a proof took, and how plans use it."""
    sizes = {"weights": "weights_bytes", "LoRA step": "lora_bytes", "full step": "full_bytes"}
    text = ", ".join(f"{name} {proof[of] / 1e9:.2f} GB" for name, of in sizes.items() if proof[of])
    text += f"; steps of {proof['step_tokens']} tokens in fp32 on processors"
    if proof["weights"] == "random":
        text += ", of the small model"
    if proof["kept_ppm"] > PPM:
        text += (
            f"; layers keep {proof['kept_ppm'] / PPM:.1f} times what is usual, and plans count it"
        )
    return text


def _other_libraries(proof: Mapping[str, Any]) -> Iterator[str]:
    """Libraries that are here in other versions than those of the proof, with their version."""
    for name, proven in proof["libraries"].items():
        with suppress(PackageNotFoundError):
            if (here := version(name)) != proven:
                yield f"{name} {here}"


def _proven(base: Mapping[str, Any]) -> str:
    """Whether a proof of the base model holds with the libraries that are here."""
    if base["proof"] is None:
        return "no"
    return "with others" if any(_other_libraries(base["proof"])) else "yes"


@command.command("alias")
@click.argument("base_id", metavar="BASE")
@click.argument("aliases", nargs=-1, metavar="[NAME]...")
@_api.shown(_pairs)
def alias(api: "Api", base_id: str, aliases: tuple[str, ...]) -> Any:
    """Set the other NAMEs of BASE in requests; without any it has none.

    Scripts that name a model of OpenAI run unchanged when that name is an alias here.
    """
    return api.alias_base(base_id, aliases)


_api.add_list(
    command,
    "List base models.",
    lambda api: api.bases(),
    {
        "base": "id",
        "parameters": lambda base: f"{base['parameters'] / 1e6:,.0f} M",
        "context": "context_length",
        "family": "family",
        "licence": "licence",
        "proven": _proven,
        "aliases": lambda base: ", ".join(base["aliases"]),
        "sha256": "sha256",
    },
)


@command.command("prove")
@click.argument("base_ids", metavar="[BASE]...", nargs=-1)
@_api.listed(
    {
        "base": "id",
        "trains by": lambda base: ", ".join(base["proof"]["adaptations"]) or "nothing",
        "packs": lambda base: "yes" if base["proof"]["packs"] else "no",
        "proven with": lambda base: ", ".join(map(" ".join, base["proof"]["libraries"].items())),
    }
)
def prove(api: "Api", base_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Try BASEs again with the libraries that are here; without any, those proven with others.

    Their files must be those that were added, and on this machine. What is proven replaces the
    earlier proof, for jobs that are submitted from then on; where nothing is, that one stays.
    """
    stale = [base["id"] for base in api.bases() if _proven(base) == "with others"]
    proven = []
    for base_id in base_ids or stale:
        checked = api.post("bases", base_id, "check")
        folder = Path(checked["path"])
        if not folder.is_dir():
            raise click.ClickException(f"{folder} is not on this machine; run this where it is")
        if checked["drifted_sha256"] is not None:
            raise click.ClickException(f"{folder} is no longer {base_id} as it was added")
        click.echo(f"{base_id} is tried …", err=True)
        if (proof := _try(folder)) is None:
            raise click.ClickException(f"{base_id} has the proof that it had")
        proven.append(api.add_base(checked["id"], folder, checked["licence"], proof=proof))
    return proven


@command.command("check")
@click.argument("base_id")
@_api.asking
def check(api: "Api", base_id: str, as_json: bool) -> None:
    """Hash the files of a base model where they lie; exit code 1 when they have changed.

    While they differ from those that were added, its versions are stale: none is promoted.
    """
    base = api.post("bases", base_id, "check")
    drifted = base["drifted_sha256"]
    result = "unchanged" if drifted is None else "changed: its versions are stale"
    fields = [("base", base_id), ("added as", base["sha256"]), ("now", drifted), ("files", result)]
    _api.show_one(base, as_json, fields)
    if drifted is not None:
        raise SystemExit(1)


def _set_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given; the others leave what is known of the base model."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def _source(base: Mapping[str, Any]) -> str | None:
    """Return where the model was published, as `NAME@COMMIT`; None if unknown."""
    source, revision = base["source"], base["revision"]
    return f"{source}@{revision}" if source and revision else source
