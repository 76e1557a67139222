"""The configuration file: values of options, by command. A flag overrides a variable, and a variable overrides the
file.

The file is TOML. A table has the name of a command, and its keys are the names of options without dashes in front:

    [serve]
    port = 9000
    log-level = "info"
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from retriever.cli.display.errors import Failure
from retriever.cli.options import echo_json, json_option, parse_memory
from retriever.errors import Misuse

FILE = Path("retriever.toml")
"""The file in the current folder that is read if the user names none."""
SECRET = ("token",)
"""Options whose value is never printed."""


class Wrong(Exception):
    """What is wrong with a key of the file, and in which table."""

    def __init__(self, table: tuple[str, ...], key: str, reason: str) -> None:
        super().__init__(reason)
        self.table, self.key = table, key


def key_of(option: click.Option) -> str:
    """Return the name of an option in the file: its long flag without the dashes."""
    return max(option.opts, key=len).lstrip("-")


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {key_of(one): one for one in command.params if isinstance(one, click.Option)}


def add_variables(command: click.Command, name: str = "RETRIEVER") -> None:
    """Give every option of every command an environment variable, e.g. RETRIEVER_SERVE_PORT for `serve --port`."""
    commands = command.commands if isinstance(command, click.Group) else {}
    for child_name, child in commands.items():
        prefix = f"{name}_{child_name.upper().replace('-', '_')}"
        for key, option in options_of(child).items():
            known = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
            own = f"{prefix}_{key.upper().replace('-', '_')}"
            option.envvar = list(dict.fromkeys([own, *known]))
        add_variables(child, prefix)


def default_map(path: Path | None, root: click.Command) -> dict[str, Any]:
    """Read the configuration file and return its values by the names of parameters, as click wants them.

    Raise an error that names the file, the line and the key if a key is unknown or its value is wrong.
    """
    import tomllib

    path = path or (FILE if FILE.is_file() else None)
    if path is None:
        return {}
    try:
        text = path.read_bytes().decode()
        return _checked(tomllib.loads(text), root, ())
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{path} is not TOML: {error}.", 2) from error
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is not UTF-8: {error}.", 2) from error
    except OSError as error:
        raise Failure(f"the configuration file {path} cannot be read: {error.strerror}.", 2) from error
    except Wrong as error:
        line = line_of(text, error.table, error.key)
        place = f"{path}{f', line {line}' if line else ''}"
        where = f"[{'.'.join(error.table)}] {error.key}" if error.table else error.key
        raise Failure(f"{place}: {where}: {error}", 2) from error


def _children(command: click.Command) -> Mapping[str, click.Command]:
    """Return the commands of a group. The group `bench` imports them only now."""
    if isinstance(command, click.Group):
        command.list_commands(click.Context(command))
        return command.commands
    return {}


def _checked(values: Mapping[str, Any], command: click.Command, table: tuple[str, ...]) -> dict[str, Any]:
    children, options = _children(command), options_of(command) if table else {}
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in children:
            if not isinstance(value, dict):
                raise Wrong(table, key, f"is a command, so it must be a table: [{'.'.join((*table, key))}].")
            found[key] = _checked(value, children[key], (*table, key))
        elif key in options:
            found[str(options[key].name)] = _value(value, options[key], command, table, key)
        else:
            from difflib import get_close_matches

            known = [*children, *options]
            near = get_close_matches(key.replace("_", "-"), known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}."
            what = f"option of `retriever {' '.join(table)}`" if table else "command"
            raise Wrong(table, key, f"there is no such {what}; {hint}")
    return found


def _value(value: Any, option: click.Option, command: click.Command, table: tuple[str, ...], key: str) -> Any:
    """Check the type of a value, and then what the option itself accepts."""
    if option.multiple:
        if not isinstance(value, list):
            raise Wrong(table, key, "must be a list, because the option may be repeated.")
        return [_single(one, option, command, table, key) for one in value]
    return _single(value, option, command, table, key)


def _single(value: Any, option: click.Option, command: click.Command, table: tuple[str, ...], key: str) -> Any:
    kinds: tuple[type, ...] = (str,)
    if option.is_flag:
        kinds = (bool,)
    elif isinstance(option.type, click.types.FloatParamType):
        kinds = (int, float)
    elif isinstance(option.type, click.types.IntParamType):
        kinds = (int,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = {str: "a string in quotes", bool: "true or false", int: "an integer", float: "a number"}
        raise Wrong(table, key, f"must be {names[kinds[-1]]}, not {value!r}.")
    try:
        context = click.Context(command)
        converted = option.type.convert(value, option, context)
        if option.callback is parse_memory:  # the other callbacks look for collections
            option.callback(context, option, converted)
    except (click.BadParameter, Misuse) as error:
        raise Wrong(table, key, error.message if isinstance(error, click.BadParameter) else str(error)) from error
    return value


def line_of(text: str, table: tuple[str, ...], key: str) -> int | None:
    """Return the line of a key, or None if the key is written in an unusual way."""
    current: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            if current == (*table, key):
                return number
        elif (found := re.match(r"\s*[\"']?([\w-]+)[\"']?\s*=", line)) and (current, found[1]) == (table, key):
            return number
    return None


# ---- the command -------------------------------------------------------------------------------------------


@click.command()
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@json_option
@click.pass_context
def config(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Show which options are set by the configuration file or by variables, and where.

    With COMMAND, show all options of this command, with their defaults. The file is --config FILE, RETRIEVER_CONFIG, or
    retriever.toml in the current folder.
    """
    from retriever.terminal import one_line

    root = ctx.find_root()
    given: Path | None = root.params["config_file"]
    path = given or (FILE if FILE.is_file() else None)
    text = path.read_text(encoding="utf-8") if path else ""
    rows = list(_rows(root.command, root, (), str(path), text))
    if names:
        rows = [row for row in rows if row["command"] == " ".join(names)]
        if not rows:
            raise click.UsageError(f"there is no command {' '.join(names)!r} with options.")
    else:
        rows = [row for row in rows if row["from"] != "default"]
    if as_json:
        echo_json({"file": str(path) if path else None, "options": rows})
        return
    missing = f"none: {FILE} does not exist here, and neither --config nor RETRIEVER_CONFIG names a file"
    click.echo(f"Configuration file: {path or missing}")
    if not rows:
        click.echo("No option is set. `retriever config COMMAND` shows the defaults of a command.")
    widths = [max((len(str(row[key])) for row in rows), default=0) for key in ("command", "option", "value")]
    for row in rows:
        value = "-" if row["value"] is None else one_line(str(row["value"]))
        cells = zip((row["command"], row["option"], value), widths, strict=True)
        click.echo("  ".join([*(f"{cell:<{width}}" for cell, width in cells), row["from"]]))


