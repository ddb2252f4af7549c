"""What happens to the folder of an open encoder changes no vector."""

import os
import pickle
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.released import released_folder
from xcompress.errors import InputError
from xcompress.python_process import python_command

MANY = SENTENCES * 20
"""So many that each thread takes batches of its own, from a graph that is opened once more."""
SEVERAL_KINDS = ["rain", "rain 😀", "the boat is late " * 100]
"""Texts that SentencePiece reads, and texts for which tokenizer.json is parsed."""


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("change", ["removed", "rewritten", "replaced"])
def test_a_graph_that_was_changed_since_is_not_opened_again(bundle_copy: Path, change: str, check: bool) -> None:
    encoder, graph = Encoder(bundle_copy, threads=2, check=check), bundle_copy / "onnx/model_quantized.onnx"
    expected = Encoder(bundle_copy, threads=1).encode(MANY, batch_size=1)
    if change == "removed":
        shutil.rmtree(bundle_copy)
    elif change == "rewritten":
        shutil.copyfile(bundle_copy / "onnx/model.onnx", graph)
    else:
        (bundle_copy / "onnx/model.onnx").replace(graph)
    np.testing.assert_array_equal(encoder.encode(MANY, batch_size=1), expected)


@pytest.mark.parametrize("change", ["link", "working folder", "removed"])
def test_an_open_encoder_keeps_its_vectors_whatever_happens_to_the_folder(working_folder: Path, change: str) -> None:
    for name in ("small", "tiny"):
        shutil.copytree(released_folder(name), name)
    Path("current").symlink_to("tiny")
    expected, encoder = Encoder("tiny").encode(SEVERAL_KINDS, long="mean"), Encoder("current")
    if change == "link":
        Path("current").unlink()
        Path("current").symlink_to("small")
    elif change == "working folder":
        os.chdir("/")
    else:
        shutil.rmtree("tiny")
    np.testing.assert_allclose(encoder.encode(SEVERAL_KINDS, long="mean"), expected, atol=1e-6)
    assert encoder.folder == working_folder / "tiny"


def test_an_encoder_can_be_pickled_and_copied(bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle_copy.parent)
    encoder = Encoder("copy", precision="fp32", threads=1)
    content = pickle.dumps(encoder)
    monkeypatch.chdir("/")
    for other in (pickle.loads(content), deepcopy(encoder)):
        assert (other.precision, other.engine) == ("fp32", "onnxruntime")
        np.testing.assert_array_equal(other.encode(SENTENCES), encoder.encode(SENTENCES))
    change_manifest(bundle_copy, prefix="")
    with pytest.raises(InputError, match="copy: was replaced by another bundle since it was opened; open the encoder"):
        pickle.loads(content)


def test_a_cache_that_is_named_from_the_current_folder_is_found_from_others(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the graph is not opened once more for many batches."""
    monkeypatch.setenv("XCOMPRESS_CACHE", "cache")
    encoder = Encoder(released_folder("tiny"), threads=2)
    monkeypatch.chdir("/")
    assert encoder._for_many_batches is not None


FORKED = """
import os, signal, sys
from xcompress import Encoder
encoder = Encoder(sys.argv[1], threads=2)
expected = encoder.encode(["rain"] * 70, batch_size=1)
child = os.fork()
if not child:
    signal.alarm(20)
    texts = ["rain"] * (70 if "many" in sys.argv else 1)
    assert (encoder.encode(texts, batch_size=1) == expected[: len(texts)]).all()
    assert (Encoder(sys.argv[1], threads=2).encode(texts) == expected[: len(texts)]).all()
    sys.exit()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def exit_code_of_fork(folder: Path, *options: str) -> str:
    """Encode in a process that is forked from one that has an open encoder; return what it ends with."""
    command = python_command("-c", FORKED, str(folder), *options)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
@pytest.mark.parametrize("options", [(), ("many",)])
def test_a_forked_process_encodes_and_ends(options: tuple[str, ...]) -> None:
    """A server forks its workers after it has opened the encoder: they would wait for threads that are not theirs."""
    assert exit_code_of_fork(bundle(), *options) == "0"
