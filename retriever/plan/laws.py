"""The laws that carry what was rehearsed to a collection of any size. Every number comes from `Rates`, by these:

With N documents, p passages and u different texts a document in the sample, V = u N vectors of d dimensions (e of the
encoder's), V0 and N0 those of the rehearsal; c are measured CPU seconds, b measured bytes. log is to base 2.

CPU of `retriever index`
    start, choosing             once: as measured
    reading                     N · c_read / sample
    encoding                    V · c_encode / texts encoded
    storing                     N · c_store / N0 · log N / log N0     B-trees grow in depth, the index of words merges
    fitting                     once, as measured: on at most 20,000 passages, whatever N is
    building, exact             V · c_publish / V0
    building, another type      the same, and
        true nearest            V · c_truth                           of the queries that tune and judge it
        training                c_lists · min(V, 65,536) L / (V0 L0) + c_codes     k-means over L lists; codebooks are
                                                                      trained on a fixed number of vectors
        adding                  V · (c_code + c_assign · L / L0)      each vector is held against every list
        adding, HNSW            V · c_add / V0 · log V / log V0       a walk through the graph for each
        tuning                  so many searches · ms a query

Disk
    table of vectors            rows of one size on pages of 4 KB (pages.py)
    all other tables            N · b_table + b_fixed; b_table is what the second half of the rehearsal took
    index                       indexes.types.estimated_bytes, and 8 a vector for its number
    the generation's own files  as measured, once in its folder and once in SQLite

Memory at most
    embedding and fitting       as measured at the fit, and 24 V + cache
    building                    base + 32 V + cache + the larger of index and training, of which the second is over
                                before the first grows
    searching                   base + index + cache
        base                    as measured, less what grows by the same law at the size of the rehearsal
        training                min(V, 65,536) · (4 e + 4 d), and 4 d more where a transform maps: floats as read, as
                                mapped, as scaled
        cache                   min(64 MB, the database), which a connection to SQLite keeps

A query in CPU milliseconds, without the encoder's
    ms = ms_rest + scan(V) + candidates · ms_fetch
        ms_rest                 of the rehearsed search, less its scan: exact scores, documents, what does not grow
        scan, exact             between measured sizes along the chord in logarithms, beyond the largest in proportion
        scan, codes             scan0 + (V − V0) · (scan of 2 V0 − scan0) / V0
        scan, lists             exact(L) + (scan0 − exact(L0)) · probes V / L / (probes0 V0 / L0)
        scan, HNSW              scan0 · log V / log V0
    The lists looked into (probes) stay as many as the sample needed. With the length of lists near √V, the cells and
    the ball of the ten nearest shrink nearly alike as V grows, so about as many cells meet it. That is an argument,
    not a measurement, and so is every recall beyond the sample.
"""

import math
import re
from dataclasses import dataclass
from functools import cache

from indexes.faiss.building import TRAINING_SAMPLE
from indexes.faiss.recall import MOST_QUERIES, TIMED, WANTED
from indexes.faiss.tuning import EFFORTS_TIMED, LARGEST_EF
from indexes.faiss.types import estimated_bytes, factory_string
from indexes.faiss.vectors import SPARE, empty_index, import_faiss
from retriever.plan.index_trials import lists_of
from retriever.plan.pages import vector_table_bytes
from retriever.plan.rates import Rates, Trial

FLAT = "flat"
NUMBER_BYTES = 8
# Copies of a vector's number while an index is built, and while a fit chooses its sample.
NUMBERS_BUILDING, NUMBERS_FITTING = 4, 3
START, READING, ENCODING, STORING = "start and choosing", "reading", "encoding", "splitting and storing"
FITTING, BUILDING = "fitting", "building the index"
TEXTS, VECTORS, WORDS = "documents", "vectors", "index of words"


