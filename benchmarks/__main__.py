"""`python -m benchmarks`: this project beside others, and the studies behind its design."""

import click

from benchmarks.quantization.command import quantization
from benchmarks.scale.commands import engines, plan, serve, stores
from benchmarks.speed.command import speed
from benchmarks.studies.commands import flow, fusion
from retriever.cli.errors import Cli


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Compare this project with others, and its parts with each other.

    With --out, a benchmark that was interrupted continues where it stopped.
    """


for command in (speed, quantization, engines, stores, serve, plan, flow, fusion):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
