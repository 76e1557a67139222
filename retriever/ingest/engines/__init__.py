"""Engines that do the work of an ingestion: threads of this process, or the workers of a Ray cluster."""

from contextlib import AbstractContextManager

from retriever.errors import Misuse
from retriever.ingest.engines.base import Encodes, Engine
from retriever.ingest.engines.local import Local

__all__ = ["ENGINES", "Encodes", "Engine", "Local", "check", "opened"]

ENGINES = ("local", "ray")


def check(name: str, address: str | None) -> None:
    """Refuse an unknown engine or an address that it does not take."""
    if name not in ENGINES:
        raise Misuse(f"unknown engine {name!r}; known: {', '.join(ENGINES)}.")
    if name == "local" and address is not None:
        raise Misuse("--address is the address of a Ray cluster; it needs --engine ray.")
    if name == "ray":
        from retriever.ingest.engines.ray_cluster import check as check_ray

        check_ray(address)


def opened(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """Return a context manager that starts the engine and stops it at the end."""
    check(name, address)
    if name == "local":
        return Local()
    from retriever.ingest.engines.ray_engine import Ray

    return Ray(address)
