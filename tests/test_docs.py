"""The Python blocks of the README and of every page in docs run, and their comments say what comes out."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

VALUE = re.compile(r"[-+\d\[(]|True|False|nan|inf")  # how a comment begins that states a result


def statements(block: str) -> list[tuple[str, str]]:
    """(source, the comment at its end) of each top-level statement."""
    lines = block.splitlines()
    found = []
    for node in ast.parse(block).body:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        tail = lines[(node.end_lineno or 1) - 1][node.end_col_offset :]
        found.append((source, tail.partition("#")[2].strip()))
    return found


def run(page: Path) -> list[str]:
    """Run a page's blocks in one namespace; what came out otherwise than its comment says."""
    names: dict = {}
    wrong = []
    for block in BLOCK.findall(page.read_text()):
        for source, comment in statements(block):
            try:
                code = compile(source, str(page), "eval")
            except SyntaxError:
                exec(compile(source, str(page), "exec"), names)
                continue
            value = eval(code, names)
            if VALUE.match(comment) and not comment.startswith(str(value)):
                wrong.append(f"{source}: gives {value}, the page says {comment}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, capsys):
    assert run(page) == []


def test_a_wrong_comment_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n1 + 1  # 3\n```\n")
    assert run(page) == ["1 + 1  # 3: gives 2, the page says 3"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
