"""Sets that are downloaded: what is made of the archive; no way to the internet."""

import contextlib
import functools
import hashlib
import http.server
import io
import pickle
import socket
import tarfile
import threading
import time

import numpy
import pytest
import tqdm
from PIL import Image
from torchvision.datasets import CIFAR10, Imagenette

from nbkit.datasets import downloads
from nbkit.datasets.find import find
from nbkit.datasets.image_folder import list_image_folder
from nbkit.errors import ConfigError
from nbkit.worker.data import download
from tests.datasets.images import jpeg

CLASSES = ["airplane", "automobile"]


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return hashlib.md5(path.read_bytes()).hexdigest()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The address of a web server of this machine, which gives out a folder."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # It would leave a thread behind.
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def cifar10(served, tmp_path, monkeypatch):
    """A small archive of CIFAR-10's own form; its pixels."""
    pixels = {}
    members = {}
    sums = {}
    for number, name in enumerate(["data_batch_1", "test_batch"]):
        pixels[name] = [
            bytes((number * 7 + image * 5 + place) % 256 for place in range(3072))
            for image in range(3)
        ]
        rows = numpy.frombuffer(b"".join(pixels[name]), numpy.uint8).reshape(3, 3072)
        members[name] = pickle.dumps({"data": rows, "labels": [1, 0, 1]})
    members["batches.meta"] = pickle.dumps({"label_names": CLASSES})
    for name, data in members.items():
        sums[name] = hashlib.md5(data).hexdigest()
    path = tmp_path / "cifar.tar.gz"
    total = write_archive(
        path, {f"cifar-10-batches-py/{name}": data for name, data in members.items()}
    )
    monkeypatch.setattr(CIFAR10, "url", f"{served}/{path.name}")
    monkeypatch.setattr(CIFAR10, "tgz_md5", total)
    for part, name in (("train_list", "data_batch_1"), ("test_list", "test_batch")):
        monkeypatch.setattr(CIFAR10, part, [[name, sums[name]]])
    meta = {"filename": "batches.meta", "key": "label_names"}
    monkeypatch.setattr(CIFAR10, "meta", {**meta, "md5": sums["batches.meta"]})
    return pixels


def test_cifar10_becomes_folders_of_images_with_the_same_pixels(cifar10, tmp_path):
    (tmp_path / "set").mkdir()

    download.download("cifar10", tmp_path / "set")

    listing = list_image_folder(tmp_path / "set")
    assert listing.contents.classes == CLASSES
    assert [sample.label for sample in listing.contents.train] == [0, 1, 1]
    assert len(listing.contents.evaluation) == 3
    with Image.open(tmp_path / "set" / "val" / "automobile" / "00002.png") as image:
        red, green, blue = (band.tobytes() for band in image.split())
    assert red + green + blue == cifar10["test_batch"][2]
    assert {path.name for path in (tmp_path / "set").iterdir()} == {"train", "val"}


def test_imagenette_keeps_its_files(served, tmp_path, monkeypatch):
    names = [
        f"imagenette2-320/{split}/{wnid}/{wnid}_{number}.JPEG"
        for split in ("train", "val")
        for number, wnid in enumerate(Imagenette._WNID_TO_CLASS)
    ]
    archive = tmp_path / "imagenette2-320.tgz"
    contents = {name: jpeg(number) for number, name in enumerate(names)}
    total = write_archive(archive, contents)
    archives = {"320px": (f"{served}/{archive.name}", total)}
    monkeypatch.setattr(Imagenette, "_ARCHIVES", archives)
    (tmp_path / "set").mkdir()

    download.download("imagenette", tmp_path / "set")

    made = list_image_folder(tmp_path / "set").contents
    assert len(made.classes) == len(made.train) == len(made.evaluation) == 10
    for name, data in contents.items():
        path = tmp_path / "set" / name.removeprefix("imagenette2-320/")
        assert path.read_bytes() == data


def test_a_damaged_archive_is_a_failure_that_says_so(cifar10, tmp_path, capsys):
    archive = tmp_path / "cifar.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-1])
    (tmp_path / "set").mkdir()

    with default_timeout_kept():
        assert download.main(["cifar10", str(tmp_path / "set")]) == 1

    assert "corrupted" in capsys.readouterr().out


@contextlib.contextmanager
def default_timeout_kept():
    before = socket.getdefaulttimeout()
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@pytest.fixture
def proxy(monkeypatch):
    """Sends every download to a port of this machine."""
    server = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, address)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("no_proxy", "")
    with server:
        yield server


def test_without_internet_it_says_so_and_leaves_nothing(cache, proxy):
    proxy.close()  # connections are refused

    with pytest.raises(ConfigError, match=r"cifar10' cannot be downloaded \(.*refused"):
        find("cifar10")

    assert list(cache.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.2)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "set").mkdir()

    with socket.create_server(("127.0.0.1", 0)) as server, default_timeout_kept():
        url = f"http://127.0.0.1:{server.getsockname()[1]}/cifar.tar.gz"
        monkeypatch.setattr(CIFAR10, "url", url)
        assert download.main(["cifar10", str(tmp_path / "set")]) == 1

    assert "timed out" in capsys.readouterr().out


def test_what_waits_is_called_and_may_end_it(cache, proxy, monkeypatch):
    # The server never answers: nothing but the call below ends this soon.
    monkeypatch.setattr(downloads, "BETWEEN_CALLS_SECONDS", 0.05)
    calls = []

    def stop():
        calls.append(time.monotonic())
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find("cifar10", on_wait=stop)

    assert len(calls) == 3
    assert list(cache.iterdir()) == []


def test_a_set_that_was_downloaded_is_used(cache, proxy):
    for split in ("train", "val"):
        for name in CLASSES:
            path = cache / "cifar10" / split / name / "1.jpg"
            path.parent.mkdir(parents=True)
            path.write_bytes(jpeg(1))

    assert find("cifar10").contents.classes == CLASSES


def test_without_torchvision_it_says_what_to_install(cache, monkeypatch):
    monkeypatch.setattr(downloads.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="not installed"):
        find("cifar10")
