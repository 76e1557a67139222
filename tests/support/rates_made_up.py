"""Rates as a rehearsal gives them; the numbers are those of a laptop, rounded."""

from retriever.plan.rates import Encoded, Fitted, Published, Rates, Sampled, Searched, Stored, Trial


def _trial(factory: str, lists: int = 0, **settings: int) -> Trial:
    return Trial(factory, 16_384, lists, 0.9, 0.1, 0.3, 0.6, settings, 2000, 0.96, 0.94, 0.98, True)


RATES = Rates(
    encoder={"name": "all-MiniLM-L6-v2", "dimension": 384, "max_length": 256},
    precision="int8",
    precision_reason="as asked for",
    start_cpu_seconds=0.5,
    choosing_cpu_seconds=6.0,
    sample=Sampled("the first 2,000 of the source", 2000, 2400, 2300, 60_000, 310_000, 0.01),
    encoded={"int8": Encoded(2000, 60_000, 7.0, 4.0), "fp32": Encoded(500, 15_000, 4.0, 2.0)},
    stored=Stored(
        20_000,
        23_000,
        3.0,
        {"documents": 250.0, "passages": 30.0, "sqlite_autoindex_vectors_1": 45.0, "words_data": 120.0},
        100_000.0,
        67_108_864,
    ),
    fitted=Fitted("none", 20_000, 384, 12.0, 800_000_000),
    published=Published(23_000, 0.5, 750_000_000, 2_800_000),
    searched=Searched(23_000, 3.0, 4.0, 180_000_000),
    scans=((2000, 0.1), (20_000, 1.5), (166_666, 25.0)),
    truth_cpu_a_vector=3e-5,
    fetch_ms=0.01,
    trials={
        "flat": _trial("Flat"),
        "sq8": _trial("SQ8"),
        "ivf": _trial("IVF256,SQ8", 256, nprobe=32),
        "hnsw": _trial("HNSW32", efSearch=32),
        "pq": _trial("IVF256,PQ96x4fs", 256, nprobe=64, fetch=4),
        "rabitq": _trial("IVF256,RaBitQfs", 256, nprobe=32, fetch=4),
    },
    cores=2,
)
