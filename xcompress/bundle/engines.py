"""Open a graph of a bundle with an engine: onnxruntime, or OpenVINO or a runtime of phones where it is installed."""

import ctypes
import errno
import functools
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from weakref import WeakSet

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xcompress.bundle.manifest import COREML_NOT_RUN, FLOAT, INPUTS, OUTPUT
from xcompress.bundle.native_calls import native_call
from xcompress.bundle.phone_runtimes import PhoneSession, Port, open_phone_session
from xcompress.errors import InputError, on_one_line
from xcompress.machine import available_cores, available_threads
from xcompress.metrics import Vectors
from xcompress.packages import install_command, is_installed
from xcompress.printable import counted
from xcompress.runtimes import COREML, PHONE_FILES, RUNTIMES

Engine = Literal["auto", "onnxruntime", "openvino", "executorch", "litert"]

_CPU = "CPUExecutionProvider"
_SINGLE_THREADED = ("mobile", "wasm", "coreml", *PHONE_FILES)
"""Targets on which an encoder should leave the other cores alone."""
_KERNELS_KEPT = 500
"""Kernels for shapes of earlier batches that OpenVINO keeps, in each stream. With its own limit of 5,000, memory grew
by 2 MB with each new shape, to 1.1 GB after 492 (tiny), and texts of mixed lengths took as long. With none, a sentence
took twice as long."""
_ONE_CORE = threading.Lock()
"""Held while OpenVINO's core is made: threads that open their first graphs at the same time would each make one."""
_open: WeakSet[Any] = WeakSet()
"""What `open_session` has opened, and OpenVINO's core."""


class OpenVinoSession:
    """A graph that is open in OpenVINO, with the methods of `onnxruntime.InferenceSession` that xcompress calls.

    Threads may share it: each has an inference request of its own.

    :param file: an ONNX graph, or an openvino_model.xml.
    :param threads: threads within an operator; 0 leaves the number to OpenVINO.
    :param exact: compute in float32 whatever is not quantised; otherwise, OpenVINO takes bfloat16 where the processor
        has it: a tenth faster for large batches, and a sentence has a slightly different vector among others.
    :param streams: give each of the threads a call of its own, in place of a part of each operator.
    """

    def __init__(self, file: Path, threads: int, *, exact: bool, streams: bool = False) -> None:
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        settings["CPU_RUNTIME_CACHE_CAPACITY"] = _KERNELS_KEPT
        if streams:
            settings |= {"NUM_STREAMS": threads, "PERFORMANCE_HINT": "THROUGHPUT"}
        if exact:
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        with _ONE_CORE:
            core = _core()
        self.model: Any = core.compile_model(str(file), "CPU", settings)
        self._requests = threading.local()

    def get_inputs(self) -> Sequence[Port]:
        """Return the inputs of the graph."""
        return [port for inputs in self.model.inputs for port in _ports(inputs)]

    def get_outputs(self) -> Sequence[Port]:
        """Return the outputs of the graph."""
        return [port for outputs in self.model.outputs for port in _ports(outputs)]

    def run(self, outputs: Sequence[str], feeds: Mapping[str, NDArray[np.int64]]) -> list[Vectors]:
        """Run the graph; return the outputs of these names."""
        if not hasattr(self._requests, "request"):
            self._requests.request = self.model.create_infer_request()
        request = self._requests.request
        request.infer(dict(feeds), share_inputs=True)
        return [request.get_tensor(name).data.copy() for name in outputs]  # the next call overwrites the data


Session: TypeAlias = onnxruntime.InferenceSession | OpenVinoSession | PhoneSession


