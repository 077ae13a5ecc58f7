"""Files that survive a crash: written beside and renamed, read up to the last whole line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bscrit.errors import UserError


def write_text(path: Path, text: str, lasting: bool = True) -> None:
    """Write a whole file or nothing: a reader sees the old text or the new, never a part.

    Args:
        lasting: whether it must outlive a machine that goes down now, which takes some milliseconds.
    """
    with replacing(path, lasting) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN and infinity are a bug of the caller's and raise ValueError)."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def whole_json(path: Path) -> Any | None:
    """JSON as `write_json` leaves it; None where there is no such file, or where a crash tore it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def check_ordinary(folder: Path) -> None:
    """Refuse links, pipes and devices anywhere in a folder: somebody else's may lead out of it, or never end.

    Raises:
        UserError: names the first of them.
    """
    folders = [str(folder)]
    while folders:
        with readable(folder), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                    kind = (
                        "a symbolic link, which is not followed" if entry.is_symlink() else "no ordinary file"
                    )
                    raise UserError(
                        entry.path, f"is {kind}", "put an ordinary file in its place, or remove it"
                    )


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to read into a sentence."""
    try:
        yield
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise UserError(str(error.filename or path), what, "check what it is, and its permissions") from error


@contextlib.contextmanager
def replacing(path: Path, lasting: bool = True) -> Iterator[IO[bytes]]:
    """A binary stream that becomes `path` when the block ends well, and vanishes when it does not."""
    with explaining(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                if lasting:
                    os.fsync(stream.fileno())
            Path(temporary).chmod(0o666 & ~_UMASK)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into a sentence that names the file."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space and run the same command again: what is finished is kept",
            errno.EDQUOT: "free some of your quota and run the same command again: what is finished is kept",
            errno.EACCES: "choose a folder that you may write, with --out",
            errno.EROFS: "choose a folder that you may write, with --out",
            errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
            errno.EEXIST: "something else has this name: choose another folder, with --out",
            errno.ENOTDIR: "something else has this name: choose another folder, with --out",
        }
        remedy = remedies.get(error.errno or 0, "check the path, or choose another one")
        raise UserError(str(path), error.strerror or "cannot be written", remedy) from error


def whole_lines(path: Path) -> list[str]:
    """The lines of an appended file that are complete; a torn last line is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()


def stamp(path: Path) -> tuple[int, ...] | None:
    """An identity that changes whenever a file is written beside and renamed; None where there is no file."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _read_umask()