@dataclass(frozen=True)
class Law:
    """Predictions for collections of what the sample is like; counts are of documents, unless they say vectors."""

    rates: Rates

    # ---- counts ------------------------------------------------------------------------------------------

    def passages(self, documents: float) -> float:
        return documents * self.rates.sample.passages / self.rates.sample.documents

    def vectors(self, documents: float) -> float:
        return documents * self.rates.sample.texts / self.rates.sample.documents

    def tokens(self, documents: float) -> float:
        return documents * self.rates.sample.tokens / self.rates.sample.documents

    # ---- CPU ---------------------------------------------------------------------------------------------

    def cpu(self, documents: float, index_type: str = FLAT, precision: str | None = None) -> dict[str, float]:
        """CPU seconds of `retriever index` by part."""
        rates, stored = self.rates, self.rates.stored
        encoded = rates.encoded[precision or rates.precision]
        deeper = math.log2(max(documents, 2)) / math.log2(max(stored.documents, 2))
        return {
            START: rates.start_cpu_seconds + rates.choosing_cpu_seconds,
            READING: documents * rates.sample.read_cpu_seconds / rates.sample.documents,
            ENCODING: self.vectors(documents) * encoded.cpu_a_text,
            STORING: documents * stored.cpu_seconds / stored.documents * deeper,
            FITTING: rates.fitted.cpu_seconds,
            BUILDING: self.build_cpu(self.vectors(documents), index_type),
        }

    def build_cpu(self, vectors: float, index_type: str) -> float:
        """CPU seconds to publish an index of so many vectors."""
        published = self.rates.published
        exact = vectors * published.cpu_seconds / published.vectors
        if index_type == FLAT:
            return exact
        trial, factory = self.rates.trials[index_type], self.factory(index_type, vectors)
        lists = lists_of(factory)
        training = self._train_cpu(trial, vectors, lists)
        tuning = self._searches_to_tune(lists, index_type) * self.scan_ms(vectors, index_type) / 1000
        judging = vectors * self.rates.truth_cpu_a_vector
        return exact + judging + training + self._add_cpu(trial, vectors, lists) + tuning

    def _train_cpu(self, trial: Trial, vectors: float, lists: int) -> float:
        """Of the lists, as long as the type with nothing but lists to train took, and of the codes."""
        if not lists or not trial.lists:
            return trial.train_cpu_seconds
        of_lists = min(trial.train_cpu_seconds, self.rates.trials.get("ivf", trial).train_cpu_seconds)
        grown = min(vectors, TRAINING_SAMPLE) * lists / (trial.vectors * trial.lists)
        return of_lists * grown + trial.train_cpu_seconds - of_lists

    def _add_cpu(self, trial: Trial, vectors: float, lists: int) -> float:
        a_vector = trial.add_cpu_seconds / trial.vectors
        if trial.factory.startswith("HNSW"):
            return vectors * a_vector * math.log2(max(vectors, 2)) / math.log2(trial.vectors)
        if not trial.lists or not lists:
            return vectors * a_vector
        code = self.rates.trials.get("sq8", trial)
        coding = min(a_vector, code.add_cpu_seconds / code.vectors)
        return vectors * (coding + (a_vector - coding) * lists / trial.lists)

    def _searches_to_tune(self, lists: int, index_type: str) -> float:
        """Queries asked of an index while its settings are found: half of all for each effort looked at, some to take
        the time, the other half to tell the recall."""
        efforts = math.log2(lists) + 1 if lists else math.log2(LARGEST_EF / 16) + 1 if index_type == "hnsw" else 1
        looked_at = math.ceil(math.log2(efforts)) + 1 if efforts > 1 else 1
        return MOST_QUERIES / 2 * (looked_at + 1) + TIMED * (EFFORTS_TIMED + 1)

    # ---- disk --------------------------------------------------------------------------------------------

    def sqlite(self, documents: float) -> dict[str, float]:
        """Bytes of the database by part."""
        stored = self.rates.stored
        words = sum(size for name, size in stored.bytes.items() if name.startswith("words"))
        texts = sum(stored.bytes.values()) - words
        of_vectors = sum(size for name, size in stored.bytes.items() if name == "sqlite_autoindex_vectors_1")
        vectors = vector_table_bytes(self.vectors(documents), self.rates.dimension)
        return {
            TEXTS: documents * (texts - of_vectors) + stored.fixed_bytes + self.rates.published.fixed_bytes / 2,
            VECTORS: vectors + documents * of_vectors,
            WORDS: documents * words,
        }

    def factory(self, index_type: str, vectors: float) -> str:
        return factory_string(index_type, int(vectors), self.rates.fitted.dimension)

    def index_bytes(self, vectors: float, index_type: str) -> float:
        """FAISS's file, and in memory what it holds."""
        factory = self.factory(index_type, vectors)
        fixed, each, a_list = _sizes(re.sub(r"IVF\d+", "IVF1", factory), self.rates.fitted.dimension)
        return fixed + each * int(vectors) + a_list * lists_of(factory)

    def disk(self, documents: float, index_type: str = FLAT) -> float:
        """All of a collection's folder."""
        vectors = self.vectors(documents)
        index = self.index_bytes(vectors, index_type) + NUMBER_BYTES * vectors + self.rates.published.fixed_bytes / 2
        return sum(self.sqlite(documents).values()) + index

    # ---- memory ------------------------------------------------------------------------------------------

    def build_memory(self, documents: float, index_type: str = FLAT) -> float:
        """The most that `retriever index` takes, from its start to the published index."""
        rates, vectors = self.rates, self.vectors(documents)
        base = rates.published.peak_bytes - self._building(rates.stored.documents, rates.published.vectors, FLAT)
        at_fit = self._fitting(documents, vectors) - self._fitting(rates.stored.documents, rates.published.vectors)
        building = max(base, 0) + self._building(documents, vectors, index_type)
        return max(rates.fitted.peak_bytes + at_fit, building)

    def _fitting(self, documents: float, vectors: float) -> float:
        return NUMBERS_FITTING * NUMBER_BYTES * vectors + self._cache(documents)

    def _building(self, documents: float, vectors: float, index_type: str) -> float:
        index, numbers = self.index_bytes(vectors, index_type), NUMBERS_BUILDING * NUMBER_BYTES * vectors
        if index_type not in (FLAT, "hnsw"):
            fitted = self.rates.fitted
            mapped = 4 * fitted.dimension * (1 if fitted.transform == "none" else 2)
            index = max(index, min(vectors, TRAINING_SAMPLE) * (4 * self.rates.dimension + mapped))
        return index + numbers + self._cache(documents)

    def search_memory(self, documents: float, index_type: str = FLAT) -> float:
        """Of one process that has searched everywhere in the index."""
        rates = self.rates
        base = rates.searched.peak_bytes - self._searching(rates.stored.documents, rates.searched.vectors, FLAT)
        return max(base, 0) + self._searching(documents, self.vectors(documents), index_type)

    def _searching(self, documents: float, vectors: float, index_type: str) -> float:
        return self.index_bytes(vectors, index_type) + NUMBER_BYTES * vectors + self._cache(documents)

    def _cache(self, documents: float) -> float:
        return min(self.rates.stored.cache_bytes, sum(self.sqlite(documents).values()))

    # ---- queries -----------------------------------------------------------------------------------------

    def query_ms(self, vectors: float, index_type: str = FLAT) -> float:
        """CPU milliseconds of one query, the encoder's left out."""
        searched = self.rates.searched
        rest = max(0.0, searched.cpu_ms - self.exact_ms(searched.vectors))
        return rest + self.scan_ms(vectors, index_type) + self.candidates(index_type) * self.rates.fetch_ms

    def candidates(self, index_type: str) -> int:
        """Vectors that are read and scored exactly for ten documents; an exact index has them in memory."""
        if index_type == FLAT:
            return 0
        return max(WANTED + SPARE, self.rates.trials[index_type].settings.get("fetch", 0) * WANTED)

    def scan_ms(self, vectors: float, index_type: str = FLAT) -> float:
        """FAISS's part of a query."""
        if index_type == FLAT:
            return self.exact_ms(vectors)
        trial = self.rates.trials[index_type]
        lists = lists_of(self.factory(index_type, vectors))
        if index_type == "hnsw":
            return trial.scan_ms * math.log2(max(vectors, 2)) / math.log2(trial.vectors)
        if not lists or not trial.lists:
            a_vector = max(0.0, trial.scan_twice_ms - trial.scan_ms) / trial.vectors
            return max(0.0, trial.scan_ms + (vectors - trial.vectors) * a_vector)
        probes = trial.settings.get("nprobe", 1)
        coarse = min(self.exact_ms(trial.lists), trial.scan_ms)
        looked_at = min(probes, lists) * vectors / lists
        tried_at = min(probes, trial.lists) * trial.vectors / trial.lists
        return self.exact_ms(lists) + (trial.scan_ms - coarse) * looked_at / tried_at

    def exact_ms(self, vectors: float) -> float:
        """Between two measured sizes along their chord in logarithms; in proportion below and beyond."""
        scans = self.rates.scans
        first, last = scans[0], scans[-1]
        if vectors <= first[0]:
            return first[1] * max(vectors, 0) / first[0]
        for (a, ms_a), (b, ms_b) in zip(scans, scans[1:], strict=False):
            if vectors <= b:
                share = math.log(vectors / a) / math.log(b / a)
                return float(ms_a ** (1 - share) * ms_b**share)
        return last[1] * vectors / last[0]


@cache
def _sizes(factory: str, dimension: int) -> tuple[float, float, float]:
    """Bytes of an index of one list or none: fixed, a vector, a list; an index of millions of lists is never made."""

    def of(name: str, count: int) -> int:
        return estimated_bytes(import_faiss(), empty_index(name, dimension), count)

    fixed, many = of(factory, 0), 10**6
    a_list = of(factory.replace("IVF1,", "IVF2,"), 0) - fixed
    return fixed - a_list, (of(factory, many) - fixed) / many, a_list
