"""Make a table of the words of a corpus from the input embeddings of a BERT.

The paper on BERT-flow finds the cause of poor similarities in the words: frequent words lie close together, rare words
lie far apart. This module treats the words themselves, before they are averaged:

1. The words of the corpus are folded: Unicode NFKC, lower case. A BERT that distinguishes cases would otherwise not
   recognise a query in another case. In scripts without spaces, each character is a word. So is each emoji.
2. The row of a word is the sum of the embeddings of its pieces, divided by the root of their number. If the corpus
   writes the word in several ways, e.g. "Lift" and "lift", it is the mean over all occurrences.
3. The rows are whitened with the mean and covariance of the words as often as the corpus uses them (Zipfian whitening,
   Yokoi et al. 2024). SHRINKAGE times the mean eigenvalue is added to each eigenvalue.
4. A word of the corpus that the BERT does not know has a random row. Texts that share it are still similar.

The tokenizer is a WordPiece model over the words of the corpus and the BERT's own pieces. It splits a word that the
corpus does not have into the longest known words and pieces.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from indexes.faiss.vectors import unit_rows
from retriever.encoder.batches import tokenise
from retriever.encoder.encoder import Encoder
from retriever.transforms.moments import principal_axes

SHRINKAGE = 0.1
MOST_WORDS = 100_000
LONGEST_WORD = 100
# A word that occurs at most this often counts as rare.
RARE = 3
UNKNOWN = "[UNK]"
CONTINUES = "##"
# Scripts that are written without spaces between words.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# Symbols such as emoji are words, one character each. Marks of punctuation are not.
WORD = rf"[{UNSPACED}\p{{So}}]|[\w&&[^{UNSPACED}]]+"
# The marks with which tokenizers begin a word: of SentencePiece and of GPT's byte-level pieces.
WORD_MARKS = ("▁", "Ġ")


@dataclass(frozen=True)
class WordTable:
    """A tokenizer, and a row for each of its tokens. Row 0 belongs to unknown tokens and is zero."""

    tokenizer: Any
    rows: NDArray[np.float32]
    counts: NDArray[np.float64]
    """How often each token occurs in the corpus. 0 for the BERT's pieces."""

    def tokens(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the numbers of the words of each text."""
        return [np.array(own, np.int64) for own in tokenise(self.tokenizer, texts, special=False)]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the mean row of each text, scaled to length one. A text without words has the vector zero."""
        return self.vectors(self.tokens(texts))

    def vectors(self, tokens: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        sums = np.stack([self._sum(own) for own in tokens]) if len(tokens) else self.rows[:0]
        return unit_rows(sums)

    def _sum(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        # A row is read once, even if a long text repeats its word a million times.
        numbers, counts = np.unique(tokens, return_counts=True)
        return np.asarray(counts.astype(np.float32) @ self.rows[numbers])


def word_table(texts: Iterable[str], encoder: Encoder, seed: int = 0) -> WordTable:
    """Make the table of a corpus. Only the input embeddings of the encoder are used, none of its layers."""
    forms = _forms(texts)
    words = sorted(forms, key=lambda word: (-sum(forms[word].values()), word))[:MOST_WORDS]
    embeddings: NDArray[np.float32] = encoder.input_embeddings()
    rows, known = _word_rows([forms[word] for word in words], encoder, embeddings)
    pieces = {
        key: number
        for key, number in _pieces(encoder.tokenizer).items()
        if key not in forms and number < len(embeddings)
    }
    vocabulary = {token: number for number, token in enumerate([UNKNOWN, *words, *pieces])}

    zero = np.zeros((1, embeddings.shape[1]), np.float32)
    rows = np.concatenate([zero, rows, embeddings[list(pieces.values())]])
    counts = np.zeros(len(rows))
    counts[1 : len(words) + 1] = [sum(forms[word].values()) for word in words]
    known = np.concatenate([[True], known, np.ones(len(pieces), bool)])
    return WordTable(_tokenizer(vocabulary), _whitened(rows, counts, known, seed), counts)


def _normalizer(lowercase: bool) -> Any:
    clean = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=lowercase
    )
    return normalizers.Sequence([normalizers.NFKC(), clean])


def _splitter() -> Any:
    return pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)


def _tokenizer(vocabulary: dict[str, int]) -> Any:
    tokenizer = Tokenizer(
        models.WordPiece(
            vocabulary,
            unk_token=UNKNOWN,
            max_input_chars_per_word=LONGEST_WORD,
            continuing_subword_prefix=CONTINUES,
        )
    )
    tokenizer.normalizer = _normalizer(lowercase=True)
    tokenizer.pre_tokenizer = _splitter()
    return tokenizer


def _forms(texts: Iterable[str]) -> dict[str, Counter[str]]:
    """Return the words of the corpus in lower case, with the number of occurrences of each way to write them."""
    normalizer, lower, splitter = _normalizer(lowercase=False), normalizers.Lowercase(), _splitter()
    written: Counter[str] = Counter()
    for text in texts:
        written.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for word, count in written.items():
        if len(word) <= LONGEST_WORD:
            # str.lower() differs from the tokenizer, e.g. at the end of a Greek word.
            forms[lower.normalize_str(word)][word] += count
    return forms


def _word_rows(
    forms: Sequence[Counter[str]], encoder: Encoder, embeddings: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the row of each word, and whether the BERT knows the word."""
    tokenizer = encoder.tokenizer
    written = [(place, form, count) for place, own in enumerate(forms) for form, count in own.items()]
    # Some tokenizers treat a word without a space before it as the end of a longer word.
    encoded = tokenizer.encode_batch_fast([f" {form}" for _, form, _ in written], add_special_tokens=False)
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "<unk>")
    encoder.refuse_unknown_id(max((id_ for own in encoded for id_ in own.ids), default=0), len(embeddings))
    rows = np.zeros((len(forms), embeddings.shape[1]), np.float32)
    known = np.zeros(len(forms), np.float32)
    for (place, _, count), encoding in zip(written, encoded, strict=True):
        if encoding.ids and unknown not in encoding.ids:
            rows[place] += count / len(encoding.ids) ** 0.5 * embeddings[encoding.ids].sum(axis=0)
            known[place] += count
    rows /= np.maximum(known, 1)[:, None]
    return rows, known > 0


def _pieces(tokenizer: Any) -> dict[str, int]:
    """Return the BERT's own words and pieces in lower case, as WordPiece writes them, with the number of each."""
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    mark = next((mark for mark in WORD_MARKS for token, _ in vocabulary if token.startswith(mark)), "")
    found: dict[str, int] = {}
    for token, number in vocabulary:
        if mark:
            begins, text = token.startswith(mark), token.removeprefix(mark)
        else:
            begins, text = not token.startswith(CONTINUES), token.removeprefix(CONTINUES)
        # The byte-level pieces of GPT write other characters than ASCII as bytes.
        if token in special or not text.isalnum() or (mark == "Ġ" and not text.isascii()):
            continue
        key = text.lower() if begins else CONTINUES + text.lower()
        if key not in found or text == text.lower():
            found[key] = number
    return found


def _whitened(
    rows: NDArray[np.float32], counts: NDArray[np.float64], known: NDArray[np.bool_], seed: int
) -> NDArray[np.float32]:
    share = counts * known
    if not share.any():  # then there is nothing to whiten with
        return _with_random_rows(rows, counts, known, seed)
    share /= share.sum()
    centred = rows.astype(np.float64) - share @ rows
    values, axes = principal_axes((centred * share[:, None]).T @ centred)
    average = float(values.mean())
    if average <= 0:  # the corpus repeats a single word
        return _with_random_rows(rows, counts, known, seed)
    white = (centred @ (axes / np.sqrt(values + SHRINKAGE * average))).astype(np.float32)
    white[0] = 0
    return _with_random_rows(white, counts, known, seed)


def _with_random_rows(
    rows: NDArray[np.float32], counts: NDArray[np.float64], known: NDArray[np.bool_], seed: int
) -> NDArray[np.float32]:
    """Return the rows with random rows for unknown words. They are as long as those of rare words."""
    if known.all():
        return rows
    lengths = np.linalg.norm(rows[known & (counts > 0)], axis=1)
    rare = np.linalg.norm(rows[known & (counts > 0) & (counts <= RARE)], axis=1)
    length = float(np.median(rare if len(rare) else lengths)) if len(lengths) else 1.0
    random = np.random.default_rng(seed).standard_normal((int((~known).sum()), rows.shape[1]))
    filled = rows.copy()
    filled[~known] = random * (length / np.linalg.norm(random, axis=1, keepdims=True))
    return filled
