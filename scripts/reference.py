"""Writes docs/reference from the code; with --check, only says which pages differ from it."""

import sys

from reference_pages import FOLDER, PAGES, page_text


def main() -> None:
    is_check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not is_check:
        sys.exit("usage: python scripts/reference.py [--check]")
    changed = []
    for name in PAGES:
        file, text = FOLDER / name, page_text(name)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            changed.append(file)
            if not is_check:
                file.write_text(text, encoding="utf-8")
    for file in changed:
        print(f"{file} {'differs from the code: run make docs' if is_check else 'written'}")
    sys.exit(bool(changed) and is_check)


if __name__ == "__main__":
    main()
