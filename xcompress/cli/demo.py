"""`xcompress demo`: write a page that searches by meaning in the browser, and serve it on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from xcompress.cli.options import whole_number
from xcompress.errors import InputError

_DEFAULT_MODEL = "tiny"
"""The released model of the page, because a browser downloads it."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
)
"""Content security policy: the page may load from its own server only. index.html repeats it for other servers."""


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder to write the page to.")] = Path("xcompress-demo"),
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Bundle folder, name of a released model, or hub id of a bundle; default: tiny."
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Your own sentences: one per line, or language<TAB>sentence; also .gz and .xz.")
    ] = None,
    port: Annotated[int, whole_number("--port", 0, 65_535, help="Local port; 0 picks a free one.")] = 0,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Serve the page until Ctrl-C.")] = True,
) -> None:
    """Write and serve a page that searches sentences in the browser.

    The folder is self-contained: any static web server can serve it. Writing it needs onnxruntime-web from npm.

    Example:  npm install onnxruntime-web && xcompress demo

    Example:  xcompress demo site --text faq.en.txt --model runs/minilm_ru3/bundle --no-serve
    """
    from threading import Event

    from xcompress.bundle.released import find_bundle, released_names
    from xcompress.console import emit, say
    from xcompress.demo.folder import served_files, write_demo
    from xcompress.web.server import Server

    chosen = model or (_DEFAULT_MODEL if _DEFAULT_MODEL in released_names() else None)
    emit(str(write_demo(folder, find_bundle(chosen), text)))
    if not serve:
        return
    try:
        server = Server(served_files(folder), port=port, policy=POLICY)
    except OSError as error:
        raise InputError(f"demo: port {port} is not available ({error.strerror}); give another --port, or 0") from error
    with server:
        say(f"serving {server.address}/ on this machine only; press Ctrl-C to stop")
        try:
            Event().wait()
        except KeyboardInterrupt:
            say(f"stopped; any static web server can serve {folder}")
