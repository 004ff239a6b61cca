"""Archives of arrays: what comes back, and everything that is refused before it costs memory."""

import json
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_jax.core import archive
from prism_jax.core.archive import ABOUT, kind_of, opened, write_archive
from prism_jax.core.errors import DataError
from tests.support.files.archives import changed, npy, written

ARRAYS: dict[str, Any] = {
    "a/float": np.array([[1.0, np.pi], [-0.0, np.nan]]),
    "a/columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "a/part": np.arange(20)[::3],
    "a/text": np.array(["", "µ", "漢字"]),
    "a/flag": np.array([True, False]),
    "a/none": np.zeros((0, 3), np.float32),
    "scalar": np.array(7),
}
ABOUT_IT = {"names": ["µ", ""], "limit": float("inf"), "n": np.int64(3)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_archive(tmp_path / "a.npz", "fit", ABOUT_IT, ARRAYS)
    return tmp_path / "a.npz"


def read(file: Path, **limits: int) -> tuple[Any, dict[str, Any]]:
    with opened(file, "fit", "Do it again.", **limits) as found:
        return found.about, {name: found.load(name) for name in found.headers}


def test_all_comes_back(file: Path):
    about, arrays = read(file)
    assert about == {"kind": "fit", **ABOUT_IT}
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (value.dtype, value.shape)
        assert arrays[name].tobytes() == value.tobytes()


def test_numpy_opens_it(file: Path):
    with np.load(file) as found:
        assert np.array_equal(found["a/columns"], ARRAYS["a/columns"])
        assert json.loads(found[ABOUT])["kind"] == "fit"


def test_the_same_content_is_the_same_bytes(file: Path, tmp_path: Path):
    write_archive(tmp_path / "b.npz", "fit", ABOUT_IT, ARRAYS)
    assert (tmp_path / "b.npz").read_bytes() == file.read_bytes()


def test_the_kind_is_told_without_reading_on(file: Path, tmp_path: Path):
    assert kind_of(file) == "fit"
    (tmp_path / "b").write_bytes(file.read_bytes()[:-30])
    os.mkfifo(tmp_path / "pipe")
    assert [kind_of(tmp_path / name) for name in ("b", "pipe", "none", ".")] == [""] * 4


def refused(file: Path, says: str, **limits: int) -> None:
    """By one line with file, place and remedy, in little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=says) as error:
            read(file, **limits)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert str(error.value).startswith(f"{file}: ")
    assert str(error.value).endswith("Do it again.")
    assert "\n" not in str(error.value)


def test_an_archive_of_another_kind_is_refused(file: Path):
    changed(file, lambda about, _: about.update(kind="search"))
    refused(file, "not the file of a fit but of 'search'")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused(tmp_path, "a folder, not a file")
    refused(Path("/dev/zero"), "not a regular file")
    refused(tmp_path / "absent", "no such file")


def test_a_file_beyond_the_limit_is_refused(file: Path):
    refused(file, "larger than 0 MiB", max_bytes=100)


def test_nothing_compressed_is_read(file: Path):
    """A bomb: 256 MiB in a quarter of one."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr(ABOUT, '{"kind": "fit"}')
        with zipped.open("bomb.npy", "w", force_zip64=True) as stream:
            for _ in range(64):
                stream.write(bytes(1 << 22))
    assert file.stat().st_size < 1 << 20
    refused(file, "compressed")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_whatever_the_compression(method: int, file: Path):
    changed(file, lambda *_: None, method)
    refused(file, "compressed")


def header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUM",
        b"\x80\x04N.",
        npy(np.zeros(3))[:-1],
        npy(np.zeros(3)) + b"\0",
        npy(np.array([object], dtype=object)),
        npy(np.zeros(3, "V8")),
        npy(np.zeros(3, [("a", "f8")])),
        npy(np.zeros(3, "datetime64[s]")),
        npy(np.zeros(3, complex)),
        header("(1000000000000,)"),
        header("(-1,)"),
        header("(-1, -3)") + bytes(24),
        header("(1 << 70,)"),
        header("('x',)"),
        header("(3,)", "'<f9'") + bytes(24),
        header("(" * 100 + ")" * 100),
        header("(3,)").replace(b"NUMPY\x01", b"NUMPY\x03") + bytes(24),
        b"\x93NUMPY\x01\x00\xff\xff" + b" " * 65535,
    ],
)  # fmt: skip
def test_arrays_that_are_none_are_refused(content: bytes, file: Path):
    changed(file, lambda _, arrays: arrays.update(a=content))
    refused(file, "not the file of a fit")


