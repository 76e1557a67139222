"""What tests make: tiny real models, small sources."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from retriever.encoder.model_files import ModelFiles

Run = Callable[..., Result]

PETS = [
    {"id": "cat", "title": "Cats", "text": "Cats purr when they are content. They hunt mice at night."},
    {"id": "dog", "title": "Dogs", "text": "Dogs bark at strangers. They like to fetch sticks."},
    {"id": "fish", "text": "Goldfish swim round and round in a bowl.", "metadata": {"legs": 0}},
    {"id": "bird", "text": "Parrots can learn to speak a few words.", "lang": "en"},
    {"id": "horse", "text": "Horses gallop over the fields in the morning."},
]


def invoker(command: click.Group) -> Run:
    """Run a command in this process; any exception that is not for people fails the test."""

    def invoke(*args: object, code: int = 0, input: str | None = None) -> Result:
        result = CliRunner().invoke(command, [str(arg) for arg in args], input=input)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"exit code {result.exit_code}:\n{result.output}"
        return result

    return invoke


def make_bert(folder: Path, *, seed: int = 0, width: int = 32, layers: int = 3, pooling: bool = True) -> Path:
    """A BERT of tiny random weights with MiniLM's tokenizer, as an ordinary Hugging Face folder.

    `pooling` writes the pooling config of a sentence-transformers model. Without it, the pooling is chosen by default.
    """
    import torch
    from safetensors.torch import save_file

    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
        "max_position_embeddings": 128,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "initializer_range": 0.4,
        "dtype": "float32",
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        weights = _bert_weights(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    if pooling:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return _with_tokenizer(folder)


def _bert_weights(config: dict[str, Any]) -> dict[str, Any]:
    """The weights that transformers' BertModel begins with, without its import, which takes many seconds."""
    from torch import nn

    width, inner = config["hidden_size"], config["intermediate_size"]

    def output(size: int) -> nn.ModuleDict:
        return nn.ModuleDict({"dense": nn.Linear(size, width), "LayerNorm": nn.LayerNorm(width)})

    def layer() -> nn.ModuleDict:
        attention = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
        return nn.ModuleDict(
            {
                "attention": nn.ModuleDict({"self": attention, "output": output(width)}),
                "intermediate": nn.ModuleDict({"dense": nn.Linear(width, inner)}),
                "output": output(inner),
            }
        )

    embeddings = {
        "word_embeddings": nn.Embedding(config["vocab_size"], width, padding_idx=config["pad_token_id"]),
        "position_embeddings": nn.Embedding(config["max_position_embeddings"], width),
        "token_type_embeddings": nn.Embedding(config["type_vocab_size"], width),
        "LayerNorm": nn.LayerNorm(width),
    }
    layers = nn.ModuleList(layer() for _ in range(config["num_hidden_layers"]))
    bert = nn.ModuleDict({"embeddings": nn.ModuleDict(embeddings), "encoder": nn.ModuleDict({"layer": layers})})
    for module in bert.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=config["initializer_range"])
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])
    return {name: values.detach() for name, values in bert.state_dict().items()}


def make_cross_encoder(folder: Path, kind: str = "Bert", labels: list[str] | int = 1, seed: int = 0) -> Path:
    """A cross-encoder of tiny random weights with MiniLM's tokenizer."""
    import torch
    import transformers

    named = {"num_labels": labels} if isinstance(labels, int) else {"id2label": dict(enumerate(labels))}
    sizes = {
        "Bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
        "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=30522, max_position_embeddings=128, initializer_range=0.4, **sizes[kind], **named
        )
        getattr(transformers, f"{kind}ForSequenceClassification")(config).save_pretrained(folder)
    return _with_tokenizer(folder)


def _with_tokenizer(folder: Path) -> Path:
    source = ModelFiles("all-MiniLM-L6-v2").folder
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(source / name, folder / name)
    return folder


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
