"""`retriever bench`: its commands by subject, each in a file of its own. Imports click alone."""

import click

from retriever.cli import bench_data, bench_search, bench_space


@click.group()
def bench() -> None:
    """Measure what a transform is worth: retrieval, answers, similarity, lexical bias, isotropy.

    Raw vectors are kept in a cache. With --out, a run that was interrupted continues where it stopped. Several
    encoders, poolings and transforms can be compared at once.
    """


for command in (
    bench_search.retrieval,
    bench_search.qa,
    bench_space.sts,
    bench_space.lexical,
    bench_space.isotropy,
    bench_data.model,
    bench_data.download,
):
    bench.add_command(command)
