"""The code on the page about checkpoints runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_on_checkpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    exec(compile("\n".join(blocks), PAGE.name, "exec"), {"__name__": "page"})
    assert sorted(path.name for path in Path("runs/2").iterdir()) == ["checkpoints"]
    assert sorted(path.name for path in Path("runs/2/checkpoints").iterdir()) == [
        "checkpoint_1",
        "checkpoint_2",
    ]
    assert Path("weights/model.safetensors").exists()
