"""The guide to certificates: its commands run, print what it says, and its program holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides import blocks, execute

from fedsynth.privacy.certificate import check

GUIDE = "docs/guides/certificates.md"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    commands = [line.split() for block in blocks(GUIDE, "bash") for line in block.splitlines()]
    assert len(commands) == 4
    assert all(command[0] == "fedsynth" for command in commands)
    run, release, folder, whole = ([*("-m", "fedsynth"), *words[1:]] for words in commands)
    execute(run, tmp_path)
    shown = execute(release, tmp_path)
    (promised,) = blocks(GUIDE, "text")
    for line in promised.splitlines():
        assert line in shown
    keys = [
        f"{signer.key} {signer.name}\n"
        for path in sorted(tmp_path.rglob("*.privacy.json"))
        for signer in check(path).signers
    ]
    (tmp_path / "keys.txt").write_text("".join(keys))
    assert "not established" not in execute(folder, tmp_path)
    assert "every epsilon of metrics.csv holds" in execute(whole, tmp_path)
    (program,) = blocks(GUIDE, "python")
    execute(["-c", program], tmp_path)
