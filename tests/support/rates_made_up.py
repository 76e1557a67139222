"""Measurements as a rehearsal returns them; the numbers are those of a laptop, rounded."""

from retriever.plan.laws import BUILDING, EMBEDDING, FITTING, Measured, Rates, Trial

RATES = Rates(
    sample="the source, 4,000 documents",
    sample_documents=4000,
    read_cpu=1e-5,
    encoder={"name": "all-MiniLM-L6-v2", "dimension": 384, "max_length": 256, "precision": "int8"},
    precision_reason="as requested",
    transform="none",
    dimension=384,
    start_cpu=3.5,
    build_peak_bytes=600_000_000,
    other_bytes=1_360_000,
    small=Measured(1000, 1200, 1150, 2_800_000, {EMBEDDING: 2.1, FITTING: 5.8, BUILDING: 0.01}),
    large=Measured(4000, 4800, 4600, 6_700_000, {EMBEDDING: 8.1, FITTING: 5.3, BUILDING: 0.04}),
    trials={
        "sq8": Trial("SQ8", 0.4, 0.24, {}, 1.0),
        "ivf": Trial("IVF128,SQ8", 0.65, 0.19, {"nprobe": 64}, 0.98),
        "hnsw": Trial("HNSW32", 1.9, 0.19, {"efSearch": 16}, 0.96),
        "pq": Trial("IVF128,PQ96x4fs", 1.2, 0.23, {"nprobe": 128}, 0.96),
        "rabitq": Trial("IVF128,RaBitQfs", 1.1, 0.4, {"nprobe": 64, "fetch": 4}, 0.96),
    },
    query_ms=0.7,
    encoder_ms=1.2,
    search_peak_bytes=148_000_000,
    scans=((2000, 0.16), (10_000, 0.5), (40_000, 1.8), (166_666, 8.0)),
    compare_cpu=6e-9,
    cores=2,
)
