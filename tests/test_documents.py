"""Generated documents are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[1] / "docs" / "generate.py"


def test_generated_files_are_what_the_contracts_say() -> None:
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run docs/generate.py"
