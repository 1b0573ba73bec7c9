"""Scoring on two Ray nodes: the same file as one process writes, whatever dies in between."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.command import FRESH, normscope  # pyright: ignore[reportMissingImports]

from normscope.cli import app
from normscope.scoring import (
    connected,
    fit_reference,
    fit_trust,
    load_reference,
    open_embeddings,
    open_on_ray,
    score_file,
)
from normscope.scoring.blocks import Block, norms_and_status
from normscope.scoring.parcels import parcels_of, table_of
from normscope.scoring.spread import Parcel

from .conftest import embeddings, write_file
from .fuzz import cases

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # Ray's, of its own names
]
cluster = pytest.mark.usefixtures("nodes")


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    """A cluster of two nodes, to which this process is connected."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 1 << 27}
    both = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    both.add_node(**node)
    with connected(both.address):
        yield
    both.shutdown()


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """Eleven shards of different lengths with ids, a covariate, and rows that have no score."""
    folder = tmp_path_factory.mktemp("shards")
    for i in range(11):
        z = embeddings(300 + 7 * i, seed=i)
        z[i] = [0, np.nan, np.inf][i % 3]
        ids = np.array([f"shard {i}, row {j}" for j in range(len(z))])
        length = np.linspace(1, 9, len(z)) * (1 + (i == 10))
        write_file(folder / f"{i}.parquet", z, "parquet-list", id=ids, length=length)
    return folder


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    """A reference in four shards."""
    folder = tmp_path_factory.mktemp("known")
    for i in range(4):
        z = embeddings(1000, seed=100 + i)
        z[i] = 0
        columns = {"length": np.linspace(1, 9, 1000)}
        write_file(folder / f"{i}.parquet", z, "parquet-fixed", **columns)
    return folder


@cluster
def test_two_nodes_write_the_file_that_one_process_writes(tmp_path, shards, known) -> None:
    labels = np.arange(4000) % 3
    ways = {
        "norm": ([], fit_reference),
        "norm, labels": (["length"], lambda source: fit_reference(source, labels=labels)),
        "all, labels": (["length"], lambda source: fit_trust(source, labels=labels, most=500)),
    }
    for name, (columns, fit) in ways.items():
        found = []
        for opened in (open_embeddings, open_on_ray):
            reference = fit(opened(known, covariates=columns))
            out = tmp_path / "scores.parquet"
            summary = score_file(opened(shards, covariates=columns), reference, out)
            reference.save(tmp_path / f"fit{reference.suffix}")
            again = load_reference(tmp_path / f"fit{reference.suffix}")
            found.append([out.read_bytes(), repr(summary), repr(again), reference.left_out])
            itself = score_file(opened(known, covariates=columns), reference, out)
            found[-1] += [out.read_bytes(), repr(itself)]
            assert itself.own == (500 if "all" in name else 0)
        assert found[0] == found[1], name


@cluster
def test_both_nodes_read(shards) -> None:
    def where(block, start: int) -> Parcel:
        del start
        time.sleep(0.1)  # so that one has not read all before the other has begun
        node = ray.get_runtime_context().get_node_id()
        return Parcel(block, {"node": np.array([node] * len(block))}, None)

    found = {p.columns["node"][0] for p in open_on_ray(shards).mapped(where)}
    assert found == {node["NodeID"] for node in ray.nodes() if node["Alive"]}


@cluster
def test_a_worker_that_is_killed_loses_nothing(tmp_path, known) -> None:
    (tmp_path / "lines").mkdir()
    for i in range(6):  # slow to read, so that there is a middle
        write_file(tmp_path / f"lines/{i}.jsonl", embeddings(8000, seed=i), "jsonl")
    reference = fit_reference(open_embeddings(known))
    score_file(open_embeddings(tmp_path / "lines"), reference, tmp_path / "one.parquet")
    killed: list[int] = []
    begun = threading.Event()

    def kill() -> None:
        while len(killed) < 2 and not ended.wait(0.01):
            if begun.is_set() and (pids := reading()):
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])
                begun.clear()

    def progress(done: int, total: int) -> None:
        seen.append(done / total)
        begun.set()

    ended, seen = threading.Event(), []
    begun.set()
    thread = threading.Thread(target=kill)
    thread.start()
    out = tmp_path / "two.parquet"
    score_file(open_on_ray(tmp_path / "lines"), reference, out, progress=progress)
    ended.set()
    thread.join()
    assert killed
    assert out.read_bytes() == (tmp_path / "one.parquet").read_bytes()


