"""The guide to certificates: its commands run, print what it says, and its program holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides import blocks, commands, execute

from fedsynth.privacy.certificate import check

GUIDE = "docs/guides/certificates.md"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    run, release, folder, whole = blocks(GUIDE, "bash")
    commands(run, tmp_path)
    shown = commands(release, tmp_path)
    (promised,) = blocks(GUIDE, "text")
    for line in promised.splitlines():
        assert line in shown
    keys = [
        f"{signer.key} {signer.name}\n"
        for path in sorted(tmp_path.rglob("*.privacy.json"))
        for signer in check(path).signers
    ]
    (tmp_path / "keys.txt").write_text("".join(keys))
    assert "not established" not in commands(folder, tmp_path)
    assert "every epsilon of metrics.csv holds" in commands(whole, tmp_path)
    (program,) = blocks(GUIDE, "python")
    execute(program, tmp_path)
