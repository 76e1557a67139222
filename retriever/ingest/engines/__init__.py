"""Where the work of an ingestion is done: in threads of this process, or by the workers of a Ray cluster."""

from contextlib import AbstractContextManager

from retriever.errors import Misuse
from retriever.ingest.engines.base import Encodes, Engine
from retriever.ingest.engines.local import Local

__all__ = ["ENGINES", "Encodes", "Engine", "Local", "check", "opened"]

ENGINES = ("local", "ray")


def check(name: str, address: str | None) -> None:
    """Refuse what no engine could do, before anything is begun."""
    if name not in ENGINES:
        raise Misuse(f"unknown engine {name!r}; known: {', '.join(ENGINES)}.")
    if name == "local" and address is not None:
        raise Misuse("--address is of a Ray cluster: give --engine ray with it.")
    if name == "ray":
        from retriever.ingest.engines.ray.probe import check as check_ray

        check_ray(address)


def opened(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """The engine of this name, for as long as the context lasts."""
    check(name, address)
    if name == "local":
        return Local()
    from retriever.ingest.engines.ray.engine import Ray

    return Ray(address)
