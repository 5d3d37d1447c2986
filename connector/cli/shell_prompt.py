"""The prompt of the SQL shell on a terminal: history, and completion of tables, columns, SQL words and commands."""

from __future__ import annotations

import re

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from statestore.connector.cli.shell import COMMANDS, MODES, Prompt, Session, history_file
from statestore.connector.identifiers import quoted

SQL = tuple(
    """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT FULL OUTER INNER ASOF USING ON AS DISTINCT
    UNION ALL EXCEPT INTERSECT WITH CASE WHEN THEN ELSE END AND OR NOT IN IS NULL LIKE BETWEEN EXISTS ASC DESC count
    sum avg min max TIMESTAMP VERSION OF SYSTEM_TIME SYSTEM_VERSION history changes SHOW STORES DESCRIBE INTERVAL
    """.split()  # noqa: SIM905  # lines of words
)


class Words(Completer):
    """Completes the word before the cursor: dot commands at the start of a line, names of tables and columns, SQL."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        """Return what begins with the word, regardless of case."""
        line = document.text_before_cursor
        word = document.get_word_before_cursor(WORD=True).rpartition("(")[2].rpartition(",")[2]
        if line.startswith("."):
            first, blank, _ = line.partition(" ")
            known = list(COMMANDS) if not blank else list(MODES) if first == ".mode" else self.session.words()
        else:
            known = [*map(_in_sql, self.session.words()), *SQL]
        begun = word.removeprefix('"').lower()
        return [
            Completion(each, start_position=-len(word))
            for each in known
            if begun and each.removeprefix('"').lower().startswith(begun)
        ]


def _in_sql(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d][\w$]*", name) else quoted(name)


def terminal_prompt(session: Session) -> Prompt:
    """Return a prompt on this terminal, whose history is kept where the user's state can be written."""
    file = history_file()
    history: History = InMemoryHistory() if file is None else FileHistory(str(file))
    prompt: PromptSession[str] = PromptSession(history=history, completer=Words(session), complete_while_typing=False)
    return prompt.prompt
