"""What the command prints when it serves: what there is, where, and who can reach it."""

from collections.abc import Callable

from retriever.cli import display
from retriever.serve.places import ServedCollections
from retriever.serve.settings import Settings
from retriever.terminal import one_line


def greeter(settings: Settings) -> Callable[[str, ServedCollections], None]:
    """Prints what a server with these settings serves, once it is ready."""

    def greet(url: str, collections: ServedCollections) -> None:
        for place in collections:
            facts = place.served.facts
            display.out.print(
                f"{one_line(place.name)}  {display.plural(facts.documents, 'document')} in "
                f"{display.plural(facts.passages, 'passage')}, {one_line(facts.encoder)}, {one_line(facts.transform)}",
                soft_wrap=True,
            )
        if settings.writable:
            display.out.print("Clients may add and delete documents (--writable).", soft_wrap=True)
        if not settings.loopback:
            display.err.print(
                f"Warning: {one_line(settings.host)} is open to other machines. Whoever has the token can read every "
                f"document{' and change them' if settings.writable else ''}, and as this is plain HTTP, whoever can "
                "listen on the way can read the token: put a proxy with TLS before it.",
                style="yellow",
                soft_wrap=True,
            )
        for origin in settings.origins:
            display.out.print(f"Pages of {one_line(origin)} may ask from a browser (--cors).", soft_wrap=True)
        display.out.print(f"Serving at {url} (stop with Ctrl-C)", style="bold", soft_wrap=True)

    return greet
