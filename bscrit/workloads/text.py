"""Text that needs no download: the standard library's source, or files of the user's."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from bscrit.errors import UserError


def read_text(data: str) -> bytes:
    """The files that `data` names, one after the other, each on lines of its own.

    Args:
        data: "python", or the path of a file or a folder, beside the spec or where Python was started.

    Raises:
        ValueError: there is no such text; the sentence names the key.
    """
    texts = []
    for file in _files(data):
        try:
            texts.append(file.read_bytes())
        except OSError as error:
            raise ValueError(f"data = {data!r}: {file} can't be read: {error.strerror}") from None
        if b"\0" in texts[-1]:
            raise ValueError(f"data = {data!r}: {file} holds zero bytes, so it is not text in UTF-8")
    return b"\n".join(texts)


def _files(data: str) -> list[Path]:
    """In the order of their names, hidden ones left out."""
    if not isinstance(data, str) or not data:
        raise ValueError(f'data = {data!r} must be "python", or the path of a text file or a folder of them')
    if data == "python":
        return _standard_library()
    # The spec's folder comes first on a worker's import path, where a user's own workload is found too.
    folders = dict.fromkeys(Path(folder).absolute() for folder in (*sys.path[:1], ""))
    path = next((folder / data for folder in folders if (folder / data).exists()), None)
    if path is None:
        places = "" if Path(data).is_absolute() else f" in {' or '.join(map(str, folders))}"
        raise ValueError(f'data = {data!r} is neither "python" nor a file or folder{places}')
    if not path.is_dir():
        return [path]
    inside = (file.relative_to(path) for file in path.rglob("*"))
    shown = sorted(file.parts for file in inside if not any(part.startswith(".") for part in file.parts))
    files = [file for parts in shown if (file := path.joinpath(*parts)).is_file()]
    if not files:
        raise ValueError(f"data = {data!r} is a folder without files: {path}")
    return files


def _standard_library() -> list[Path]:
    """Source files of the modules that every installation of one version of Python has."""
    folder = Path(sysconfig.get_path("stdlib"))
    files: list[tuple[str, ...]] = []
    for name in sys.stdlib_module_names - _NOT_EVERYWHERE - _TABLES:
        for file in (folder / f"{name}.py", *(folder / name).rglob("*.py")):
            parts = file.relative_to(folder).parts
            if file.is_file() and not _TESTS & set(parts):
                files.append(parts)
    if not files:
        raise UserError(
            '[workload] data = "python"',
            f"{folder} holds no source files",
            "name a text file, or a folder of them",
        )
    return [folder.joinpath(*parts) for parts in sorted(files)]


# Linux distributions ship these apart from Python, some of them changed.
_NOT_EVERYWHERE = {"distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtle", "turtledemo"}
# Tables of characters and prose: a megabyte each, and unlike the rest.
_TABLES = {"encodings", "pydoc_data"}
_TESTS = {"test", "tests", "idle_test"}
