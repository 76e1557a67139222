"""Model folders made to do harm: refused with the file and the number, nothing run, nothing built."""

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited import FUZZED, ROOT, limited
from samples import make_cross_encoder

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import ENCODER, ModelFiles
from retriever.encoder.model_loader import check_weights, load_model
from retriever.encoder.reranker import Reranker
from retriever.errors import EncoderUnavailable, RetrieverError

ENCODE = """
from retriever.encoder.encoder import Encoder
from retriever.errors import EncoderUnavailable
from retriever.encoder.reranker import Reranker
errors = []
for folder in sys.argv[1:]:
    try:
        if folder.endswith("cross"):
            Reranker(folder, device="cpu").scores("a", ["b"])
        else:
            Encoder(folder, device="cpu").encode(["a text"])
        errors.append("")
    except EncoderUnavailable as error:
        errors.append(str(error))
tell(errors=errors)
"""


@pytest.fixture
def model(tiny_bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(folder: Path) -> str:
    with pytest.raises(EncoderUnavailable) as caught:
        load_model(ModelFiles(str(folder)), ENCODER)
    return str(caught.value)


# Code


class Marker:
    """A pickle of it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("beside", [True, False], ids=["beside safetensors", "alone"])
def test_pickles_are_never_loaded(model: Path, tmp_path: Path, beside: bool) -> None:
    marker = tmp_path / "ran"
    for name in ("pytorch_model.bin", "model.pt", "model.pkl", "training_args.bin", "tokenizer.model"):
        (model / name).write_bytes(pickle.dumps(Marker(marker)))
    if not beside:
        (model / "model.safetensors").unlink()
        with pytest.raises(EncoderUnavailable, match=r"Pickled weights \(\*\.bin\) are never loaded"):
            Encoder(str(model))
    else:
        assert Encoder(str(model), device="cpu").encode(["a"]).shape == (1, 32)
    assert not marker.exists()


@pytest.mark.parametrize("tokenizer_json", [True, False])
@pytest.mark.parametrize("model_type", ["bert", "evil"])
def test_code_in_the_folder_is_never_run(model: Path, tmp_path: Path, model_type: str, tokenizer_json: bool) -> None:
    marker = tmp_path / "ran"
    code = f"import os\nos.mkdir({str(marker)!r})\nclass Evil: pass\n"
    for name in ("evil.py", "modeling_evil.py", "configuration_evil.py", "__init__.py"):
        (model / name).write_text(code)
    classes = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification")
    edit(model / "config.json", auto_map=dict.fromkeys(classes, "evil.Evil"), model_type=model_type)
    edit(
        model / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
        tokenizer_class="Evil" if model_type == "evil" else "BertTokenizer",
    )
    if not tokenizer_json:
        (model / "tokenizer.json").unlink()
    done = _asked(model)
    assert "Do you wish to run the custom code" not in done.stdout + done.stderr
    assert not marker.exists()


def _asked(model: Path) -> subprocess.CompletedProcess[str]:
    """Encode with somebody at the keyboard who says yes to everything."""
    return subprocess.run(
        [sys.executable, "-c", "import sys\ntell = lambda **facts: print(facts)\n" + ENCODE, str(model)],
        input="y\n" * 10,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_kernels_from_the_hub_are_refused(model: Path) -> None:
    edit(model / "config.json", attn_implementation="someone/kernel")
    assert "Code of a model is never run" in refusal(model)


def test_an_adapter_is_refused(model: Path) -> None:
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    assert "adapter_config.json" in refusal(model)


@pytest.mark.parametrize("path", ["../../../etc", "/etc", "1_Pooling/../../.."])
def test_paths_in_modules_json_are_not_followed(model: Path, path: str) -> None:
    modules = [{"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models.Transformer"}]
    (model / "modules.json").write_text(json.dumps(modules))
    assert Encoder(str(model), device="cpu").encode(["a"]).shape == (1, 32)
    modules[0]["type"] = "os.system"
    (model / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EncoderUnavailable, match="'system', which is not implemented"):
        Encoder(str(model))


def test_weights_outside_of_the_folder(model: Path, tiny_bert: str) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
    outside = {"embeddings.word_embeddings.weight": f"{tiny_bert}/model.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": outside}))
    assert "names weights outside of its folder" in refusal(model)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/stdin", "nowhere"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_links_to_what_is_no_file(model: Path, name: str, target: str) -> None:
    (model / name).unlink()
    (model / name).symlink_to(target)
    with pytest.raises(EncoderUnavailable):
        Encoder(str(model))


# Sizes


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_header(path: Path, header: Any, rest: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def longer_than_the_file(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


def gigabytes(path: Path) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2 << 30))
        file.truncate(3 << 30)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_json(path: Path) -> None:
    write_header(path, b"{" * 50_000, b"")


def doubled(path: Path) -> None:
    header, rest = header_of(path)
    name = next(name for name in header if name != "__metadata__")
    text = json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(header[name])}}}"
    write_header(path, text.encode(), rest)


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        header, rest = header_of(path)
        change(next(tensor for name, tensor in header.items() if name.endswith("word_embeddings.weight")))
        write_header(path, header, rest)

    return harm


HARMS: dict[str, Callable[[Path], None]] = {
    "header longer than the file": longer_than_the_file,
    "header of gigabytes": gigabytes,
    "empty": empty,
    "no JSON": no_json,
    "a name twice": doubled,
    "negative": changed(lambda tensor: tensor.update(data_offsets=[-8, tensor["data_offsets"][1]])),
    "outside": changed(lambda tensor: tensor.update(data_offsets=[2**60, 2**61])),
    "overlapping": changed(lambda tensor: tensor.update(data_offsets=[0, tensor["data_offsets"][1]])),
    "another shape": changed(lambda tensor: tensor.update(shape=[30522, 33])),
    "a huge shape": changed(lambda tensor: tensor.update(shape=[2**40, 2**40])),
    "a negative shape": changed(lambda tensor: tensor.update(shape=[-1, -30522 * 32])),
    "another type": changed(lambda tensor: tensor.update(dtype="F999")),
    "no shape": changed(lambda tensor: tensor.pop("shape")),
    "a shape of texts": changed(lambda tensor: tensor.update(shape=["a", {}])),
}


@pytest.mark.parametrize("harm", HARMS)
def test_safetensors_that_lie(model: Path, harm: str) -> None:
    path = model / "model.safetensors"
    HARMS[harm](path)
    message = refusal(model)
    assert message.startswith(f"{path} is not a valid safetensors file: ")
    assert len(message) < 1000


CLAIMS = {
    "num_hidden_layers": 10**9,
    "hidden_size": 10**9,
    "vocab_size": 10**12,
    "max_position_embeddings": 10**9,
    "intermediate_size": 10**12,
    "type_vocab_size": 10**15,
    "num_labels": 10**9,
    "chunk_size_feed_forward": 10**70,
    "text_config": {"num_hidden_layers": 10**9},
}


def test_configs_that_claim_more_than_there_is(model: Path, tmp_path: Path) -> None:
    folders = []
    for key, claim in CLAIMS.items():
        folders.append(shutil.copytree(model, tmp_path / key))
        edit(tmp_path / key / "config.json", **{key: claim})
    for error in limited(ENCODE, *folders, mib=8192)["errors"]:
        assert "config.json" in error
        assert "10000" in error


@pytest.mark.parametrize(
    "claims",
    [
        {"hidden_size": 30_000, "num_attention_heads": 1},
        {"max_position_embeddings": 9_000_000},
        {"vocab_size": 9_999_999},
    ],
)
def test_configs_that_claim_much_more_than_the_weights_have(model: Path, claims: dict[str, int]) -> None:
    edit(model / "config.json", **claims)
    message = refusal(model)
    assert "describes a model with" in message and "but the weights hold" in message


def test_a_cross_encoder_that_claims_more(tmp_path: Path) -> None:
    folder = make_cross_encoder(tmp_path / "cross")
    edit(folder / "config.json", num_hidden_layers=10**9)
    assert "'num_hidden_layers' is 1000000000" in limited(ENCODE, folder, mib=8192)["errors"][0]


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"])
@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 100_000, "7", "null", '"a"', "\udcff", "{" + " " * (17 << 20)]
)
def test_json_made_to_do_harm(model: Path, name: str, content: str) -> None:
    path = model / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    try:
        files = ModelFiles(str(model))
        files.identity()
        check_weights(files)
    except RetrieverError as error:
        assert len(str(error)) < 1000


@FUZZED
@given(data=st.binary(max_size=200), length=st.integers(0, 2**64 - 1) | st.integers(0, 200))
def test_any_safetensors(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str, data: bytes, length: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_model"
    if not folder.exists():
        shutil.copytree(tiny_bert, folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + data)
    with pytest.raises(EncoderUnavailable):
        check_weights(ModelFiles(str(folder)))


# Tokenizers


def test_a_tokenizer_of_another_model(model: Path) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["cat"] = 10**6
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(EncoderUnavailable, match="produced the token id 1,000,000, but the model has only 30,522"):
        Encoder(str(model), device="cpu").encode(["cat"])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 100_000, b"\xff", b'{"model": {"type": "WordPiece", "vocab": 7}}']
)
def test_a_tokenizer_made_to_do_harm(model: Path, content: bytes) -> None:
    (model / "tokenizer.json").write_bytes(content)
    with pytest.raises(EncoderUnavailable, match="tokenizer"):
        Encoder(str(model), device="cpu").encode(["cat"])


def test_a_pad_token_beyond_everything(model: Path) -> None:
    edit(model / "config.json", pad_token_id=10**30)
    with pytest.raises(EncoderUnavailable, match="pad_token_id"):
        Reranker(str(model)).scores("a", ["b"])