def reading() -> list[int]:
    """Workers of this process's cluster that read a file."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended
            continue
    below = {os.getpid()}
    for _ in range(3):  # a raylet, and its workers
        below |= {pid for pid, parent in parents.items() if parent in below}
    return [pid for pid in below if title(pid).startswith(b"ray::MapBatches")]


def title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@cluster
def test_workers_take_no_more_memory_for_more_rows(tmp_path, known) -> None:
    reference = fit_reference(open_embeddings(known))
    z = embeddings(200_000, seed=0).astype(np.float16)
    np.save(tmp_path / "z.npy", z)
    peaks = []
    for times in (3, 30):
        files = [tmp_path / "z.npy"] * times
        largest = 0

        def progress(done: int, total: int) -> None:
            del done, total
            nonlocal largest
            largest = max([largest, *(own(pid) for pid in reading())])

        score_file(open_on_ray(files), reference, tmp_path / "scores.npz", progress=progress)
        peaks.append(largest)
    assert 0 < peaks[1] < peaks[0] + 30_000, peaks


def own(pid: int) -> int:
    """Kilobytes that a process shares with no other."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


@cluster
def test_damaged_shards_are_refused_as_one_process_refuses_them(tmp_path, known) -> None:
    reference = fit_reference(open_embeddings(known))
    kinds = ("npy", "npz", "parquet-list", "arrow-fixed", "jsonl", "safetensors")
    sound = [write_file(tmp_path / f"{k}.{k.split('-')[0]}", embeddings(200, 0), k) for k in kinds]
    found = []
    for name, _, content in cases(sound, 12, seed=3):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        whole = tmp_path / name
        (folder / f"0{whole.suffix}").write_bytes(whole.read_bytes())
        (folder / f"1{whole.suffix}").write_bytes(content)
        here, there = (
            ending(opened, folder, reference) for opened in (open_embeddings, open_on_ray)
        )
        assert here == there, (name, here, there)
        found.append(isinstance(here, str))
    assert 3 < sum(found) < 12


def ending(opened: Callable, folder: Path, reference) -> bytes | str:
    """The scores, or the line that refuses them."""
    out = folder.parent / "scores.parquet"
    try:
        score_file(opened(folder), reference, out)
        return out.read_bytes()
    except ValueError as error:
        assert not list(folder.parent.glob(".*partial"))
        return str(error)


@cluster
def test_a_file_that_changes_after_it_was_listed_is_refused(tmp_path, known) -> None:
    reference = fit_reference(open_embeddings(known))
    for i in range(3):
        write_file(tmp_path / f"{i}.npy", embeddings(100, seed=i), "npy")
    source = open_on_ray(sorted(tmp_path.glob("*.npy")))
    write_file(tmp_path / "1.npy", embeddings(90, seed=1), "npy")
    with pytest.raises(ValueError, match=r"1.npy must be 100 rows .* when it was listed, got .90"):
        score_file(source, reference, tmp_path / "scores.npz")
    (tmp_path / "1.npy").unlink()
    os.mkfifo(tmp_path / "1.npy")
    with pytest.raises(ValueError, match=r"1.npy must be a regular file"):
        score_file(source, reference, tmp_path / "scores.npz")
    assert not list(tmp_path.glob("*.npz")) + list(tmp_path.glob(".*"))


@cluster
def test_ctrl_c_leaves_nothing_and_the_cluster_goes_on(tmp_path, shards, known) -> None:
    reference = fit_reference(open_embeddings(known))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    def slow(done: int, total: int) -> None:
        del done, total
        time.sleep(0.5)

    with pytest.raises(KeyboardInterrupt):
        score_file(open_on_ray(shards), reference, tmp_path / "scores.csv", progress=slow)
    assert not list(tmp_path.iterdir())
    summary = score_file(open_on_ray(shards), reference, tmp_path / "scores.csv")
    assert summary.rows == open_embeddings(shards).rows


