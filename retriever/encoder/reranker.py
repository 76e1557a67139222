"""Ranks the best hits again with a cross-encoder.

A cross-encoder reads the query and a text together. This is more accurate than comparing vectors, but slower. Any model
works that transformers loads with a classification head. The head must have one label, or several labels of which one
means relevance. A score is the logit of the only label, or the log-odds of the relevant label against all others.
Scores of the same query can be compared with each other. They are not cosines.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.mapped import MappedFile, changed
from retriever.encoder.batches import load_tokenizer, padded
from retriever.encoder.encoder import check_device, resolve_device
from retriever.encoder.model_files import SHORTEST, ModelFiles, Role
from retriever.encoder.model_loader import load_model, refuse_missing
from retriever.errors import EncoderUnavailable, Misuse, RetrieverError

BATCH_SIZE = 32
CROSS_ENCODER = Role("cross-encoder", "--rerank", "AutoModelForSequenceClassification", "")
# Label names that mean "the text answers the query", and the default names if a model has two unnamed labels.
RELEVANT = ("relevant", "relevance", "entailment", "yes", "true")
UNNAMED = ("label_0", "label_1")


class Reranker:
    """A cross-encoder, which is given by its Hugging Face name or its folder."""

    def __init__(
        self, name: str, *, device: str = "auto", batch_size: int = BATCH_SIZE, max_length: int | None = None
    ) -> None:
        check_device(device)
        if batch_size < 1:
            raise Misuse(f"`batch_size` must be at least 1, not {batch_size}.")
        self.files = ModelFiles(name, CROSS_ENCODER)
        if max_length is not None and not SHORTEST <= max_length <= self.files.longest:
            raise Misuse(
                f"the length of a pair must be from {SHORTEST} to {self.files.longest} tokens for {self.files.name}, "
                f"not {max_length}."
            )
        self.max_length = max_length or self.files.own_max_length
        self.batch_size = batch_size
        self._device = device
        self._mapped = [MappedFile(path) for path in self.files.weight_files()]

    @cached_property
    def device(self) -> str:
        return resolve_device(self._device)

    @cached_property
    def _model(self) -> Any:
        model, missing = load_model(self.files, CROSS_ENCODER)
        if any(name.split(".")[0] in ("classifier", "score", "head") for name in missing):
            raise EncoderUnavailable(
                f"{self.files.folder} has no classification head ({', '.join(missing[:3])} are missing), so it is an "
                "encoder, not a cross-encoder. Give a cross-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2."
            )
        refuse_missing(self.files, CROSS_ENCODER, missing)
        return model.to(self.device).eval()

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.files)

    @cached_property
    def _relevant_label(self) -> int:
        """The position of the label that means that the text answers the query."""
        config = self._model.config
        names = [str(config.id2label.get(number, number)) for number in range(config.num_labels)]
        lowered = [name.lower() for name in names]
        if len(names) == 1:
            return 0
        if tuple(lowered) == UNNAMED:
            return 1
        relevant = [number for number, name in enumerate(lowered) if name in RELEVANT]
        if len(relevant) != 1:
            raise EncoderUnavailable(
                f"{self.files.folder} has the labels {', '.join(names)}, and it is not clear which of them means that "
                "a text answers a query. A cross-encoder for search must have a single label, or a label named "
                f"{' or '.join(RELEVANT)}. Set the name in id2label of config.json."
            )
        return relevant[0]

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Score how well each text answers the query; higher is better."""
        scores = np.empty(len(texts), np.float64)
        for positions, encodings in self._batches(query, texts):
            scores[positions] = self._log_odds(self._logits(encodings))
        if not np.isfinite(scores).all():
            text = texts[int(np.flatnonzero(~np.isfinite(scores))[0])]
            raise RetrieverError(
                f"the cross-encoder {self.files.name} returned NaN or infinity for the text {text[:60]!r}. Its "
                "weights are broken, or they overflow on this text. Use another cross-encoder, or search without one."
            )
        return scores

    def _batches(self, query: str, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], list[Any]]]:
        """Yield batches of pairs of similar length, as (positions in `texts`, tokenizer encodings)."""
        if not texts:
            return
        tokenizer = self._tokenizer
        query = self._truncated(query)
        tokenizer.enable_truncation(self.max_length, strategy="only_second")
        encodings = tokenizer.encode_batch([(query, text) for text in texts])
        tokenizer.no_truncation()
        order = np.argsort([len(encoding.ids) for encoding in encodings], kind="stable")
        for start in range(0, len(order), self.batch_size):
            positions = order[start : start + self.batch_size]
            yield positions, [encodings[position] for position in positions]

    def _truncated(self, query: str) -> str:
        """Cut the query so that it takes at most half of the tokens of a pair."""
        most = (self.max_length - self._tokenizer.num_special_tokens_to_add(is_pair=True)) // 2
        offsets = self._tokenizer.encode(query, add_special_tokens=False).offsets
        return query if len(offsets) <= most else query[: offsets[most - 1][1]]

    def _logits(self, encodings: list[Any]) -> NDArray[np.float64]:
        """Return the model's output for a batch, with the shape (pairs, labels)."""
        import torch

        ids, mask = padded([encoding.ids for encoding in encodings], self.files.pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if getattr(self._model.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = padded([encoding.type_ids for encoding in encodings], 0)[0]
        try:
            with torch.inference_mode():
                tensors = {name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()}
                logits: NDArray[np.float64] = self._model(**tensors).logits.double().cpu().numpy()
        except IndexError as error:
            raise EncoderUnavailable(
                f"{self.files.folder}: the tokenizer produces tokens that the model does not know. The tokenizer and "
                "the model do not belong together. Download the model again."
            ) from error
        except torch.OutOfMemoryError as error:
            raise RetrieverError(
                f"the GPU has too little memory for batches of {self.batch_size} pairs. Use a smaller batch size."
            ) from error
        if path := changed(self._mapped):
            raise EncoderUnavailable(f"{path} was changed by another program while the cross-encoder was in use.")
        return logits

    def _log_odds(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log(p / (1 - p)) of the relevant label. For a model with one label, this is the logit of the label."""
        relevant = self._relevant_label
        own, others = logits[:, relevant], np.delete(logits, relevant, axis=1)
        return np.asarray(own - np.logaddexp.reduce(others, axis=1)) if others.size else own
