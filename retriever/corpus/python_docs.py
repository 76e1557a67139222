"""Read the documentation of Python's standard library as documents, a corpus that every machine with Python has.

The demo indexes this corpus, and `plan` uses it as a sample. Modules written in Python are parsed instead of imported,
because importing some of them has side effects (`antigravity` opens a browser). Some harmless modules are imported to
read the documentation of their parts written in C.
"""

import ast
import contextlib
import importlib
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from retriever.corpus.document import Document

# fmt: off
EXCLUDED = frozenset({
    "antigravity", "this", "test", "idlelib", "lib2to3", "ensurepip", "turtledemo", "turtle", "tkinter",
    "encodings", "distutils", "pydoc_data", "msilib", "nturl2path", "ntpath", "sre_compile", "sre_parse",
    "sre_constants", "opcode", "token", "symtable", "pydoc", "venv", "__future__", "nt", "winreg", "msvcrt",
})
IMPORTED = (
    "builtins", "array", "atexit", "bisect", "binascii", "bz2", "cmath", "collections", "contextvars", "csv",
    "datetime", "decimal", "errno", "faulthandler", "functools", "gc", "hashlib", "heapq", "io", "itertools",
    "json", "lzma", "marshal", "math", "mmap", "operator", "os", "pickle", "queue", "random", "re", "select",
    "signal", "socket", "sqlite3", "statistics", "string", "struct", "sys", "threading", "time",
    "tracemalloc", "types", "unicodedata", "weakref", "zlib",
)
# fmt: on
KNOWN_AS = {"posixpath": "os.path", "genericpath": "os.path"}
MIN_WORDS = 4
MIN_WORDS_OF_METHODS = 10
MAX_TOPIC_LENGTH = 20_000
"""Maximum number of characters of a topic. Longer topics repeat shorter ones."""
MAX_SIGNATURE_LENGTH = 72


def stdlib_documents() -> Iterator[Document]:
    """Yield the docstrings of modules, classes, functions and methods, and the topics of Python's `help`.

    No id and no text is yielded twice. The order depends only on the version of Python.
    """
    names: set[str] = set()
    texts: set[str] = set()
    for document in (*_parsed_modules(), *_imported_modules(), *_topics()):
        words = len(document.text.split())
        least = MIN_WORDS_OF_METHODS if document.metadata["kind"] == "method" else MIN_WORDS
        if words >= least and document.id not in names and document.text not in texts:
            names.add(document.id)
            texts.add(document.text)
            yield document


def _document(name: str, signature: str, doc: str, module: str, kind: str) -> Document:
    title = name + signature if len(signature) <= MAX_SIGNATURE_LENGTH else name
    return Document(name, inspect.cleandoc(doc), title, {"module": module, "kind": kind}, "Python's documentation")


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _parsed_modules() -> Iterator[Document]:
    """Yield the documentation of the modules that are written in Python, from their syntax trees."""
    root = Path(sysconfig.get_path("stdlib"))
    for top in sorted(filter(_is_public, sys.stdlib_module_names - EXCLUDED)):
        if (root / f"{top}.py").is_file():
            yield from _module(KNOWN_AS.get(top, top), _tree(root / f"{top}.py"))
        elif (root / top / "__init__.py").is_file():
            yield from _package(root / top, top)


def _package(folder: Path, name: str) -> Iterator[Document]:
    init = _tree(folder / "__init__.py")
    yield from _module(name, init)
    exported = _exported(init)
    for path in sorted(folder.iterdir()):
        if path.name in ("test", "tests", "__main__.py") or path.name.startswith("__"):
            continue
        if path.suffix == ".py":
            tree = _tree(path)
            given = exported.get(path.stem, set()) | (_all(init) or set())
            short = given | (_all(tree) or set()) if "*" in given else given
            yield from _module(f"{name}.{path.stem}", tree, short, name)
        elif (path / "__init__.py").is_file() and _is_public(path.name):
            yield from _package(path, f"{name}.{path.name}")


def _tree(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(path.read_bytes())


def _exported(init: ast.Module) -> dict[str, set[str]]:
    """Return the names that a package imports from each of its modules.

    The package exports them under its own name: `from .tasks import *` in asyncio makes `asyncio.sleep`.
    """
    exported: dict[str, set[str]] = {}
    for node in init.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            exported.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return exported


def _all(tree: ast.Module) -> set[str] | None:
    """Return the names that `__all__` has as literals, or None if there are none."""
    names: set[str] | None = None
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AugAssign(target=ast.Name(id="__all__"), value=value)
            ):
                names = names or set()
                names.update(leaf.value for leaf in ast.walk(value) if _is_string(leaf))  # type: ignore[attr-defined]
    return names or None


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions(node.body)
            yield from _definitions(node.orelse)


