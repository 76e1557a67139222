"""Fuzz the parsers that take foreign bytes, guided by the branches that an input reaches (atheris, libFuzzer).

    python tests/fuzz/run.py --seconds 600 --out results/fuzz               every target, one after the other
    python tests/fuzz/run.py --seconds 600 --out results/fuzz filters http

The inputs that reached something new are kept in OUT/corpus/TARGET and are where the next run begins. An input that
breaks a promise is written to OUT/findings/TARGET. Mend the parser, and move the input to tests/fuzz/cases/TARGET.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(HERE)]

LONGEST_INPUT = 60
"""Seconds, also on a busy machine. An input that takes longer is a finding."""
MEMORY = 2048
"""MiB."""
STATISTICS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"))
    parser.add_argument("--here", action="store_true", help="fuzz the one target in this process")
    options = parser.parse_args()
    if options.here:
        _fuzz(options.targets[0], options.seconds, options.out)
        return
    from targets import TARGETS

    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    results = [run(name, options.seconds, options.out) for name in options.targets or TARGETS]
    sys.exit(1 if any(result["findings"] for result in results) else 0)


def run(name: str, seconds: int, out: Path) -> dict[str, object]:
    """Fuzz one target in a process of its own, and add what was done to OUT/fuzz.json."""
    findings = out / "findings" / name
    findings.mkdir(parents=True, exist_ok=True)
    log = out / f"{name}.log"
    command = [sys.executable, __file__, name, "--here", "--seconds", str(seconds), "--out", str(out)]
    with log.open("wb") as written:
        status = subprocess.run(command, stdout=written, stderr=subprocess.STDOUT, check=False).returncode
    said = log.read_text(errors="replace")
    reached = STATISTICS.findall(said)
    done = re.findall(r"Done (\d+) runs in (\d+) second", said)
    found = sorted(path.name for path in findings.iterdir())
    if status and not found:
        found = [f"it ended with {status}: see {log}"]
    tried, branches, _, kept = (int(number) for number in reached[-1]) if reached else (0, 0, 0, 0)
    result: dict[str, object] = {
        "inputs": int(done[-1][0]) if done else tried,
        "seconds": int(done[-1][1]) if done else seconds,
        "branches": branches,
        "kept": kept,
        "findings": found,
    }
    print(name, json.dumps(result), flush=True)
    path = out / "fuzz.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(results | {name: result}, indent=1) + "\n", encoding="utf-8")
    return result


def _fuzz(name: str, seconds: int, out: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["retriever", "indexes"]):
        from targets import TARGETS

        target = TARGETS[name]
        corpus = out / "corpus" / name
        corpus.mkdir(parents=True, exist_ok=True)
        for seed in target.seeds():
            (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        folder = tempfile.TemporaryDirectory(prefix="fuzz", dir=memory)
        os.environ["XDG_CACHE_HOME"] = str(Path(folder.name) / "cache")
        parse = target.make(Path(folder.name))
        for seed in target.seeds():
            parse(seed)  # imports what is imported late, instrumented
    words = out / f"{name}.dict"
    lines = ('"' + "".join(f"\\x{byte:02X}" for byte in word.encode()) + '"\n' for word in target.words)
    words.write_text("".join(lines), encoding="ascii")
    atheris.Setup(
        [
            name,
            f"-max_total_time={seconds}",
            f"-timeout={LONGEST_INPUT}",
            f"-report_slow_units={LONGEST_INPUT}",
            f"-rss_limit_mb={MEMORY}",
            f"-max_len={target.longest}",
            f"-dict={words}",
            f"-artifact_prefix={out / 'findings' / name}/",
            "-print_final_stats=1",
            str(corpus),
            *([str(HERE / "cases" / name)] if (HERE / "cases" / name).is_dir() else []),
        ],
        parse,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
