"""Adds a file to the wheel that switches the telemetry of libraries off. Everything else is in pyproject.toml.

Python reads the .pth files of an environment when it starts. So ONNX Runtime and Haystack tell nobody anything even if
a program imports them before `retriever`, which sets the same variables. A program that sets ORT_DISABLE_TELEMETRY=0 or
HAYSTACK_TELEMETRY_ENABLED=True decides itself.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "flow_retriever_no_telemetry.pth"
VARIABLES = {"ORT_DISABLE_TELEMETRY": "1", "HAYSTACK_TELEMETRY_ENABLED": "False"}
LINE = f"import os; [os.environ.setdefault(*one) for one in {list(VARIABLES.items())}]\n"


class BuildWithStartupFile(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, NAME).write_text(LINE, encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        own = [] if self.editable_mode else [str(Path(self.build_lib, NAME))]
        return [*super().get_outputs(include_bytecode), *own]


setup(cmdclass={"build_py": BuildWithStartupFile})
