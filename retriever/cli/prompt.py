"""Interactive search: a prompt with history, and commands that begin with a colon."""

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from retriever.cli import display
from retriever.errors import RetrieverError
from retriever.hits import Answer, Hit, Mode, Options
from retriever.retriever import Retriever
from retriever.terminal import lines, one_line

MOST_DIGITS = 6

HELP = """\
Type what you look for, in your own words. Or:
  :k 20        show 20 hits from now on
  :mode hybrid search by meaning (dense), by words (lexical) or by both (hybrid) from now on
  :where year >= 2020
               only documents whose metadata fits, from now on; :where alone takes all again
  :more        the next hits of the last search
  :similar 3   documents like hit 3
  :show 3      hit 3's document, whole
  :compare     the last query in the encoder's raw space beside the index's
  :help        this
  :quit        leave (or Ctrl-D)"""


class Prompt:
    """One interactive session over an open collection."""

    def __init__(self, retriever: Retriever, k: int = 10, options: Options | None = None) -> None:
        self.retriever = retriever
        self.k = k
        self.options = options or Options(highlight=True)
        self.query = ""
        self._last: Callable[[int], list[Hit]] | None = None
        """The last search, of a query or of similar documents, for any number of hits."""
        self.hits: list[Hit] = []
        self.shown = 0
        self._commands: dict[str, Callable[[str], None]] = {
            "k": self._set_k,
            "mode": self._set_mode,
            "where": self._set_where,
            "more": self._more,
            "similar": self._similar,
            "show": self._show,
            "compare": self._compare,
            "help": lambda _: display.out.print(HELP),
        }

    def run(self, read: Callable[[str], str] = input) -> None:
        """Answer lines until the end of input or `:quit`."""
        _remember_lines()
        _read_any_bytes()
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
                display.out.print(f"There is no command :{one_line(name)}. There are {known}.")
                return
            self._commands[name](argument.strip())
        except RetrieverError as error:
            display.err.print(f"Error: {lines(str(error))}", style="red", soft_wrap=True)
        except KeyboardInterrupt:
            display.out.print()

    def _search(self, query: str) -> None:
        options = self.options.copy()  # `:more` goes on with the same search, whatever was set since

        def answer(k: int) -> Answer:
            return self.retriever.answer_many([query], k, **options)[0]

        found = answer(self.k)
        self._list(found.hits, lambda k: answer(k).hits)
        display.show_novelty(found)
        self.query = query

    def _list(self, hits: list[Hit], search: Callable[[int], list[Hit]]) -> None:
        """Show the hits of a search that `:more` goes on with."""
        self.hits, self._last, self.shown = hits, search, 0
        self._show_new()

    def _show_new(self) -> None:
        display.show_hits(self.hits[self.shown :], filtered=bool(self.options.get("where")))
        self.shown = len(self.hits)

    def _set_k(self, argument: str) -> None:
        number = _number(argument)
        if number is None:
            display.out.print(f":k takes a number of hits, such as :k 20. It is {self.k} now.")
            return
        self.k = number
        display.out.print(f"{display.plural(self.k, 'hit')} from now on.")

    def _set_mode(self, argument: str) -> None:
        if argument not in get_args(Mode):
            now = self.options.get("mode", "dense")
            display.out.print(f":mode takes one of {', '.join(get_args(Mode))}. It is {now} now.")
            return
        self.options["mode"] = cast(Mode, argument)
        display.out.print(f"{argument} from now on.")

    def _set_where(self, argument: str) -> None:
        where = [argument] if argument else []
        self.retriever.check_filters(where)
        self.options["where"] = where
        display.out.print(f"Only documents with {one_line(argument)} from now on." if where else "All documents again.")

    def _more(self, _: str) -> None:
        if self._last is None:
            display.out.print("There is no query yet to show more of.")
            return
        shown = {hit.id for hit in self.hits}
        # A search that looks deeper may rank some of them otherwise; none is shown twice.
        more = [hit for hit in self._last(self.shown + self.k) if hit.id not in shown][: self.k]
        if not more:
            display.out.print("There are no more hits.")
            return
        self.hits = [*self.hits, *(replace(hit, rank=self.shown + n) for n, hit in enumerate(more, 1))]
        self._show_new()

    def _hit(self, argument: str) -> Hit | None:
        number = _number(argument)
        if number is not None and number <= len(self.hits):
            return self.hits[number - 1]
        there = f"from 1 to {len(self.hits)}" if self.hits else "but there are none yet: search first"
        display.out.print(f"Give the number of a hit, {there}.")
        return None

    def _similar(self, argument: str) -> None:
        if hit := self._hit(argument):
            where = self.options.get("where", ())
            self._list(
                self.retriever.similar(hit.id, self.k, where=where),
                lambda k: self.retriever.similar(hit.id, k, where=where),
            )

    def _show(self, argument: str) -> None:
        if hit := self._hit(argument):
            display.show_document(self.retriever.document(hit.id))

    def _compare(self, argument: str) -> None:
        query = argument or self.query
        if not query:
            display.out.print("There is no query yet to compare; search first, or give one: :compare QUERY")
            return
        options = Options(where=self.options.get("where", ()), min_score=self.options.get("min_score"))
        raw = Options(space="raw", **options)
        display.show_comparison(
            query, self.retriever.search(query, self.k, **options), self.retriever.search(query, self.k, **raw)
        )


def _number(argument: str) -> int | None:
    """A number from 1 on, as a person types it; None for anything else."""
    if not argument.isdecimal() or len(argument) > MOST_DIGITS:
        return None
    return int(argument) or None


def _read_any_bytes() -> None:
    """Take lines that are not valid UTF-8 too, so that one of them does not end the session."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")


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
