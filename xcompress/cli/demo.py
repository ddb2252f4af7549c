"""`xcompress demo`: write a page that searches by meaning in the browser, and show it on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from xcompress.errors import InputError

TINY = "tiny"
"""The released model that is taken where there is one: a page is loaded."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
)
"""What the page may ask for: its own server alone. index.html says the same, for servers that do not."""


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to write the page.")] = Path("xcompress-demo"),
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A bundle's folder, or a released model; without it tiny, or what `embed` takes."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="Your own sentences, one a line or language<TAB>sentence (.gz and .xz too)."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Show the page until Ctrl-C.")] = True,
) -> None:
    """Write a page that searches sentences by meaning, in the browser alone, and serve it on this machine.

    The folder holds all that the page needs and works from any static web server. onnxruntime-web comes from npm.

    Example:  npm install onnxruntime-web && xcompress demo

    Example:  xcompress demo site --text faq.en.txt --model runs/minilm_ru3/bundle --no-serve
    """
    from xcompress.bundle.released import find_bundle, released_names
    from xcompress.console import emit
    from xcompress.demo.folder import write_demo

    if not 0 <= port <= 65535:
        raise InputError(f"demo: --port is {port}; give 0 to 65535")
    named = model or (TINY if TINY in released_names() else None)
    emit(str(write_demo(folder, find_bundle(named), text)))
    if serve:
        _serve(folder, port)


def _serve(folder: Path, port: int) -> None:
    """Show the folder until the user has seen enough."""
    from threading import Event

    from xcompress.console import say
    from xcompress.demo.folder import served_files
    from xcompress.web.server import Server

    try:
        server = Server(served_files(folder), port=port, policy=POLICY)
    except OSError as error:
        raise InputError(f"demo: port {port} cannot be had ({error.strerror}); give another --port, or 0") from error
    with server:
        say(f"{server.address}/ shows it, on this machine alone; Ctrl-C ends it")
        try:
            Event().wait()
        except KeyboardInterrupt:
            say(f"ended; any static web server shows {folder} as well")
