"""The one door to the compiler: `njit` here is the only way anything in lpsim is compiled.

Numba stamps a cached function with the modification time of the *one* file it stands in. An edit in
`core/` would leave callers in other files serving old bits from their caches. So every cache entry
is stamped with a digest of the whole package: any edit anywhere recompiles. The digest names the
directory too, since an entry of another version may not even load (it may name a class that is gone).
Where no directory can be written (a read-only installation and no home), functions are compiled
afresh in every process.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import numba
from numba.core import caching

PACKAGE = Path(__file__).parent
VERSIONS_KEPT = 4


@functools.cache
def package_digest() -> str:
    """SHA-256 over every source file and coefficient table of the package, names included."""
    digest = hashlib.sha256(numba.__version__.encode())
    paths = []
    for folder, folders, files in os.walk(PACKAGE):
        folders[:] = [name for name in folders if name != "__pycache__"]  # the caches themselves: many files
        paths += [Path(folder, name) for name in files]
    for path in sorted(paths):
        if path.suffix == ".py" or (path.suffix == ".json" and path.parent.name == "data"):
            digest.update(str(path.relative_to(PACKAGE)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


@functools.cache
def cache_directory() -> Path | None:
    """This version's directory in the first writable of $NUMBA_CACHE_DIR, __pycache__, the user's cache; or None."""
    candidates = [PACKAGE / "__pycache__"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        candidates.insert(0, Path(os.environ["NUMBA_CACHE_DIR"]))
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(user_cache):  # without a home directory "~" stays as it is
        candidates.append(Path(user_cache))
    for candidate in candidates:
        directory = candidate / "lpsim" / package_digest()[:16]
        if _writable(directory):
            _forget_old_versions(directory)
            return directory
    return None


def _forget_old_versions(directory: Path) -> None:
    """Remove the caches of all but the few versions used last; one that another process removes first is gone too."""
    with contextlib.suppress(OSError):
        versions = sorted(directory.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in versions[VERSIONS_KEPT:]:
            if old != directory:
                shutil.rmtree(old, ignore_errors=True)


class _PackageLocator(caching._CacheLocator):
    """Tells Numba where a function's cache lies and what makes it stale."""

    def __init__(self, py_func, py_file):
        self._file = Path(py_file)
        self._disambiguator = f"{py_func.__module__}-{py_func.__code__.co_firstlineno}"

    def get_cache_path(self):
        return str(cache_directory())

    def ensure_cache_path(self):
        os.makedirs(self.get_cache_path(), exist_ok=True)

    def get_source_stamp(self):
        if PACKAGE in self._file.parents:
            return package_digest()
        return package_digest() + hashlib.sha256(self._file.read_bytes()).hexdigest()  # a user's or a test's file

    def get_disambiguator(self):
        return self._disambiguator

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls(py_func, py_file)


class _PackageCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = (_PackageLocator,)


class _PackageCache(caching.FunctionCache):
    _impl_class = _PackageCacheImpl


def merged(function):
    """Like `njit`, but merged into its callers before they are compiled: one compilation instead of two.

    For a long function with one caller; a function that is called in many places would be compiled in each.
    """
    return _cached(numba.njit(nogil=True, error_model="numpy", inline="always")(function))


def njit(function):
    """Compile `function` without the interpreter lock and with NumPy's error model, cached as above.

    Never fastmath and never prange: results must not depend on the compiler's mood or on threads.
    """
    return _cached(numba.njit(nogil=True, error_model="numpy")(function))


def _cached(dispatcher):
    source = dispatcher.py_func.__code__.co_filename
    if cache_directory() is not None and os.path.exists(source):  # typed into a prompt: no file to stamp it with
        dispatcher._cache = _PackageCache(dispatcher.py_func)  # pyright: ignore[reportAttributeAccessIssue]
    return dispatcher
