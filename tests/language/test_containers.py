"""Files of language models: what is in them, and what becomes of damaged ones."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from tests.language.language_files import compressed, described, section_file, task_described, task_file, weights_apart
from tflgpu.language import open_language_file
from tflgpu.language.containers import MODEL
from tflgpu.language.language_metadata import Affixes, LanguageMetadata
from tflgpu.language.prompt import written_prompt
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder

JSON = b'{"version": "1.0", "note": "a tokenizer, seen as bytes alone"}'

METADATA = described("""
    start_token { token_ids { ids: 2 } }
    stop_tokens { token_str: "<end_of_turn>" } stop_tokens { token_ids { ids: 1 ids: 300 } }
    prompt_templates { user { prefix: "<user>\\n" suffix: "<end>\\n" } model { prefix: "<model>\\n" } }
    max_num_tokens: 1280
""")


def sections(path: Path) -> Path:
    """A model of images, the language model, its tokenizer and metadata."""
    parts = [
        (5, METADATA, ""),
        (6, compressed(JSON), ""),
        (3, b"an encoder", "tf_lite_vision_encoder"),
        (3, b"the model", "tf_lite_prefill_decode"),
    ]
    return section_file(path, parts)


def test_sections(tmp_path: Path) -> None:
    file = open_language_file(sections(tmp_path / "any.name"))
    assert list(file.models) == ["TF_LITE_VISION_ENCODER", MODEL]
    assert file.model() == b"the model"
    assert file.tokenizer is not None and file.tokenizer.data == JSON
    assert file.metadata.stops == ("<end_of_turn>", (1, 300))
    assert written_prompt(file.metadata, "Hi") == "<user>\nHi<end>\n<model>\n"


def test_task(tmp_path: Path) -> None:
    metadata = task_described("""
        start_token: "<s>" stop_tokens: "</s>" stop_tokens: "<end>" input_output_normalizations: 1
        prompt_template { session_prefix: "Be kind." prompt_prefix: "<user>" prompt_suffix: "<model>" }
    """)
    file = open_language_file(task_file(tmp_path / "file.task", b"the model", b"\x0a\x01x", metadata))
    assert file.model() == b"the model"
    assert file.tokenizer is not None and file.tokenizer.package == "sentencepiece"
    assert file.metadata == LanguageMetadata(
        start="<s>", stops=("</s>", "<end>"), user=Affixes("Be kind.<user>", "<model>"), bytes_as_letters=True
    )


def test_a_start_token_may_be_a_number(tmp_path: Path) -> None:
    path = task_file(tmp_path / "file.task", b"", b"{", task_described("start_token_id: 0"))
    assert open_language_file(path).metadata.start == (0,)


def test_any_other_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x18\0\0\0TFL3")
    file = open_language_file(path)
    assert (file.model(), file.tokenizer, file.metadata) == (path.read_bytes(), None, LanguageMetadata())


def test_templates_of_jinja() -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}[model]{% endif %}"
    assert written_prompt(LanguageMetadata(jinja_template=template), "Hi") == "[user]Hi[model]"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no') }}", "{% for %}", "{{ messages.__class__.__mro__[1].__subclasses__() }}", "{{ 1 / 0 }}"],
)
def test_a_template_that_fails_or_reaches_out(template: str) -> None:
    with pytest.raises(tflgpu.ModelError, match="template fails"):
        written_prompt(LanguageMetadata(jinja_template=template), "Hi")


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than 2 s"),
        ("{{ 9 ** (9 ** 9) }}", "takes more than 2 s"),
        ("{{ 'a' * 10 ** 10 }}", "takes more than .* bytes of memory"),
        ("{{ messages|tojson(indent=2 ** 31 - 1) }}", "takes more than .* bytes of memory"),
        ("{{ 'a' * 3000000 }}", "a text of 3000000 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_template_without_end(template: str, limit: str) -> None:
    with pytest.raises(tflgpu.ModelError, match=f"template fails: .*{limit}"):
        written_prompt(LanguageMetadata(jinja_template=template), "Hi")


def test_missing_parts(tmp_path: Path) -> None:
    file = open_language_file(section_file(tmp_path / "a", [(3, b"x", "tf_lite_embedder")]))
    with pytest.raises(tflgpu.ModelError, match="no TF_LITE_PREFILL_DECODE; it has: TF_LITE_EMBEDDER"):
        file.model()
    with pytest.raises(FileNotFoundError):
        open_language_file(tmp_path / "nothing")


@pytest.fixture(params=["float", "weight_only_int8", "int4_blocks_of_32"])
def decoder(shared: Path, request: pytest.FixtureRequest) -> bytes:
    return (shared / f"language/decoder_{request.param}.tflite").read_bytes()


@pytest.mark.parametrize("first", ["model", "weights"])
def test_weights_in_a_section_of_their_own(decoder: bytes, tmp_path: Path, first: str) -> None:
    """All constants of both signatures are those of the whole file, and lie in the bytes that the file gives."""
    model, weights = weights_apart(decoder)
    assert len(weights) > len(decoder) / 3
    parts = [(7, weights, "tf_lite_prefill_decode"), (3, model, ""), (7, b"of another", "tf_lite_embedder")]
    read = open_language_file(section_file(tmp_path / "file", parts[:: 1 if first == "weights" else -1])).model()
    assert read.endswith(weights)
    whole = np.frombuffer(read, np.uint8)
    for one, other in zip(read_model(read).subgraphs, read_model(decoder).subgraphs, strict=True):
        assert (one.operators, one.inputs, one.outputs) == (other.operators, other.inputs, other.outputs)
        for found, right in zip(one.tensors, other.tensors, strict=True):
            assert (found.name, found.shape, found.quantization) == (right.name, right.shape, right.quantization)
            assert (found.data is None) == (right.data is None)
            if found.data is not None and right.data is not None:
                np.testing.assert_array_equal(found.data, right.data)
                assert np.shares_memory(found.data, whole)


def test_litert_reads_weights_that_were_in_a_section(decoder: bytes, tmp_path: Path) -> None:
    model, weights = weights_apart(decoder)
    read = open_language_file(section_file(tmp_path / "file", [(3, model, ""), (7, weights, "")])).model()
    steps = [Interpreter(model_content=data).get_signature_runner("decode") for data in (decoder, read)]
    draw = np.random.default_rng(0)
    inputs = {
        name: np.zeros(detail["shape"], detail["dtype"])
        if detail["dtype"] != np.float32
        else draw.normal(size=detail["shape"]).astype(np.float32)
        for name, detail in steps[0].get_input_details().items()
    }
    expected, found = (step(**inputs) for step in steps)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_damaged_weights(shared: Path, tmp_path: Path) -> None:
    decoder = (shared / "language/decoder_float.tflite").read_bytes()
    model, weights = weights_apart(decoder)

    def fails(match: str, *parts: tuple[int, bytes, str]) -> None:
        with pytest.raises(tflgpu.ModelError, match=match):
            open_language_file(section_file(tmp_path / "file", parts)).model()

    fails(r"external buffer \d+ of the model is in the group 'tflite_weights', .* it has no weights", (3, model, ""))
    fails("it has no weights", (3, model, ""), (7, weights, "tf_lite_embedder"))
    fails(
        r"external buffer \d+ of the model lies in bytes \d+ to \d+ of 'tflite_weights', which has",
        (3, model, ""),
        (7, weights[:-1], ""),
    )
    fails(
        "in the group 'elsewhere', which is not in the file; it has 'tflite_weights'",
        (3, weights_apart(decoder, "elsewhere")[0], ""),
        (7, weights, ""),
    )
    fails("has the packing 'tiled'", (3, weights_apart(decoder, packing="tiled")[0], ""), (7, weights, ""))
    with pytest.raises(tflgpu.ModelError, match=r"has its values in external buffer \d+, outside of the file"):
        read_model(model)


def test_each_bit_of_small_models_with_weights(tmp_path: Path) -> None:
    """Whatever is changed in the model: it is read, or there is a ModelError."""
    builder = ModelBuilder()
    x, y = builder.input((2, 8)), builder.tensor((2, 8))
    builder.op("ADD", [x, builder.constant(np.arange(8, dtype=np.float32))], [y])
    model, weights = weights_apart(builder.finish([y]), least=32)
    failed = 0
    for place in range(len(model)):
        data = bytearray(model)
        data[place] ^= 1 << place % 8
        file = open_language_file(section_file(tmp_path / "file", [(3, bytes(data), ""), (7, weights, "")]))
        try:
            read_model(file.model())
        except tflgpu.ModelError:
            failed += 1
    assert len(model) // 4 < failed < len(model)


def test_damaged_sections(tmp_path: Path) -> None:
    """Each byte of the table changed, and each length that the file could have been cut to: never another error."""
    path = sections(tmp_path / "file")
    whole = path.read_bytes()
    table = int.from_bytes(whole[24:32], "little")
    draw = np.random.default_rng(0)
    cut = [whole[:n] for n in (0, 7, 8, 20, 31, 32, 40, table - 1, table, 1 << 14, len(whole) - 1)]
    changed = []
    for place in range(8, table):
        data = bytearray(whole)
        data[place] ^= int(draw.integers(1, 256))
        changed.append(bytes(data))
    failed = 0
    for data in [*cut, *changed]:
        path.write_bytes(data)
        try:
            open_language_file(path)
        except tflgpu.ModelError as error:
            failed += 1
            assert str(error).startswith(f"{path}: ")
    assert failed > len(changed) // 4


def test_damaged_metadata(tmp_path: Path) -> None:
    for metadata in (METADATA[:-1], b"\xff" * 12, bytes([3]), b"\x0a\x03\x0a\x01\xff"):
        with pytest.raises(tflgpu.ModelError, match="metadata are damaged"):
            open_language_file(section_file(tmp_path / "file", [(5, metadata, ""), (3, b"x", "")]))


@pytest.mark.parametrize(
    "tokenizer", [b"", b"\x05" + bytes(7) + b"no zlib", (9).to_bytes(8, "little") + compressed(b"x")[8:], b"\xff" * 20]
)
def test_damaged_tokenizers(tmp_path: Path, tokenizer: bytes) -> None:
    with pytest.raises(tflgpu.ModelError, match="tokenizer is damaged"):
        open_language_file(section_file(tmp_path / "file", [(6, tokenizer, ""), (3, b"x", "")]))


def test_damaged_tasks(tmp_path: Path) -> None:
    whole = task_file(tmp_path / "file", b"the model", b"{}", b"").read_bytes()
    path = tmp_path / "damaged"
    path.write_bytes(whole[:-30])
    with pytest.raises(tflgpu.ModelError, match=r"\.task file is damaged"):
        open_language_file(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MODEL, b"0" * 1000)
    with pytest.raises(tflgpu.ModelError, match="is compressed"):
        open_language_file(path)
    path.write_bytes(whole.replace(b"the model", b"another 1"))  # of another checksum
    with pytest.raises(tflgpu.ModelError, match=r"\.task file is damaged"):
        open_language_file(path).model()
