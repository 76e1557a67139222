"""`retriever bench`: its commands by subject, each in a file of its own. Imports click alone."""

import click

from retriever.cli.bench import data, search, space


@click.group()
def bench() -> None:
    """Measure what a transform is worth: retrieval, answers, similarity, lexical bias, isotropy.

    Raw vectors are kept in a cache. With --out, a run that was interrupted continues where it stopped. Several
    encoders, poolings and transforms can be compared at once.
    """


for command in (search.retrieval, search.qa, space.sts, space.lexical, space.isotropy, data.model, data.download):
    bench.add_command(command)
