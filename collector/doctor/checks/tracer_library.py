"""Is the tracer there for jobs to load, and does the loader find CUPTI for it?"""

from __future__ import annotations

import ctypes.util
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector.doctor.check import Check, Finding, Site, Stage
from collector.tracer.library import INJECTION_VARIABLE, library_path

PLACES: Final = ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")
CUPTI_VARIABLE: Final = "TRUELOAD_CUPTI_PATH"


def _run(site: Site) -> Iterator[Finding]:
    library = library_path()
    try:
        mode = library.stat().st_mode
    except OSError as error:
        fix = "install trueload anew; from a source tree: python build_native.py"
        yield Finding("not built", ok=False, reason=f"{library}: {error.strerror}", fix=fix)
        return
    if mode & stat.S_IROTH and all(folder.stat().st_mode & stat.S_IXOTH for folder in library.parents):
        yield Finding(str(library))
    else:
        fix = "install trueload where all users may read (not below /root or a home)"
        why = "users of jobs may not read it, and their programs run untraced"
        yield Finding(str(library), ok=False, reason=why, fix=fix)
    yield _cupti(site)
    taken = site.environ.get(INJECTION_VARIABLE)
    if taken and Path(taken).name != library.name:
        why = f"it names {taken}: what is started from here is not traced by us"
        yield Finding(
            f"{INJECTION_VARIABLE} is taken", ok=False, reason=why, fix="unset it, unless that tool is wanted"
        )


def _cupti(site: Site) -> Finding:
    named = site.environ.get(CUPTI_VARIABLE)
    if named:
        ok = Path(named).is_file()
        return Finding(
            f"CUPTI: {named}", ok=ok, reason="" if ok else "not there", fix="" if ok else "mend the variable"
        )
    found = ctypes.util.find_library("cupti")
    if found is None:
        paths = (path for place in PLACES for path in sorted(Path(place).glob("libcupti.so.*")))
        found = next((str(path) for path in paths), None)
    if found is not None:
        return Finding(f"CUPTI: {found}")
    return Finding(
        "no CUPTI outside of jobs",
        ok=None,
        reason="PyTorch, JAX and CUDA images bring their own; a program without one is not traced",
        fix=f"install the cuda-cupti package of the driver's CUDA release, or name it by {CUPTI_VARIABLE}",
    )


CHECK = Check("tracer_library", "whether jobs can load the tracer, and find CUPTI", Stage.TRACER, _run)
