"""Render hits and collections as HTML for notebooks. The HTML is self-contained and fits light and dark pages.

Control characters are removed from all text of documents, and the text is escaped. Some viewers drop the style sheet.
The hits are then shown as an ordinary list.
"""

import json
import sqlite3
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from indexes.places import in_milvus
from indexes.protocol import AnyCollection
from retriever.errors import RetrieverError, first_line
from retriever.terminal import cut, excerpt, one_line

PASSAGE_SHOWN = 700
TITLE_SHOWN = 160
VALUE_SHOWN = 60
FIELDS_SHOWN = 8

STYLE = """<style>
.retriever-hits, .retriever-collection { font-size: 14px; line-height: 1.5; max-width: 60em; color: inherit; }
.retriever-hits ol { list-style: none; margin: 0; padding: 0; }
.retriever-hits li { display: grid; grid-template-columns: 2em 5.5em 1fr; column-gap: 0.8em; margin: 0;
  padding: 0.6em 0; border-top: 1px solid rgba(128, 128, 128, 0.3); }
.retriever-hits li:first-child { border-top: 0; }
.retriever-hits .rank { text-align: right; opacity: 0.7; }
.retriever-hits .bar { display: block; height: 4px; margin-top: 3px; border-radius: 2px; overflow: hidden;
  background: rgba(128, 128, 128, 0.25); }
.retriever-hits .bar span { display: block; height: 100%; background: #3b82f6; }
.retriever-hits .relevance, .retriever-hits .rank { font-variant-numeric: tabular-nums; }
.retriever-hits .title { font-weight: 600; overflow-wrap: anywhere; }
.retriever-hits .id { opacity: 0.7; margin-left: 0.6em; overflow-wrap: anywhere; }
.retriever-hits .passage { margin: 0.15em 0 0; overflow-wrap: anywhere; }
.retriever-hits mark { color: inherit; background: rgba(250, 190, 20, 0.35); border-radius: 2px; }
.retriever-hits .field { display: inline-block; margin: 0.35em 0.4em 0 0; padding: 0 0.5em; border-radius: 0.7em;
  font-size: 12px; border: 1px solid rgba(128, 128, 128, 0.4); overflow-wrap: anywhere; }
.retriever-collection dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 1em; margin: 0.3em 0 0; }
.retriever-collection dt { margin: 0; font-weight: 400; opacity: 0.7; }
.retriever-collection dd { margin: 0; overflow-wrap: anywhere; }
</style>"""


def hits_html(hits: Sequence[dict[str, Any]]) -> str:
    """Render hits, given as JSON, as a list: relevance as a bar, title, id, passage with highlight, and metadata."""
    if not hits:
        return '<div class="retriever-hits">Nothing found.</div>'
    items = "\n".join(map(_item, hits))
    return f'{STYLE}\n<div class="retriever-hits"><ol>\n{items}\n</ol></div>'


def _item(hit: dict[str, Any]) -> str:
    title, id_ = cut(one_line(hit["title"]), TITLE_SHOWN), cut(one_line(hit["id"]), TITLE_SHOWN)
    named = f'<bdi class="title">{escape(title or id_)}</bdi>'
    if title and title != id_:
        named += f' <bdi class="id">{escape(id_)}</bdi>'
    shown = excerpt(hit["passage"], hit["highlight"], PASSAGE_SHOWN)
    marked = f"<mark>{escape(shown.marked)}</mark>" if shown.marked else ""
    return (
        f'<li><span class="rank">{hit["rank"]}</span> <span class="relevance">{hit["relevance"]:.0f} '
        f'<span class="bar"><span style="width: {hit["relevance"]:.0f}%"></span></span></span> <div>{named}'
        f'<p class="passage" dir="auto">{escape(shown.before)}{marked}{escape(shown.after)}</p>'
        f"{_fields(hit['metadata'])}</div></li>"
    )


def _fields(metadata: dict[str, Any]) -> str:
    shown = [
        f'<bdi class="field">{escape(cut(one_line(name), VALUE_SHOWN))}: {escape(_value(value))}</bdi>'
        for name, value in list(metadata.items())[:FIELDS_SHOWN]
    ]
    if len(metadata) > FIELDS_SHOWN:
        shown.append(f'<span class="field">{len(metadata) - FIELDS_SHOWN:,} more</span>')
    return f"<div>{' '.join(shown)}</div>" if shown else ""


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(one_line(text), VALUE_SHOWN)


def collection_html(collection: AnyCollection) -> str:
    """Render a short description of a collection."""
    place = collection.name
    try:
        facts = _facts(collection)
    except (RetrieverError, sqlite3.Error) as error:  # closed or damaged
        facts = {"cannot be read": first_line(error)}
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(one_line(fact))}</dd>" for name, fact in facts.items())
    name = escape(one_line(place if in_milvus(place) else Path(place).resolve().name))
    return f'{STYLE}\n<div class="retriever-collection"><strong>{name}</strong><dl>{rows}</dl></div>'


def _facts(collection: AnyCollection) -> dict[str, str]:
    store = collection.store
    encoder, generation = collection.encoder, collection.generation()
    if generation:
        transform = str(generation.manifest["transform"]["spec"])
        index = f"{generation.manifest['factory']}, generation {generation.number}, {generation.count:,} vectors"
    else:
        transform, index = str(store.setting("transform")), "none yet: the first run was interrupted"
    pooling = f", {encoder['pooling']} pooling" if encoder["pooling"] else ""
    return {
        "documents": f"{store.count('documents'):,} in {store.count('passages'):,} passages",
        "encoder": f"{encoder['name']}, {encoder['dimension']} dimensions{pooling}",
        "transform": transform,
        "index": index,
        "folder": collection.name,
    }
