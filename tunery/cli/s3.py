"""`tunery s3`: who may do what in object storage, and the same for an S3 of one's own."""

import json

import click

from tunery.cli import _options
from tunery.cli._rights import print_rights
from tunery.local.settings import BUCKET

EPILOG = """\
\b
Examples:
  tunery s3 grants
  tunery s3 grants --json
  tunery s3 policy gateway
  tunery s3 policy trainer --bucket team-models
  tunery s3 policy gateway --json
"""


@click.group("s3", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what in object storage, and print policies for an S3 of your own.

    The embedded S3 is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List what each service may do with objects, by the beginning of their keys.

    `trainer` is each node, `*` any tenant.
    """
    from schemas.topics import SERVICES
    from tunery.platform.object_policies import object_grants

    rows = [
        (service, verb, prefix)
        for service in SERVICES
        for grant in object_grants(service)
        for verb in grant.verbs
        for prefix in grant.prefixes
    ]
    columns = ("service", "operation", "prefix")
    print_rights({column: column for column in columns}, rows, as_json)


@command.command("policy")
@click.argument("service")
@click.option("--bucket", default=BUCKET, show_default=True, help="Name of the bucket.")
@_options.as_json
def policy(service: str, bucket: str, as_json: bool) -> None:
    """Print the policy for the account of SERVICE, in the form of Amazon's IAM.

    That of nodes is `trainer`. Accounts and their keys are yours to make.
    """
    from schemas.topics import SERVICES
    from tunery.platform.object_policies import identity_policy

    if service not in SERVICES:
        raise click.UsageError(f"there is no service {service}: choose {', '.join(SERVICES)}")
    click.echo(json.dumps(identity_policy(bucket, service), indent=None if as_json else 2))
