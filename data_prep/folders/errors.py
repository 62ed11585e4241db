"""Mistakes in what the user gave, and the one place that reports them."""

import lzma
import sys
import tarfile
import zlib
from collections.abc import Callable

# what reading a damaged archive, or compressed file, raises
DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)
OWN_PACKAGES = ("data_prep", "fairseq_transnormer")
INSTALL = (
    "install what data preparation needs with: pip install -e '.[fairseq,data]', see "
    "README.md"
)


class InputError(Exception):
    """A mistake in an option, a file or a download; its text is the whole message."""


def run_command(name: str, command: Callable[[], None], failure: int = 2) -> int:
    """Runs ``command``; returns the exit code, after one line on stderr for a mistake.

    Everything else that is raised is a bug of ours and keeps its traceback.
    """
    try:
        command()
    except InputError as error:
        message, code = " ".join(str(error).splitlines()), failure
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package in OWN_PACKAGES:
            raise
        message, code = f"{package} cannot be imported ({error}); {INSTALL}", failure
    except UnicodeEncodeError as error:  # of a name or label on the command line
        characters = error.object[error.start : error.end]
        message = f"{characters!r}: not UTF-8, so that it cannot be written"
        code = failure
    except KeyboardInterrupt:
        message, code = "interrupted; run the same command again to resume", 130
    except BrokenPipeError:
        raise  # no mistake: a reader of stdout has seen enough
    except OSError as error:  # disk full, no permission
        where = f"{error.filename}: " if error.filename else ""
        message, code = f"{where}{error.strerror or error}", failure
    else:
        return 0
    print(f"{name}: error: {message}", file=sys.stderr)
    return code
