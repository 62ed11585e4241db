"""Triton's language is made the interpreter's once a launch.

Triton 3.7 does so again for each function that a kernel calls, by looking through all
members of its modules: about half of the time of these tests. What is in place already
stays as it is until the launch ends.
"""

import inspect

import triton.language as tl
from triton.runtime import interpreter

PATCH_LANG = interpreter._patch_lang


def _is_patched(lang) -> bool:
    """What stands for a function of the language is no builtin itself."""
    return not tl.core.is_builtin(lang.load)


def patch_lang(fn):
    """Of a kernel that is launched, or of a function that one calls."""
    modules = [x for x in fn.__globals__.values() if inspect.ismodule(x)]
    if all(_is_patched(x) for x in modules if x in (tl, tl.core)):
        return interpreter._LangPatchScope()
    return PATCH_LANG(fn)


def patch_once_a_launch() -> None:
    interpreter._patch_lang = patch_lang
