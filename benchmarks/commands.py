"""`retriever bench`: its commands by subject, each in a file of its own. Imports click alone."""

import click

from benchmarks import (
    commands_data,
    commands_engines,
    commands_quantization,
    commands_search,
    commands_serving,
    commands_space,
    commands_speed,
)


@click.group()
def bench() -> None:
    """Measure what a transform is worth: retrieval, answers, similarity, lexical bias, isotropy, bytes; and speed.

    Every benchmark but serve and engines keeps raw vectors in a cache, and with --out goes on where it was stopped. All
    but speed, serve and engines take several encoders, poolings and transforms at once.
    """


for command in (
    commands_search.retrieval,
    commands_search.qa,
    commands_space.sts,
    commands_space.lexical,
    commands_space.isotropy,
    commands_quantization.quantization,
    commands_speed.speed,
    commands_serving.serve,
    commands_engines.engines,
    commands_data.model,
    commands_data.download,
):
    bench.add_command(command)
