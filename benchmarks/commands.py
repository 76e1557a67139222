"""`retriever bench`: its commands by subject, each in a file of its own. Imports click alone."""

import click

from benchmarks import (
    commands_data,
    commands_planning,
    commands_quantization,
    commands_search,
    commands_serving,
    commands_space,
    commands_speed,
)


@click.group()
def bench() -> None:
    """Measure what a transform is worth: retrieval, answers, similarity, lexical bias, isotropy, bytes; speed; plans.

    Every benchmark but serve and plan keeps raw vectors in a cache, and all but serve go on with --out where they were
    stopped. All but speed, serve and plan take several encoders, poolings and transforms at once.
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
    commands_planning.plan,
    commands_data.model,
    commands_data.download,
):
    bench.add_command(command)
