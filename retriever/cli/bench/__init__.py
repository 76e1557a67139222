"""The group `retriever bench`. This module imports nothing heavy."""

from collections.abc import MutableMapping

import click

from retriever.cli.config import add_variables


class Bench(click.Group):
    """A group that imports its commands when one of them, or the list of them, is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._load())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load().get(cmd_name)

    def _load(self) -> MutableMapping[str, click.Command]:
        from retriever.cli.bench import data, search, space

        similarity = (space.sts, space.lexical, space.isotropy)
        for command in (search.retrieval, search.qa, *similarity, data.model, data.download):
            self.add_command(command)
        add_variables(self, "RETRIEVER_BENCH")
        return self.commands


@click.group(cls=Bench)
def bench() -> None:
    """Measure the effect of a transform: retrieval, answers, similarity, lexical bias, isotropy.

    Raw vectors are cached. With --out, an interrupted run continues where it stopped. Several
    encoders, poolings and transforms can be compared at once.
    """
