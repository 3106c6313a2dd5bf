"""Python programs run in a process of their own, on the sources or on a copy of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_python(code: str, source: Path = ROOT, home: Path | None = None) -> str:
    """Standard output of `python -c code` with `source` first on the path; AssertionError if it fails.

    Runs in `source`, without Numba's environment variables. home=None: HOME is not set, and the user database
    knows no home either (a container that runs under a foreign user id).
    """
    dropped = ("HOME", "XDG_CACHE_HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("NUMBA_")}
    environment = kept | {"PYTHONPATH": str(source)}
    if home is None:
        code = "import pwd\ndef unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown\n" + code
    else:
        environment["HOME"] = str(home)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copy_package(target: Path) -> Path:
    """A copy of the package lpsim (sources and data, no caches) in the folder `target`; returns `target`."""
    shutil.copytree(ROOT / "lpsim", target / "lpsim", ignore=shutil.ignore_patterns("__pycache__"))
    return target


def forbid_caches(package: Path) -> None:
    """Make sure that nobody, root included, can write a cache into `package`.

    Permissions do not stop root, who runs the tests in a container. A file that stands where each __pycache__
    folder would be does: creating the folder, or anything in it, is an OSError for every user.
    """
    for folder in [package, *(p for p in package.rglob("*") if p.is_dir())]:
        (folder / "__pycache__").write_text("")
