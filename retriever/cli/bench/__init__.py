"""The group `retriever bench`. This module imports only click."""

import click

from retriever.cli.bench import data, search, space


@click.group()
def bench() -> None:
    """Measure the effect of a transform: retrieval, answers, similarity, lexical bias, isotropy.

    Raw vectors are cached. With --out, an interrupted run continues where it stopped. Several
    encoders, poolings and transforms can be compared at once.
    """


for command in (search.retrieval, search.qa, space.sts, space.lexical, space.isotropy, data.model, data.download):
    bench.add_command(command)
