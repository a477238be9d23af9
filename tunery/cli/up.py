"""`tunery up`: the whole stack on this machine."""

import asyncio
import json
import os
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from tunery.cli import _options, _stack_view
from tunery.cli.env import tenant_key
from tunery.local import lifecycle, ports, secrets
from tunery.local.paths import DataDir
from tunery.local.settings import TENANT
from tunery.local.stack import AGENT, EXPORTER, SERVICES, WARM_NODE, Stack
from tunery.local.state import StackState

REFRESH_PER_S = 8
ALLOW_PRIVATE: Final = "TUNERY_NOTIFIER_ALLOW_PRIVATE"

EPILOG = """\
\b
Examples:
  tunery up                          in this terminal; Ctrl-C stops the stack in order
  tunery up --detach                 in the background; `tunery down` stops it
  tunery up --observe                with Prometheus, which scrapes it; its address is printed
  tunery up --kubernetes             trains in pods of a small cluster, which it builds once
  tunery up --private-webhooks       with webhooks to programs on this machine
  tunery up --exports                with files of all use for finance, in object storage
  tunery up --data-dir /srv/tunery   another folder for its data
  TUNERY_POSTGRES_DSN=postgresql://… tunery up     with a database of your own
\b
Servers of your own replace the embedded ones: TUNERY_KAFKA_BOOTSTRAP, TUNERY_POSTGRES_DSN,
TUNERY_S3_ENDPOINT (with _ACCESS_KEY, _SECRET_KEY, _BUCKET), TUNERY_VALKEY_URL.
"""


@click.command("up", epilog=EPILOG)
@_options.data_dir
@_options.as_json
@click.option("--detach", "-d", is_flag=True, help="Return when the stack is ready.")
@click.option("--no-agent", is_flag=True, help="No node agent: nothing is trained here.")
@click.option(
    "--service",
    "only",
    multiple=True,
    type=click.Choice(SERVICES),
    help="Only these services (repeatable). [all eight]",
)
@click.option("--exports", is_flag=True, help="Also export use of GPU time to object storage.")
@click.option("--observe", is_flag=True, help="Also start Prometheus, for this machine alone.")
@click.option(
    "--kubernetes",
    is_flag=True,
    help="Train in pods of a Kubernetes cluster on this machine; built once, in minutes.",
)
@click.option(
    "--private-webhooks",
    is_flag=True,
    envvar=ALLOW_PRIVATE,
    help="Webhooks and trackers may be plain http on this machine or in its network.",
)
@click.option("--no-services", is_flag=True, help="Start only the four servers.")
@click.option("--in-background", is_flag=True, hidden=True)  # what --detach starts
def command(
    folders: DataDir,
    as_json: bool,
    detach: bool,
    no_agent: bool,
    only: tuple[str, ...],
    exports: bool,
    observe: bool,
    kubernetes: bool,
    private_webhooks: bool,
    no_services: bool,
    in_background: bool,
) -> None:
    """Start the whole stack, and print how to use it.

    It starts Kafka, PostgreSQL, Valkey, S3 and the services.
    """
    if private_webhooks:
        os.environ[ALLOW_PRIVATE] = "1"  # gateway and notifier inherit it
    # the agent inherits them: the first job finds a process that has loaded its libraries
    for name, value in WARM_NODE.items():
        os.environ.setdefault(name, value)
    services = tuple(
        name
        for name in (() if no_services else only or SERVICES)
        if not (no_agent and name == AGENT)
    ) + ((EXPORTER,) if exports else ())
    console = Console(stderr=as_json)
    if detach:
        start_in_background(folders, services, console, observe=observe, kubernetes=kubernetes)
        print_usage(folders, services, console, as_json=as_json)
        return
    asyncio.run(
        in_foreground(
            folders,
            services,
            console,
            as_json=as_json,
            silent=in_background,
            observe=observe,
            kubernetes=kubernetes,
        )
    )


def start_in_background(
    folders: DataDir,
    services: tuple[str, ...],
    console: Console,
    *,
    observe: bool,
    kubernetes: bool,
) -> None:
    """Start the stack in the background, and show its state until it is ready."""
    with Live(console=console, refresh_per_second=REFRESH_PER_S, transient=False) as display:

        def watch(now: StackState) -> None:
            display.update(_stack_view.live(now))

        lifecycle.detach(folders.root, services, watch, observe=observe, kubernetes=kubernetes)


async def in_foreground(
    folders: DataDir,
    services: tuple[str, ...],
    console: Console,
    *,
    as_json: bool,
    silent: bool,
    observe: bool,
    kubernetes: bool,
) -> None:
    """Run the stack until it is stopped; prints a line per event."""
    printer = _stack_view.EventPrinter(console)

    def on_ready(_running: Stack) -> None:
        if not silent:  # a key must not be in a log
            print_usage(folders, services, console, as_json=as_json)
            console.print("[dim]Ctrl-C stops the stack in order.[/dim]")

    await lifecycle.run_until_stopped(
        *(folders.root, services, printer.print_event, on_ready),
        observe=observe,
        kubernetes=kubernetes,
    )


def print_usage(
    folders: DataDir, services: tuple[str, ...], console: Console, *, as_json: bool
) -> None:
    """Print the API's address, and the exports for an OpenAI client: with a key of the tenant."""
    chosen = ports.read(folders.ports)
    url = f"http://{ports.HOST}:{chosen['gateway']}"
    prometheus_port = chosen.get("prometheus")  # there only while it runs next to the stack
    prometheus_url = f"http://{ports.HOST}:{prometheus_port}" if prometheus_port else None
    has_api = "gateway" in services
    key = tenant_key(folders, f"{url}/v1") if has_api else None
    if as_json:
        click.echo(
            json.dumps(
                {
                    "api_url": url if has_api else None,
                    "openai_base_url": f"{url}/v1" if has_api else None,
                    "api_key": key,
                    "admin_key": secrets.load(folders.secrets).admin_key,
                    "tenant": TENANT,
                    "data_dir": str(folders.root),
                    "prometheus_url": prometheus_url,
                }
            )
        )
        return
    if not has_api:
        console.print("\n[bold]Ready[/bold] without a gateway: there is no HTTP API.")
        print_prometheus(prometheus_url, console)
        return
    console.print(f"\n[bold]Tunery is ready[/bold] at {url}", highlight=False)
    console.print(f"  data   {folders.root}", highlight=False, soft_wrap=True)
    console.print(
        f"  key    {key}  (tenant `{TENANT}`; the operator's: tunery env --operator)",
        highlight=False,
        soft_wrap=True,
    )
    print_prometheus(prometheus_url, console)
    console.print("\nPoint an OpenAI client at it:", highlight=False)
    console.print(
        f"  export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}\n",
        highlight=False,
        soft_wrap=True,
    )


def print_prometheus(url: str | None, console: Console) -> None:
    if url is not None:
        console.print(f"  Prometheus  {url}", highlight=False)
