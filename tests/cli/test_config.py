"""The configuration file, the variables of options, and `retriever config`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from samples import Run

from retriever.cli.config import default_map, options_of
from retriever.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("RETRIEVER_INDEX", "RETRIEVER_TOKEN", "RETRIEVER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(text: str, name: str = "retriever.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def shown(run: Run, *command: str) -> dict[tuple[str, str], tuple[object, str]]:
    """What `retriever config` prints: value and origin by command and option."""
    rows = json.loads(run("config", *command, "--json").output)["options"]
    return {(row["command"], row["option"]): (row["value"], row["from"]) for row in rows}


def test_a_flag_goes_over_a_variable_over_the_file(run: Run, pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("index", pets, "-i", "pets", "--transform", "none")
    write('[search]\nk = 1\nindex = "pets"\nmode = "lexical"\n')

    def hits(*flags: object) -> int:
        return len(run("search", "dog cat bird", "--mode", "dense", "--json", *flags).output.splitlines())

    assert hits() == 1
    monkeypatch.setenv("RETRIEVER_SEARCH_K", "2")
    assert hits() == 2
    assert hits("-k", 3) == 3
    assert shown(run)[("search", "k")] == ("2", "RETRIEVER_SEARCH_K")
    assert shown(run)[("search", "mode")] == ("lexical", "retriever.toml, line 4")


def test_config_says_where_each_value_comes_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[serve]\nport = 9000\n\n"log-level" = "info"\ncors = ["https://a.example"]\n[bench.model]\nhub = "bert"\n')
    monkeypatch.setenv("RETRIEVER_TOKEN", "very secret")
    monkeypatch.setenv("RETRIEVER_SERVE_HOST", "0.0.0.0")
    found = shown(run)
    assert found == {
        ("serve", "port"): (9000, "retriever.toml, line 2"),
        ("serve", "log-level"): ("info", "retriever.toml, line 4"),
        ("serve", "cors"): (["https://a.example"], "retriever.toml, line 5"),
        ("serve", "token"): ("(not shown)", "RETRIEVER_TOKEN"),
        ("serve", "host"): ("0.0.0.0", "RETRIEVER_SERVE_HOST"),
        ("bench model", "hub"): ("bert", "retriever.toml, line 7"),
    }
    everything = shown(run, "serve")
    assert {option for _, option in everything} == set(options_of(main.commands["serve"]))
    assert everything[("serve", "writable")] == (False, "default")
    output = run("config").output
    assert "very secret" not in output and "9000" in output and "retriever.toml, line 2" in output
    assert "no command" in run("config", "nothing", code=2).output


def test_without_a_file_nothing_is_set(run: Run) -> None:
    assert shown(run) == {}
    assert "No option is set" in run("config").output
    assert default_map(None, main) == {}


def test_another_file_can_be_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[serve]\nport = 1\n")
    other = write("[serve]\nport = 2\n", "other.toml")
    assert json.loads(run("--config", other, "config", "--json").output)["options"][0]["value"] == 2
    monkeypatch.setenv("RETRIEVER_CONFIG", str(other))
    assert shown(run)[("serve", "port")] == (2, "other.toml, line 2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nhost = 'x'\nprot = 9000\n", ["line 3: [serve] prot", "did you mean 'port'"]),
        ("[serve]\nlog_level = 'info'\n", ["line 2", "did you mean 'log-level'"]),
        ("[sreve]\nport = 9000\n", ["line 1: sreve", "did you mean 'serve'"]),
        ("port = 9000\n", ["line 1: port", "no such command"]),
        ("[bench.retrival]\nout = 'x'\n", ["[bench] retrival", "did you mean 'retrieval'"]),
        ("serve = 3\n", ["line 1: serve", "must be a table: [serve]"]),
        ("[serve]\nport = '9000'\n", ["line 2: [serve] port", "must be an integer, not '9000'"]),
        ("[serve]\nport = true\n", ["must be an integer, not True"]),
        ("[serve]\nport = 80.5\n", ["must be an integer, not 80.5"]),
        ("[serve]\nport = 99999\n", ["line 2: [serve] port", "range"]),
        ("[serve]\nwritable = 'yes'\n", ["must be true or false, not 'yes'"]),
        ("[serve]\ncors = 'https://a.example'\n", ["line 2: [serve] cors", "must be a list"]),
        ("[serve]\ncors = [1]\n", ["must be a string in quotes, not 1"]),
        ("[serve]\nlog-level = 'loud'\n", ["line 2: [serve] log-level", "'loud' is not one of"]),
        ("[index]\nrecall = 'high'\n", ["must be a number, not 'high'"]),
        ("[index]\nmemory = 'lots'\n", ["line 2: [index] memory", "'lots' is not a number of bytes"]),
        ("[serve]\nport = \n", ["retriever.toml is not TOML", "line 2"]),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_done(run: Run, text: str, said: list[str]) -> None:
    write(text)
    output = " ".join(run("list", code=2).output.split())
    assert "retriever.toml" in output
    for part in said:
        assert part in output


def test_a_file_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    assert "nope.toml cannot be read" in run("--config", "nope.toml", "list", code=2).output
    (tmp_path / "retriever.toml").write_bytes(b"[serve]\nhost = '\xff'\n")
    assert "not UTF-8" in run("list", code=2).output


def test_a_wrong_variable_is_named_by_its_flag(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRIEVER_SEARCH_K", "many")
    assert "'-k'" in run("search", "x", "-i", "nothing", code=2).output
    assert "RETRIEVER_SEARCH_K: 'many' is not a valid integer" in run("config", code=2).output
    monkeypatch.delenv("RETRIEVER_SEARCH_K")
    monkeypatch.setenv("RETRIEVER_INDEX_MEMORY", "lots")
    assert "RETRIEVER_INDEX_MEMORY: " in run("config", code=2).output


@pytest.mark.heavy
def test_help_reads_no_file_and_imports_nothing_heavy(tmp_path: Path) -> None:
    write("this is not TOML")
    code = (
        "import sys; from retriever.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'tomllib', 'difflib', 'numpy', 'torch'} & set(sys.modules), 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_installed_command_completes_in_each_shell(shell: str) -> None:
    command = Path(sys.executable).with_name("retriever")
    if not command.exists():
        pytest.skip("the command is not installed beside this Python")

    def asked(instruction: str, words: str) -> str:
        environment = {"_RETRIEVER_COMPLETE": instruction, "COMP_WORDS": words, "COMP_CWORD": words.rpartition(" ")[2]}
        environment["COMP_CWORD"] = str(words.count(" ")) if shell != "fish" else words.rpartition(" ")[2]
        done = subprocess.run([command], capture_output=True, text=True, env=environment)
        return done.stdout

    assert "_RETRIEVER_COMPLETE" in asked(f"{shell}_source", "")
    found = asked(f"{shell}_complete", "retriever se")
    assert "search" in found and "serve" in found and "index" not in found
    assert "--log-level" in asked(f"{shell}_complete", "retriever serve --log-l")
    assert "warning" in asked(f"{shell}_complete", "retriever serve --log-level w")
