"""`tunery completion`: a shell that completes commands and options."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_TUNERY_COMPLETE"
EPILOG = """\
\b
Examples:
  tunery completion bash >> ~/.bashrc
  tunery completion zsh >> ~/.zshrc
  tunery completion fish > ~/.config/fish/completions/tunery.fish
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script for completion in your shell."""
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"click knows no completion for {shell}; choose another shell")
    root = context.find_root()
    click.echo(completion_class(root.command, {}, "tunery", VARIABLE).source())
