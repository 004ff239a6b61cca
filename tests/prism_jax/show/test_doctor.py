"""`prism-jax doctor`: a working installation is ready, every broken part fails with its remedy, nothing optional fails."""

import os
import stat
from importlib import metadata
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from prism_jax.show import doctor
from prism_jax.show.doctor import Requirement, examine_installation, numbers, requirements
from prism_jax.show.report import DoctorReport, Finding

STATED = (
    "jax>=0.10",
    "pandas<4,>=2.2",
    "jax[cuda12]>=0.10; extra == 'cuda'",
    'torch>=2.5; extra == "capture"',
    'prism-jax[arviz]; extra == "test"',
)


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch):
    """Requirements and versions that tests choose."""
    versions = {"jax": "0.12.0.1", "pandas": "3.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.metadata, "requires", lambda name: list(STATED))
    monkeypatch.setattr(doctor.metadata, "version", version)
    return versions


def state(report: DoctorReport, name: str) -> Finding:
    return next(finding for finding in report.findings if finding.name == name)


def test_this_installation_is_ready(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "Ready."
    states = [finding.state for finding in examine_installation().findings]
    assert states[:6] == ["ok"] * 6


def test_requirements_are_read_with_their_versions_and_extras(stated: dict[str, str]):
    assert list(requirements()) == [
        Requirement("jax", (0, 10)),
        Requirement("pandas", (2, 2)),
        Requirement("jax-cuda12-plugin", (0, 10), "cuda"),
        Requirement("torch", (2, 5), "capture"),
    ]


def test_a_package_that_is_missing_or_too_old_fails(stated: dict[str, str], capsys: pytest.CaptureFixture[str]):
    stated["jax"] = "0.9.9"
    del stated["pandas"]
    assert main(["doctor"]) == 1
    said = capsys.readouterr()
    assert "Not ready: packages failed." in said.out
    assert "jax 0.9.9, pandas is missing. Run pip install --upgrade prism-jax" in " ".join(said.out.split())
    assert "error:" in said.err


def test_extras_that_are_missing_fail_nothing(stated: dict[str, str]):
    report = examine_installation()
    assert report.is_ready()
    assert state(report, "extra capture").state == "missing"
    assert "prism-jax[capture]" in state(report, "extra capture").remedy
    assert state(report, "extra cuda").value == "no jax-cuda12-plugin"
    stated["torch"] = "2.9"
    assert state(examine_installation(), "extra capture") == Finding("extra capture", "ok", "torch 2.9")
    assert not [finding for finding in report.findings if finding.name == "extra test"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="rights of files as on Unix")
def test_a_cache_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    found = state(examine_installation(), "cache folder")
    assert found.state == "failed"
    assert "PRISM_JAX_CACHE" in found.remedy


def test_a_cache_is_made_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("PRISM_JAX_CACHE", str(tmp_path / "own"))
    assert state(examine_installation(), "cache folder").state == "ok"
    assert not stat.S_IMODE((tmp_path / "own").stat().st_mode) & 0o022


def test_any_error_is_a_finding_and_the_others_are_still_looked_at(monkeypatch: pytest.MonkeyPatch):
    def program() -> Finding:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(doctor, "program", program)
    monkeypatch.setattr(doctor, "available_bytes", lambda: 2.0**20)
    report = examine_installation()
    assert state(report, "program").value == "ZeroDivisionError: division by zero"
    assert state(report, "memory").state == "failed"
    assert not report.is_ready()


def test_a_gpu_that_is_not_used_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(doctor, "GPU_FILES", (str(tmp_path),))
    assert "prism-jax[cuda]" in state(examine_installation(), "devices").remedy


@pytest.mark.parametrize(("text", "parts"), [("0.12.0rc1", (0, 12, 0)), ("2026.9.1", (2026, 9, 1)), ("", ())])
def test_versions_are_compared_as_numbers(text: str, parts: tuple[int, ...]):
    assert numbers(text) == parts
