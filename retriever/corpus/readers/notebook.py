"""Read Jupyter notebooks: Markdown cells as they are, code cells as code blocks, without outputs."""

import json
from typing import Any

from retriever.corpus.content import Content, Refused, described, without_first_heading


def read_notebook(text: str) -> Content:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"is not a notebook: {error}") from error
    if not isinstance(notebook, dict):
        raise Refused("is not a notebook: it is not a JSON object")
    cells = notebook.get("cells")
    if cells is None and isinstance(sheets := notebook.get("worksheets"), list):  # before version 4
        cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or []]
    if not isinstance(cells, list):
        raise Refused("is not a notebook: it has no cells")
    facts = notebook.get("metadata")
    facts = facts if isinstance(facts, dict) else {}
    kernel = facts.get("language_info")
    language = kernel.get("name") if isinstance(kernel, dict) else None
    language = language if isinstance(language, str) else ""
    parts = [part for cell in cells if isinstance(cell, dict) and (part := _cell(cell, language))]
    title = facts.get("title")
    content = Content("\n\n".join(parts), title if isinstance(title, str) else "", described(code=language), line=0)
    return without_first_heading(content)


def _cell(cell: dict[str, Any], language: str) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str) or not source.strip():
        return ""
    return f"```{language}\n{source.strip()}\n```" if cell.get("cell_type") == "code" else source.strip()
