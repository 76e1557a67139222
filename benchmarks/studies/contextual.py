"""Compare poolings of the layers of a BERT that was never tuned, without training. Results: LEARNING_STUDY.md.

    python -m benchmarks contextual --data DATA --encoder DIR --set cranfield --set xquad_de

- `mean, LAYER` is the mean of the token vectors of a layer, without [CLS] and [SEP].
- Zipfian whitening takes its mean and covariance from the tokens of the documents, as often as they occur. A linear map
  of tokens commutes with their mean, so it is applied to the pooled vectors.
- `prompt` is the last layer at [MASK] of `This sentence : "X" means [MASK] .` (Jiang et al. 2022).
- `diagonal, head N` is the mean of the first and last layer, each token weighted by how much it attends to itself in
  head N of the first layer (Ditto, Chen et al. 2023).

For search, every variant is measured by agreement with BM25 and nDCG@10. For STS-B it is measured by Spearman's
correlation on the test pairs, and all maps are fitted to the sentences of these pairs.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.studies.parts import Map, Part, Rows, read_part, whitenings
from retriever.encoder.batches import batches_by_length, padded, tokenise
from retriever.encoder.encoder import Encoder
from retriever.encoder.static.words import word_table
from retriever.evaluate.data.beir import read_sets
from retriever.evaluate.data.sts_sets import read_sets as read_sts
from retriever.evaluate.report.tables import show, show_notes, text_table
from retriever.evaluate.sts import ALL, PairScorer
from retriever.transforms import fit
from retriever.transforms.agreement import fit_candidate
from retriever.transforms.moments import principal_axes

BATCH_TOKENS = 4096
SHRINKAGES = (0.1, 1.0)
PROMPT = 'This sentence : "', '" means [MASK] .'
MASK = "[MASK]"


@dataclass
class TokenMoments:
    """Sums over the tokens of texts, from which their mean and covariance follow."""

    count: int = 0
    total: NDArray[np.float64] | float = 0.0
    squares: NDArray[np.float64] | float = 0.0

    def add(self, rows: Rows) -> None:
        self.count += len(rows)
        self.total = self.total + rows.sum(axis=0, dtype=np.float64)
        self.squares = self.squares + (rows.T @ rows).astype(np.float64)

    def whitening(self, shrinkage: float) -> Map:
        """Return Zipfian whitening. `shrinkage` times the mean eigenvalue is added to every eigenvalue."""
        mean = self.total / self.count
        values, axes = principal_axes(self.squares / self.count - np.outer(mean, mean))
        matrix = axes * (values + shrinkage * values.mean()) ** -0.5
        return lambda rows: np.asarray((rows - mean) @ matrix, np.float32)


class Layers:
    """A BERT whose layers and attention are pooled in several ways at once."""

    def __init__(self, encoder: Encoder, max_length: int) -> None:
        from transformers import AutoModel

        options = {"attn_implementation": "eager", "trust_remote_code": False, "use_safetensors": True}
        self.model: Any = AutoModel.from_pretrained(encoder.files.folder, **options).eval()
        self.tokenizer = encoder.tokenizer
        self.start, self.end, self.mask = (self.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", MASK))
        self.before, self.after = tokenise(self.tokenizer, PROMPT, special=False)
        self.longest = max_length - len(self.before) - len(self.after) - 2

    def poolings(self, texts: Sequence[str], moments: dict[str, TokenMoments] | None = None) -> dict[str, Rows]:
        """Return the vectors of the texts for every pooling. Add the token vectors of each layer to `moments`."""
        own = [found[: self.longest] for found in tokenise(self.tokenizer, texts, special=False)]
        pooled = self._run([[self.start, *tokens, self.end] for tokens in own], self._means, moments)
        prompts = [[self.start, *self.before, *tokens, *self.after, self.end] for tokens in own]
        return pooled | self._run(prompts, self._at_mask, None)

    def _run(self, tokens: list[list[int]], pool: Any, moments: dict[str, TokenMoments] | None) -> dict[str, Rows]:
        from retriever.tune.model import autocast  # imports sentence-transformers, which takes many seconds

        found: dict[str, dict[int, Rows]] = defaultdict(dict)
        for places, own in batches_by_length(tokens, BATCH_TOKENS):
            ids, mask = (torch.from_numpy(array) for array in padded(own, 0))
            with torch.inference_mode(), autocast("cpu"):
                output = self.model(ids, mask, output_hidden_states=True, output_attentions=True)
            for name, rows in pool(output, ids, mask, moments):
                found[name] |= zip(places.tolist(), rows.float().numpy(), strict=True)
        return {name: np.stack([rows[place] for place in range(len(tokens))]) for name, rows in found.items()}

    def _means(self, output: Any, ids: Any, mask: Any, moments: Any) -> Iterable[tuple[str, Any]]:
        first, last = output.hidden_states[1].float(), output.hidden_states[-1].float()
        inner = ((ids != self.start) & (ids != self.end) & (mask > 0)).float()
        for name, hidden in (("first", first), ("last", last), ("first-last", (first + last) / 2)):
            yield f"mean, {name}", (inner[..., None] * hidden).sum(1) / inner.sum(1, keepdim=True).clamp(min=1)
            if moments is not None:
                moments[f"mean, {name}"].add(hidden[inner > 0].numpy())
        diagonals = output.attentions[0].float().diagonal(dim1=-2, dim2=-1) * inner[:, None]
        weights = diagonals / diagonals.sum(-1, keepdim=True).clamp(min=1e-9)
        for head, pooled in enumerate((weights @ ((first + last) / 2)).unbind(1)):
            yield f"diagonal, head {head}", pooled

    def _at_mask(self, output: Any, ids: Any, mask: Any, moments: Any) -> Iterable[tuple[str, Any]]:
        # The text itself may hold a [MASK]. The one of the prompt is the last.
        place = ids.shape[1] - 1 - (ids == self.mask).int().flip(1).argmax(1)
        yield "prompt", output.hidden_states[-1][torch.arange(len(ids)), place]


def study_search(part: Part, layers: Layers, encoder: Encoder) -> dict[str, str]:
    """Return agreement / nDCG@10 of every pooling and map on a set."""
    moments: dict[str, TokenMoments] = defaultdict(TokenMoments)
    documents = layers.poolings(part.documents, moments)
    texts = part.short, part.questions.texts, list(part.topics.queries.values())
    short, questions, queries = (layers.poolings(own) for own in texts)
    found = {}

    def measure(name: str, mapped: Map, pooling: str) -> float:
        figures = part.measure(*(mapped(rows[pooling]) for rows in (documents, questions, queries)))
        found[name] = f"{figures.agreement:.1f} / {figures.ndcg:.1f}"
        return figures.agreement

    for pooling, own in documents.items():
        sample = np.concatenate([own, short[pooling]])
        agreement = {}
        for spec in whitenings(own.shape[1]):
            if transform := fit_candidate(spec, sample, 0):
                agreement[spec] = measure(f"{pooling}, {spec}", transform.apply, pooling)
        best = max(agreement, key=lambda spec: agreement[spec])
        found[f"{pooling}, best agreement"] = f"{found[f'{pooling}, {best}']} ({best})"
        for shrinkage in SHRINKAGES if pooling in moments else ():
            measure(f"{pooling}, Zipfian {shrinkage:g}", moments[pooling].whitening(shrinkage), pooling)
    figures = part.measure_encoder(word_table(part.documents, encoder).encode)
    return found | {"word table": f"{figures.agreement:.1f} / {figures.ndcg:.1f}"}


def study_similarity(scorer: PairScorer, layers: Layers, encoder: Encoder) -> dict[str, str]:
    """Return Spearman's correlation × 100 of every pooling and map on pairs of sentences."""
    moments: dict[str, TokenMoments] = defaultdict(TokenMoments)

    def measure(rows: Rows) -> str:
        return f"{scorer(fit('none', rows), rows).values[ALL]:.1f}"

    found: dict[str, str] = {}
    for pooling, own in layers.poolings(scorer.texts, moments).items():
        found |= {f"{pooling}, {spec}": measure(fit(spec, own).apply(own)) for spec in whitenings(own.shape[1])}
        if pooling in moments:
            maps = {f"{pooling}, Zipfian {each:g}": moments[pooling].whitening(each) for each in SHRINKAGES}
            found |= {name: measure(mapped(own)) for name, mapped in maps.items()}
    return found | {"word table": measure(word_table(scorer.texts, encoder).encode(scorer.texts))}


def run(data: Path, encoder: str, sets: Sequence[str], documents: int, max_length: int) -> None:
    """Measure every variant on every set and on STS-B, and print one table."""
    opened = Encoder(encoder)
    layers = Layers(opened, max_length)
    reading = read_sets([data / name for name in sets] or [data])
    found = {one.topics.dataset: study_search(read_part(one, documents, 0), layers, opened) for one in reading.sets}
    similarity = read_sts(data, ["stsb"])
    for one in similarity.sets:
        found["STS-B"] = study_similarity(PairScorer(one.evaluated, by_subset=False), layers, opened)
    table = text_table(encoder, ["variant", *found])
    for variant in dict.fromkeys(name for figures in found.values() for name in figures):
        table.add_row(variant, *(figures.get(variant, "") for figures in found.values()))
    show(table)
    show_notes([*reading.problems, *similarity.problems])
