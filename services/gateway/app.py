"""Composition root: the only file of the service that names concrete parts."""

import os
from collections.abc import Sequence

from services.gateway.accounts.prices import ViewedPrices
from services.gateway.api import create_app
from services.gateway.audit.writing import AuditWriter, refused_senders
from services.gateway.batches.result_files import batch_files
from services.gateway.batches.row_answers import answer_batches
from services.gateway.chat.engine_socket import SocketEngine
from services.gateway.console.app import Console
from services.gateway.deployments.traffic import TrafficCounts
from services.gateway.files.previews import CONFINED, PreviewProcesses
from services.gateway.imports.running import destroy_keys, run_imports
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.feeds import Feeds
from services.gateway.jobs.past_jobs import PastJobs
from services.gateway.jobs.queue_reading import Queues
from services.gateway.jobs.results import mirror_files, results
from services.gateway.jobs.score_endpoint import ScoreEndpoint
from services.gateway.models.base_folders import LocalBaseFolders
from services.gateway.settings import GatewaySettings
from services.gateway.views.host import view_hosts
from services.gateway.views.reading import views_of
from services.gateway.web.command_results import CommandResults
from services.gateway.web.commands import CommandSender
from services.gateway.web.handover import InferenceProcess
from services.gateway.web.rate_limits import rates_of
from services.gateway.web.server import HttpServer
from tunery.confinement.confined import Confinement
from tunery.platform.confining import confinement_of
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.work.engine import SOCKET


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped: the HTTP server first."""
    settings = load(GatewaySettings)
    command_results = CommandResults(runtime.store)
    confinement = await confinement_of(runtime)
    deps = deps_of(runtime, settings, command_results, confinement)
    imported = runtime.settings.data_dir / "imports"
    app = Console(create_app(deps), settings, runtime.settings.valkey_url)
    proxies = list(map(str, settings.trusted_proxies))
    inference = InferenceProcess()
    give = inference.give if settings.answers_apart else None
    return (
        HttpServer(app, settings.host, settings.port, proxies, give),
        inference,
        command_results,
        deps.feeds,
        deps.traffic,
        deps.audit,
        *(view_hosts(runtime, deps.views, settings.days_kept) if settings.fills_views else ()),
        EffectHost(
            runtime,
            (
                results(deps.views, deps.blobs, deps.seal),
                *mirror_files(deps.views, deps.blobs, deps.seal),
                refused_senders(deps.audit, runtime.clock),
                answer_batches(deps),
                batch_files(deps),
                run_imports(deps, imported, confinement),
                destroy_keys(deps, imported),
            ),
        ),
    )


def deps_of(
    runtime: Runtime,
    settings: GatewaySettings,
    command_results: CommandResults,
    confinement: Confinement = CONFINED,
) -> JobDeps:
    """The dependencies of the routes over the adapters of `runtime`."""
    views = views_of(runtime.store)
    commands = CommandSender(runtime.sender, command_results)
    return JobDeps(
        settings=settings,
        views=views,
        commands=commands,
        feeds=Feeds(runtime.store, views, runtime.clock),
        queues=Queues(views, runtime.clock),
        past_jobs=PastJobs(views, runtime.clock),
        previews=PreviewProcesses(confinement=confinement),
        blobs=runtime.blobs,
        seal=runtime.seal,
        prices=ViewedPrices(views),
        bases=LocalBaseFolders(),
        rates=rates_of(runtime.settings.valkey_url),
        scores=ScoreEndpoint(settings),
        engine=SocketEngine(runtime.settings.data_dir / "run" / SOCKET, seal=runtime.seal),
        audit=AuditWriter(runtime.log, runtime.clock, os.urandom(8).hex()),
        traffic=TrafficCounts(commands, runtime.clock),
        log=runtime.log,
        clock=runtime.clock,
        health=runtime.health,
        draw=os.urandom,
        bases_dir=settings.bases_dir or runtime.settings.data_dir / "bases",
    )
