"""Job files in an empty folder."""

import pytest


@pytest.fixture
def job_file(tmp_path, monkeypatch):
    """Writes a text as `job.yaml` in an empty folder, which becomes the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="job.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write
