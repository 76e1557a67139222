"""Interactive search: a prompt with history, and commands that begin with a colon."""

import atexit
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from retriever import display
from retriever.errors import RetrieverError
from retriever.retriever import Retriever
from retriever.search import Hit

HELP = """\
Type what you look for, in your own words. Or:
  :k 20        show 20 hits from now on
  :more        the next hits of the last query
  :similar 3   documents like hit 3
  :show 3      hit 3's document, whole
  :compare     the last query in the encoder's raw space beside the index's
  :help        this
  :quit        leave (or Ctrl-D)"""


class Prompt:
    """One interactive session over an open collection."""

    def __init__(self, retriever: Retriever, k: int = 10, min_score: float | None = None) -> None:
        self.retriever = retriever
        self.k = k
        self.min_score = min_score
        self.query = ""
        self.hits: list[Hit] = []
        self.shown = 0
        self._commands: dict[str, Callable[[str], None]] = {
            "k": self._set_k,
            "more": self._more,
            "similar": self._similar,
            "show": self._show,
            "compare": self._compare,
            "help": lambda _: display.out.print(HELP, markup=False),
        }

    def run(self, read: Callable[[str], str] = input) -> None:
        """Answer lines until the end of input or `:quit`."""
        _remember_lines()
        count = display.plural(len(self.retriever), "document")
        display.out.print(f"{count}. Type a query, :help for commands, Ctrl-D to leave.")
        while True:
            try:
                line = read("search> ").strip()
            except EOFError:
                display.out.print()
                return
            except KeyboardInterrupt:
                display.out.print()
                continue
            if line in (":quit", ":q", ":exit"):
                return
            if line:
                self.answer(line)

    def answer(self, line: str) -> None:
        """Carry out one line: a command or a query. Errors are shown and the session goes on."""
        try:
            if not line.startswith(":"):
                self._search(line)
                return
            name, _, argument = line[1:].partition(" ")
            if name not in self._commands:
                known = ", ".join(f":{name}" for name in (*self._commands, "quit"))
                display.out.print(f"There is no command :{name}. There are {known}.", markup=False)
                return
            self._commands[name](argument.strip())
        except RetrieverError as error:
            display.err.print(f"Error: {error}", style="red", markup=False)
        except KeyboardInterrupt:
            display.out.print()

    def _search(self, query: str) -> None:
        self.query, self.shown = query, 0
        self.hits = self.retriever.search(query, self.k, min_score=self.min_score, highlight=True)
        self._show_new()

    def _show_new(self) -> None:
        display.show_hits(self.hits[self.shown :])
        self.shown = len(self.hits)

    def _set_k(self, argument: str) -> None:
        if not argument.isdigit() or int(argument) < 1:
            display.out.print(f":k takes a number of hits, such as :k 20. It is {self.k} now.")
            return
        self.k = int(argument)
        display.out.print(f"{display.plural(self.k, 'hit')} from now on.")

    def _more(self, _: str) -> None:
        if not self.query:
            display.out.print("There is no query yet to show more of.")
            return
        wanted = self.shown + self.k
        hits = self.retriever.search(self.query, wanted, min_score=self.min_score, highlight=True)
        if len(hits) <= self.shown:
            display.out.print("There are no more hits.")
            return
        self.hits = hits
        self._show_new()

    def _hit(self, argument: str) -> Hit | None:
        if argument.isdigit() and 1 <= int(argument) <= len(self.hits):
            return self.hits[int(argument) - 1]
        there = f"from 1 to {len(self.hits)}" if self.hits else "but there are none yet: search first"
        display.out.print(f"Give the number of a hit, {there}.")
        return None

    def _similar(self, argument: str) -> None:
        if hit := self._hit(argument):
            self.query, self.shown = "", 0
            self.hits = self.retriever.similar(hit.id, self.k)
            self._show_new()

    def _show(self, argument: str) -> None:
        if hit := self._hit(argument):
            display.show_document(self.retriever.document(hit.id))

    def _compare(self, argument: str) -> None:
        query = argument or self.query
        if not query:
            display.out.print("There is no query yet to compare; search first, or give one: :compare QUERY")
            return
        display.show_comparison(
            query,
            self.retriever.search(query, self.k),
            self.retriever.search(query, self.k, space="raw"),
        )


def _remember_lines() -> None:
    """Line editing, and a history that outlives the session, where the platform has readline."""
    with contextlib.suppress(ImportError):
        import readline

        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        path = state / "retriever" / "history"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.read_history_file(path)
        readline.set_history_length(1000)
        atexit.register(_save_history, path)


def _save_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.write_history_file(path)