class Harmful:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("an archive was unpickled",)


@pytest.mark.parametrize("content", [pickle.dumps(Harmful()), npy(np.array([Harmful()], dtype=object))])
def test_nothing_is_unpickled(content: bytes, file: Path):
    changed(file, lambda _, arrays: arrays.update(a=content))
    refused(file, "not the file of a fit")
    file.write_bytes(content)
    refused(file, "not the file of a fit")


@pytest.mark.parametrize(
    "about",
    [
        b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b"[" + b"[]," * (1 << 20) + b"[]]", b" " * (33 << 20), b"1" * 5_000,
        '{"kind": ["fit"]}', '{"kind": "' + "x" * 1000 + '"}', "{}",
    ],
    ids=range(12),
)  # fmt: skip
def test_what_says_nothing_is_refused(about: Any, file: Path):
    written(file, about, {})
    refused(file, "not the file of a fit")


def test_entries_that_overlap_are_refused(file: Path):
    """Many names for the same bytes."""
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr(ABOUT, '{"kind": "fit"}')
        zipped.writestr("a.npy", npy(np.zeros(1000)))
        own = zipped.filelist[1]
        for i in range(20):
            copy = zipfile.ZipInfo(f"b{i}.npy")
            copy.header_offset, copy.file_size, copy.compress_size, copy.CRC = (
                own.header_offset, own.file_size, own.compress_size, own.CRC
            )  # fmt: skip
            zipped.filelist.append(copy)
            zipped.NameToInfo[copy.filename] = copy
        zipped.writestr("last.npy", npy(np.zeros(1)))
    refused(file, "overlap|not the file of a fit")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(file: Path):
    with zipfile.ZipFile(file, "a") as zipped:
        zipped.writestr("scalar.npy", npy(np.zeros(1)))
    refused(file, "two arrays of one name")


def test_other_entries_are_refused(file: Path):
    with zipfile.ZipFile(file, "a") as zipped:
        zipped.writestr("run.py", "print()")
    refused(file, "'run.py' is no array")


def test_a_directory_without_end_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "MOST_ENTRIES", 5)
    refused(file, "more than 5 arrays")


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_byte_is_noticed_or_does_not_matter(seed: int, file: Path):
    rng, damaged = np.random.default_rng(seed), bytearray(file.read_bytes())
    for at in rng.integers(0, len(damaged), rng.integers(1, 8)):
        damaged[at] ^= 1 << int(rng.integers(8))
    if seed % 3 == 0:
        del damaged[int(rng.integers(len(damaged))) :]
    file.write_bytes(damaged)
    try:
        about, arrays = read(file)
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert about["names"] == ABOUT_IT["names"]
        for name in arrays.keys() & ARRAYS.keys():
            assert arrays[name].tobytes() == ARRAYS[name].tobytes()


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "MOST_ABOUT", 100)
    with pytest.raises(DataError, match="more than can be read again"):
        write_archive(tmp_path / "a.npz", "fit", {"names": ["x" * 100]}, {})
    with pytest.raises(ValueError, match="allow_pickle"):
        write_archive(tmp_path / "a.npz", "fit", {}, {"a": np.array([None])})
    assert list(tmp_path.iterdir()) == []
