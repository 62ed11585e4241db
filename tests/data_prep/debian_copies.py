"""Debian's packages in small: what is in them, and .deb files of it."""

import dataclasses
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from data_prep.documentation.debian_docs import READERS
from data_prep.documentation.debian_packages import Package

VERSION = "1.0-1"

RST = """.. _label:

Heading of the page
===================

The function :c:func:`kmalloc` takes a *size* and ``flags``, see `the page <x.html>`_.
It continues here::

    code that is left out of the text

A paragraph after the code, number {number}, which is kept here.
"""
HTML = """<html><head><title>No title in the text here</title></head><body>
<div class="navheader"><p>Go to the previous page of this book</p></div>
<p>Words of the page {number} with <code>a name</code> are<br/> kept in one line.</p>
<pre>SELECT code FROM page that is left out;</pre></body></html>
"""
ENTRY = """Word{number} \\Word"{number}\\, n. [OE. word.]
   1. The thing that {{Another}} entry number {number} is about.
      [1913 Webster]

"""


def tar(files: dict[str, bytes], links: dict[str, str], compression: str) -> bytes:
    """A tar of files, and of symbolic links with their targets."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w:{compression}") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in links.items():
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return content.getvalue()


def deb(
    name: str,
    version: str,
    files: dict[str, bytes],
    links: dict[str, str] | None = None,
    compression: str = "xz",
) -> bytes:
    """A package of ``files``; ``compression`` is gz, bz2, xz or none at all."""
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\n".encode()
    suffix = f".{compression}" if compression else ""
    members = {
        "debian-binary": b"2.0\n",
        f"control.tar{suffix}": tar({"control": control}, {}, compression),
        f"data.tar{suffix}": tar(files, links or {}, compression),
    }
    return ar(members)


def ar(members: dict[str, bytes]) -> bytes:
    """An archive of ``members``, which begin at even bytes."""
    content = b"!<arch>\n"
    for name, data in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n"
        content += header.encode() + data + b"\n" * (len(data) % 2)
    return content


LICENCE = "   A licence in front of the entries that is left out.\n\n"
ENTRIES = LICENCE + "".join(ENTRY.format(number=f"{i:03}") for i in range(50))
DICTIONARY = gzip.compress(ENTRIES.encode() + b"   A byte \x92 of another encoding.\n")


def documentation() -> dict[str, bytes]:
    """What the packages have in usr/share: 250 documents and a translation."""
    linux = "usr/share/doc/linux-doc-6.1/Documentation"
    files = {"usr/share/dictd/gcide.dict.dz": DICTIONARY}
    foreign = b"Text of a translation that is not kept at all.\n"
    files[f"{linux}/translations/page.rst.gz"] = gzip.compress(foreign)
    for number in range(100):
        text = RST.format(number=number).encode()
        files[f"{linux}/page{number}.rst.gz"] = gzip.compress(text)
        text = RST.format(number=number + 1000).encode()
        files[f"usr/share/doc/python3.11/html/_sources/page{number}.rst.txt"] = text
        text = HTML.format(number=number).encode()
        files[f"usr/share/doc/postgresql-doc-15/html/page{number}.html"] = text
    return files


def write_packages(folder: Path, files: dict[str, bytes] | None = None) -> None:
    """The packages as .deb files of these, or of ``documentation()``."""
    files = documentation() if files is None else files
    for package in READERS:
        top = f"{package.documents}/"
        own = {name: data for name, data in files.items() if name.startswith(top)}
        content = deb(package.name, VERSION, own)
        (folder / f"{package.name}_{VERSION}_all.deb").write_bytes(content)


def pinned(package: Package, folder: Path) -> Package:
    """A package as it is in the folder."""
    content = (folder / f"{package.name}_{VERSION}_all.deb").read_bytes()
    return dataclasses.replace(
        package,
        version=VERSION,
        sha256=hashlib.sha256(content).hexdigest(),
        sha1=hashlib.sha1(content).hexdigest(),
    )
