"""Read the documentation of Python's standard library as documents, a corpus that every machine with Python has.

The demo indexes this corpus, and `plan` uses it as a sample. The modules are imported, except those whose import has
effects (`antigravity` opens a browser) and those that few people use.
"""

import contextlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from retriever.corpus.document import Document, Json

# fmt: off
EXCLUDED = frozenset({
    "antigravity", "this", "test", "idlelib", "lib2to3", "ensurepip", "turtledemo", "turtle", "tkinter",
    "encodings", "distutils", "pydoc_data", "msilib", "nturl2path", "ntpath", "sre_compile", "sre_parse",
    "sre_constants", "opcode", "token", "symtable", "pydoc", "venv", "nt", "winreg", "msvcrt", "readline",
    "rlcompleter", "posix", "posixpath", "genericpath", "curses", "imp", "nis", "audioop", "ossaudiodev", "spwd",
})
# fmt: on
MIN_WORDS = 4
MIN_WORDS_OF_METHODS = 10
MAX_TOPIC_LENGTH = 20_000
"""Maximum number of characters of a topic. Longer topics repeat shorter ones."""
MAX_SIGNATURE_LENGTH = 72
LITERALS = (int, float, str, bytes, tuple, type(None))


def stdlib_documents() -> Iterator[Document]:
    """Yield the docstrings of modules, classes, functions and methods, and the topics of Python's `help`.

    No id and no text is yielded twice. The order depends only on the version of Python.
    """
    names: set[str] = set()
    texts: set[str] = set()
    for document in (*_of_modules(), *_topics()):
        words = len(document.text.split())
        least = MIN_WORDS_OF_METHODS if document.metadata["kind"] == "method" else MIN_WORDS
        if words >= least and document.id not in names and document.text not in texts:
            names.add(document.id)
            texts.add(document.text)
            yield document


def _of_modules() -> Iterator[Document]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, module in _modules([*sorted(sys.stdlib_module_names - EXCLUDED), "os.path"]):
            yield from _module(name, module)


def _modules(names: list[str]) -> Iterator[tuple[str, ModuleType]]:
    """Import modules and the modules inside packages. Leave out private ones and those that this machine lacks.

    A package comes before its modules, so that a function is known by its shortest name, e.g. `asyncio.sleep`.
    """
    for name in names:
        last = name.rpartition(".")[2]
        if last.startswith("_") or last in ("test", "tests"):
            continue
        with contextlib.suppress(ImportError):
            module = import_module(name)
            yield name, module
            if inside := getattr(module, "__path__", None):
                yield from _modules([f"{name}.{found.name}" for found in pkgutil.iter_modules(inside)])


def _module(name: str, module: ModuleType) -> Iterator[Document]:
    yield from _document(name, module, name, "module")
    prefix = "" if name == "builtins" else f"{name}."
    public = getattr(module, "__all__", ())
    for member in sorted(public or dir(module)):
        thing = getattr(module, member, None)
        home = getattr(thing, "__module__", None)  # of a part in C, this is e.g. `_heapq`
        if member.startswith("_") or (member not in public and home not in (name, f"_{name}")):
            continue
        if isinstance(thing, type):
            yield from _document(prefix + member, thing, name, "class")
            for method, descriptor in sorted(vars(thing).items()):
                documented = inspect.isroutine(descriptor) or inspect.isdatadescriptor(descriptor)
                if documented and not method.startswith("_"):
                    yield from _document(f"{prefix}{member}.{method}", descriptor, name, "method")
        elif callable(thing):
            yield from _document(prefix + member, thing, name, "function")


def _document(name: str, thing: Any, module: str, kind: str) -> Iterator[Document]:
    doc = getattr(thing, "__doc__", None)
    if not doc and isinstance(thing, type) and inspect.isfunction(init := vars(thing).get("__init__")):
        doc = init.__doc__
    if isinstance(doc, str):
        title = name + ("" if kind == "module" else _signature(thing))
        yield Document(name, inspect.cleandoc(doc), title, {"module": module, "kind": kind}, "Python's documentation")


def _signature(thing: Any) -> str:
    """Return the signature as a caller sees it, without types and without `self`. Leave out a long one."""
    # Some signatures cannot be read: in Python 3.13, select.epoll.register raises AttributeError.
    with contextlib.suppress(Exception):
        signature = inspect.signature(getattr(thing, "__func__", thing))
        parameters = list(signature.parameters.values())
        if parameters and parameters[0].name in ("self", "cls", "type"):
            parameters = parameters[1:]
        shown = str(inspect.Signature([_plain(parameter) for parameter in parameters])).replace("Ellipsis", "...")
        return shown if len(shown) <= MAX_SIGNATURE_LENGTH else ""
    return ""


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Remove the type, and replace a default that depends on the machine or shows an address in memory."""
    default = parameter.default
    if default is not parameter.empty and (not isinstance(default, LITERALS) or default == sys.executable):
        default = ...
    return parameter.replace(annotation=parameter.empty, default=default)


def _topics() -> Iterator[Document]:
    """Yield the chapters of the language reference, e.g. the one that `help("with")` shows."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    for name, text in sorted(topics.items()):
        if len(text) > MAX_TOPIC_LENGTH:
            continue
        heading, _, rest = text.strip().partition("\n")
        underline, _, body = rest.partition("\n")
        if not underline or set(underline.strip()) - set("*=-~"):
            heading, body = name, text
        metadata: dict[str, Json] = {"module": "", "kind": "topic"}
        yield Document(f"topic:{name}", body.strip("\n"), heading.replace('"', ""), metadata, "Python's documentation")
