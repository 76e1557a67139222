"""Interactive search: a prompt with history, and commands that start with a colon."""

import atexit
import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import cast, get_args

from retriever.cli.display import console
from retriever.errors import Misuse, NoTextEncoder, RetrieverError
from retriever.files import user_folder
from retriever.hits import Answer, Hit, Mode, Options
from retriever.retriever import Retriever
from retriever.terminal import lines, one_line, plural

MOST_DIGITS = 6

HELP = """\
Type what you are looking for, in your own words, or type a command:
  :k 20        show 20 hits from now on
  :mode dense  search by meaning (dense), words (lexical) or both (hybrid)
  :where year >= 2020
               find only documents whose metadata matches; :where alone
               removes the filter
  :more        show the next hits of the last search
  :similar 3   find documents similar to hit 3
  :show 3      show the whole document of hit 3
  :why 3       say why hit 3 was found
  :compare     compare the last hits with those of the encoder's raw vectors
  :help        show this help
  :quit        leave (or Ctrl-D)"""


class Prompt:
    """One interactive session over an open collection."""

    def __init__(self, retriever: Retriever, k: int = 10, options: Options | None = None) -> None:
        self.retriever = retriever
        self.k = k
        self.options = options or Options(highlight=True)
        self.query = ""
        self._last: Callable[[int], list[Hit]] | None = None
        """Repeats the last search (of a query or of similar documents) for a given number of hits."""
        self.hits: list[Hit] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "k": self._set_k,
            "mode": self._set_mode,
            "where": self._set_where,
            "more": self._more,
            "similar": self._similar,
            "show": self._show,
            "why": self._why,
            "compare": self._compare,
            "help": lambda _: console.out.print(HELP),
        }

    def run(self, read: Callable[[str], str] = input) -> None:
        """Read and answer lines until the input ends or the user types `:quit`."""
        _load_history()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 must not end the session
        count = plural(len(self.retriever), "document")
        console.out.print(f"{count}. Type a query, :help for commands, Ctrl-D to leave.")
        while True:
            try:
                line = read("search> ").strip()
            except EOFError:
                console.out.print()
                return
            except KeyboardInterrupt:
                console.out.print()
                continue
            if line in (":quit", ":q", ":exit"):
                return
            if line:
                self.answer(line)

    def answer(self, line: str) -> None:
        """Run one line, which is a command or a query. An error is shown and does not end the session."""
        try:
            if not line.startswith(":"):
                self._search(line)
                return
            name, _, argument = line[1:].partition(" ")
            if name in self._commands:
                self._commands[name](argument.strip())
            else:
                known = ", ".join(f":{name}" for name in (*self._commands, "quit"))
                console.out.print(f"There is no command :{one_line(name)}. The commands are {known}.")
        except NoTextEncoder:
            console.warn("Error: this collection has no encoder for text. Search by words: :mode lexical", style="red")
        except RetrieverError as error:
            console.warn(f"Error: {lines(str(error))}", style="red")
        except KeyboardInterrupt:
            console.out.print()

    def _search(self, query: str) -> None:
        # `:more` keeps these options, even if the user has changed them since.
        options: Options = {**self.options, "explain": True}

        def answer(k: int) -> Answer:
            return self.retriever.answer_many([query], k, **options)[0]

        found = answer(self.k)
        self._show_first(found.hits, lambda k: answer(k).hits)
        console.show_answer_notes(found)
        self.query = query

    def _show_first(self, hits: list[Hit], search: Callable[[int], list[Hit]]) -> None:
        """Show the first hits of a search, and remember the search for `:more`."""
        self.hits, self._last = hits, search
        console.show_hits(hits, filtered=bool(self.options.get("where")), explain=False)

    def _set_k(self, argument: str) -> None:
        number = _number(argument)
        if number is None:
            console.out.print(f":k takes a number of hits, such as :k 20. It is {self.k} now.")
            return
        self.k = number
        console.out.print(f"{plural(self.k, 'hit')} from now on.")

    def _set_mode(self, argument: str) -> None:
        if argument not in get_args(Mode):
            now = self.options.get("mode", "hybrid")
            console.out.print(f":mode takes one of {', '.join(get_args(Mode))}. It is {now} now.")
            return
        self.options["mode"] = cast(Mode, argument)
        console.out.print(f"Search mode {argument} from now on.")

    def _set_where(self, argument: str) -> None:
        where = [argument] if argument else []
        self.retriever.check_filters(where)
        self.options["where"] = where
        console.out.print(
            f"Only documents with {one_line(argument)} from now on." if where else "The filter is removed."
        )

    def _more(self, _: str) -> None:
        if self._last is None:
            console.out.print("There is no query yet. Search first.")
            return
        shown = {hit.id for hit in self.hits}
        # A search for more hits may rank them differently, so hits that were shown are left out by id.
        more = [hit for hit in self._last(len(shown) + self.k) if hit.id not in shown][: self.k]
        more = [replace(hit, rank=rank) for rank, hit in enumerate(more, len(shown) + 1)]
        if more:
            self.hits = [*self.hits, *more]
            console.show_hits(more, explain=False)
        else:
            console.out.print("There are no more hits.")

    def _hit(self, argument: str) -> Hit | None:
        number = _number(argument)
        if number is not None and number <= len(self.hits):
            return self.hits[number - 1]
        if self.hits:
            console.out.print(f"Give the number of a hit, from 1 to {len(self.hits)}.")
        else:
            console.out.print("There are no hits yet. Search first.")
        return None

    def _similar(self, argument: str) -> None:
        if hit := self._hit(argument):
            where = self.options.get("where", ())

            def search(k: int) -> list[Hit]:
                return self.retriever.similar(hit.id, k, where=where)

            self._show_first(search(self.k), search)

    def _show(self, argument: str) -> None:
        if hit := self._hit(argument):
            console.show_document(self.retriever.document(hit.id))

    def _why(self, argument: str) -> None:
        if hit := self._hit(argument):
            reason = console.explained(hit.explanation) if hit.explanation else "by its similarity to the document."
            console.say(f"{one_line(hit.title or hit.id)} was found {reason}")

    def _compare(self, argument: str) -> None:
        query = argument or self.query
        if not query:
            console.out.print("There is no query yet. Search first, or give one: :compare QUERY")
            return
        where, min_score = self.options.get("where", ()), self.options.get("min_score")
        chosen = self.retriever.search(query, self.k, mode="dense", where=where, min_score=min_score)
        raw = self.retriever.search(query, self.k, mode="dense", where=where, min_score=min_score, space="raw")
        console.show_comparison(query, chosen, raw)


def _number(argument: str) -> int | None:
    """Parse a whole number of at least 1. Return None for any other text."""
    if not argument.isdecimal() or len(argument) > MOST_DIGITS:
        return None
    return int(argument) or None


def _load_history() -> None:
    """Enable line editing and a history that is kept between sessions, if the platform has readline."""
    with contextlib.suppress(ImportError):
        import readline

        try:
            path = user_folder("XDG_STATE_HOME", ".local/state") / "retriever" / "history"
        except Misuse:  # without a home folder, the history is not kept
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.read_history_file(path)
        readline.set_history_length(1000)

        def save() -> None:
            with contextlib.suppress(OSError):
                readline.write_history_file(path)

        atexit.register(save)
