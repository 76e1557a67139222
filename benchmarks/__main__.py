"""`python -m benchmarks`: this project beside others."""

import click

from benchmarks.quantization import command as quantization
from benchmarks.scale import commands_engines, commands_planning, commands_serving, commands_stores
from benchmarks.speed import command as speed
from retriever.cli.errors import Cli


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Compare this project with others: speed, quantization, engines, stores, serving, plans.

    With --out, a benchmark that was interrupted continues where it stopped.
    """


for command in (
    quantization.quantization,
    speed.speed,
    commands_serving.serve,
    commands_stores.stores,
    commands_engines.engines,
    commands_planning.plan,
):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
