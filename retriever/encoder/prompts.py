"""The prompts of an encoder: the texts that it expects before a query and before a passage.

A sentence-transformers folder names them in config_sentence_transformers.json. sentence-transformers itself uses them
in the same way in `encode_query` and `encode_document`.
"""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from indexes.checksums import is_unicode
from retriever.errors import EncoderUnavailable, Misuse

CONFIG = "config_sentence_transformers.json"
QUERY_NAMES = ("query",)
DOCUMENT_NAMES = ("document", "passage", "corpus")
LONGEST_PROMPT = 10_000


class HasConfig(Protocol):
    """The part of a model's files that is needed to find its prompts."""

    folder: Path

    def json_object(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file of the folder. It is empty if the file does not exist."""


class Prompts(NamedTuple):
    """The text before a query and the text before a passage. An empty text means no prompt."""

    query: str = ""
    document: str = ""

    def changed(self, query: str | None, document: str | None) -> "Prompts":
        """Return the prompts with those that are given. None keeps a prompt."""
        for name, given in (("query_prompt", query), ("document_prompt", document)):
            if given is not None and not is_unicode(given):
                raise Misuse(f"`{name}` is not valid UTF-8.")
            if given is not None and len(given) > LONGEST_PROMPT:
                raise Misuse(f"`{name}` has {len(given):,} characters; the limit is {LONGEST_PROMPT:,}.")
        return Prompts(self.query if query is None else query, self.document if document is None else document)


def own_prompts(files: HasConfig) -> Prompts:
    """Return the prompts that a model comes with. A prompt that is not named is the default prompt, if there is one."""
    config, path = files.json_object(CONFIG), files.folder / CONFIG
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(_is_prompt(text) for text in prompts.values()):
        raise EncoderUnavailable(
            f"{path}: 'prompts' must be an object of texts with at most {LONGEST_PROMPT:,} characters."
        )
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise EncoderUnavailable(
            f"{path}: 'default_prompt_name' is {str(default)[:40]!r}, but no prompt has that name."
        )

    def named(names: tuple[str, ...]) -> str:
        return str(next((prompts[name] for name in names if name in prompts), prompts.get(default)) or "")

    return Prompts(named(QUERY_NAMES), named(DOCUMENT_NAMES))


def _is_prompt(text: Any) -> bool:
    return text is None or (isinstance(text, str) and len(text) <= LONGEST_PROMPT and is_unicode(text))


def missing_prompts(name: str, prompts: Prompts) -> str:
    """Return a hint if the name of a model says that it needs prompts and it has none."""
    if any(prompts) or "e5" not in Path(name).name.lower().replace("_", "-").split("-"):
        return ""
    return "E5 models are trained with prompts; give --query-prompt 'query: ' --document-prompt 'passage: '"
