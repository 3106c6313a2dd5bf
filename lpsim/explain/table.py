"""What every explanation is: a title and labelled lines, as text and as HTML."""

import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """str() is a table of text; a notebook shows it as HTML."""

    title: str
    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows)
        body = "\n".join(f"  {label:<{width}}  {text}" for label, text in self.rows)
        return f"{self.title}\n{body}"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'><code>{html.escape(text)}</code></td></tr>"
            for label, text in self.rows
        )
        return f"<table><caption>{html.escape(self.title)}</caption>{cells}</table>"