def _module(
    name: str, tree: ast.Module, exported: set[str] | frozenset[str] = frozenset(), package: str = ""
) -> Iterator[Document]:
    """Yield the documents of a module. Names in `exported` are prefixed with `package` instead of the module."""
    is_public = _is_public(name.rpartition(".")[2])
    if is_public and (doc := ast.get_docstring(tree)):
        yield _document(name, "", doc, name, "module")
    public = _all(tree)
    for node in _definitions(tree.body):
        if not _is_public(node.name) or (public is not None and node.name not in public | exported):
            continue
        if node.name not in exported and not is_public:
            continue
        module = package if node.name in exported else name
        qualified = f"{module}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _class(qualified, node, module)
        elif doc := ast.get_docstring(node):
            yield _document(qualified, _arguments(node, bound=False), doc, module, "function")


def _class(qualified: str, node: ast.ClassDef, module: str) -> Iterator[Document]:
    methods = [member for member in _definitions(node.body) if not isinstance(member, ast.ClassDef)]
    init = next((method for method in methods if method.name == "__init__"), None)
    doc = ast.get_docstring(node) or (ast.get_docstring(init) if init else None)
    if doc:
        yield _document(qualified, _arguments(init, bound=True) if init else "", doc, module, "class")
    for method in methods:
        if _is_public(method.name) and (doc := ast.get_docstring(method)):
            decorators = {item.id for item in method.decorator_list if isinstance(item, ast.Name)}
            signature = _arguments(method, bound="staticmethod" not in decorators)
            signature = "" if "property" in decorators else signature
            yield _document(f"{qualified}.{method.name}", signature, doc, module, "method")


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool) -> str:
    """Return the signature as a caller sees it, without types and without `self`."""
    arguments = node.args
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if bound:
        (arguments.posonlyargs or arguments.args)[:1] = []
    try:
        return f"({ast.unparse(arguments)})"
    except (ValueError, RecursionError):
        return ""


def _imported_modules() -> Iterator[Document]:
    """Yield the documentation of the parts that are written in C, from their docstrings at run time."""
    for name in IMPORTED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            yield from _runtime_module(name, module)


def _runtime_module(name: str, module: ModuleType) -> Iterator[Document]:
    if module.__doc__:
        yield _document(name, "", module.__doc__, name, "module")
    prefix = "" if name == "builtins" else f"{name}."
    for member in sorted(filter(_is_public, getattr(module, "__all__", None) or dir(module))):
        thing = getattr(module, member, None)
        if not _belongs(thing, name):
            continue
        doc = thing.__doc__
        if isinstance(thing, type):
            if isinstance(doc, str):
                yield _document(prefix + member, _signature(thing), doc, name, "class")
            for method, descriptor in sorted(vars(thing).items()):
                doc = getattr(descriptor, "__doc__", None)
                if _is_public(method) and isinstance(doc, str) and _in_c(descriptor):
                    yield _document(f"{prefix}{member}.{method}", _signature(descriptor), doc, name, "method")
        elif isinstance(doc, str):
            yield _document(prefix + member, _signature(thing), doc, name, "function")


def _belongs(thing: Any, module: str) -> bool:
    """Return whether a function or class is defined in the module or in its C module (e.g. `_heapq`, `posix`)."""
    if not (isinstance(thing, type) or inspect.isbuiltin(thing)):
        return False
    home = getattr(thing, "__module__", None) or ""
    behind = {"os": ("posix",), "io": ("_io", "builtins"), "socket": ("_socket",)}.get(module, ())
    return home in (module, f"_{module}", *behind)


def _in_c(descriptor: Any) -> bool:
    return (
        inspect.ismethoddescriptor(descriptor)
        or inspect.isgetsetdescriptor(descriptor)
        or isinstance(descriptor, classmethod | staticmethod)
    )


def _signature(thing: Any) -> str:
    # Some signatures cannot be read: in Python 3.13, select.epoll.register raises AttributeError. Then leave it out.
    with contextlib.suppress(Exception):
        signature = inspect.signature(thing)
        parameters = list(signature.parameters.values())
        if parameters and parameters[0].name in ("self", "type"):
            parameters = parameters[1:]
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        return str(inspect.Signature(plain))
    return ""


def _topics() -> Iterator[Document]:
    """Yield the chapters of the language reference, e.g. the one that `help("with")` shows."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    for name, text in sorted(topics.items()):
        if len(text) > MAX_TOPIC_LENGTH:
            continue
        heading, _, rest = text.strip().partition("\n")
        underline, _, body = rest.partition("\n")
        if not underline or set(underline.strip()) - set("*=-~"):
            heading, body = name, text
        metadata = {"module": "", "kind": "topic"}
        yield Document(f"topic:{name}", body.strip("\n"), heading.replace('"', ""), metadata, "Python's documentation")
