"""Pyright sees through tasks and workflows as mypy does.

It runs as basedpyright in its mode `standard`, which has the rules of pyright. The lines on which
mypy needs a `type: ignore` are those on which it has to find an error, too, and it may find none
elsewhere.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ["test_typing.py", "functions/test_typing.py"]
TIMEOUT_S = 300.0

pytestmark = pytest.mark.slow


def errors_in(path: Path, folder: Path) -> dict[int, str]:
    """The errors that are found in a file, by line."""
    config = {
        "typeCheckingMode": "standard",
        "include": [str(path)],
        "extraPaths": [str(ROOT), str(ROOT / "src")],
        "enableTypeIgnoreComments": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    program = Path(sys.executable).parent / "basedpyright"
    command = [str(program), "--project", str(folder), "--pythonpath", sys.executable]
    ended = subprocess.run(
        [*command, "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    answer = json.loads(ended.stdout)
    assert answer["summary"]["filesAnalyzed"] == 1, ended.stdout
    return {
        one["range"]["start"]["line"] + 1: one["message"]
        for one in answer["generalDiagnostics"]
        if one["severity"] == "error"
    }


@pytest.mark.parametrize("case", CASES)
def test_arguments_and_results_are_known_and_wrong_ones_are_errors(
    case: str, tmp_path: Path
) -> None:
    path = ROOT / "tests" / "sdk" / case
    lines = path.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# type: ignore[" in line}

    found = errors_in(path, tmp_path)

    assert found.keys() == wrong, found
    assert wrong
