"""Encoders that are not model files: a function of the caller, an object such as a SentenceTransformer, or none.

Such an encoder has no files whose hashes could identify it. Instead, its identity holds a digest of its vectors of a
few fixed texts: the probe. A collection opens only with an encoder that gives the same probe.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.document import as_array
from retriever.encoder.base import AnyEncoder, VectorBatches
from retriever.encoder.batches import Encoding
from retriever.encoder.model_files import LARGEST_NUMBER, SHORTEST, EncoderIdentity, probe_difference
from retriever.encoder.writing import plain
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, NoTextEncoder, RetrieverError, first_line

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    class HasEncode(Protocol):
        """An object such as a SentenceTransformer."""

        def encode(self, texts: list[str], /) -> ArrayLike: ...

    EncoderSource = str | Path | Callable[[list[str]], ArrayLike] | HasEncode
    """A name, a folder, `openai:URL#MODEL`, a function from texts to an array, or an object with `encode`."""

FUNCTION, ENDPOINT, BROUGHT = "function:", "openai:", "vectors:"
BATCH_TEXTS = 32
# A function does not say how long its input may be. Most sentence encoders read 256 tokens or more.
MAX_LENGTH = 256
# English has more than four bytes in a token, other languages that an encoder knows have more than three.
BYTES_A_TOKEN = 3
PROBES = ("What is this collection about?", "The budget of 2021 was approved in March.", "katt")
PROBE_NUMBERS = 16


def is_function(source: object) -> bool:
    """Return whether the caller gave a function, or an object with `encode`, instead of a name."""
    return not isinstance(source, str | Path)


def is_endpoint(source: object) -> bool:
    """Return whether the encoder is an endpoint, `openai:URL#MODEL`."""
    return isinstance(source, str) and source.startswith(ENDPOINT)


class FunctionEncoder(AnyEncoder):
    """An encoder that calls a function. By default, calls do not overlap, because the function may not be thread-safe.

    `workers` is the number of calls that may overlap. `name` is the name in messages and in the identity.
    """

    def __init__(
        self,
        documents: Callable[[list[str]], Any],
        name: str,
        *,
        queries: Callable[[list[str]], Any] | None = None,
        max_length: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        stored: EncoderIdentity | None = None,
        workers: int = 1,
    ) -> None:
        if max_length is not None and not SHORTEST <= max_length <= LARGEST_NUMBER:
            raise Misuse(f"`max_length` must be at least {SHORTEST}, not {max_length}.")
        self._documents, self._queries = documents, queries or documents
        self._name = name
        self._workers = workers
        self._turns = threading.Semaphore(workers)
        self._dimension: int | None = None
        self._kept = ""
        """What to say about stored documents if the function fails later."""
        prompts = [
            given if given is not None else own
            for given, own in (
                (query_prompt, stored.query_prompt if stored else ""),
                (document_prompt, stored.document_prompt if stored else ""),
            )
        ]
        vectors = self._call(self._documents, list(PROBES))
        self._dimension = vectors.shape[1]
        again = self._call(self._documents, [PROBES[-1]])
        self.identity = EncoderIdentity(
            name=name,
            weights="",
            tokenizer="",
            config="",
            pooling="",
            max_length=max_length or (stored.max_length if stored else MAX_LENGTH),
            normalize=False,
            dimension=vectors.shape[1],
            query_prompt=prompts[0],
            document_prompt=prompts[1],
            probe=probe_of(vectors),
        )
        self._kept = " Documents stored so far are kept."
        if apart := probe_difference(self.identity.probe[-1:], probe_of(again)):
            raise EncoderUnavailable(
                f"{self} returned different vectors for the same text in two calls ({apart}). The vector of a text "
                "must not depend on chance or on the other texts of the call."
            )

    def __str__(self) -> str:
        return f"the function {self._name.removeprefix(FUNCTION)}"

    def refuse_too_long(self, where: object) -> None:
        pass

    # ---- vectors -----------------------------------------------------------------------------------------

    def _call(self, function: Callable[[list[str]], Any], texts: list[str]) -> NDArray[np.float32]:
        with self._turns:
            try:
                returned = function(texts)
            except RetrieverError:
                raise
            except Exception as error:  # any class: it is the function of the caller
                raise EncoderUnavailable(
                    f"{self} failed for {len(texts)} texts: {type(error).__name__}: {first_line(error)}.{self._kept}"
                ) from error
        return self._checked(returned, texts)

    def _checked(self, returned: Any, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors as a matrix. Raise an error that describes anything else."""
        try:
            rows = as_array(returned)
            if rows.dtype.kind not in "fiu":
                raise TypeError
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32)
        except TypeError:
            raise EncoderUnavailable(
                f"{self} returned {_described(returned)} for {len(texts)} texts. It must return an array of numbers "
                "with one row for each text."
            ) from None
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            raise EncoderUnavailable(
                f"{self} returned an array of the shape {rows.shape} for {len(texts)} texts. It must have one row for "
                f"each text: ({len(texts)}, dimension)."
            )
        if self._dimension not in (None, rows.shape[1]):
            raise Mismatch(
                f"{self} returned vectors of {rows.shape[1]:,} dimensions, but {self._dimension:,} before.{self._kept}"
            )
        if not np.isfinite(rows).all():
            text = texts[int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])]
            raise EncoderUnavailable(f"{self} returned NaN or infinity for the text {text[:60]!r}.{self._kept}")
        return rows

    def encode_queries(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        if not here and self._workers > 1:
            return self._matrix(len(queries), self.encode_batches(queries, queries=True))
        batches = self._batches(queries, queries=True)
        function = partial(self._call, self._queries)
        return self._matrix(len(queries), ((positions, function(texts)) for positions, texts in batches))

    def encoding(self, texts: Sequence[str], *, queries: bool = False) -> Encoding[str]:
        function = partial(self._call, self._queries if queries else self._documents)
        batches = self._batches(texts, queries=queries)
        return Encoding(batches, function, self._workers, lambda some: sum(self.count_tokens(some)))

    def _batches(self, texts: Sequence[str], *, queries: bool) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
        prompt = self.identity.query_prompt if queries else self.identity.document_prompt
        for start in range(0, len(texts), BATCH_TEXTS):
            some = [prompt + plain(text) for text in texts[start : start + BATCH_TEXTS]]
            yield np.arange(start, start + len(some)), some

    # ---- tokens ------------------------------------------------------------------------------------------

    @property
    def token_budget(self) -> int:
        prompt = self.count_tokens([self.identity.document_prompt])[0] if self.identity.document_prompt else 0
        return max(1, self.identity.max_length - 2 - prompt)

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Estimate the number of tokens of each text from its bytes."""
        return [math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN) for text in texts]


class ObjectEncoder(FunctionEncoder):
    """An encoder that calls the method `encode` of an object, e.g. of a SentenceTransformer.

    If the object has `encode_query` and `encode_document`, as sentence-transformers 5 has, they are called instead, so
    the prompts of the model are used.
    """

    def __init__(self, model: Any, *, max_length: int | None = None, stored: EncoderIdentity | None = None) -> None:
        own = getattr(model, "max_seq_length", None)
        tokenizer = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
        self._tokenizer: Any = None
        if tokenizer is not None and isinstance(own, int):
            self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())  # the model's own is set to truncate
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            if max_length is not None and max_length > own:
                raise Misuse(f"`max_length` must be from {SHORTEST} to {own}, the `max_seq_length` of the model.")
            max_length = max_length or (None if stored else own)
        quiet = {"show_progress_bar": False} if tokenizer is not None else {}
        super().__init__(
            partial(getattr(model, "encode_document", model.encode), **quiet),
            f"{FUNCTION}{_name_of_object(model)}",
            queries=partial(getattr(model, "encode_query", model.encode), **quiet),
            max_length=max_length,
            stored=stored,
        )

    def __str__(self) -> str:
        return f"the encoder {self._name.removeprefix(FUNCTION)}"

    def count_tokens(self, texts: list[str]) -> list[int]:
        if self._tokenizer is None:
            return super().count_tokens(texts)
        return [len(found) for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


class NoEncoder(AnyEncoder):
    """The encoder of a collection whose documents bring their vectors. It refuses to encode any text."""

    def __init__(self, stored: EncoderIdentity) -> None:
        self.identity = stored

    def refuse_too_long(self, where: object) -> None:
        pass

    def _refuse(self) -> NoTextEncoder:
        return NoTextEncoder(
            "the documents of this collection brought their own vectors, so it has no encoder for text. Give the "
            'vector of the query, e.g. search(vector=...), or search by words: `mode="lexical"`.'
        )

    def encode_queries(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        raise self._refuse()

    def encode_batches(self, texts: Sequence[str], *, queries: bool = False) -> VectorBatches:
        raise self._refuse()

    def encoding(self, texts: Sequence[str], *, queries: bool = False) -> Encoding[str]:
        raise self._refuse()

    @property
    def token_budget(self) -> int:
        return LARGEST_NUMBER

    def count_tokens(self, texts: list[str]) -> list[int]:
        return [0] * len(texts)


def brought(dimension: int) -> EncoderIdentity:
    """Return the identity of vectors that documents bring. Only their dimension is known."""
    name = f"{BROUGHT}{dimension}"
    return EncoderIdentity(name, "", "", "", "", LARGEST_NUMBER, False, dimension)


def is_brought(encoder: EncoderIdentity | Mapping[str, Any]) -> bool:
    """Return whether the documents of a collection bring their vectors, by the identity of its encoder."""
    name = encoder.name if isinstance(encoder, EncoderIdentity) else str(encoder.get("name"))
    return name.startswith(BROUGHT)


def no_encoder_of_text(encoder: Mapping[str, Any]) -> str:
    """Say why an encoder cannot be opened by its identity. The text is empty if it can be, or if there is none."""
    name = str(encoder.get("name"))
    return f"its encoder is {name.removeprefix(FUNCTION)} of a Python program" if name.startswith(FUNCTION) else ""


def probe_of(vectors: NDArray[np.float32]) -> tuple[tuple[float, ...], ...]:
    """Return the first coefficients of the discrete cosine transform of each vector. Each depends on every number."""
    dimension = vectors.shape[1]
    waves = np.cos(np.pi * np.outer(np.arange(dimension) + 0.5, np.arange(1, PROBE_NUMBERS + 1)) / dimension)
    rows = vectors.astype(np.float64) @ waves * math.sqrt(2 / dimension)
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in rows)


def check_source(given: object) -> None:
    """Raise `Misuse` if this cannot be an encoder."""
    if isinstance(given, type):
        raise Misuse(f"`encoder` is the class {given.__name__}; give an instance of it.")
    if not (isinstance(given, str | Path) or callable(given) or callable(getattr(given, "encode", None))):
        raise Misuse(
            f"`encoder` is {_described(given)}; give a name, a folder, openai:URL#MODEL, a function from texts to an "
            "array, or an object with `encode` such as a SentenceTransformer."
        )


def encoder_of_object(
    given: Any,
    *,
    max_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    stored: EncoderIdentity | None = None,
) -> FunctionEncoder:
    """Return the encoder of a function, or of an object with `encode`."""
    if callable(getattr(given, "encode", None)):
        if query_prompt or document_prompt:
            raise Misuse("an object with `encode` has its own prompts; leave `query_prompt` and `document_prompt` out.")
        return ObjectEncoder(given, max_length=max_length, stored=stored)
    return FunctionEncoder(
        given,
        f"{FUNCTION}{_name_of_function(given)}",
        max_length=max_length,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        stored=stored,
    )


def refuse_absent(stored: EncoderIdentity, where: object) -> None:
    """Refuse to open the encoder of a collection that was made with a function, because only the caller has it."""
    if stored.name.startswith(FUNCTION):
        name = stored.name.removeprefix(FUNCTION)
        raise EncoderUnavailable(
            f"{where} was made with an encoder that is not stored with it: {name}. Open it from Python and give the "
            f"encoder: Retriever.open({str(where)!r}, encoder={name.rpartition('.')[2].partition('(')[0]}). Without "
            'the encoder, search by words: `mode="lexical"`.'
        )


def _name_of_function(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _name_of_object(model: Any) -> str:
    name = getattr(getattr(model, "tokenizer", None), "name_or_path", None)
    return f"{type(model).__name__}({Path(name).name if isinstance(name, str) and name else ''})"


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)} values that are not rows of equal length"
    return f"{'an' if type(value).__name__[0] in 'aeiouAEIOU' else 'a'} {type(value).__name__}"
