"""``python -m tests.proofs FILE.json [PAGE]``: what ``--proof-report FILE.json`` wrote, as tables.

They are printed, or put into a page between the lines ``<!-- proofs: begin -->`` and ``<!-- proofs: end -->``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.proofs.report import TABLES, as_markdown

BEGIN, END = "<!-- proofs: begin -->\n", "<!-- proofs: end -->\n"


def main() -> int:
    """Print the tables or fill the page; exit code 1 where the report names a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__)
    parser.add_argument("report", type=Path, metavar="FILE.json")
    parser.add_argument("page", type=Path, metavar="PAGE", nargs="?")
    options = parser.parse_args()
    content = json.loads(options.report.read_text("utf-8"))
    tables = as_markdown(content)
    if options.page is None:
        sys.stdout.write(tables)
    else:
        head, _, rest = options.page.read_text("utf-8").partition(BEGIN)
        _, found, tail = rest.partition(END)
        if not found:
            parser.error(f"{options.page} has no lines {BEGIN.strip()} and {END.strip()}")
        options.page.write_text(f"{head}{BEGIN}\n{tables}\n{END}{tail}", "utf-8")
    return int(any(row["faults"] for table in TABLES for row in content[table.key]))


if __name__ == "__main__":
    sys.exit(main())