def _rows(
    command: click.Command, ctx: click.Context, names: tuple[str, ...], path: str, text: str
) -> Iterator[dict[str, Any]]:
    """Yield every option of the commands in a group, its value, and where the value comes from."""
    for name, child in _children(command).items():
        inner = click.Context(child, parent=ctx, info_name=name)
        for key, option in options_of(child).items():
            value, source = option.consume_value(inner, {})
            if source == ParameterSource.ENVIRONMENT:
                origin = next(one for one in option.envvar or () if os.environ.get(one))
                _refuse_wrong(value, option, inner, origin)
            elif source == ParameterSource.DEFAULT_MAP:
                line = line_of(text, (*names, name), key)
                origin = f"{path}, line {line}" if line else path
            else:
                origin, value = "default", option.get_default(inner)
            if not isinstance(value, str | int | float | list | tuple):  # click's mark for an option without default
                value = None
            value = "(not shown)" if key in SECRET and value is not None else value
            yield {"command": " ".join((*names, name)), "option": key, "value": value, "from": origin}
        yield from _rows(child, inner, (*names, name), path, text)


def _refuse_wrong(value: Any, option: click.Option, ctx: click.Context, variable: str) -> None:
    """Raise an error that names the variable if the option does not take its value."""
    try:
        option.type_cast_value(ctx, value)
        if option.callback is parse_memory:
            parse_memory(ctx, option, value)
    except (click.BadParameter, Misuse) as error:
        raise Failure(f"{variable}: {error.message if isinstance(error, click.BadParameter) else error}", 2) from error