def choose_engine(
    folder: Path, manifest: Mapping[str, Any], precision: str, graph: str, engine: str
) -> tuple[str, str]:
    """Return the engine to open a graph with, and the reason in a few words.

    :param graph: path of the graph inside the folder.
    :raises InputError: when the engine is unknown, not installed, or cannot read the graph.
    """
    if engine == "auto":
        if manifest.get("target") != "openvino":
            return "onnxruntime", "the bundle was not exported for OpenVINO"
        if not openvino_reads(manifest, precision, graph):
            return "onnxruntime", f"OpenVINO does not read {graph}"
        if not is_installed("openvino"):
            install = install_command("openvino")
            return "onnxruntime", f"the bundle was exported for OpenVINO, which is not installed; {install}"
        return "openvino", "the bundle was exported for OpenVINO, and it is installed"
    if engine == "coreml":
        raise InputError(
            f"engine: coreml is {COREML_NOT_RUN}; open {folder / COREML} there in an app, or choose onnxruntime"
        )
    if engine not in get_args(Engine):
        *names, last = get_args(Engine)
        raise InputError(f"engine: {str(engine)[:40]!r} is unknown; choose {', '.join(names)} or {last}")
    if engine in PHONE_FILES:
        _check_phone_file(folder, precision, engine, manifest)
    if engine in RUNTIMES and not is_installed(RUNTIMES[engine].run_by):
        raise InputError(f"engine: {engine} is not installed; {install_command(engine)}, or choose onnxruntime")
    if engine == "openvino" and not openvino_reads(manifest, precision, graph):
        raise InputError(
            f"{folder / graph}: only onnxruntime reads it; export it with --target openvino, or choose the engine "
            "onnxruntime"
        )
    return engine, "asked for"


def _check_phone_file(folder: Path, precision: str, engine: str, manifest: Mapping[str, Any]) -> None:
    """Check that the bundle has the file of a runtime of phones, in this precision."""
    label = RUNTIMES[engine].label
    if PHONE_FILES[engine] not in manifest.get("files", {}):
        raise InputError(f"{folder}: has no file for {label}; export it with --target {engine}")
    if precision != manifest.get("precision"):
        raise InputError(
            f"{folder}: its file for {label} is in {manifest.get('precision')}, not {precision}; leave "
            "the precision out"
        )


def openvino_reads(manifest: Mapping[str, Any], precision: str, graph: str) -> bool:
    """Tell whether OpenVINO can open a graph: an ONNX file with operators of the standard alone."""
    return graph.endswith(".onnx") and (precision in FLOAT or manifest.get("operators") == "standard")


def default_threads(manifest: Mapping[str, Any]) -> int:
    """Return the threads of a bundle's encoder: 1 for phones and browsers, else 0, the engine's choice.

    The engines choose the cores of the machine. Where this process may use only a part of it, that part is returned.
    """
    if manifest.get("target") in _SINGLE_THREADED:
        return 1
    return 0 if available_threads() == os.cpu_count() else available_cores()


@native_call()
def open_session(
    file: Path, manifest: Mapping[str, Any], precision: str, engine: str, threads: int, *, streams: bool = False
) -> Session:
    """Open a graph with the cheapest options of its target, and refuse one that does not fit the manifest.

    :param precision: that of the graph.
    :param engine: onnxruntime, openvino, or a runtime of phones, whose file `file` is.
    :param threads: threads within an operator; 0 leaves the number to the engine.
    :param streams: open it for as many calls at a time as there are threads, each of which takes one thread; not for
        runtimes of phones.
    :raises InputError: when the engine cannot open the file, or it is no sentence encoder of this dimension.
    """
    try:
        if engine == "openvino":
            session: Session = OpenVinoSession(file, threads, exact=precision in FLOAT, streams=streams)
        elif engine in PHONE_FILES:
            session = open_phone_session(engine, file, threads)
        else:
            # The threads that call the session do the work themselves.
            session = open_in_onnxruntime(file, manifest.get("target", "cpu"), 1 if streams else threads)
    except Exception as error:  # neither engine's errors have a common base class below Exception
        advice = "export the bundle again"
        if os.strerror(errno.EAGAIN) in str(error):  # no thread can start
            advice = "allow more processes (ulimit -u), or use 1 thread (--threads 1)"
        raise InputError(f"{file}: {engine} cannot open it ({on_one_line(error)}); {advice}") from error
    _open.add(session)
    _check_tensors(session, file, manifest["dimension"])
    # Return the memory that opening the graph took for a while, if the C library can (glibc).
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(0)
    return session


