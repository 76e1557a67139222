"""Generate docs/cli.md: every command with its help and options, taken from the code.

python docs/generate_cli.py > docs/cli.md
python docs/generate_cli.py --check     fails if docs/cli.md is stale
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 88  # fixed, so that the output does not depend on the terminal
HEAD = """\
# Commands

This page is generated from the code by `docs/generate_cli.py`.

Every command also has `--help`. Exit codes and environment variables are in
[Getting started](getting-started.md#exit-codes).
"""


def sections(command: click.Command, context: click.Context, level: int = 1) -> Iterator[str]:
    """Yield one Markdown section for the command, and one for each of its subcommands."""
    heading = "#" * min(level + 1, 6)
    yield f"{heading} {context.command_path}\n\n```text\n{_trimmed(command.get_help(context))}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from sections(child, _context(child, name, context), level + 1)


def generated() -> str:
    """Return the whole page."""
    from retriever.cli.main import main

    return "\n".join([HEAD, *sections(main, _context(main, "retriever"))])


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH, "color": False}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    page = generated()
    if not arguments:
        sys.stdout.write(page)
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page:
        return 0
    print(f"{TARGET} is stale; run: python docs/generate_cli.py > docs/cli.md", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    raise SystemExit(main(sys.argv[1:]))
