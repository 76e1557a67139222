"""What tests make: tiny real models, small sources."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

from retriever.models import ModelFiles

Run = Callable[..., Result]

PETS = [
    {"id": "cat", "title": "Cats", "text": "Cats purr when they are content. They hunt mice at night."},
    {"id": "dog", "title": "Dogs", "text": "Dogs bark at strangers. They like to fetch sticks."},
    {"id": "fish", "text": "Goldfish swim round and round in a bowl.", "metadata": {"legs": 0}},
    {"id": "bird", "text": "Parrots can learn to speak a few words.", "lang": "en"},
    {"id": "horse", "text": "Horses gallop over the fields in the morning."},
]


def make_bert(folder: Path, *, seed: int = 0, width: int = 32, layers: int = 3) -> Path:
    """A BERT of tiny random weights with MiniLM's tokenizer, as an ordinary Hugging Face folder."""
    import torch
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=30522,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * width,
            max_position_embeddings=128,
            initializer_range=0.4,
        )
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer = ModelFiles("all-MiniLM-L6-v2").folder
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(tokenizer / name, folder / name)
    return folder


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