def _check_tensors(session: Session, file: Path, dimension: int) -> None:
    """Check the inputs and the output of a graph. Only onnxruntime tells their types.

    :raises InputError: when they are not those of a sentence encoder of this dimension.
    """
    inputs = session.get_inputs()
    unknown = [entry.name for entry in inputs if entry.name not in INPUTS]
    if unknown:
        raise InputError(
            f"{file}: has an input {unknown[0]!r}, so it is not a sentence encoder; export the bundle again"
        )
    output = next((entry for entry in session.get_outputs() if entry.name == OUTPUT and entry.shape), None)
    if output is None:
        raise InputError(f"{file}: has no output {OUTPUT!r}, so it is not a sentence encoder; export the bundle again")
    for entry, kind in [*((entry, "tensor(int64)") for entry in inputs), (output, "tensor(float)")]:
        if (found := getattr(entry, "type", kind)) != kind:
            raise InputError(f"{file}: {entry.name!r} is a {found}, not a {kind}; export the bundle again")
    if len(output.shape) != 2:
        raise InputError(
            f"{file}: outputs the shape {list(output.shape)}, not a vector for each text; export the bundle again"
        )
    width = output.shape[1]
    if isinstance(width, int) and width != dimension:
        raise InputError(
            f"{file}: outputs {counted(width, 'dimension')}, manifest.json says dimension {dimension}; export the "
            "bundle again"
        )


def takes_several_calls(session: Session) -> bool:
    """Tell whether a graph can be opened for several calls at a time: on the CPU, in onnxruntime or OpenVINO."""
    if isinstance(session, onnxruntime.InferenceSession):
        return bool(session.get_providers()[0] == _CPU)  # whoever holds the session may have moved it to a GPU
    return isinstance(session, OpenVinoSession)


def open_in_onnxruntime(file: Path, target: str, threads: int) -> onnxruntime.InferenceSession:
    """Open a graph with options that were measured with benchmarks/export_memory.py.

    :param target: what the bundle was exported for.
    :param threads: threads within an operator; 0 leaves the number to onnxruntime.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # The arena keeps the memory of the largest batch; on a phone other apps need it.
    options.enable_cpu_mem_arena = target != "mobile"
    # A memory pattern is kept for every shape seen, and batches of text have a new shape nearly every time.
    options.enable_mem_pattern = False
    # Threads that spin after a call take the core from the caller: twice the time at batch 1, 16 tokens.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return open_on_cpu(file, options)


@native_call()
def open_on_cpu(graph: Path | bytes, options: onnxruntime.SessionOptions | None = None) -> onnxruntime.InferenceSession:
    """Open a graph in onnxruntime on the CPU, from a file or from memory, without log messages.

    :param options: None takes onnxruntime's own.
    """
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(graph) if isinstance(graph, Path) else graph
    # Its fallback is the CPU again, and prints on standard output: where no thread can start, for example.
    return onnxruntime.InferenceSession(source, options, providers=[_CPU], enable_fallback=0)


def write_optimised(graph: Path, file: Path, entries: Mapping[str, str]) -> None:
    """Write a graph as onnxruntime has it after the optimisations that hold for every CPU.

    :param entries: how to write it, as configuration entries of a session.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(file)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    open_on_cpu(graph, options)


@functools.cache
def _core() -> Any:  # noqa: ANN401 - openvino.Core; the package may be missing
    """Return OpenVINO's core, of which a process has one.

    On Linux each core sets a stack for signal handlers, and removes it when the last model of the core goes. Of two
    cores, the second would then put back the removed stack of the first, and Ctrl-C would end in a segmentation fault.
    """
    import openvino

    # The package makes its table of types on first use. Two threads that do so at once would wait for each other.
    _ = openvino.Tensor(np.zeros(1, np.int64)).data
    core = openvino.Core()
    _open.add(core)
    return core


def _keep_open() -> None:
    """Never close what is open, in a process that was forked: its end would wait for the engines' threads.

    These have stayed in the other process. The engines work without them.
    """
    for held in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_open)


def _ports(port: Any) -> list[Port]:  # noqa: ANN401 - openvino.ConstOutput; the package may be missing
    """Return a port of OpenVINO under each of its names."""
    shape = tuple(size.get_length() if size.is_static else str(size) for size in port.partial_shape)
    return [Port(name, shape) for name in sorted(port.names)]
