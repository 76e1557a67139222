"""`retriever bench`: its commands by subject, each in a file of its own. Imports click alone."""

import click

from benchmarks import (
    commands_data,
    commands_engines,
    commands_planning,
    commands_quantization,
    commands_search,
    commands_serving,
    commands_space,
    commands_speed,
    commands_stores,
)


@click.group()
def bench() -> None:
    """Measure what a transform is worth: retrieval, answers, similarity, lexical bias, isotropy, bytes; speed; plans.

    The benchmarks of transforms and of speed keep raw vectors in a cache, and with --out go on where they were stopped.
    Those of transforms take several encoders, poolings and transforms at once.
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
    commands_stores.stores,
    commands_engines.engines,
    commands_planning.plan,
    commands_data.model,
    commands_data.download,
):
    bench.add_command(command)