@cluster
def test_the_command_scores_relative_paths_on_a_cluster(
    tmp_path, monkeypatch, shards, known
) -> None:
    monkeypatch.chdir(shards.parent)
    bad = write_file(tmp_path / "bad.npy", embeddings(60, seed=9) - 2, "npy")
    for engine in ("here", "ray"):
        words = ["score", shards.name, "--reference", str(known), "--engine", engine]
        words += ["--keep", ".5", "--known-bad", str(bad)]
        app([*words, "--out", str(tmp_path / f"{engine}.parquet")], standalone_mode=False)
    for name in ("{}.parquet", "{}.kept.parquet"):
        one, two = (tmp_path / name.format(engine) for engine in ("here", "ray"))
        assert one.read_bytes() == two.read_bytes()


_ALONE = """
import sys
from ray.cluster_utils import Cluster

node = {"num_cpus": 1, "object_store_memory": 1 << 27, "include_dashboard": False}
head = Cluster(initialize_head=True, head_node_args=node)
print(head.address, flush=True)
sys.stdin.read()
head.shutdown()
"""


def test_a_cluster_that_asks_for_a_token_is_joined_with_it(tmp_path) -> None:
    path = write_file(tmp_path / "z.npy", embeddings(200, seed=0), "npy")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    options = {"env": os.environ | token, "text": True, "stdout": subprocess.PIPE}
    command = [*FRESH, "score", str(path), "--reference", str(path), "--engine", "ray"]
    command += ["--parts", "norm", "--out", str(tmp_path / "scores.csv")]
    head = [sys.executable, "-c", _ALONE]
    with subprocess.Popen(head, stdin=subprocess.PIPE, **options) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        done = subprocess.run([*command, "--ray-address", address], check=False, **options)
        cluster.communicate()
    assert done.returncode == 0
    assert (tmp_path / "scores.csv").read_text().count("ok") == 200


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "dask"], "--engine must be here or ray, got 'dask'"),
        (["--ray-address", "x"], "--ray-address must be left out without --engine ray"),
        (["--engine", "ray", "--ray-address", "127.0.0.1:1"], "a cluster that answers"),
    ],
)
def test_the_command_refuses_in_one_line_what_no_cluster_is(known, words, message) -> None:
    done = normscope("score", known, "--reference", known, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_says_which_extra_ray_is_in(known) -> None:
    code = f"import sys; sys.modules['ray'] = None; {FRESH[2]}"
    words = ("score", known, "--reference", known, "--engine", "ray")
    command = [*FRESH[:2], code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    line = "ray must be installed for engine ray, got None. Install the extra: pip install"
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1


def test_rows_that_are_lost_or_doubled_on_their_way_are_found() -> None:
    def table(start: int, n: int) -> pa.Table:
        columns = {"score": np.arange(n, dtype=np.float32)}
        z = embeddings(n, seed=start)
        return table_of(Parcel(block_of(z), columns, np.arange(n) % 3 == 0), start)

    def block_of(z: np.ndarray) -> Block:
        return Block(*norms_and_status(z), z)

    tables = [table(0, 5), table(5, 1), table(6, 4)]
    whole = pa.concat_tables(tables)
    cut = [whole.slice(0, 2), whole.slice(2, 5), whole.slice(7)]
    found = list(parcels_of(cut, d=8))
    assert [len(parcel) for parcel in found] == [5, 1, 4]
    for parcel, start in zip(found, (0, 5, 6), strict=True):
        z = embeddings(len(parcel), seed=start)
        np.testing.assert_array_equal(parcel.block.z[parcel.carried], z[parcel.carried])
        assert parcel.block.norms.tolist() == block_of(z).norms.tolist()
    for wrong in ([tables[0], tables[2]], [tables[0], tables[0]], [tables[1]]):
        with pytest.raises(RuntimeError, match="rows must come in order"):
            list(parcels_of(wrong, d=8))
    with pytest.raises(RuntimeError, match="got a part of a block"):
        list(parcels_of([whole.slice(0, 4)], d=8))
