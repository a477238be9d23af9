"""Composition root: the only file of the service that names concrete parts."""

import random
from collections.abc import Sequence

from schemas.topics import ACCOUNT, JOB
from services.notifier.adapters.http import HttpOutbound
from services.notifier.adapters.smtp import SmtpMailer
from services.notifier.domain.schedule import JITTER_PPM
from services.notifier.effect import MailRoute, deliver
from services.notifier.figures import figures_reader
from services.notifier.mirroring import mirror
from services.notifier.project import DDL, MIRRORS, SECRETS, SERVERS, STEPS_DDL, project
from services.notifier.settings import NotifierSettings
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError, hide_secret, load
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector

DELIVERIES = Projection(
    name="notifier",
    version=3,  # 3: jobs that go to MLflow
    streams=(ACCOUNT, JOB),
    project=project,
    ddl=DDL + STEPS_DDL,
    tables=(SECRETS, SERVERS, MIRRORS),
)


def mail_route(settings: NotifierSettings) -> MailRoute | None:
    """Sender of e-mail; None: no mail server is configured. Raises SettingsError."""
    url, plain = _mail_server(settings), settings.allow_private
    if url is None:
        return None
    try:
        mailer = SmtpMailer(url, settings.smtp_sender, timeout_ms=settings.timeout_ms, plain=plain)
    except ValueError as error:
        raise SettingsError(f"TUNERY_NOTIFIER_SMTP_URL {error}") from error
    domains = (domain.strip().lower() for domain in settings.smtp_domains.split(","))
    return MailRoute(mailer, frozenset(filter(None, domains)))


def _mail_server(settings: NotifierSettings) -> str | None:
    """The address of the mail server, from the environment or a file. Raises SettingsError."""
    if settings.smtp_url is not None:
        return settings.smtp_url.get_secret_value()
    if settings.smtp_url_file is None:
        return None
    try:
        url = settings.smtp_url_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"TUNERY_NOTIFIER_SMTP_URL_FILE cannot be read: {error}") from error
    hide_secret(url)
    return url


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(NotifierSettings)
    outbound = HttpOutbound(allow_private=settings.allow_private, timeout_ms=settings.timeout_ms)
    draw = random.SystemRandom()
    delivery = deliver(
        runtime,
        outbound,
        settings.concurrency,
        lambda: draw.randint(0, JITTER_PPM),
        mail_route(settings),
    )
    projector = Projector(runtime, DELIVERIES)
    return (
        projector,
        figures_reader(runtime, projector),
        EffectHost(runtime, (delivery, mirror(runtime, outbound))),
    )
